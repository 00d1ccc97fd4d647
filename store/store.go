// Package store holds the words every part of Leveret shares: the records of an
// execution, their statuses and errors, and the contract a store keeps.
//
// A store is where the truth about a saga lives. An execution is one row; the
// row says where the saga stands, which attempt is open and until when its
// lease holds. Stores only lock, load and write: what happens to an execution
// is decided by the engine (package saga), whose state machine runs inside
// [Store.WithLock].
//
// Three stores come with Leveret: store/memory, store/sqlite and
// store/postgres. To write another one, implement [Store] from the comments
// below and prove it with package storetest:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return mystore.New(t.TempDir()) }, nil)
//	}
//
// # What all methods have in common
//
// Every method may be called from any number of goroutines and processes at
// once, and honours ctx, while it waits for a lock too.
//
// Executions go in and come out as copies: neither side sees later changes of
// the other's value, down to slices, maps and pointers.
//
// Times are kept as whole microseconds in UTC: finer digits of a time handed
// in are cut off (not rounded), a monotonic reading is dropped, and a
// value that was stored compares equal, with [time.Time.Equal], to what is
// read back. A nil *time.Time stays nil. A store stamps nothing by itself: all
// times come from the caller.
//
// Values that a store could not give back as they came are refused, by every
// store alike, with an error that wraps [ErrInvalid]; [Execution.Validate] and
// [Change.Validate] are that rule, and adapters call them first.
//
// # Errors
//
// A store returns exactly these for the situations named at its methods:
// [ErrNotFound], [ErrExists], [*KeyTakenError], [ErrConflict], [ErrInvalid]
// (each possibly wrapped), the ctx's own error where that ended the call, and
// what fn returned. Any other error means that the outcome of a write is
// unknown to the caller: it may have been done or not, but never in part.
package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// A Store keeps executions, their attempts and their audit trail. The package
// comment says what holds for all methods.
type Store interface {
	// ID returns the identity of this store: a random UUID made when the
	// store was created (for a database: at its first migration), the same
	// for every process that opens it and for its whole life. It travels in
	// pointers, so that a pointer of another store is recognised.
	ID(ctx context.Context) (uuid.UUID, error)

	// Now returns the store's clock, in UTC, cut to microseconds. The engines
	// of all processes follow it, so that a worker with a wrong clock takes
	// no lease from another. For a database this is the server's clock (not
	// the start time of a transaction), for an embedded store the process's.
	Now(ctx context.Context) (time.Time, error)

	// Create inserts x with revision 1 and sets x.Revision to 1. Nothing is
	// written when it returns an error that this package names.
	//
	// It returns ErrExists when an execution with this id exists, whatever
	// its content (the caller may repeat a Create whose outcome it does not
	// know), and *KeyTakenError when x holds its key (see
	// [Execution.HoldsKey]), and another execution of the same saga holds
	// that key. When both are true, ErrExists.
	Create(ctx context.Context, x *Execution) error

	// Get returns the execution as last committed, or ErrNotFound. It never
	// waits for a lock held by WithLock.
	Get(ctx context.Context, id uuid.UUID) (*Execution, error)

	// WithLock locks the execution exclusively, loads it, and calls fn with
	// a copy that fn may change. When fn returns nil, the changed execution
	// and the Change are written in one transaction, the revision rises by
	// one, and WithLock returns the execution as written. While fn runs no
	// other WithLock, Advance or Renew on this execution makes progress; Get
	// and the lists still answer with the old row. A lock on one execution
	// does not block a lock on another, unless the store has a single writer
	// (then say so in its documentation).
	//
	// Nothing at all is written, and the lock is given back, when
	//   - fn returns ErrUnchanged: WithLock returns the execution as it was
	//     loaded, and no error;
	//   - fn returns another error: WithLock returns that error (it can be
	//     found with errors.Is and errors.As);
	//   - fn panics: the panic goes on to the caller;
	//   - ctx is done before the write is committed: WithLock returns ctx's
	//     error, unless the commit was already under way;
	//   - the changed execution or the Change is refused: ErrInvalid,
	//     ErrExists or *KeyTakenError.
	//
	// It returns ErrNotFound, without calling fn, when there is no such
	// execution. fn is called at most once, is quick (microseconds), does no
	// I/O and calls no method of the store: a WithLock on the same execution
	// from inside fn waits for itself until its own ctx ends.
	//
	// fn must not change ID, CreatedAt, Revision, Parent, Continues, Deadline or
	// (but for an erasure) Tags: ErrInvalid.
	WithLock(ctx context.Context, id uuid.UUID, fn func(x *Execution) (Change, error)) (*Execution, error)

	// Live returns the execution that holds this key of this saga, as last
	// committed, or ErrNotFound; it takes no lock. An empty key is held by none.
	Live(ctx context.Context, saga, key string) (*Execution, error)

	// Children returns executions that q.Parent has started, ordered by id, at
	// most q.Limit, beginning after q.After. It takes no lock.
	Children(ctx context.Context, q ChildQuery) ([]*Execution, error)

	// Attempts returns the attempts of an execution in the order in which
	// they were opened: the recorded ones in the order in which they were
	// first written, then the open one, if any, put together from the
	// execution's row with status running. Both are read at one moment: an
	// attempt is never missing, nor twice. Unknown id: none, no error.
	Attempts(ctx context.Context, id uuid.UUID) ([]Attempt, error)

	// Audit returns what operators and the sweep did to an execution, in the
	// order in which it was written. Unknown id: none, no error.
	Audit(ctx context.Context, id uuid.UUID) ([]AuditEntry, error)

	// Stalled returns unfinished executions (halted and waiting ones too)
	// whose ProgressAt is strictly before q.ProgressBefore, ordered by
	// (ProgressAt, ID), at most q.Limit, beginning after q.After. Ids are
	// ordered by their 16 bytes. No lock is taken and no cursor left open. With
	// Saga and Gate set it takes no longer when very many others are unfinished.
	Stalled(ctx context.Context, q StalledQuery) ([]*Execution, error)

	// ForResource returns the executions of one resource (both Type and ID
	// equal, to the byte), newest id first, at most limit. A limit below 1:
	// ErrInvalid.
	ForResource(ctx context.Context, r Resource, limit int) ([]*Execution, error)

	// ClaimDue takes at most q.Limit executions whose DueAt is at or before
	// q.Now, those due longest first (then by id); sets their DueAt to
	// q.Now + q.Hold, and their OfferedAt to q.Now where it is nil; and
	// returns them as they are after that. Nothing else changes, the
	// revision neither. Of any number of simultaneous callers each execution
	// goes to exactly one. Rows locked by WithLock are passed over and stay
	// due; a store with a single writer waits instead.
	ClaimDue(ctx context.Context, q DueQuery) ([]*Execution, error)

	// Renew prolongs leases, all in one transaction, and answers for each, in
	// the order given. A lease belongs to the open attempt of its execution
	// only when its whole token is equal: step, direction, epoch (those of
	// the row), number and worker (those of the open attempt).
	//
	// For an open attempt with this token it sets LeaseUntil to r.Until, its
	// Progress to that in r, if there is one, and the execution's DueAt to
	// r.DueAt, and OfferedAt to nil if the old
	// LeaseUntil was before or at r.Now (the lease had lapsed, but nobody
	// took it). The revision does not change. It answers LeaseInterrupted
	// when the execution has a pending request whose Turn is not empty, else
	// LeaseHeld; both are prolonged. It answers LeaseLost, and writes
	// nothing, when the token is not that of the open attempt or there is no
	// such execution, and LeaseLocked, without waiting and without
	// prolonging, when the row is locked, whatever the token; a store with a single writer waits
	// and never answers LeaseLocked. The same lease given twice gets the same
	// answer twice.
	Renew(ctx context.Context, leases []Lease, r Renewal) ([]LeaseState, error)
}

