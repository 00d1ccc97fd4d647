package saga

import (
	"fmt"

	"github.com/leveret-go/leveret/store"
)

// engineBy is who acts when no person does.
func engineBy(reason string) By { return By{Actor: "engine", Reason: reason} }

// actDone makes the execution due now, unless it must wait.
func (m *machine) actDone() {
	if !m.resting() && m.x.Attempt == nil {
		m.due(m.now)
	}
}

// act performs an operator's act, or leaves it as a request for the open
// attempt to settle. It returns an error, having changed nothing, when the act
// is not possible.
func (m *machine) act(act Act, by By, force bool) error {
	return m.operate(act, by, nil, func() error {
		switch act {
		case ActRetry:
			return m.retry(force)
		case ActCompensate:
			return m.turn(store.TurnCompensate, by, force)
		case ActCancel:
			return m.turn(store.TurnCancel, by, force)
		case ActHalt:
			return m.haltAct(by, force)
		case ActResume:
			return m.resume()
		case ActSkipStep:
			return m.skipStep(by, force)
		}
		return fmt.Errorf("%w: act %q is not known", ErrInvalid, act)
	})
}

// operate lets f do what somebody asked for, and records it.
func (m *machine) operate(act Act, by By, detail *auditDetail, f func() error) error {
	before := m.x.Status
	requested := m.x.Request
	if err := f(); err != nil {
		return err
	}
	entry := m.audit(act, by, before)
	if detail != nil {
		entry.Digest, entry.Detail = detail.digest, detail.json
	}
	kind := EventActDone
	if m.x.Request != nil && m.x.Request != requested && act != ActResume { // Resume only takes back
		kind = EventActRequested
	}
	m.emit(kind).Reason = string(act)
	return nil
}

// clear takes an attempt away that does not live, or that is forced away. It
// reports false when a live attempt is in the way.
func (m *machine) clear(force bool) bool {
	switch {
	case m.x.Attempt == nil:
	case !m.live():
		m.abandon("lease ran out")
	case force:
		m.abandon("forced away")
	default:
		return false
	}
	return true
}

func (m *machine) retry(force bool) error {
	x := m.x
	switch x.Status {
	case store.StatusFailed:
		if x.ErasedAt != nil {
			return ErrErased
		}
		m.takeUp()
	case store.StatusCompensationFailed:
		if x.ErasedAt != nil {
			return ErrErased
		}
		x.Status, x.FinishedAt = store.StatusCompensating, nil
		m.overcome()
		for i := range x.Ledger {
			if e := &x.Ledger[i]; e.Stray {
				e.Stray, e.Status = false, store.StepDone
				e.Round++
			}
		}
		m.epochUp()
		m.walk()
	case store.StatusRunning, store.StatusCompensating:
		if !m.clear(force) {
			return ErrAttemptRunning
		}
		if x.Request != nil {
			m.applyRequest()
		}
		if !m.ended() {
			m.epochUp()
			if x.Direction == store.DirectionCompensate {
				m.walk()
			}
		}
	case store.StatusWaiting:
		if !m.closed() || x.Gate.Kind != store.GateRetry {
			return ErrNotRetryable
		}
		x.Gate, x.Status = nil, store.StatusRunning
		m.epochUp()
	case store.StatusHalted:
		return ErrNotRetryable
	default:
		return ErrFinished
	}
	m.actDone()
	return nil
}

// takeUp lets a failed, halted or waiting execution run from its cursor. One that
// waited for another one's end does not any more: it needs the key now, and the
// store refuses that while the other one holds it.
func (m *machine) takeUp() {
	x := m.x
	x.Follows = nil
	x.Status, x.FinishedAt, x.Failure, x.Cause, x.Turn = store.StatusRunning, nil, nil, nil, store.TurnNone
	m.because("", "")
	m.epochUp()
}

