package saga

import "github.com/leveret-go/leveret/store"

// What a write whose outcome is not known, or that met a conflict, has come to
// is decided here, under the row's lock and without I/O, like all else.

// handleAgain is handle for a pointer whose first write may or may not have
// happened. want is the attempt that write meant to open, if any, and claimed
// reports whether no other call of this process has meant to open it since. It
// always writes: what is still in flight must conflict.
func (m *machine) handleAgain(p Pointer, want store.Lease, claimed bool) Result {
	if open, ok := m.x.Lease(); ok && claimed && open == want {
		m.renew() // it did happen
		m.opened = true
		return Result{Disposition: Ack}
	}
	m.touch()
	return m.handle(p)
}

// A settling says what became of a result that was to be written.
type settling int

const (
	settledNow  settling = iota // by this write
	settledMine                 // before: the open attempt is the one which that write opened
	settledGone                 // the attempt is not open any more: see recorded
)

// settleAgain is settle for a result whose first write conflicted, or may or may
// not have happened (unsure). want is the attempt that write meant to open, if
// any, and claimed as in handleAgain.
func (m *machine) settleAgain(ref attemptRef, r result, chain bool, want store.Lease, claimed, unsure bool) settling {
	open, ok := m.x.Lease()
	switch {
	case ok && open == ref.lease:
		m.settle(ref, r, chain, nil)
		return settledNow
	case ok && unsure && claimed && open == want:
		m.renew()
		m.opened = true
		return settledMine
	}
	if unsure {
		m.touch() // what is still in flight must conflict
	}
	return settledGone
}

// recorded reports whether the history of an attempt shows that its worker's
// result is in: closed by the worker itself, or noted as late.
func recorded(a *store.Attempt) bool {
	return a.LateStatus != "" || a.Status != store.AttemptAbandoned && a.Status != store.AttemptRunning
}

// renew makes the open attempt's lease a whole one again.
func (m *machine) renew() {
	m.x.Attempt.LeaseUntil = m.now.Add(m.rules.lease)
	m.due(m.x.Attempt.LeaseUntil.Add(m.rules.margin))
}