// An Advancer writes an execution without reading it first. It is optional,
// found with [As]; the engine uses it at the end of a step, where it knows the
// row, and falls back to WithLock on a conflict or where it is missing.
type Advancer interface {
	// Advance writes x and c in one transaction if the stored revision is
	// still x.Revision, and returns ErrConflict, having written nothing, if
	// it is not or the row is gone. The revision rises by one, in the store
	// and in x. The outcome is the same as that of a WithLock whose fn
	// returns x and c; the stored CreatedAt is kept, whatever x has. What is
	// refused as ErrInvalid is refused before the revision is looked at. It
	// waits for a lock held by WithLock. DueAt,
	// OfferedAt and the lease are written as x has them, although ClaimDue
	// and Renew may have changed them since x was read.
	Advance(ctx context.Context, x *Execution, c Change) error
}

// Cells are small facts that all processes share, such as what is paused and
// which workers live, changed by compare-and-set. Optional, found with [As].
// Names are 1 to 200 bytes of valid UTF-8 without NUL, values JSON of at most
// 1 MiB, kept byte for byte: anything else is ErrInvalid.
type Cells interface {
	// Cell returns the value and revision of a cell; nil and 0 when there is
	// none.
	Cell(ctx context.Context, name string) (value json.RawMessage, revision int64, err error)

	// SetCell writes the cell if its revision is still revision, 0 meaning
	// that there is none, and returns the new one; else ErrConflict. A nil
	// value deletes the cell and returns 0. Revisions of a name rise by one
	// with each write and start at 1 again after a delete.
	SetCell(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error)

	// ListCells returns all cells whose name starts with prefix (taken
	// literally), ordered by the bytes of their names.
	ListCells(ctx context.Context, prefix string) ([]Cell, error)
}

