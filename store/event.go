package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// A StatusEvent says that an execution has a status that it did not have before
// the write which made it so. Its fields are those of the execution as written.
type StatusEvent struct {
	Execution uuid.UUID
	// Revision is the execution's: with Execution it names the event, and it
	// orders those of one execution.
	Revision  int64
	Saga      string
	Version   int
	Partition string
	Resource  Resource
	Key       string
	Status    Status
	// Previous is the status before the write; "" when there was none, or none
	// that events were recorded of.
	Previous     Status
	Step         string
	Direction    Direction
	Epoch        int
	FailureClass string // of Failure; "" for none
	FailureStep  string
	TraceParent  string
	At           time.Time // UpdatedAt
}

// ID names the event.
func (e *StatusEvent) ID() EventID { return EventID{e.Execution, e.Revision} }

// An EventID names a [StatusEvent].
type EventID struct {
	Execution uuid.UUID
	Revision  int64
}

// An Outbox records status events and keeps them until they were sent. Optional,
// found with [As]; see saga.Definition.Events.
//
// Of an execution whose Events is true, every write that creates it, changes its
// Status, or makes Events true records one [StatusEvent], in the same
// transaction: Create, WithLock, Advance, and the Create of a [Change]. An event
// stays when its execution is deleted.
type Outbox interface {
	// ClaimEvents takes at most q.Limit events that have not been held until
	// after q.Now, the oldest first (by At, Execution, Revision), holds them
	// until q.Now + q.Hold, and returns them. Of any number of simultaneous
	// callers each event goes to exactly one.
	ClaimEvents(ctx context.Context, q EventQuery) ([]StatusEvent, error)

	// RemoveEvents removes events, all in one transaction. Those that are not
	// there are passed over.
	RemoveEvents(ctx context.Context, ids []EventID) error

	// OldestEvent returns the At of the oldest event that has not been removed,
	// whether it is held or not; nil when there is none.
	OldestEvent(ctx context.Context) (*time.Time, error)
}

// An EventQuery selects for [Outbox.ClaimEvents]. A Limit below 1 and a negative
// Hold are ErrInvalid.
type EventQuery struct {
	Now   time.Time
	Hold  time.Duration
	Limit int
}

// Validate reports, as an error that wraps [ErrInvalid], whether q is no query.
func (q *EventQuery) Validate() error {
	var v validator
	v.must(q.Limit >= 1, "limit", "is below 1")
	v.must(q.Hold >= 0, "hold", "is negative")
	v.time("now", q.Now)
	return v.err
}

// StatusEventOf returns the event that writing x, at its new Revision, over old
// records, or nil for none. A nil old: x is created. It is the rule that every
// Outbox follows.
func StatusEventOf(old, x *Execution) *StatusEvent {
	if !x.Events || old != nil && old.Events && old.Status == x.Status {
		return nil
	}
	e := &StatusEvent{
		Execution: x.ID, Revision: x.Revision, Saga: x.Saga, Version: x.Version, Partition: x.Partition, Resource: x.Resource,
		Key: x.Key, Status: x.Status, Step: x.Step, Direction: x.Direction, Epoch: x.Epoch, TraceParent: x.TraceParent,
		At: Micros(x.UpdatedAt),
	}
	if old != nil && old.Events {
		e.Previous = old.Status
	}
	if f := x.Failure; f != nil {
		e.FailureClass, e.FailureStep = f.Class, f.Step
	}
	return e
}
