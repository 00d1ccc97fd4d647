package saga

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/leveret-go/leveret/store"
)

// errState is wrapped by what makes a state impossible to keep.
var errState = errors.New("state refused")

// A stateCodec turns states of type S into bytes and back. Top-level keys of
// the stored object that S does not know are carried over.
type stateCodec[S any] struct {
	known sync.Map // top-level key -> bool, of the first maxKnown keys
	n     atomic.Int32
}

// maxKnown bounds how many keys are remembered: those of a map are data.
const maxKnown = 1000

func (c *stateCodec[S]) decode(b json.RawMessage) (S, error) {
	var s S
	if err := json.Unmarshal(b, &s); err != nil {
		// Not wrapped: messages of encoding/json may quote the value.
		return s, fmt.Errorf("%w: stored state does not fit %T%s", errState, s, jsonField(err))
	}
	return s, nil
}

// encode returns s as a JSON object, together with the keys of old that S does
// not know. Its errors never quote a value.
func (c *stateCodec[S]) encode(s S, old json.RawMessage) (json.RawMessage, error) {
	b, err := json.Marshal(s)
	if err != nil {
		var v *json.UnsupportedValueError
		if errors.As(err, &v) {
			return nil, fmt.Errorf("%w: contains a number that JSON cannot hold (NaN or Inf) or a cycle", errState)
		}
		return nil, fmt.Errorf("%w: %T cannot be encoded as JSON", errState, s)
	}
	if len(b) == 0 || b[0] != '{' {
		return nil, fmt.Errorf("%w: %T is not encoded as a JSON object", errState, s)
	}
	if b, err = c.carryOver(b, old); err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("%w: not valid UTF-8", errState)
	}
	if len(b) > store.MaxState {
		return nil, fmt.Errorf("%w: %d bytes long, at most %d are kept", errState, len(b), store.MaxState)
	}
	return b, nil
}

func (c *stateCodec[S]) carryOver(b []byte, old json.RawMessage) ([]byte, error) {
	if len(old) <= 2 { // {} or none
		return b, nil
	}
	out := b
	var written map[string]bool // what S writes, though it may not read it
	carried := map[string]bool{}
	err := eachMember(old, func(key string, raw json.RawMessage) {
		if c.knows(key) || carried[key] {
			return
		}
		if written == nil {
			written = map[string]bool{}
			_ = eachMember(b, func(key string, _ json.RawMessage) { written[key] = true })
		}
		if written[key] {
			return
		}
		if len(carried) == 0 {
			out = bytes.Clone(b[:len(b)-1])
		}
		carried[key] = true
		if len(out) > 1 {
			out = append(out, ',')
		}
		k, _ := json.Marshal(key)
		out = append(out, k...)
		out = append(out, ':')
		out = append(out, raw...)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: the stored state is not a JSON object", errState)
	}
	if len(carried) > 0 {
		out = append(out, '}')
	}
	return out, nil
}

// knows reports whether S has a place for a top-level key: whether a decoder
// that disallows unknown fields takes an object of that key alone.
func (c *stateCodec[S]) knows(key string) bool {
	if v, ok := c.known.Load(key); ok {
		return v.(bool)
	}
	k, _ := json.Marshal(key)
	d := json.NewDecoder(strings.NewReader("{" + string(k) + ":null}"))
	d.DisallowUnknownFields()
	var s S
	err := d.Decode(&s)
	known := err == nil || !strings.Contains(err.Error(), "unknown field")
	if c.n.Load() < maxKnown {
		c.n.Add(1)
		c.known.Store(key, known)
	}
	return known
}

// eachMember calls f for the members of a JSON object, in their order.
func eachMember(object json.RawMessage, f func(key string, raw json.RawMessage)) error {
	d := json.NewDecoder(bytes.NewReader(object))
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return errors.New("not an object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		f(t.(string), raw)
	}
	return nil
}

func jsonField(err error) string {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) && t.Field != "" {
		return " (field " + t.Field + ")"
	}
	return ""
}
