package main

import "context"

// A ledger is what the simulated services remember. It lives in the same
// database as the sagas, so that all processes of a demo share it; its tables
// are its own.
//
// Keys make requests safe to repeat: a request has its effect when its key is
// new, and none when it is known. An undo of an effect that has not happened
// leaves a mark, so that a request which was slow, or hung, and comes after its
// undo is refused.
type ledger interface {
	// apply does what a request asks for, in one transaction, unless it has
	// been done before; both are ok. It is not ok when an effect comes after
	// its undo.
	apply(ctx context.Context, r request) (ok bool, err error)

	// plan records the sagas of a run, once.
	plan(ctx context.Context, run string, sagas []planned) error
	// planned returns the sagas of a run.
	planned(ctx context.Context, run string) ([]planned, error)
	// effects returns what was done for the orders of a run.
	effects(ctx context.Context, run string) ([]effect, error)

	close() error
}

// An effect is a row of the ledger: a key, and what came of it.
type effect struct {
	Key     string
	Order   string
	Service string
	Kind    string // execute or compensate
	State   string
	Calls   int // how often the service was asked
}

// The states of a row of the ledger.
const (
	stateDone   = "done"   // it had its effect
	stateMarked = "marked" // an execute that is refused: its undo came first
	stateNoop   = "noop"   // a compensate of something that had not been done
)
