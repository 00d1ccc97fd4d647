package saga

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/leveret-go/leveret/store"
)

// An Await parks an execution at a step until a signal comes, or a deadline.
// Then the step's Execute runs, reads what came with [Signal.Receive], and
// decides. A signal that came before is there at once. What was received stays
// for all attempts of the step, whatever dies in between.
//
// When Execute returns [Halt], what was received is used up: Resume awaits again, with
// a deadline counted anew. So does [Snooze], after its time; that is how a step listens to any
// number of signals, one after the other, with [Call.Checkpoint] for what it has learned
// so far.
type Await[S any] struct {
	// Signal is what is awaited. Or Signals: one of them, or, with All, each
	// of them, at most 1000. Or SignalsFunc, which works them out from the state when the step
	// is reached. Exactly one of the three.
	Signal      AnySignal
	Signals     []AnySignal
	SignalsFunc func(S) []AnySignal
	All         bool

	// Timeout is how long it waits at most, from when the step was reached.
	// Until is the same as a time, asked when the step is reached. At most one of them; neither: for
	// ever. When the deadline passes, Execute runs, and Receive says that
	// nothing came.
	Timeout time.Duration
	Until   func(S) time.Time

	// Prompt makes it a question to a person, at most 1000 bytes, and Choices
	// the answers to offer, at most 50. Tools show them; they are stored with
	// the execution while it waits.
	Prompt  string
	Choices []Choice
}

// A Choice is an answer that a person may give. Make one with [Signal.Choice].
type Choice struct {
	label, signal string
	payload       any
}

// AnySignal is a [Signal] of any type.
type AnySignal interface {
	// SignalName returns the name.
	SignalName() string
	// CheckPayload returns why a payload is not one of this signal.
	CheckPayload(payload json.RawMessage) error
}

// A Signal is the name of a signal that carries a T: 1 to 100 characters,
// [a-z0-9][a-z0-9._-]*. Declare it as a constant:
//
//	const Paid saga.Signal[Payment] = "paid"
//
// A T whose JSON has to be looked at by nobody is a json.RawMessage; a signal
// without a payload may be a Signal[struct{}].
type Signal[T any] string

// SignalName returns the name.
func (n Signal[T]) SignalName() string { return string(n) }

// CheckPayload returns why a payload does not fit T, without quoting it.
func (n Signal[T]) CheckPayload(payload json.RawMessage) error {
	_, err := n.decode(payload)
	return err
}

func (n Signal[T]) decode(payload json.RawMessage) (v T, err error) {
	if payload == nil {
		return v, nil
	}
	if err := json.Unmarshal(payload, &v); err != nil {
		// Not wrapped: messages of encoding/json may quote the value.
		return v, fmt.Errorf("%w: signal %q: payload does not fit %T%s", ErrInvalid, string(n), v, jsonField(err))
	}
	return v, nil
}

// Receive returns the value that came for the step which run is an attempt of.
// ok is false when none of this name did: the deadline passed, or another one of
// the awaited signals came. The error says that the payload is not a T; it
// wraps [ErrInvalid], and the next attempt would see the same.
func (n Signal[T]) Receive(run AnyRun) (v T, ok bool, err error) {
	for _, m := range run.call().received {
		if m.Name == string(n) {
			v, err = n.decode(m.Payload)
			return v, err == nil, err
		}
	}
	return v, false, nil
}

// Choice returns an answer to a question: this signal with this payload.
func (n Signal[T]) Choice(label string, payload T) Choice {
	return Choice{label: label, signal: string(n), payload: payload}
}

// AnyRun is a *[Run] of any state, or a *[Call].
type AnyRun interface{ call() *Call }

func (c *Call) call() *Call { return c }

// waitFaults lists what is wrong with what a step waits for.
func waitFaults[S any](s Step[S], removed bool) (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	kinds := 0
	for _, is := range []bool{s.Wait != 0, s.WaitFunc != nil, s.WaitUntil != nil, s.Await != nil} {
		if is {
			kinds++
		}
	}
	if kinds > 1 {
		bad("waits in more than one way: of Wait, WaitFunc, WaitUntil and Await one is allowed")
	}
	if s.Wait < 0 || s.Wait > maxWait {
		bad("Wait is negative or longer than 100 years")
	}
	if removed && (kinds > 0 || s.If != nil || s.RetryOnSignal != nil) {
		bad("is removed, and so neither waits nor has a condition")
	}
	if r := s.RetryOnSignal; r != nil && !nameRule.MatchString(r.SignalName()) {
		bad("RetryOnSignal: signal %s", nameFault(r.SignalName()))
	}
	if s.Await != nil {
		faults = append(faults, s.Await.faults()...)
	}
	return faults
}

func (a *Await[S]) faults() (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf("Await: "+format, args...)) }
	given := 0
	for _, is := range []bool{a.Signal != nil, a.Signals != nil, a.SignalsFunc != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		bad("wants one of Signal, Signals and SignalsFunc")
	}
	seen := map[string]bool{}
	for _, s := range a.fixed() {
		switch {
		case s == nil:
			bad("a signal is nil")
			continue
		case !nameRule.MatchString(s.SignalName()):
			bad("signal %s", nameFault(s.SignalName()))
		case seen[s.SignalName()]:
			bad("the signal %q is named twice", s.SignalName())
		}
		seen[s.SignalName()] = true
	}
	if a.Signals != nil && len(a.Signals) == 0 || len(a.Signals) > store.MaxSignals {
		bad("has %d signals, want 1 to %d", len(a.Signals), store.MaxSignals)
	}
	if a.Timeout < 0 || a.Timeout > maxWait {
		bad("Timeout is negative or longer than 100 years")
	}
	if a.Timeout != 0 && a.Until != nil {
		bad("has both a Timeout and Until")
	}
	if len(a.Prompt) > store.MaxText || !cleanText(a.Prompt) {
		bad("Prompt must be valid UTF-8 without NUL of at most %d bytes", store.MaxText)
	}
	if len(a.Choices) > store.MaxChoices {
		bad("has %d choices, at most %d", len(a.Choices), store.MaxChoices)
	}
	for _, c := range a.Choices {
		if c.signal == "" || c.label == "" || len(c.label) > store.MaxText || !cleanText(c.label) {
			bad("a choice has no label, or one that is too long, or was not made with Signal.Choice")
		} else if given == 1 && a.SignalsFunc == nil && !seen[c.signal] {
			bad("choice %q is of signal %q, which is not awaited", c.label, c.signal)
		}
		if _, err := encodePayload(c.payload); err != nil {
			bad("choice %q: %v", c.label, err)
		}
	}
	return faults
}

// fixed lists the signals that do not depend on the state.
func (a *Await[S]) fixed() []AnySignal {
	if a.Signal != nil {
		return []AnySignal{a.Signal}
	}
	return a.Signals
}

// encodePayload returns a payload as JSON; nil for nil.
func encodePayload(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, errors.New("the payload cannot be encoded as JSON")
	}
	if len(b) > store.MaxPayload {
		return nil, fmt.Errorf("the payload has %d bytes, at most %d are taken", len(b), store.MaxPayload)
	}
	return b, nil
}

// maxWait is the longest time that anything waits for: a hundred years.
const maxWait = 100 * year
