package saga

import (
	"fmt"

	"github.com/leveret-go/leveret/store"
)

// The acts, as they stand in the audit trail.
const (
	ActRetry       = "retry"
	ActCompensate  = "compensate"
	ActCancel      = "cancel"
	ActHalt        = "halt"
	ActResume      = "resume"
	ActResumeStuck = "resume_stuck"
	ActReopen      = "reopen"      // by the engine: a late effect has to be undone
	ActLateEffect  = "late_effect" // by the engine: an effect came after its undo
	ActGiveUp      = "give_up"     // by the engine: pointers got lost again and again
	ActAbandon     = "abandon"     // by the engine: an attempt of a dead predecessor, see Config.Exclusive
)

// engineBy is who acts when no person does.
func engineBy(reason string) By { return By{Actor: "engine", Reason: reason} }

// actDone makes the execution due now, unless it must wait.
func (m *machine) actDone() {
	if !m.ended() && m.x.WakeAt == nil && m.x.Attempt == nil {
		m.due(m.now)
	}
}

// act performs an operator's act, or leaves it as a request for the open
// attempt to settle. It returns an error, having changed nothing, when the act
// is not possible.
func (m *machine) act(act string, by By, force bool) error {
	before := m.x.Status
	requested := m.x.Request
	var err error
	switch act {
	case ActRetry:
		err = m.retry(force)
	case ActCompensate:
		err = m.turn(store.TurnCompensate, by, force)
	case ActCancel:
		err = m.turn(store.TurnCancel, by, force)
	case ActHalt:
		err = m.haltAct(by, force)
	case ActResume:
		err = m.resume()
	default:
		err = fmt.Errorf("%w: act %q is not known", ErrInvalid, act)
	}
	if err != nil {
		return err
	}
	m.audit(act, by, before)
	kind := EventActDone
	if m.x.Request != nil && m.x.Request != requested && act != ActResume { // Resume only takes back
		kind = EventActRequested
	}
	m.emit(kind).Reason = act
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
		x.Status, x.FinishedAt, x.Failure, x.Reason = store.StatusRunning, nil, nil, ""
		m.epochUp()
	case store.StatusCompensationFailed:
		x.Status, x.FinishedAt = store.StatusCompensating, nil
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
	case store.StatusWaiting, store.StatusHalted:
		return ErrNotRetryable
	default:
		return ErrFinished
	}
	m.actDone()
	return nil
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
	if !m.clear(force) {
		x.Request = &store.Request{Turn: t, Actor: by.Actor, Reason: by.Reason, At: m.now}
		m.touch()
		return nil
	}
	x.Request = nil
	m.turnNow(t)
	m.actDone()
	return nil
}

func (m *machine) turnNow(t store.Turn) {
	m.x.Reason = reasonOperator
	if t == store.TurnCancel {
		m.x.Reason = reasonCancelled
	}
	m.epochUp()
	m.flip()
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
			m.turnNow(q.Turn)
		}
	}
	if !m.ended() {
		m.halt(by.Reason)
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
		m.turnNow(q.Turn)
		m.actDone()
	}
	if q.Halt && !m.ended() {
		m.halt(q.Reason)
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
	x.Reason = ""
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
	}
	m.actDone()
	return nil
}
