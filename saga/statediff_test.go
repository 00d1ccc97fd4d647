package saga

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/leveret-go/leveret/store"
)

func TestStateDiff(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`{}`, `{}`, `{"diff":[]}`},
		{`{"a":1}`, `{"a":1}`, `{"diff":[]}`},
		{`{"a":1}`, `{"a":2}`, `{"diff":[{"path":"/a","from":1,"to":2}]}`},
		{`{"a":1}`, `{"b":1}`, `{"diff":[{"path":"/a","from":1},{"path":"/b","to":1}]}`},
		{`{"a":null}`, `{}`, `{"diff":[{"path":"/a","from":null}]}`},
		{`{"a":null}`, `{"a":{}}`, `{"diff":[{"path":"/a","from":null,"to":{}}]}`},
		{`{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"c":1,"d":3}}}`, `{"diff":[{"path":"/a/b/d","from":2,"to":3}]}`},
		{`{"a":[1,2]}`, `{"a":[1,3]}`, `{"diff":[{"path":"/a","from":[1,2],"to":[1,3]}]}`},
		{`{"a/b":{"~":1}}`, `{"a/b":{"~":2}}`, `{"diff":[{"path":"/a~1b/~0","from":1,"to":2}]}`},
		{`{"a":"\u0000"}`, `{"a":"\ud800"}`, `{"diff":[{"path":"/a","from":"\u0000","to":"\ud800"}]}`},
		{`{"a":"` + strings.Repeat("x", 2000) + `"}`, `{"a":1}`, `{"diff":[{"path":"/a","from":"(2002 bytes)","to":1}]}`},
	} {
		if got := string(stateDiff(json.RawMessage(c.from), json.RawMessage(c.to))); got != c.want {
			t.Errorf("%.60s to %.60s:\n got %s\nwant %s", c.from, c.to, got, c.want)
		}
	}
}

// TestStateDiffIsBounded: whatever was edited, a store takes the entry, and all
// differences are listed or counted.
func TestStateDiffIsBounded(t *testing.T) {
	object := func(n int, key, value string) json.RawMessage {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("%s%04d", key, i)] = value
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		n          int
		key, value string
	}{
		{99, "k", "v"}, {100, "k", "v"}, {101, "k", "v"}, {5000, "k", "v"}, {100, "k", strings.Repeat("<", 1000)}, {1, strings.Repeat("k", 100_000), "v"},
	} {
		b := stateDiff(json.RawMessage("{}"), object(c.n, c.key, c.value))
		var d struct {
			Diff []valueDiff
			More int
		}
		if err := json.Unmarshal(b, &d); err != nil || len(b) > store.MaxDetail || len(d.Diff) > maxDiffs || len(d.Diff)+d.More != c.n {
			t.Errorf("%d of %d bytes: %d bytes, %d listed, %d more, %v", c.n, len(c.value), len(b), len(d.Diff), d.More, err)
		}
	}
}
