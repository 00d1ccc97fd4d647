package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A Plan says what an act would do.
type Plan struct {
	Execution uuid.UUID `json:"execution"`
	Act       Act       `json:"act"`
	// Revision is the execution's when the plan was made: given as
	// ActOptions.IfRevision, what was planned is what is done.
	Revision int64 `json:"revision"`
	// Refused is the error that the act would return, and RefusedBecause its
	// text; the rest is empty then.
	Refused        error  `json:"-"`
	RefusedBecause string `json:"refused,omitempty"`
	// Requested says that an attempt is running, to which the act is left as a
	// request.
	Requested bool `json:"requested,omitempty"`
	// Steps are run or undone, in this order, if each succeeds at its first
	// attempt.
	Steps []PlannedStep `json:"steps"`
	// Cannot names steps that had their effect, or may have had it, and stay
	// as they are although the execution is compensated: they have no
	// compensation, or their in-doubt policy is to ignore them.
	Cannot []string `json:"cannot,omitempty"`
	// EndsAs is what the execution comes to then: a finished status, or halted.
	EndsAs store.Status `json:"ends_as"`
	// HaltsAt is the step at which it halts, "" if it does not.
	HaltsAt string `json:"halts_at,omitempty"`
	// NotBefore is when the first of the Steps can begin, nil for at once.
	NotBefore *time.Time `json:"not_before,omitempty"`
}

// A PlannedStep is a step that is going to be run or undone.
type PlannedStep struct {
	Name      string    `json:"name"`
	Direction Direction `json:"direction"`
	// InDoubt says that an effect may have happened before.
	InDoubt bool `json:"in_doubt,omitempty"`
	// Conditional says that the step has a condition (Step.If) which will be asked
	// when the execution comes to it, of a state that is not known yet: it may be
	// skipped.
	Conditional bool `json:"conditional,omitempty"`
	// Waits is what it waits for before its attempt, "" for nothing that is
	// known. The plan takes signals and children to come, and as they should.
	Waits store.GateKind `json:"waits,omitempty"`
	// Running says that an attempt of it is under way now; the plan takes it
	// to succeed, or, when a compensation is requested, to be interrupted.
	Running bool `json:"running,omitempty"`
}

// Plan says what an act would do, without doing it, from the execution's row
// alone: in any process, whether it knows the saga or not. It is what happens if
// nothing else does, every step succeeds at its first attempt, and what is waited
// for comes. A process that knows the saga also plans with its removed steps, its
// conditions and waits; for one that does not every step runs. Of opts, which may be nil,
// Force counts. Errors are those of the store, and [ErrInvalid] for an act that
// [Engine.Act] does not take; that the act would be refused is not an error.
func (e *Engine) Plan(ctx context.Context, id uuid.UUID, act Act, opts *ActOptions) (*Plan, error) {
	if !slices.Contains(acts, act) {
		return nil, fmt.Errorf("%w: saga: plan: act %q is not known", ErrInvalid, act)
	}
	if err := e.clock.ready(ctx); err != nil {
		return nil, err
	}
	x, err := e.store.Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("saga: plan %s of %s: %w", act, id, err)
	}
	return e.foresee(x, act, optionsOf(opts).Force), nil
}

// foresee plays an act and what follows it on a copy of x: with the machine
// itself, so that the plan agrees with what then happens.
func (e *Engine) foresee(x *store.Execution, act Act, force bool) *Plan {
	p := &Plan{Execution: x.ID, Act: act, Revision: x.Revision, Steps: []PlannedStep{}}
	f := foresight{x: x.Clone(), now: e.clock.now(), rules: e.rules, plan: e.planFor(x), known: &answers{}}
	f.rules.direct, f.rules.paused = true, nil
	if f.plan == nil || !f.knows() {
		f.plan = ledgerPlan(x)
	}
	m := f.machine()
	if p.Refused = m.act(act, By{Actor: "plan", Reason: "plan"}, force); p.Refused != nil {
		p.RefusedBecause = p.Refused.Error()
		return p
	}
	p.Requested = f.x.Request != nil
	if len(f.plan.steps) > 0 {
		f.play(p)
	}
	if f.x.Direction == store.DirectionCompensate || f.x.Turn != store.TurnNone {
		for i := range f.x.Ledger {
			l := &f.x.Ledger[i]
			if (l.Status == store.StepDone || l.Status == store.StepInDoubt) && !needsUndo(l) && !needsWord(l) {
				p.Cannot = append(p.Cannot, l.Name)
			}
		}
	}
	p.EndsAs = f.x.Status
	if f.x.Status == store.StatusHalted {
		p.HaltsAt = f.x.Step
	}
	return p
}

// A foresight is a copy of an execution that is played to its end.
type foresight struct {
	x     *store.Execution
	now   time.Time
	rules rules
	plan  *plan

	known *answers // that the machine has
	// Of the step that comes next: whether it may be skipped, and what it waits
	// for.
	conditional bool
	waits       store.GateKind
}

