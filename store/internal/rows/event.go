package rows

import (
	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// EventColumns are the columns of events, in the order of [Event.Dest]. There is
// one more, due_at, until which an event is held.
var EventColumns = []string{
	"execution", "revision", "saga", "version", "partition", "resource_type", "resource_id", "key", "status", "previous",
	"step", "direction", "epoch", "failure_class", "failure_step", "trace_parent", "at",
}

// An Event is a row of events, which a trigger on executions inserts.
type Event struct {
	execution                 uuid.UUID
	failureClass, failureStep *string
	at                        Time
	e                         store.StatusEvent
}

// Dest returns pointers to the fields, in the order of [EventColumns].
func (r *Event) Dest() []any {
	e := &r.e
	return []any{
		&r.execution, &e.Revision, &e.Saga, &e.Version, &e.Partition, &e.Resource.Type, &e.Resource.ID, &e.Key, &e.Status, &e.Previous,
		&e.Step, &e.Direction, &e.Epoch, &r.failureClass, &r.failureStep, &e.TraceParent, &r.at,
	}
}

// Store returns the row as a record.
func (r *Event) Store() store.StatusEvent {
	e := r.e
	e.Execution, e.At = r.execution, r.at.Time
	e.FailureClass, e.FailureStep = deref(r.failureClass), deref(r.failureStep)
	return e
}
