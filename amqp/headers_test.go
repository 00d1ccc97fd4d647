package amqp

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"testing/iotest"
)

// longString, fields and frame write what AMQP has on the wire.
func longString(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func entry(key string, field ...byte) []byte {
	return append(append([]byte{byte(len(key))}, key...), field...)
}

func frame(kind byte, payload ...byte) []byte {
	b := append([]byte{kind, 0, 1}, longString(payload)...)
	return append(b, 0xce)
}

// properties is the frame of a message with a content type, headers and an id.
func properties(headers []byte) []byte {
	b := []byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5}
	flags := uint16(hasContentType | 1<<7)
	if headers != nil {
		flags |= hasHeaders
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, entry("text/plain")...)
	if headers != nil {
		b = append(b, longString(headers)...)
	}
	return frame(frameHeader, append(b, entry("m1")...)...)
}

func nested(kind byte, depth int) []byte {
	var b []byte
	for range depth {
		b = append([]byte{kind}, longString(b)...)
		if kind == 'F' {
			b = entry("k", b...)
		}
	}
	if kind == 'A' {
		b = entry("k", b...)
	}
	return b
}

func TestHeadersThatCannotBeReadAreLeftOut(t *testing.T) {
	for name, row := range map[string]struct {
		headers []byte
		stays   bool
	}{
		"none":                     {[]byte{}, true},
		"one":                      {entry("k", 'S', 0, 0, 0, 1, 'v'), true},
		"tables in tables":         {nested('F', maxDepth), true},
		"too many tables":          {nested('F', maxDepth+1), false},
		"arrays in arrays":         {nested('A', maxDepth), true},
		"too many arrays":          {nested('A', maxDepth+1), false},
		"a long array":             {entry("k", append([]byte{'A'}, longString(bytes.Repeat([]byte{'V'}, maxElements))...)...), true},
		"too long an array":        {entry("k", append([]byte{'A'}, longString(bytes.Repeat([]byte{'V'}, maxElements+1))...)...), false},
		"too many entries":         {bytes.Repeat(entry("", 'V'), maxElements+1), false},
		"an unknown type":          {entry("k", '?', 1), false},
		"a key without a field":    {entry("k"), false},
		"a field that is too long": {entry("k", 'S', 0, 0, 1, 0, 'v'), false},
		"an endless field":         {entry("k", 'x', 0xff, 0xff, 0xff, 0xff), false},
		"half a field":             {entry("k", 'l', 1), false},
	} {
		want := properties(row.headers)
		if !row.stays {
			want = properties(nil)
		}
		before, after := frame(1, []byte("deliver")...), frame(3, []byte("hello")...)
		in := bytes.Join([][]byte{before, properties(row.headers), after, frame(8)}, nil)
		want = bytes.Join([][]byte{before, want, after, frame(8)}, nil)
		for how, r := range map[string]io.Reader{
			"at once": bytes.NewReader(in), "byte by byte": iotest.OneByteReader(bytes.NewReader(in)),
		} {
			if got, err := io.ReadAll(newHeaderFilter(r)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, read %s: %q, %v, want %q", name, how, got, err, want)
			}
		}
	}
}

func TestWhatIsNoFrameStaysAsItIs(t *testing.T) {
	for _, in := range []string{"", "AMQP\x00\x00\x09\x01", "\x01\x00", string(frame(1, make([]byte, 100_000)...))} {
		got, err := io.ReadAll(newHeaderFilter(bytes.NewReader([]byte(in))))
		if in == "\x01\x00" {
			if err == nil {
				t.Error("half of a frame: no error")
			}
			continue
		}
		if err != nil || string(got) != in {
			t.Errorf("%.20q became %.20q, %v", in, got, err)
		}
	}
}

// FuzzHeaderFilter: whatever comes, it ends, and what is no frame with
// properties is not touched.
func FuzzHeaderFilter(f *testing.F) {
	f.Add(properties(nested('F', 40)))
	f.Add(properties(entry("k", 'S', 0, 0, 0, 1, 'v')))
	f.Add(frame(2, 1, 2, 3))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := io.ReadAll(newHeaderFilter(bytes.NewReader(in)))
		if len(got) > len(in) {
			t.Fatalf("%d bytes became %d", len(in), len(got))
		}
		if err == nil && len(in) > 0 && in[0] != frameHeader && len(in) < 2*frameHead && !bytes.Equal(got, in) {
			t.Fatalf("%q became %q, %v", in, got, err)
		}
	})
}
