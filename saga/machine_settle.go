package saga

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A result is what came of an attempt, worked out from what the step returned.
type result struct {
	kind     resultKind
	state    json.RawMessage // to be saved; nil: keep the old one
	stateErr error           // the step succeeded, but its state is refused
	failure  *store.Failure  // of failed and gaveUp
	err      error           // the same, for events
	stack    string
	reason   string
	after    *time.Duration // wait of its own; of snoozed always
	doubt    bool           // leaves the step in doubt
	noEffect bool           // takes the step out of doubt
	again    bool           // of completed: the saga starts anew
	children []*child       // of spawned
	looked   int64          // of joining: the execution's revision when it looked at its children
}

type resultKind int

const (
	succeeded resultKind = iota
	skipped
	completed // done, and the saga with it
	failed
	gaveUp // failed, not to be tried again
	halted
	snoozed
	interrupted
	spawned // children are to be started
	joining // an undo waits for children to end
)

func (k resultKind) status() store.AttemptStatus {
	switch k {
	case succeeded, completed:
		return store.AttemptSucceeded
	case skipped:
		return store.AttemptSkipped
	case snoozed:
		return store.AttemptSnoozed
	case interrupted:
		return store.AttemptInterrupted
	case spawned:
		return store.AttemptSucceeded
	case joining:
		return store.AttemptSnoozed
	}
	// A halt is an attempt that did not succeed; its Reason says why.
	return store.AttemptFailed
}

// An attemptRef is an attempt as the worker that opened it knows it.
type attemptRef struct {
	lease      store.Lease
	startedAt  time.Time
	leaseUntil time.Time
}

// settle writes the result of an attempt. With chain the next attempt is opened
// in the same write where that is possible; inherit as in open.
func (m *machine) settle(ref attemptRef, r result, chain bool, inherit *time.Time) {
	x := m.x
	if open, ok := x.Lease(); !ok || open != ref.lease {
		m.late(ref, r)
		return
	}
	before := x.Step
	m.record(ref, r)
	m.ledgerAndState(r)
	turned := x.Request != nil && x.Request.Turn != store.TurnNone && x.Direction == store.DirectionExecute
	if turned {
		m.applyRequest() // it beats whatever the attempt came to
	} else {
		halt := x.Request
		if m.expired() && !m.completes(r) {
			m.expire()
		} else {
			m.transit(r)
		}
		x.Request = halt
		switch {
		case halt == nil:
		case m.ended():
			x.Request = nil // it ended, or halted by itself: nothing is left to ask for
		default:
			m.applyRequest()
		}
	}
	if m.resting() || (r.kind == interrupted || r.kind == joining) && !turned {
		return
	}
	if chain && m.chainable(before) {
		if m.advance(true, inherit) == "" {
			return
		}
	} else {
		m.arrive()
	}
	if !m.resting() {
		m.offer()
	}
}

// completes reports whether a result ends the execution well.
func (m *machine) completes(r result) bool {
	x := m.x
	last := len(x.Ledger) > 0 && x.Ledger[len(x.Ledger)-1].Name == x.Step
	return r.stateErr == nil && (r.kind == completed && !r.again || last && (r.kind == succeeded || r.kind == skipped))
}

// chainable reports whether the worker may go on from step before to the cursor.
func (m *machine) chainable(before string) bool {
	if !m.known() {
		return false
	}
	for _, name := range []string{before, m.x.Step} {
		if s, ok := m.plan.step(name); !ok || s.isolated {
			return false
		}
	}
	return true
}

// record closes the attempt and emits what came of it.
func (m *machine) record(ref attemptRef, r result) {
	x := m.x
	kind := EventStepFailed
	switch r.kind {
	case succeeded, completed, spawned:
		kind = EventStepFinished
	case skipped:
		kind = EventStepSkipped
	case snoozed, joining:
		kind = EventSnoozed
	case interrupted:
		kind = EventStepInterrupted
	}
	if r.kind != halted { // the halt itself is the event
		ev := m.emit(kind)
		ev.Took, ev.Err, ev.Reason = m.now.Sub(ref.startedAt), r.err, r.reason
	}
	a := m.close(r.kind.status())
	a.Failure, a.Stack, a.Reason = r.failure, r.stack, r.reason
	if r.stateErr != nil {
		a.Failure = m.stateFailure(r)
	}
	x.UpdatedAt = m.now
}

func (m *machine) stateFailure(r result) *store.Failure {
	return m.stepFailure(classState, "saga %q, step %q: %v", m.x.Saga, m.x.Step, r.stateErr)
}

func (m *machine) ledgerAndState(r result) {
	x, e := m.x, m.entry()
	if x.Direction == store.DirectionExecute {
		if r.noEffect && e.Status == store.StepInDoubt {
			e.Status = store.StepPending
		}
		switch {
		case r.kind == succeeded || r.kind == completed || r.kind == spawned:
			raise(e, store.StepDone)
		case r.doubt && !e.Atomic:
			raise(e, store.StepInDoubt)
		case r.kind == skipped:
			raise(e, store.StepSkipped)
		}
	} else if r.kind == succeeded || r.kind == skipped {
		e.Status = store.StepUndone
	}
	if r.state != nil {
		m.setState(r.state)
	}
	if r.kind == interrupted || r.kind == snoozed || r.kind == joining {
		x.Tries--
	}
}