// turn is Compensate and Cancel.
func (m *machine) turn(t store.Turn, by By, force bool) error {
	x := m.x
	if x.Status.Finished() {
		return ErrFinished
	}
	if x.Direction == store.DirectionCompensate {
		if x.Status == store.StatusHalted {
			return m.resume()
		}
		if x.Request != nil {
			x.Request = nil // a Halt that was pending
		}
		m.touch()
		return nil
	}
	if (m.past() || m.triesPivot()) && !force {
		return ErrPastPivot
	}
	if !m.clear(force) {
		x.Request = &store.Request{Turn: t, Actor: by.Actor, Reason: by.Reason, At: m.now}
		m.touch()
		return nil
	}
	x.Request = nil
	m.turnNow(t, by.Actor)
	m.actDone()
	return nil
}

func (m *machine) turnNow(t store.Turn, actor string) {
	x := m.x
	x.Turn, x.Failure, x.Cause = t, nil, nil
	m.because(turnReason(t), actor)
	m.epochUp()
	m.flip()
}

// turnReason is the word for a turn.
func turnReason(t store.Turn) string {
	switch t {
	case store.TurnCancel:
		return reasonCancelled
	case store.TurnCompensate:
		return reasonOperator
	}
	return ""
}

// haltAct is Halt.
func (m *machine) haltAct(by By, force bool) error {
	x := m.x
	switch {
	case x.Status.Finished():
		return ErrFinished
	case x.Status == store.StatusHalted:
		return nil
	}
	if !m.clear(force) {
		q := store.Request{Actor: by.Actor, Reason: by.Reason, At: m.now}
		if x.Request != nil {
			q.Turn = x.Request.Turn
		}
		q.Halt = true
		x.Request = &q
		m.touch()
		return nil
	}
	if q := x.Request; q != nil {
		x.Request = nil
		if q.Turn != store.TurnNone && x.Direction == store.DirectionExecute {
			m.turnNow(q.Turn, q.Actor)
		}
	}
	if !m.ended() {
		m.halt(by.Reason)
		x.ReasonBy = by.Actor
	}
	return nil
}

// applyRequest does what was asked for while an attempt was running. No attempt
// is open, and the ledger is up to date.
func (m *machine) applyRequest() {
	x := m.x
	q := x.Request
	x.Request = nil
	m.touch()
	if q.Turn != store.TurnNone && x.Direction == store.DirectionExecute && !x.Status.Finished() {
		m.turnNow(q.Turn, q.Actor)
		m.actDone()
	}
	if q.Halt && !m.ended() {
		m.halt(q.Reason)
		x.ReasonBy = q.Actor
	}
}

func (m *machine) resume() error {
	x := m.x
	switch {
	case x.Status.Finished():
		return ErrFinished
	case x.Status != store.StatusHalted:
		if x.Request == nil || !x.Request.Halt {
			return ErrNotHalted
		}
		q := *x.Request // a Halt that was pending
		q.Halt = false
		x.Request = &q
		if q.Turn == store.TurnNone {
			x.Request = nil
		}
		m.touch()
		return nil
	}
	m.because(turnReason(x.Turn), "")
	m.epochUp()
	m.emit(EventResumed)
	if x.Direction == store.DirectionCompensate {
		if e := m.entry(); e != nil && needsWord(e) {
			e.Status = store.StepDone // a person has seen it: take it as done
		}
		x.Status = store.StatusCompensating
		m.walk()
	} else {
		x.Status = store.StatusRunning
		m.waitOn()
	}
	m.actDone()
	return nil
}

// waitOn lets an execution that was halted while it waited wait again: to the
// same time, or, for signals whose deadline has passed meanwhile, anew.
func (m *machine) waitOn() {
	x := m.x
	switch {
	case !m.closed():
	case x.Gate.Kind == store.GateSignal && x.Gate.Until != nil && !x.Gate.Until.After(m.now):
		x.Gate = nil
	default:
		m.park()
	}
}
