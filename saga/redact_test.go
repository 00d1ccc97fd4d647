package saga_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/sagatest"
)

func TestRedactorHides(t *testing.T) {
	outline := func(pointers ...string) saga.Outline { return saga.Outline{Saga: "pay", Redact: pointers} }
	for name, c := range map[string]struct {
		outlines    []saga.Outline
		state, want string
	}{
		"nothing to hide":        {[]saga.Outline{outline()}, `{"a":1}`, `{"a":1}`},
		"a value":                {[]saga.Outline{outline("/card")}, `{"a":1,"card":"4111"}`, `{"a":1,"card":"[redacted]"}`},
		"an object":              {[]saga.Outline{outline("/card")}, `{"card":{"n":1}}`, `{"card":"[redacted]"}`},
		"a value inside":         {[]saga.Outline{outline("/card/number")}, `{"card":{"number":1,"of":"<b>"}}`, `{"card":{"number":"[redacted]","of":"<b>"}}`},
		"null":                   {[]saga.Outline{outline("/card")}, `{"card":null}`, `{"card":"[redacted]"}`},
		"what is not there":      {[]saga.Outline{outline("/card/number", "/x")}, `{"card":7}`, `{"card":7}`},
		"in each of a list":      {[]saga.Outline{outline("/cards/number")}, `{"cards":[{"number":1},{"number":2,"a":3}]}`, `{"cards":[{"number":"[redacted]"},{"a":3,"number":"[redacted]"}]}`},
		"by an index":            {[]saga.Outline{outline("/cards/1")}, `{"cards":[1,2]}`, `{"cards":[1,"[redacted]"]}`},
		"by an escaped name":     {[]saga.Outline{outline("/a~1b/~0")}, `{"a/b":{"~":1}}`, `{"a/b":{"~":"[redacted]"}}`},
		"what some version says": {[]saga.Outline{outline("/a"), outline("/b")}, `{"a":1,"b":2}`, `{"a":"[redacted]","b":"[redacted]"}`},
		"all of an unknown saga": {[]saga.Outline{{Saga: "other"}}, `{"a":1}`, `"[redacted]"`},
		"all that is no JSON":    {[]saga.Outline{outline()}, `{"a":`, `"[redacted]"`},
		"all when it cannot say": {[]saga.Outline{outline("card")}, `{"a":1}`, `"[redacted]"`},
		"an empty name":          {[]saga.Outline{outline("/")}, `{"":1,"a":2}`, `{"":"[redacted]","a":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := saga.NewRedactor(c.outlines...)
			got := r.State("pay", json.RawMessage(c.state))
			if string(got) != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if r.Knows("pay") && json.Valid([]byte(c.state)) && c.want[0] == '{' {
				var a, b any
				restored, err := r.Restore("pay", got, json.RawMessage(c.state))
				if err != nil {
					t.Fatal(err)
				}
				_ = json.Unmarshal(restored, &a)
				_ = json.Unmarshal([]byte(c.state), &b)
				if fmt.Sprint(a) != fmt.Sprint(b) {
					t.Errorf("restored: got %v, want %v", a, b)
				}
			}
		})
	}
}

// A value never comes back in the place of another one.
func TestRestoreKnowsItsLimits(t *testing.T) {
	r := saga.NewRedactor(saga.Outline{Saga: "pay", Redact: []string{"/cards/number"}})
	current := json.RawMessage(`{"cards":[{"number":1},{"number":2}]}`)
	for edited, want := range map[string]string{
		`{"cards":[{"number":"[redacted]"}]}`:                           "",
		`{"cards":[{"number":"[redacted]"},{"number":7},{"number":8}]}`: "",
		`{"cards":[{"number":7}]}`:                                      `{"cards":[{"number":7}]}`,
		`{"cards":[{"number":7},{"number":"[redacted]"}]}`:              `{"cards":[{"number":7},{"number":2}]}`,
		`{"cards":[],"note":"[redacted]"}`:                              `{"cards":[],"note":"[redacted]"}`,
	} {
		got, err := r.Restore("pay", json.RawMessage(edited), current)
		if want == "" {
			if !errors.Is(err, saga.ErrInvalid) {
				t.Errorf("%s: got %s, %v", edited, got, err)
			}
			continue
		}
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", edited, got, err, want)
		}
	}
}

func TestRedactIsChecked(t *testing.T) {
	for what, pointer := range map[string]string{"no slash": "card", "a bad escape": "/a~2", "an open escape": "/a~", "nothing": ""} {
		e := sagatest.New(t, nil).Engine
		_, err := saga.Register(e, saga.Definition[secretState]{
			Name: "secret", Redact: []string{pointer},
			Steps: []saga.Step[secretState]{{Name: "s", Execute: func(context.Context, *saga.Run[secretState]) error { return nil }}},
		})
		if !errors.Is(err, saga.ErrInvalid) || !strings.Contains(err.Error(), "Redact") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

type secretState struct {
	Card struct {
		Number string `json:"number"`
		Pin    int    `json:"pin"`
	} `json:"card"`
	Token string `json:"token"`
	Note  string `json:"note"`
}

// What is hidden is in no failure, reason, stack, audit entry or archive.
func TestSecretsAreInNoTexts(t *testing.T) {
	const number, pin, token = "4111111111111111", 98765, "tok-fresh"
	h := sagatest.New(t, nil)
	e := h.Engine
	s, err := saga.Register(e, saga.Definition[secretState]{
		Name: "secret", Redact: []string{"/card", "/token"},
		Steps: []saga.Step[secretState]{{Name: "look", If: func(s secretState) bool {
			if s.Note == "condition" {
				panic(fmt.Sprintf("card %s with %d", s.Card.Number, s.Card.Pin))
			}
			return false
		}, Execute: func(context.Context, *saga.Run[secretState]) error { return nil }}, {Name: "pay", Retry: saga.RetryPolicy{Attempts: 1}, Execute: func(_ context.Context, run *saga.Run[secretState]) error {
			run.State.Token = token // the error knows what the step has just got
			text := fmt.Sprintf("card %s with %d and %s refused", run.State.Card.Number, run.State.Card.Pin, run.State.Token)
			switch run.State.Note {
			case "panic":
				panic(text)
			case "halt":
				return saga.Halt(text)
			case "class":
				return saga.Class(text, errors.New(text))
			}
			return errors.New(text)
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range []string{"error", "panic", "halt", "class", "condition"} {
		t.Run(note, func(t *testing.T) {
			var state secretState
			state.Card.Number, state.Card.Pin, state.Note = number, pin, note
			started, err := s.Start(t.Context(), saga.Resource{}, state, nil)
			if err != nil {
				t.Fatal(err)
			}
			h.Drain()
			x, err := e.Get(t.Context(), started.ID)
			if err != nil {
				t.Fatal(err)
			}
			state.Card.Number = "5555444433332222"
			edited, _ := json.Marshal(state)
			if _, err := e.EditState(t.Context(), x.ID, edited, saga.By{Actor: "ann", Reason: "typo"}, nil); err != nil {
				t.Fatal(err)
			}
			attempts, err := e.Attempts(t.Context(), x.ID)
			if err != nil {
				t.Fatal(err)
			}
			trail, err := e.Audit(t.Context(), x.ID)
			if err != nil {
				t.Fatal(err)
			}
			all := fmt.Sprintf("%+v %+v %s", x.Failure, x.Reason, trail[len(trail)-1].Detail)
			for _, a := range attempts {
				all += fmt.Sprintf("%+v %s %s", a.Failure, a.Stack, a.Reason)
			}
			for _, secret := range []string{number, fmt.Sprint(pin), token, "5555444433332222"} {
				if strings.Contains(all, secret) {
					t.Errorf("%s is in %s", secret, all)
				}
			}
			if !strings.Contains(all, saga.Redacted) || !strings.Contains(string(trail[len(trail)-1].Detail), "/card") {
				t.Errorf("nothing says that something is hidden: %s", all)
			}
		})
	}
	h.Advance(time.Hour)
	var archive bytes.Buffer
	if _, err := e.Purge(t.Context(), saga.PurgeOptions{Retention: saga.Retention{Failed: time.Minute}, Archive: &archive}); err != nil {
		t.Fatal(err)
	}
	if a := archive.String(); strings.Contains(a, number) || strings.Contains(a, "5555444433332222") || !strings.Contains(a, saga.Redacted) {
		t.Errorf("the archive has %s", a)
	}
}