// A Cell is one entry of [Cells].
type Cell struct {
	Name     string
	Value    json.RawMessage
	Revision int64
}

// An Exclusiver can make sure that one process alone uses the store. Optional,
// found with [As]; see saga.Config.Exclusive.
type Exclusiver interface {
	// Exclusive takes the store's lock for this process, without waiting, or
	// returns ErrInUse. The lock ends when release is called or the process
	// ends, however it ends. release may be called more than once.
	Exclusive(ctx context.Context) (release func() error, err error)
}

// A Deleter removes finished executions. Optional, found with [As]; see
// saga.Engine.Purge.
type Deleter interface {
	// Delete removes each of these executions, with its attempts and audit
	// entries, if it is finished and its revision is still the given one; all
	// in one transaction. It answers for each, in the order given, whether it
	// was removed. It does not wait for rows that are locked: these are not
	// removed. A version given twice is removed
	// once, and the second answer is false.
	Delete(ctx context.Context, versions []Version) ([]bool, error)
}

// A Version is an execution at one revision.
type Version struct {
	ID       uuid.UUID
	Revision int64
}

// An Unwrapper is a store around another one. Wrappers implement it so that
// the optional abilities of the inner store are found. A wrapper that must see
// every write has to implement Advancer itself.
type Unwrapper interface{ Unwrap() Store }

// As returns the first in the chain of s and what it wraps that has ability T,
// for example As[Advancer](s).
func As[T any](s Store) (ability T, ok bool) {
	for s != nil {
		if a, ok := s.(T); ok {
			return a, true
		}
		u, ok := s.(Unwrapper)
		if !ok {
			break
		}
		s = u.Unwrap()
	}
	return ability, false
}

