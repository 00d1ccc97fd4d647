package amqp_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/saga"
)

const goodBody = `{"v":1,"store":"018f0000-0000-7000-8000-000000000001","execution":"018f0000-0000-7000-8000-000000000002","saga":"order","step":"a","direction":"execute","epoch":0}`

func TestDecodeRefuses(t *testing.T) {
	edit := func(old, new string) string {
		if !strings.Contains(goodBody, old) {
			t.Fatalf("%q is not in the body", old)
		}
		return strings.Replace(goodBody, old, new, 1)
	}
	for name, body := range map[string]string{
		"nothing":        "",
		"no object":      "[]",
		"null":           "null",
		"two":            goodBody + goodBody,
		"huge":           edit(`"a"`, `"`+strings.Repeat("a", 17<<10)+`"`),
		"no version":     edit(`"v":1,`, ``),
		"version 0":      edit(`"v":1`, `"v":0`),
		"version -1":     edit(`"v":1`, `"v":-1`),
		"bad uuid":       edit(`000000000002`, `00000000000x`),
		"nil uuid":       edit(`018f0000-0000-7000-8000-000000000002`, `00000000-0000-0000-0000-000000000000`),
		"no store":       edit(`"store":"018f0000-0000-7000-8000-000000000001",`, ``),
		"empty saga":     edit(`"order"`, `""`),
		"long saga":      edit(`"order"`, `"`+strings.Repeat("a", 101)+`"`),
		"long step":      edit(`"a"`, `"`+strings.Repeat("a", 101)+`"`),
		"bad direction":  edit(`"execute"`, `"sideways"`),
		"negative epoch": edit(`"epoch":0`, `"epoch":-1`),
		"endless epoch":  edit(`"epoch":0`, `"epoch":1e400`),
		"broken epoch":   edit(`"epoch":0`, `"epoch":0.5`),
	} {
		if p, err := amqp.Decode([]byte(body)); !errors.Is(err, amqp.ErrMalformed) {
			t.Errorf("%s: %+v, %v, want ErrMalformed", name, p, err)
		}
	}
}

func TestDecodeIgnoresUnknownFieldsAndLeavesNewerVersions(t *testing.T) {
	p, err := amqp.Decode([]byte(strings.Replace(goodBody, `"v":1`, `"v":1,"new":{"x":[1]}`, 1)))
	if err != nil || p.Saga != "order" {
		t.Errorf("unknown field: %+v, %v", p, err)
	}
	p, err = amqp.Decode([]byte(`{"v":7,"epoch":"a word","direction":3}`))
	if err != nil || p.V != 7 {
		t.Errorf("newer version: %+v, %v", p, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{goodBody, "", "{}", "null", `{"v":2}`, `{"v":1e99}`, goodBody[:40], strings.Replace(goodBody, "a", `\u0000`, 1)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := amqp.Decode(body)
		if err != nil {
			if !errors.Is(err, amqp.ErrMalformed) || p != (saga.Pointer{}) {
				t.Fatalf("Decode: %+v, %v", p, err)
			}
			return
		}
		if p.V > saga.PointerVersion {
			return
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := amqp.Decode(b); err != nil || q != p {
			t.Fatalf("%+v became %+v, %v", p, q, err)
		}
	})
}
