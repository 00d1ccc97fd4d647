package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/leveret-go/leveret/store"
)

// states are kept to the byte.
var states = map[string]string{
	"escaped NUL":           `{"a": "x\u0000y"}`,
	"backslash before u":    `{"path": "C:\\u0000"}`,
	"lone surrogate":        `{"a": "\ud83d"}`,
	"2^53+1":                `{"n": 9007199254740993}`,
	"kinds of numbers":      `{"a": 1.0, "b": 1e5, "c": -0, "d": 1E+2, "e": 0.10}`,
	"number beyond float64": `{"n": 1e200000}`,
	"duplicate keys":        `{"z": 1, "a": 2, "z": 3}`,
	"order of keys":         `{"z": 1, "a": {"y": 2, "b": 3}, "": null}`,
	"whitespace":            " {\n\t\"a\" :  1 ,\r\n \"b\":[ ] } \n",
	"escapes":               `{"\u0061": "\/ \t \u00e9 <>&"}`,
	"not ASCII":             `{"ключ": "値 🦊 ` + "\u2028\x7f" + `"}`,
	"awkward for SQL":       `{"a": "'; ? $1 :n @p {{schema}} %s \" \\ -- "}`,
	"nested 1,000 deep":     `{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
	"exactly 1 MiB":         `{"a":"` + strings.Repeat("x", store.MaxState-8) + `"}`,
}

// badStates are refused.
var badStates = map[string]string{
	"nothing":               ``,
	"whitespace only":       ` `,
	"null":                  `null`,
	"an array":              `[1]`,
	"a string":              `"a"`,
	"a number":              `1`,
	"half an object":        `{"a":`,
	"two objects":           `{} {}`,
	"a comma too many":      `{"a":1,}`,
	"NaN":                   `{"a":NaN}`,
	"raw control character": "{\"a\":\"x\ny\"}",
	"raw NUL":               "{\"a\":\"x\x00y\"}",
	"invalid UTF-8":         "{\"a\":\"x\xff\"}",
	"a surrogate in UTF-8":  "{\"a\":\"\xed\xa0\xbd\"}",
	"1 MiB and a byte":      `{"a":"` + strings.Repeat("x", store.MaxState-7) + `"}`,
}

// words are JSON values that are no objects.
var words = []string{`null`, `true`, ` false `, `0`, `-0.0`, `9007199254740993`, `1e200000`, `""`, `"\u0000 \ud83d 'a' ? $1"`, `[]`, `[ 1, {"z": 1, "a": 2} ]`}

var jsonCases = []testCase{
	{
		name:    "StateIsKept",
		promise: "The state must be a JSON object in valid UTF-8 (escapes of any kind are kept as they are): it comes back byte for byte.",
		run: func(e *env) {
			for name, state := range states {
				x := e.create(func(x *store.Execution) { x.State = []byte(state) })
				e.same(name+", after Create", e.get(x.ID).State, json.RawMessage(state))
				x = e.create()
				e.update(x.ID, func(x *store.Execution) store.Change {
					x.State = []byte(state)
					return store.Change{}
				})
				e.same(name+", after WithLock", e.get(x.ID).State, json.RawMessage(state))
			}
		},
	},
	{
		name:    "InitialIsKept",
		promise: "Initial is the state that an execution was started with, nil for none: it comes back byte for byte.",
		run: func(e *env) {
			for name, state := range states {
				e.kept(name, func(x *store.Execution) *json.RawMessage { return &x.Initial }, state)
			}
		},
	},
	{
		name:    "CheckpointIsKept",
		promise: "Checkpoint is any JSON value, nil for none: it comes back byte for byte, and null is not nil.",
		run: func(e *env) {
			for name, state := range states {
				e.kept(name, func(x *store.Execution) *json.RawMessage { return &x.Checkpoint }, state)
			}
			for _, word := range words {
				e.kept(word, func(x *store.Execution) *json.RawMessage { return &x.Checkpoint }, word)
			}
		},
	},
	{
		name:    "DetailIsKept",
		promise: "Detail of an audit entry is a JSON object, or nil: it comes back byte for byte.",
		run: func(e *env) {
			x := e.create()
			var want []store.AuditEntry
			for _, state := range states {
				if len(state) <= store.MaxDetail {
					want = append(want, entry(x.ID, "act"), entry(x.ID, "act"))
					want[len(want)-1].Detail = []byte(state)
				}
			}
			want = append(want, entry(x.ID, "act"))
			want[len(want)-1].Detail = []byte(`{"a":"` + strings.Repeat("x", store.MaxDetail-8) + `"}`)
			e.update(x.ID, func(*store.Execution) store.Change { return store.Change{Audit: want} })
			got := e.audit(x.ID)
			e.same("Audit", got, want)
			for i := range got {
				if (got[i].Detail == nil) != (want[i].Detail == nil) {
					e.Errorf("[%d].Detail: got nil %v, want nil %v", i, got[i].Detail == nil, want[i].Detail == nil)
				}
			}
		},
	},
	{
		name:    "StateIsRefused",
		promise: "Values that a store could not give back as they came are refused, by every store and every writer alike, with an error that wraps ErrInvalid: a state or an initial state that is no JSON object, or longer than 1 MiB, and a checkpoint or a detail that is no JSON, or too long.",
		run: func(e *env) {
			old := e.create()
			was := e.stored(old.ID)
			for name, state := range badStates {
				e.refused("the state "+name, old, e.execution(func(x *store.Execution) { x.State = []byte(state) }))
				e.refused("the initial state "+name, old, e.execution(func(x *store.Execution) { x.Initial = []byte(state) }))
				if !json.Valid([]byte(state)) || len(state) > store.MaxState || !utf8.ValidString(state) {
					e.refused("the checkpoint "+name, old, e.execution(func(x *store.Execution) { x.Checkpoint = []byte(state) }))
				}
				en := entry(old.ID, "act")
				en.Detail = []byte(state)
				e.refusedChange("the detail "+name, old, store.Change{Audit: []store.AuditEntry{entry(old.ID, "act"), en}})
			}
			en := entry(old.ID, "act")
			en.Detail = []byte(`{"a":"` + strings.Repeat("x", store.MaxDetail-7) + `"}`)
			e.refusedChange("a detail of 64 KiB and a byte", old, store.Change{Audit: []store.AuditEntry{en}})
			e.untouched("writes with bad JSON", old.ID, was)
		},
	},
}

// kept checks that a JSON value of an execution comes back as it was written,
// and is gone when nil was written over it.
func (e *env) kept(what string, field func(x *store.Execution) *json.RawMessage, value string) {
	e.Helper()
	check := func(how string, x *store.Execution, want json.RawMessage) {
		e.Helper()
		got := *field(x)
		e.same(fmt.Sprintf("%s, %s", what, how), got, want)
		if (got == nil) != (want == nil) {
			e.Errorf("%s, %s: got nil %v, want nil %v", what, how, got == nil, want == nil)
		}
	}
	x := e.create(func(x *store.Execution) { *field(x) = []byte(value) })
	check("after Create", e.get(x.ID), []byte(value))
	e.update(x.ID, func(x *store.Execution) store.Change {
		*field(x) = nil
		return store.Change{}
	})
	check("after nil was written", e.get(x.ID), nil)
	got := e.update(x.ID, func(x *store.Execution) store.Change {
		*field(x) = []byte(value)
		return store.Change{}
	})
	check("as WithLock returned it", got, []byte(value))
	check("after WithLock", e.get(x.ID), []byte(value))
	got.Step = "ship"
	if a, ok := store.As[store.Advancer](e.s); ok {
		e.ok(a.Advance(e.Context(), got, store.Change{}))
		check("after Advance", e.get(x.ID), []byte(value))
	}
}