// A Change is what one transaction writes besides the execution itself.
type Change struct {
	// Attempts are closed attempts to record. One that is not known by its
	// key (execution, step, direction, epoch, number) is inserted. One that
	// is known keeps everything as it was, with one exception: when its
	// LateStatus is still empty, Late and LateStatus are taken over, once.
	// Attempts of another execution than the written one, and ones with
	// status running, are ErrInvalid.
	Attempts []Attempt

	// Audit entries are appended, in this order. When the execution already
	// has one with the same Request, which is not "", nothing of the whole
	// transaction is written, and the error is ErrRequestUsed.
	Audit []AuditEntry

	// Create are executions to insert, as by [Store.Create]; if one cannot
	// be, nothing of the whole transaction is written. Keys are looked at when
	// all is written: an execution may end and its successor take over its key
	// in one Change. The Revision of the passed values is not to be relied on.
	Create []*Execution

	// Wake are other executions that somebody must look at. For each that
	// exists, and is neither finished nor halted, the revision rises by one,
	// so that a write based on an older copy conflicts, and, unless an
	// attempt is open, DueAt becomes At if it was nil or later, and OfferedAt
	// nil. Others are passed over. An id that stands here twice, or also in
	// Create, is ErrInvalid. Rows are locked in the order of their
	// ids; a deadlock with another transaction is an error and nothing is
	// written.
	Wake []Wake

	// SameState is the writer's promise that the State of the execution and
	// its Initial are byte for byte what is stored at its Revision, so that
	// they need not be written again.
	SameState bool

	// Erase empties what earlier transactions recorded in people's words: of
	// the execution's attempts the failure's message (its class stays), stack
	// and reason, of its audit entries reason and detail. Attempts and Audit
	// of this Change are written after that.
	Erase bool
}

// A Wake is an execution to look at, and when.
type Wake struct {
	ID uuid.UUID
	At time.Time
	// Release sets its Follows to nil, also if it is halted (but not finished), so
	// that it holds its key from now on, in the transaction that lets another
	// one go of it. It is *KeyTakenError, and nothing is written, when somebody
	// else holds that key when all is written.
	Release bool
}

// A ChildQuery selects for [Store.Children]. A Limit below 1 is ErrInvalid.
type ChildQuery struct {
	Parent uuid.UUID
	Step   string    // "": of all steps
	After  uuid.UUID // only ids above this one; the nil UUID: from the first
	Limit  int
}

// A StalledQuery selects for [Store.Stalled]. A Limit below 1 is ErrInvalid.
type StalledQuery struct {
	ProgressBefore time.Time
	After          *StalledCursor // nil: from the beginning
	Limit          int
	// Saga and Gate, if not "", are what executions have to be of, and at what
	// they have to wait: at a gate of this kind that is not open, with status
	// waiting.
	Saga string
	Gate GateKind
}

// Selects reports whether q selects x. It is the rule that every store follows.
func (q *StalledQuery) Selects(x *Execution) bool {
	return !x.Status.Finished() && Micros(x.ProgressAt).Before(Micros(q.ProgressBefore)) && (q.Saga == "" || q.Saga == x.Saga) &&
		(q.Gate == "" || x.Status == StatusWaiting && x.Gate != nil && !x.Gate.Open && x.Gate.Kind == q.Gate)
}

// A StalledCursor is the place of an execution in the order of [Store.Stalled].
type StalledCursor struct {
	ProgressAt time.Time
	ID         uuid.UUID
}

// A DueQuery selects for [Store.ClaimDue]. A Limit below 1 and a negative Hold
// are ErrInvalid.
type DueQuery struct {
	Now       time.Time
	Hold      time.Duration
	Limit     int
	Partition string // "": all
	// NotPartitions and NotSagas are paused: their executions are passed over
	// and stay due.
	NotPartitions, NotSagas []string
	// Sagas, if not nil, are those whose executions are wanted: others are
	// passed over and stay due.
	Sagas []string
}

// A Lease is the token of an open attempt: everything that speaks of an
// attempt compares all of it.
type Lease struct {
	Execution uuid.UUID
	Step      string
	Direction Direction
	Epoch     int
	Number    int
	Worker    string
}

// A Renewal says until when leases shall hold and when their executions are
// due, seen from Now.
type Renewal struct {
	Now   time.Time
	Until time.Time
	DueAt time.Time
	// Progress, if not nil, has one element for each lease: what to note as
	// the attempt's Progress, nil to leave that as it is.
	Progress []*Progress
}

// A LeaseState is an answer of [Store.Renew].
type LeaseState string

// The answers of Renew.
const (
	LeaseHeld        LeaseState = "held"
	LeaseLost        LeaseState = "lost"
	LeaseInterrupted LeaseState = "interrupted"
	LeaseLocked      LeaseState = "locked"
)
