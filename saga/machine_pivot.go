package saga

import "github.com/leveret-go/leveret/store"

const (
	reasonPastPivot    = "past_pivot"     // halted: it cannot go on, and must not turn back
	reasonPivotInDoubt = "pivot_in_doubt" // halted: a person must say whether the pivot had its effect
)

// pivot returns the ledger's entry of the pivot, or nil.
func (m *machine) pivot() *store.LedgerEntry {
	for i := range m.x.Ledger {
		if m.x.Ledger[i].Pivot {
			return &m.x.Ledger[i]
		}
	}
	return nil
}

// past reports whether the execution is past its pivot, or nobody knows whether
// it is: it does not turn back by itself.
func (m *machine) past() bool {
	p := m.pivot()
	return p != nil && m.x.Direction == store.DirectionExecute && (p.Status == store.StepDone || p.Status == store.StepInDoubt)
}

// atPivot reports whether an attempt of the pivot is running.
func (m *machine) atPivot() bool {
	e := m.entry()
	return e != nil && e.Pivot && m.live() && m.x.Direction == store.DirectionExecute
}

// triesPivot is atPivot, and also when the attempt's lease has run out: then
// nobody knows whether the pivot has been passed.
func (m *machine) triesPivot() bool {
	e := m.entry()
	return e != nil && e.Pivot && m.x.Attempt != nil && m.x.Direction == store.DirectionExecute
}

// haltPastPivot parks an execution that cannot go on and must not turn back.
func (m *machine) haltPastPivot(f *store.Failure) {
	m.x.Failure = f
	reason := reasonPastPivot
	if p := m.pivot(); p.Status == store.StepInDoubt {
		reason = reasonPivotInDoubt
	}
	m.halt(reason)
}

// strayPivot reports whether the late success of a pivot comes when the execution
// has turned back, or ended so, because another attempt had failed without a
// doubt. There is nothing to undo it with, and what came before is being undone: a
// person has to see to it.
func (m *machine) strayPivot(e *store.LedgerEntry) bool {
	x := m.x
	if !e.Pivot || e.Compensable {
		return false
	}
	switch x.Status {
	case store.StatusFailed, store.StatusCancelled, store.StatusCompensated:
		return true
	}
	return x.Direction == store.DirectionCompensate
}
