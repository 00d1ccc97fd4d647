package saga

import "github.com/leveret-go/leveret/store"

// failForGood is what becomes of an execution whose step is given up.
func (m *machine) failForGood(f *store.Failure) {
	m.x.Failure = f
	m.x.Resumes = 0
	if m.x.Direction == store.DirectionCompensate {
		m.finish(store.StatusCompensationFailed)
		return
	}
	if m.past() {
		m.haltPastPivot(f)
		return
	}
	cause := *f
	m.x.Cause = &cause
	m.flip()
}

// flip turns the execution around: what was done is undone.
func (m *machine) flip() {
	x := m.x
	x.Status = store.StatusCompensating
	if m.target() >= 0 {
		m.emit(EventCompensationStarted).Reason = x.Reason
	}
	m.walk()
}

// target returns the index of the last step in line order that still needs an
// undo, or a person's word on whether it does; -1 for none.
func (m *machine) target() int {
	for i := len(m.x.Ledger) - 1; i >= 0; i-- {
		if e := &m.x.Ledger[i]; needsUndo(e) || needsWord(e) {
			return i
		}
	}
	return -1
}

func needsUndo(e *store.LedgerEntry) bool {
	if !e.Compensable {
		return false
	}
	return e.Status == store.StepDone || e.Status == store.StepInDoubt && e.InDoubt != store.InDoubtIgnore
}

func needsWord(e *store.LedgerEntry) bool {
	return e.Status == store.StepInDoubt && e.InDoubt == store.InDoubtHalt
}

// retarget reports whether the walk has to go elsewhere than to the cursor, and
// goes there: a late success may have made a step above it need an undo.
func (m *machine) retarget() bool {
	t := m.target()
	if t >= 0 && m.x.Ledger[t].Name == m.x.Step && !needsWord(&m.x.Ledger[t]) {
		return false
	}
	m.walk()
	return true
}

// walk goes to the step that is undone next, or ends.
func (m *machine) walk() {
	x := m.x
	t := m.target()
	if t < 0 {
		m.endWalk()
		return
	}
	e := &x.Ledger[t]
	if x.Direction != store.DirectionCompensate || x.Step != e.Name {
		m.moveTo(e.Name, store.DirectionCompensate)
	}
	x.Status = store.StatusCompensating
	if needsWord(e) {
		m.halt(reasonInDoubt)
		return
	}
	m.waitForDoubt()
}

// waitForDoubt parks the execution while a body of the cursor's step that nobody
// saw return may still be at work, and reports whether it did.
func (m *machine) waitForDoubt() bool {
	e := m.entry()
	if e.DoubtUntil == nil || !e.DoubtUntil.After(m.now) {
		return false
	}
	m.wait(*e.DoubtUntil)
	return true
}

// endWalk ends an execution with nothing (more) to undo.
func (m *machine) endWalk() {
	x := m.x
	undone, stray := false, (*store.LedgerEntry)(nil)
	for i := range x.Ledger {
		undone = undone || x.Ledger[i].Status == store.StepUndone
		if x.Ledger[i].Stray {
			stray = &x.Ledger[i]
		}
	}
	switch {
	case stray != nil:
		x.Failure = lateEffect(stray)
		m.finish(store.StatusCompensationFailed)
	case undone:
		m.finish(store.StatusCompensated)
	default:
		m.overcome()
		// The cursor on the failing step: Retry starts again exactly there.
		if x.Direction == store.DirectionCompensate {
			m.moveTo(m.failingStep(), store.DirectionExecute)
		}
		if x.Turn == store.TurnCancel {
			m.finish(store.StatusCancelled)
		} else {
			m.finish(store.StatusFailed)
		}
	}
}

func (m *machine) failingStep() string {
	x := m.x
	if x.Cause != nil && x.Entry(x.Cause.Step) != nil {
		return x.Cause.Step
	}
	for i := range x.Ledger {
		if s := x.Ledger[i].Status; s != store.StepDone && s != store.StepSkipped {
			return x.Ledger[i].Name
		}
	}
	return x.Step
}

func lateEffect(e *store.LedgerEntry) *store.Failure {
	message := "an effect of the step was reported after an undo of it had been opened"
	if e.Pivot && e.Round == 0 {
		message = "the pivot was reported to have succeeded after the saga had turned back"
	}
	return &store.Failure{Class: classLateEffect, Message: message, Step: e.Name}
}