// setState writes the state, and keeps the one the execution started with.
func (m *machine) setState(s json.RawMessage) {
	x := m.x
	if x.Initial == nil && !bytes.Equal(x.State, s) {
		x.Initial = x.State
	}
	x.State = s
}

// overcome takes back the failure of a step that has succeeded after all: what
// remains is what the execution is compensated for.
func (m *machine) overcome() {
	m.x.Failure = nil
	if m.x.Cause != nil {
		f := *m.x.Cause
		m.x.Failure = &f
	}
}

// transit is the ordinary transition after a result.
func (m *machine) transit(r result) {
	x := m.x
	if r.stateErr != nil {
		f := m.stateFailure(r)
		m.failForGood(f)
		return
	}
	switch r.kind {
	case succeeded, skipped, completed:
		m.overcome()
		switch {
		case x.Direction == store.DirectionCompensate:
			m.walk()
		case r.kind == completed:
			m.because(r.reason, "")
			if r.again {
				m.continueAsNew()
			}
			m.finish(store.StatusCompleted)
		default:
			m.moveOn()
		}
	case failed:
		m.retryLater(r)
	case gaveUp:
		m.failForGood(r.failure)
	case halted:
		m.rearm()
		m.halt(r.reason)
	case snoozed:
		m.rearm()
		m.wait(m.now.Add(*r.after))
	case interrupted:
		m.due(m.now)
	case spawned:
		m.spawn(r.children)
	case joining:
		m.joining(r.looked)
	}
}

func (m *machine) retryLater(r result) {
	x := m.x
	s, ok := m.plan.step(x.Step)
	if !ok { // it was run here, so it is known; be patient if not
		m.wait(m.now.Add(time.Second))
		return
	}
	p := s.policy(x.Direction)
	if p.exhausted(x.Tries, x.ProgressAt, m.now) {
		if s.retryOn != "" && x.Direction == store.DirectionExecute {
			m.parkForRetry(s.retryOn, r.failure)
			return
		}
		m.failForGood(r.failure)
		return
	}
	x.Failure = r.failure
	after := p.wait(x.Tries, m.jitter)
	if r.after != nil {
		after = *r.after
	}
	m.wait(m.now.Add(after))
}

// late takes note of a result whose attempt is not the open one any more. It
// never touches cursor or state; but a success of Execute is proof of an effect.
func (m *machine) late(ref attemptRef, r result) {
	x, l := m.x, ref.lease
	now := m.now
	m.change.Attempts = append(m.change.Attempts, store.Attempt{
		Execution: l.Execution, Step: l.Step, Direction: l.Direction, Epoch: l.Epoch, Number: l.Number, Worker: l.Worker,
		Status: store.AttemptAbandoned, StartedAt: ref.startedAt, LeaseUntil: ref.leaseUntil, FinishedAt: &now,
		Late: true, LateStatus: r.kind.status(),
	})
	m.touch()
	ev := m.emit(EventAttemptLate)
	ev.Step, ev.Direction, ev.Attempt, ev.Took = l.Step, l.Direction, l.Number, now.Sub(ref.startedAt)
	ev.Err, ev.Reason = r.err, string(r.kind.status())

	e := x.Entry(l.Step)
	if e == nil || l.Direction != store.DirectionExecute || r.kind != succeeded && r.kind != completed {
		return
	}
	if e.Round == 0 && e.Status == store.StepUndone {
		return // an operator skipped its undo
	}
	if e.Round > 0 {
		m.stray(e)
		return
	}
	raise(e, store.StepDone)
	if m.strayPivot(e) {
		m.stray(e)
		return
	}
	switch x.Status {
	case store.StatusFailed, store.StatusCancelled, store.StatusCompensated:
		switch {
		case !e.Compensable:
		case x.ErasedAt != nil:
			m.stray(e) // without its state it is a person's
		default:
			m.reopen()
		}
	}
}

// stray marks a step whose effect was reported after an undo of it had been
// opened: nobody can tell which of them reached the participant first; or after
// the execution was erased; or, a pivot's, after the execution had turned back.
func (m *machine) stray(e *store.LedgerEntry) {
	x := m.x
	e.Stray = true
	m.emit(EventStepStray).Step = e.Name
	switch before := x.Status; before {
	case store.StatusFailed, store.StatusCancelled, store.StatusCompensated:
		m.letKeyGo()
		x.Failure = lateEffect(e)
		m.finish(store.StatusCompensationFailed)
		m.audit(ActLateEffect, engineBy(lateEffect(e).Message+": "+e.Name), before)
	}
}

// reopen undoes, on a finished execution, the late effect of a step.
func (m *machine) reopen() {
	x := m.x
	before := x.Status
	m.letKeyGo()
	x.Status, x.FinishedAt = store.StatusCompensating, nil
	m.epochUp()
	m.emit(EventReopened)
	m.walk()
	m.actDone()
	m.audit(ActReopen, engineBy("a late effect has to be undone"), before)
}

// letKeyGo takes the key of an execution whose undo must not wait for that of
// another one, which has it now.
func (m *machine) letKeyGo() {
	if m.keyless {
		m.x.Key = ""
	}
}
