package saga

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/leveret-go/leveret/store"
)

// An entry is what a step says when the cursor reaches it.
type entry struct {
	skip bool       // its If is false
	gate *gateTerms // what it waits for; nil: nothing
	err  error      // a function of it panicked, or said what cannot be
}

// gateTerms are what a step waits for.
type gateTerms struct {
	kind    store.GateKind
	after   *time.Duration // it ends that long after the step was reached
	until   *time.Time     // or then
	again   bool           // until is asked again when it has come
	signals []string
	all     bool
	prompt  string
	choices []store.Choice
}

// waits reports whether a step may have to wait.
func waits[S any](s Step[S]) bool {
	return s.Wait > 0 || s.WaitFunc != nil || s.WaitUntil != nil || s.Await != nil
}

// askOf returns the closure that asks a step about a state; nil when there is
// nothing to ask. What the user's functions do wrong comes back in its err.
func askOf[S any](codec *stateCodec[S], s Step[S]) func(json.RawMessage) entry {
	if s.If == nil && !waits(s) {
		return nil
	}
	return func(state json.RawMessage) (e entry) {
		asked := "If"
		defer func() {
			if v := recover(); v != nil {
				e = entry{err: fmt.Errorf("%s panicked: %v", asked, v)}
			}
		}()
		v, err := codec.decode(state)
		if err != nil {
			return entry{err: err}
		}
		if s.If != nil && !s.If(v) {
			return entry{skip: true}
		}
		switch {
		case s.Wait > 0:
			return entry{gate: &gateTerms{kind: store.GateTime, after: &s.Wait}}
		case s.WaitFunc != nil:
			asked = "WaitFunc"
			d := min(max(s.WaitFunc(v), 0), maxWait)
			return entry{gate: &gateTerms{kind: store.GateTime, after: &d}}
		case s.WaitUntil != nil:
			asked = "WaitUntil"
			until, err := saneTime(asked, s.WaitUntil(v))
			return entry{gate: &gateTerms{kind: store.GateTime, until: &until, again: true}, err: err}
		case s.Await != nil:
			asked = "Await"
			return askAwait(s.Await, v)
		}
		return entry{}
	}
}

func askAwait[S any](a *Await[S], v S) entry {
	g := &gateTerms{kind: store.GateSignal, all: a.All, prompt: a.Prompt}
	signals := a.fixed()
	if a.SignalsFunc != nil {
		signals = a.SignalsFunc(v)
		if len(signals) == 0 || len(signals) > store.MaxSignals {
			return entry{err: fmt.Errorf("SignalsFunc of Await named %d signals, want 1 to %d", len(signals), store.MaxSignals)}
		}
	}
	seen := map[string]bool{}
	for _, s := range signals {
		if s == nil || !nameRule.MatchString(s.SignalName()) || seen[s.SignalName()] {
			return entry{err: fmt.Errorf("SignalsFunc of Await named a signal twice, or by a name that is none")}
		}
		seen[s.SignalName()] = true
		g.signals = append(g.signals, s.SignalName())
	}
	for _, c := range a.Choices {
		payload, err := encodePayload(c.payload)
		if err != nil {
			return entry{err: err}
		}
		g.choices = append(g.choices, store.Choice{Label: c.label, Signal: c.signal, Payload: payload})
	}
	switch {
	case a.Timeout > 0:
		g.after = &a.Timeout
	case a.Until != nil:
		until, err := saneTime("Until of Await", a.Until(v))
		if err != nil {
			return entry{err: err}
		}
		g.until = &until
	}
	return entry{gate: g}
}

// saneTime returns t as stores keep it. A zero time has passed long ago.
func saneTime(what string, t time.Time) (time.Time, error) {
	if t.Year() < 1 || t.Year() > 9998 {
		return time.Time{}, fmt.Errorf("%s is outside of the years 1 to 9998", what)
	}
	return store.Micros(t), nil
}

// answers are what the steps of an execution said of one state, outside of its
// lock. The machine takes them only while the state is still that one.
type answers struct {
	state json.RawMessage
	of    map[string]entry // by the ledger's name
	// predecessor is that of an execution which follows another one, and joined
	// what is known of its children. Both were asked when the execution was at
	// revision: who ends after that raises it, by waking the execution, and so
	// is not forgotten by one that goes to rest on an older answer.
	predecessor *predecessor
	joined      *joined
	revision    int64
	// taken says that somebody else has the key that it was to take over.
	taken bool
	// place is one in the budget of a step.
	place *place
	// admitted says whether it is its turn.
	admitted *bool
}

