package saga

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leveret-go/leveret/store"
)

// compactObject returns a JSON object without insignificant space, or says why
// it is none that can be a state. It never quotes a value.
func compactObject(state json.RawMessage) (json.RawMessage, error) {
	switch {
	case !utf8.Valid(state):
		return nil, fmt.Errorf("%w: not valid UTF-8", errState)
	case !json.Valid(state):
		return nil, fmt.Errorf("%w: not valid JSON", errState)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, state); err != nil || b.Len() == 0 || b.Bytes()[0] != '{' {
		return nil, fmt.Errorf("%w: not a JSON object", errState)
	}
	if b.Len() > store.MaxState {
		return nil, fmt.Errorf("%w: %d bytes long, at most %d are kept", errState, b.Len(), store.MaxState)
	}
	return b.Bytes(), nil
}

// A valueDiff is one place where two states differ. A side that is missing has
// no value there; one that is too long is cut.
type valueDiff struct {
	Path string          `json:"path"` // JSON pointer
	From json.RawMessage `json:"from,omitempty"`
	To   json.RawMessage `json:"to,omitempty"`
}

const (
	maxDiffValue = 1024 // bytes of one side of a difference
	maxDiffs     = 100  // differences that are listed; the rest are counted
)

// A stateEdit is what an audit entry says of an edited state.
type stateEdit struct {
	Diff []valueDiff `json:"diff"`
	More int         `json:"more,omitempty"` // differences that are not listed
}

// stateDiff returns what an audit entry says of an edited state.
func stateDiff(from, to json.RawMessage) json.RawMessage {
	all := []valueDiff{}
	diffValues(&all, "", from, to)
	d := stateEdit{Diff: all}
	for {
		if len(d.Diff) > maxDiffs {
			d.More += len(d.Diff) - maxDiffs
			d.Diff = d.Diff[:maxDiffs]
		}
		b, err := json.Marshal(d)
		if err != nil {
			return json.RawMessage(`{"diff":[]}`) // it is made of valid JSON
		}
		if len(b) <= store.MaxDetail {
			return b
		}
		d.More += (len(d.Diff) + 1) / 2
		d.Diff = d.Diff[:len(d.Diff)/2]
	}
}

func diffValues(out *[]valueDiff, path string, from, to json.RawMessage) {
	if bytes.Equal(from, to) {
		return
	}
	var a, b map[string]json.RawMessage
	if json.Unmarshal(from, &a) != nil || json.Unmarshal(to, &b) != nil || a == nil || b == nil {
		*out = append(*out, valueDiff{Path: path, From: cutValue(from), To: cutValue(to)})
		return
	}
	var keys []string
	for k := range a {
		keys = append(keys, k)
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		va, inA := a[k]
		vb, inB := b[k]
		at := path + "/" + escapePointer(k)
		if inA && inB {
			diffValues(out, at, va, vb)
			continue
		}
		*out = append(*out, valueDiff{Path: at, From: cutValue(va), To: cutValue(vb)})
	}
}

// cutValue returns a value that is short enough for the audit trail.
func cutValue(v json.RawMessage) json.RawMessage {
	if len(v) <= maxDiffValue {
		return v
	}
	b, err := json.Marshal(fmt.Sprintf("(%d bytes)", len(v)))
	if err != nil {
		return nil
	}
	return b
}

// escapePointer escapes a key for a JSON pointer (RFC 6901).
func escapePointer(k string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(k)
}