func (f *foresight) machine() *machine {
	return &machine{x: f.x, now: f.now, rules: f.rules, plan: f.plan, answers: f.known}
}

// knows reports whether the plan has every step of the ledger.
func (f *foresight) knows() bool {
	for i := range f.x.Ledger {
		if _, ok := f.plan.step(f.x.Ledger[i].Name); !ok {
			return false
		}
	}
	return true
}

// play runs the execution until it ends or halts.
func (f *foresight) play(p *Plan) {
	running := f.machine().live()
	for range 4*len(f.x.Ledger) + 10 { // it ends long before
		if m := f.machine(); !m.live() {
			if m.ended() {
				return
			}
			if f.pass() {
				continue
			}
			if f.x.WakeAt != nil && f.x.WakeAt.After(f.now) {
				f.now = *f.x.WakeAt
				if len(p.Steps) == 0 {
					at := f.now
					p.NotBefore = &at
				}
				continue
			}
			if reason := m.advance(false, nil); reason == dropAsk {
				f.answer(m.wants, len(p.Steps) > 0)
				continue
			} else if reason != "" {
				if m.ended() || f.x.WakeAt == nil && !m.closed() {
					return
				}
				continue
			}
		}
		step := PlannedStep{Name: f.x.Step, Direction: f.x.Direction, Running: running, Conditional: f.conditional, Waits: f.waits}
		f.conditional, f.waits = false, ""
		step.InDoubt = f.x.Entry(f.x.Step).Status == store.StepInDoubt
		r := result{kind: succeeded}
		if running && f.x.Request != nil && f.x.Request.Turn != store.TurnNone && f.x.Direction == store.DirectionExecute {
			r = result{kind: interrupted, doubt: true}
		}
		if s, ok := f.plan.step(f.x.Step); ok && s.children != nil && r.kind == succeeded && f.x.Direction == store.DirectionExecute && f.x.Gate == nil {
			r.kind = spawned
		}
		p.Steps = append(p.Steps, step)
		running = false
		lease, _ := f.x.Lease()
		f.machine().settle(attemptRef{lease: lease, startedAt: f.x.Attempt.StartedAt, leaseUntil: f.x.Attempt.LeaseUntil}, r, false, nil)
	}
}

// pass lets the execution through a gate that is closed now, and reports whether
// there was one: what it waits for is taken to come. A time is waited for.
func (f *foresight) pass() bool {
	m := f.machine()
	if !m.closed() || f.x.Request != nil || m.expired() {
		return false
	}
	f.waits = f.x.Gate.Kind
	switch f.x.Gate.Kind {
	case store.GateSignal, store.GateRetry, store.GateChildren:
		m.openGate(false)
		return true
	case store.GatePredecessor, store.GateTurn:
		f.x.Follows = nil
		m.admit()
		return true
	}
	return false
}

// answer tells the machine what it wants to know. Steps are asked of the state
// that the execution has now; when a step has run that may change it, what comes
// after is taken to be run, without a wait that is known.
func (f *foresight) answer(w want, later bool) {
	switch w {
	case wantEntry:
		s, _ := f.plan.step(f.x.Step)
		f.waits = s.gateKind()
		if !later {
			if a := f.plan.askFrom(f.x, f.x.Step, f.x.State); a != nil {
				f.known.state, f.known.of = a.state, a.of
				return
			}
		}
		f.conditional = s.hasIf
		f.x.Gate = &store.Gate{Kind: store.GateTime, Since: f.now, Open: true}
	case wantToken:
		f.known.place = &place{f.x.Step, f.x.Direction, f.now}
	case wantTurn:
		yes := true
		f.known.admitted = &yes
	case wantChildren:
		f.known.joined, f.known.revision = &joined{}, f.x.Revision
	case wantPredecessor:
		f.known.predecessor, f.known.revision = &predecessor{}, f.x.Revision
	}
}

// gateKind is what a step may wait for.
func (s *planStep) gateKind() store.GateKind {
	switch {
	case s.await:
		return store.GateSignal
	case s.waits:
		return store.GateTime
	}
	return ""
}

// ledgerPlan is a plan for a process that does not know the saga, or not all of
// it: the ledger's steps, each with what the ledger says of it.
func ledgerPlan(x *store.Execution) *plan {
	p := &plan{saga: x.Saga, version: x.Version, partition: x.Partition, byName: map[string]*planStep{}}
	once := RetryPolicy{Attempts: Unlimited}
	for i := range x.Ledger {
		l := &x.Ledger[i]
		s := &planStep{name: l.Name, compensable: l.Compensable, inDoubt: l.InDoubt, retry: once, undoRetry: once}
		if l.Compensable {
			s.compensate = noBody
		}
		p.steps = append(p.steps, s)
		p.byName[l.Name] = s
	}
	return p
}

// noBody stands for a function that this process does not have.
func noBody(context.Context, *Call, json.RawMessage) (json.RawMessage, error, error) {
	return nil, nil, nil
}
