package saga

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// StatusEventVersion is the version of [StatusEvent] that this build writes.
const StatusEventVersion = 1

// A StatusEvent tells other services that an execution has another status than
// before: started (running), waiting, halted, compensating, or one of the ends.
// See [Definition.Events]. It says nothing that people or steps wrote: no state,
// no tags, no messages; who needs these asks for the execution.
//
// Names of fields are stable; later versions may add some.
type StatusEvent struct {
	V int `json:"v"` // StatusEventVersion
	// ID is the same each time the event is published, and no other event has it:
	// the execution and its revision.
	ID string `json:"id"`
	// Store tells services apart that share a broker.
	Store     uuid.UUID `json:"store"`
	Execution uuid.UUID `json:"execution"`
	// Revision rises with each event of an execution: one that comes after a
	// higher one is old.
	Revision  int64          `json:"revision"`
	Saga      string         `json:"saga"`
	Version   int            `json:"version"`
	Partition string         `json:"partition"`
	Resource  store.Resource `json:"resource"`
	Key       string         `json:"key,omitempty"`
	Status    store.Status   `json:"status"`
	// Previous is the status before; "" for a start.
	Previous  store.Status    `json:"previous,omitempty"`
	Step      string          `json:"step"`
	Direction store.Direction `json:"direction"`
	Epoch     int             `json:"epoch"`
	// FailureClass and FailureStep are those of the Failure, if there is one.
	FailureClass string    `json:"failure_class,omitempty"`
	FailureStep  string    `json:"failure_step,omitempty"`
	At           time.Time `json:"at"`
	// TraceParent is the W3C trace context of the start; it travels beside the
	// body.
	TraceParent string `json:"-"`
}

// An EventPublisher sends status events to other services. The Broker of package
// amqp is one; [Config.Events] takes others.
type EventPublisher interface {
	// PublishEvents sends events, in this order where it can, and returns nil when
	// all of them are safe with whoever passes them on. After an error all of them
	// are sent again some time, by this process or another: who receives them
	// knows them by their ID.
	PublishEvents(ctx context.Context, events []StatusEvent) error
}

func statusEvent(id uuid.UUID, e *store.StatusEvent) StatusEvent {
	return StatusEvent{
		V: StatusEventVersion, ID: fmt.Sprintf("%s/%d", e.Execution, e.Revision), Store: id,
		Execution: e.Execution, Revision: e.Revision, Saga: e.Saga, Version: e.Version, Partition: e.Partition,
		Resource: e.Resource, Key: e.Key, Status: e.Status, Previous: e.Previous, Step: e.Step, Direction: e.Direction,
		Epoch: e.Epoch, FailureClass: e.FailureClass, FailureStep: e.FailureStep, At: e.At, TraceParent: e.TraceParent,
	}
}