func (a *answers) children(x *store.Execution) *joined {
	if a == nil || a.revision != x.Revision {
		return nil
	}
	return a.joined
}

func (a *answers) before(x *store.Execution) *predecessor {
	switch {
	case a == nil:
		return nil
	case a.taken:
		return &predecessor{taken: true}
	case a.revision != x.Revision:
		return nil
	}
	return a.predecessor
}

// about returns what a step said of a state, and false when it was not asked.
func (a *answers) about(step string, state json.RawMessage) (entry, bool) {
	if a == nil {
		return entry{}, false
	}
	e, ok := a.of[step]
	return e, ok && bytes.Equal(a.state, state)
}

// askFrom asks the steps of an execution from a step on, up to the first one
// that is going to be run, or waits.
func (p *plan) askFrom(x *store.Execution, step string, state json.RawMessage) *answers {
	if p == nil || !p.gated {
		return nil
	}
	a := &answers{state: state, of: map[string]entry{}}
	reached := false
	for i := range x.Ledger {
		name := x.Ledger[i].Name
		if reached = reached || name == step; !reached {
			continue
		}
		s, ok := p.step(name)
		if !ok {
			break
		}
		if s.removed {
			continue
		}
		if s.ask == nil {
			break
		}
		e := s.ask(state)
		if e.err != nil {
			e.err = scrubbed(e.err, p.secrets(state, nil))
		}
		a.of[name] = e
		if !e.skip {
			break
		}
	}
	return a
}

// What a machine wants to know.
type want int

const (
	wantEntry       want = iota // what the cursor's step says
	wantPredecessor             // how the execution that it follows stands
	wantChildren                // how its children stand
	wantToken                   // a place in the budget of the cursor's step
	wantTurn                    // whether it is its turn among those of its saga
)

// ask finds out what the machine wants to know of an execution before it can go
// on, and adds it to what is known.
func (e *Engine) ask(ctx context.Context, x *store.Execution, w want, known *answers) (*answers, error) {
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	var a answers
	if known != nil {
		a = *known
	}
	if w == wantPredecessor || w == wantChildren {
		a.predecessor, a.joined, a.revision = nil, nil, x.Revision
	}
	switch w {
	case wantPredecessor:
		a.predecessor = &predecessor{}
		p, err := e.store.Get(ctx, *x.Follows)
		if err == nil {
			a.predecessor = &predecessor{holds: p.HoldsKey(), replacedBy: p.ReplacedBy}
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
	case wantChildren:
		list, err := e.childrenOf(ctx, x.ID, x.Step)
		if err != nil {
			return nil, err
		}
		a.joined = childSummary(list)
	case wantToken:
		step, ok := e.planFor(x).step(x.Step)
		if !ok {
			break
		}
		at, err := e.reserve(ctx, step.budget)
		if err != nil {
			return nil, fmt.Errorf("saga: budget %q: %w", step.budget, err)
		}
		a.place = &place{x.Step, x.Direction, at}
	case wantTurn:
		admitted, err := e.admit(ctx, x)
		if err != nil {
			return nil, err
		}
		a.admitted = &admitted
	default:
		if entries := e.planFor(x).askFrom(x, x.Step, x.State); entries != nil {
			a.state, a.of = entries.state, entries.of
		}
	}
	return &a, nil
}

// A place is one in the budget of a step.
type place struct {
	step      string
	direction store.Direction
	at        time.Time
}

// token returns when an attempt of the cursor may begin, nil when that was not
// asked.
func (a *answers) token(x *store.Execution) *time.Time {
	if a == nil || a.place == nil || a.place.step != x.Step || a.place.direction != x.Direction {
		return nil
	}
	at := a.place.at
	a.place = nil // it is good for one attempt
	return &at
}

// askNext asks, before the result of an attempt is written, the steps that the
// execution comes to if it goes on. They see the state that the step has left.
func (p *plan) askNext(x *store.Execution, r result) *answers {
	if p == nil || !p.gated || x.Direction != store.DirectionExecute || r.kind != succeeded && r.kind != skipped || r.stateErr != nil {
		return nil
	}
	for i := range x.Ledger {
		if x.Ledger[i].Name == x.Step && i+1 < len(x.Ledger) {
			state := r.state
			if state == nil {
				state = x.State
			}
			return p.askFrom(x, x.Ledger[i+1].Name, state)
		}
	}
	return nil
}
