package saga

import (
	"encoding/json"

	"github.com/leveret-go/leveret/store"
)

// skipStep records the current step as skipped by hand, or its undo as not
// needed, and goes on.
func (m *machine) skipStep(by By, force bool) error {
	x := m.x
	switch x.Status {
	case store.StatusCompleted, store.StatusCompensated, store.StatusCancelled:
		return ErrFinished
	}
	switch q := x.Request; {
	case x.ErasedAt != nil && x.Status == store.StatusFailed:
		return ErrErased
	case x.Step == "":
		return ErrNoStep
	case m.live() && !force:
		return ErrAttemptRunning
	case q != nil && q.Turn != store.TurnNone && x.Direction == store.DirectionExecute:
		return ErrChanged // it turns around: its current step is another one then
	}
	m.clear(force)
	x.Request = nil                                                                          // a Halt that was pending
	if x.Direction == store.DirectionExecute && x.Status != store.StatusCompensationFailed { // a late effect can fail it here
		m.skipExecute(by)
	} else if !m.skipUndo(by) {
		return ErrNoStep
	}
	m.actDone()
	return nil
}

func (m *machine) skipExecute(by By) {
	if e := m.entry(); e.Status != store.StepDone {
		e.Status = store.StepSkipped
	}
	m.takeUp()
	m.emit(EventStepSkipped).Reason = "by hand: " + by.Actor
	m.moveOn()
}

// skipUndo reports false when no undo is left to be skipped.
func (m *machine) skipUndo(by By) bool {
	x := m.x
	e, accepted := m.entry(), false
	if x.Status != store.StatusCompensationFailed || !needsUndo(e) { // that is the undo which failed
		e = nil
		if t := m.target(); t >= 0 {
			e = &x.Ledger[t]
		}
		for i := range x.Ledger {
			if l := &x.Ledger[i]; l.Stray && x.Status == store.StatusCompensationFailed {
				l.Stray, l.Status, accepted = false, store.StepUndone, true // its late effect is accepted
			}
		}
	}
	switch {
	case accepted:
	case e == nil:
		return false
	case needsWord(e):
		e.Status = store.StepSkipped // taken as without effect
	default:
		e.Stray, e.Status = false, store.StepUndone
	}
	x.Status, x.FinishedAt = store.StatusCompensating, nil
	m.overcome()
	m.because(turnReason(x.Turn), "")
	m.emit(EventStepSkipped).Reason = "by hand: " + by.Actor
	m.epochUp()
	m.walk()
	return true
}

// resolve settles a doubt by a person's word: done, or pending for no effect.
func (m *machine) resolve(step string, is store.StepStatus, force bool) error {
	x := m.x
	e := x.Entry(step)
	switch {
	case e == nil:
		return ErrNoStep
	case e.Status != store.StepInDoubt:
		return ErrNotInDoubt
	case x.Step == step && x.Attempt != nil && !m.clear(force):
		return ErrAttemptRunning
	}
	if e.Status != store.StepInDoubt {
		return ErrNotInDoubt
	}
	if is == store.StepPending && e.Round > 0 {
		is = store.StepUndone // it is not run again under the key of what may have been undone
	}
	e.Status = is
	m.touch()
	switch x.Status {
	case store.StatusFailed, store.StatusCancelled, store.StatusCompensated:
		if is == store.StepDone && e.Compensable && e.Round == 0 && x.ErasedAt == nil {
			m.reopen()
		}
	case store.StatusHalted, store.StatusCompleted, store.StatusCompensationFailed:
	default:
		if x.Request != nil && x.Attempt == nil {
			m.applyRequest()
		}
		if !m.ended() && x.Direction == store.DirectionCompensate && x.Attempt == nil {
			m.retarget()
		}
		m.actDone()
	}
	return nil
}

// editState replaces the state of an execution that stands still.
func (m *machine) editState(state json.RawMessage) error {
	x := m.x
	switch {
	case x.Status != store.StatusHalted && x.Status != store.StatusFailed && x.Status != store.StatusCompensationFailed:
		if x.Status.Finished() {
			return ErrFinished
		}
		return ErrNotEditable
	case x.ErasedAt != nil:
		return ErrErased
	}
	m.setState(state)
	m.touch()
	return nil
}

// move gives the execution to another partition. The pointers of the old one
// are those of the past; tries and a wait are kept.
func (m *machine) move(partition string, force bool) error {
	x := m.x
	switch {
	case x.Status.Finished():
		return ErrFinished
	case x.Partition == partition:
		return nil
	case !m.clear(force):
		return ErrAttemptRunning
	}
	if x.Request != nil {
		m.applyRequest()
	}
	x.Partition = partition
	m.touch()
	if m.ended() {
		return nil
	}
	tries, wake, progress := x.Tries, x.WakeAt, x.ProgressAt
	m.epochUp()
	x.Tries, x.WakeAt, x.ProgressAt = tries, wake, progress
	if wake != nil {
		m.due(*wake)
	}
	m.actDone()
	return nil
}

// erase empties what may be personal and keeps the skeleton.
func (m *machine) erase(resource bool) error {
	x := m.x
	switch {
	case !x.Status.Finished() || x.Status == store.StatusCompensationFailed:
		return ErrNotFinished
	case x.ErasedAt != nil && (!resource || x.Resource.ID == ""):
		return nil
	}
	now := m.now
	x.State, x.Initial, x.Checkpoint = json.RawMessage("{}"), nil, nil
	for _, f := range []*store.Failure{x.Failure, x.Cause} {
		if f != nil {
			f.Message = ""
		}
	}
	x.Key, x.Inbox, x.Gate = "", nil, nil
	m.because("", "")
	if resource {
		x.Resource.ID = ""
	}
	x.ErasedAt = &now
	m.change.Erase = true
	m.touch()
	return nil
}

// rerunAs links a finished execution to the one that repeats it.
func (m *machine) rerunAs(y *store.Execution) error {
	x := m.x
	switch {
	case !x.Status.Finished():
		return ErrNotFinished
	case x.ErasedAt != nil:
		return ErrErased
	}
	y.State = startedWith(x)
	y.RerunOf, x.RerunAs = &x.ID, &y.ID
	m.change.Create = append(m.change.Create, y)
	m.touch()
	return nil
}

// startedWith returns the state that an execution was started with.
func startedWith(x *store.Execution) json.RawMessage {
	if x.Initial != nil {
		return x.Initial
	}
	return x.State
}
