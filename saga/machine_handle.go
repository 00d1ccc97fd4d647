package saga

import (
	"time"

	"github.com/leveret-go/leveret/store"
)

// handle looks at the execution because of a pointer. It returns "" when it
// opened an attempt for this worker.
func (m *machine) handle(p Pointer) (r Result) {
	switch {
	case m.ended():
		return Result{Ack, DropFinished}
	case p.Epoch > m.x.Epoch:
		return Result{DeadLetter, DeadFutureEpoch}
	case p.Epoch < m.x.Epoch:
		return Result{Ack, DropStale}
	}
	return Result{Ack, m.advance(false, nil)}
}

// advance brings the execution as far as it goes without running a step: it
// closes a lapsed attempt, applies a pending request, moves the cursor, and
// opens the next attempt if one may be opened now. It returns "" when it did,
// else why not. With chained it goes on from a step that this worker has just
// run: that may pass removed steps, but not reach an isolated one.
func (m *machine) advance(chained bool, inherit *time.Time) (reason string) {
	x := m.x
	for {
		if m.ended() {
			return DropEnded
		}
		if m.live() {
			return DropBusy
		}
		if x.Request != nil {
			if x.Attempt != nil {
				m.abandon("lease ran out")
			}
			m.applyRequest()
			continue
		}
		if m.expired() {
			if x.Attempt != nil {
				m.abandon("lease ran out")
			}
			m.expire()
			continue
		}
		if m.closed() {
			if reason := m.waitAtGate(); reason != "" {
				return reason
			}
			continue
		}
		if x.WakeAt != nil && x.WakeAt.After(m.now.Add(earlyTolerance)) {
			return DropEarly
		}
		if m.paused() {
			m.notePaused()
			return DropPaused
		}
		if x.Direction == store.DirectionCompensate && x.Attempt == nil && m.retarget() {
			continue
		}
		if !m.known() {
			m.noteUnknown()
			return DropUnknown
		}
		if x.Attempt != nil {
			m.abandon("lease ran out")
			continue
		}
		if x.Step == "" {
			m.adopt()
			continue
		}
		s, _ := m.plan.step(x.Step)
		if x.Direction == store.DirectionExecute {
			if s.removed {
				m.passRemoved()
				continue
			}
			if reason, moved := m.enter(s); reason != "" {
				return reason
			} else if moved {
				continue
			}
		} else {
			if !s.undoable() {
				m.halt(reasonNoCompensation)
				continue
			}
			if m.waitForDoubt() {
				return DropEarly
			}
		}
		if chained && s.isolated {
			return dropIsolated
		}
		if p := s.policy(x.Direction); p.Attempts != Unlimited && x.Tries >= p.Attempts {
			m.failForGood(m.stepFailure(classAbandoned, "%d attempts without a result", x.Tries))
			continue
		}
		if reason := m.budget(s); reason != "" {
			return reason
		}
		m.open(s, inherit)
		return ""
	}
}

// dropIsolated is advance's reason to leave a step to a pointer of its own.
const dropIsolated = "isolated"

// noteUnknown leaves the execution to another process, which may know it. A
// lapsed attempt stays as it is.
func (m *machine) noteUnknown() {
	since := m.now.Sub(m.x.ProgressAt)
	m.lookAt(m.now.Add(min(max(since, time.Second), 2*time.Minute)))
}

// notePaused leaves a paused execution where it is: due, offered to nobody, and
// so taken up in its turn when the pause ends.
func (m *machine) notePaused() {
	x := m.x
	if m.ended() || x.DueAt == nil || m.live() {
		return
	}
	if x.OfferedAt == nil && !x.DueAt.After(m.now) || x.WakeAt != nil && x.WakeAt.After(m.now) {
		return
	}
	at := m.now
	if x.OfferedAt != nil && x.OfferedAt.Before(at) {
		at = *x.OfferedAt // its place among those that wait
	}
	m.due(at)
}

// adopt gives a declared execution the plan of this build.
func (m *machine) adopt() {
	x := m.x
	x.Version, x.Ledger, x.Events = m.plan.version, m.plan.ledger(), m.plan.events
	m.moveTo(x.Ledger[0].Name, store.DirectionExecute)
	m.queueUp()
}

// passRemoved goes on behind a step that this build does not run any more.
func (m *machine) passRemoved() {
	raise(m.entry(), store.StepSkipped)
	m.overcome()
	m.emit(EventStepSkipped).Reason = "removed"
	m.moveOn()
}

// moveOn sets the cursor on the next step, or completes the execution.
func (m *machine) moveOn() {
	x := m.x
	m.spend(x.Step, nil)
	for i := range x.Ledger {
		if x.Ledger[i].Name == x.Step {
			if i+1 < len(x.Ledger) {
				m.moveTo(x.Ledger[i+1].Name, store.DirectionExecute)
				return
			}
			break
		}
	}
	m.finish(store.StatusCompleted)
}
