package amqp

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
)

// What amqp091 reads of the headers of a message. A message with more makes it
// give up the whole connection, and again on the next one: one such message
// would keep a queue's consumers from all others for ever.
const (
	maxDepth    = 32
	maxElements = 8192
)

const (
	frameHead   = 7 // type, channel, size
	frameHeader = 2 // the type of one that holds properties
	maxFrame    = 1 << 20

	hasContentType     = 1 << 15
	hasContentEncoding = 1 << 14
	hasHeaders         = 1 << 13
)

// A headerFilter reads what a broker sends. It leaves out the headers of
// messages that amqp091 cannot read: the body counts, and it says more to those
// who look at what was put aside.
type headerFilter struct {
	r    *bufio.Reader
	pass int    // bytes to hand on as they are
	out  []byte // to be handed on first
	head [frameHead]byte
	raw  bool // no frames: another protocol
}

// filtered is a connection whose reads go through a filter.
type filtered struct {
	net.Conn
	filter *headerFilter
}

func newFiltered(c net.Conn) net.Conn { return &filtered{c, newHeaderFilter(c)} }

func (f *filtered) Read(b []byte) (int, error) { return f.filter.Read(b) }

func newHeaderFilter(r io.Reader) *headerFilter {
	return &headerFilter{r: bufio.NewReaderSize(r, 16<<10)}
}

func (f *headerFilter) Read(b []byte) (int, error) {
	for {
		switch {
		case len(b) == 0:
			return 0, nil
		case f.raw:
			return f.r.Read(b)
		case len(f.out) > 0:
			n := copy(b, f.out)
			f.out = f.out[n:]
			return n, nil
		case f.pass > 0:
			n, err := f.r.Read(b[:min(len(b), f.pass)])
			f.pass -= n
			return n, err
		}
		if err := f.next(); err != nil {
			return 0, err
		}
	}
}

// next reads the beginning of a frame.
func (f *headerFilter) next() error {
	if kind, err := f.r.Peek(1); err != nil {
		return err
	} else if kind[0] == 'A' { // a broker that wants to speak another version
		f.raw = true
		return nil
	}
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(f.head[3:])
	if f.head[0] != frameHeader || size > maxFrame {
		f.out, f.pass = f.head[:], int(size)+1
		return nil
	}
	frame := make([]byte, frameHead+int(size)+1)
	copy(frame, f.head[:])
	if _, err := io.ReadFull(f.r, frame[frameHead:]); err != nil {
		return err
	}
	f.out = legible(frame)
	return nil
}

// legible returns a frame with properties as it is, or without its headers.
func legible(frame []byte) []byte {
	const fixed = frameHead + 14 // class, weight, size of the body, flags
	if len(frame) < fixed+1 {
		return frame
	}
	flags := binary.BigEndian.Uint16(frame[fixed-2:])
	if flags&hasHeaders == 0 {
		return frame
	}
	at, end := fixed, len(frame)-1
	for _, property := range []uint16{hasContentType, hasContentEncoding} {
		if flags&property != 0 && at < end {
			at += 1 + int(frame[at])
		}
	}
	if at+4 > end {
		return frame
	}
	size := int(binary.BigEndian.Uint32(frame[at:]))
	if size > end-at-4 || readable(frame[at+4:at+4+size], true, 0) {
		return frame // or beyond help
	}
	out := append([]byte(nil), frame[:at]...)
	out = append(out, frame[at+4+size:]...)
	binary.BigEndian.PutUint16(out[fixed-2:], flags&^hasHeaders)
	binary.BigEndian.PutUint32(out[3:], uint32(len(out)-frameHead-1))
	return out
}

// readable reports whether amqp091 reads a table, or an array.
func readable(b []byte, table bool, depth int) bool {
	if depth > maxDepth {
		return false
	}
	for n := 0; len(b) > 0; n++ {
		if n >= maxElements {
			return false
		}
		if table {
			key := 1 + int(b[0])
			if key >= len(b) {
				return false
			}
			b = b[key:]
		}
		size, ok := fieldSize(b)
		if !ok || size > len(b) {
			return false
		}
		switch b[0] {
		case 'A', 'F':
			if !readable(b[5:size], b[0] == 'F', depth+1) {
				return false
			}
		}
		b = b[size:]
	}
	return true
}

// fieldSize returns the size of the field that b begins with.
func fieldSize(b []byte) (int, bool) {
	switch b[0] {
	case 'V':
		return 1, true
	case 't', 'B', 'b':
		return 2, true
	case 's', 'u':
		return 3, true
	case 'I', 'i', 'f':
		return 5, true
	case 'D':
		return 6, true
	case 'l', 'd', 'T':
		return 9, true
	case 'S', 'x', 'A', 'F':
		if len(b) < 5 {
			return 0, false
		}
		size := binary.BigEndian.Uint32(b[1:])
		return 5 + int(size), size <= maxFrame
	}
	return 0, false
}
