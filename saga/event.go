package saga

import (
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// An EventKind is the stable name of something that happened.
type EventKind string

// The events, emitted after the transaction that made them true. One that was
// emitted did happen; a process that dies in between emits nothing. See
// [Config.Observe] for how they reach an observer.
const (
	EventStarted             EventKind = "saga.started"
	EventStepStarted         EventKind = "saga.step.started"
	EventStepFinished        EventKind = "saga.step.finished"
	EventStepFailed          EventKind = "saga.step.failed" // one attempt; the saga may go on
	EventStepSkipped         EventKind = "saga.step.skipped"
	EventStepInterrupted     EventKind = "saga.step.interrupted" // by a shutdown or an operator; no attempt is spent
	EventCompleted           EventKind = "saga.completed"
	EventCompensationStarted EventKind = "saga.compensation_started"
	EventCompensated         EventKind = "saga.compensated"
	EventFailed              EventKind = "saga.failed"
	EventCompensationFailed  EventKind = "saga.compensation_failed"
	EventCancelled           EventKind = "saga.cancelled"
	EventResumed             EventKind = "saga.resumed" // a lost pointer was published again, or an operator resumed it
	EventHalted              EventKind = "saga.halted"
	EventReopened            EventKind = "saga.reopened" // a late effect has to be undone
	EventSnoozed             EventKind = "saga.snoozed"
	EventWaiting             EventKind = "saga.waiting" // parked at a step; Reason says for what
	EventSignal              EventKind = "saga.signal"  // a signal came in; Reason is its name
	EventAttemptAbandoned    EventKind = "attempt.abandoned"
	EventAttemptLate         EventKind = "attempt.late"
	EventStepStuck           EventKind = "step.stuck" // a body ignores the end of its ctx
	EventStepStray           EventKind = "step.stray" // an effect was reported after its undo
	EventActDone             EventKind = "act.done"
	EventActRequested        EventKind = "act.requested"
	EventPointerOrphan       EventKind = "pointer.orphan"
	EventPointerStale        EventKind = "pointer.stale"
	EventPointerUnknown      EventKind = "pointer.unknown"
	EventPointerEarly        EventKind = "pointer.early"
	EventPointerBusy         EventKind = "pointer.busy"
	EventPointerPaused       EventKind = "pointer.paused" // its partition or saga is paused
	EventPointerDead         EventKind = "pointer.dead"
	EventPointerUnroutable   EventKind = "pointer.unroutable"  // reported by a transport
	EventPointerUnpublished  EventKind = "pointer.unpublished" // Publish returned an error, or the broker refused it
)

// An Event is something that happened to an execution. Fields that do not apply
// are zero.
type Event struct {
	Kind EventKind
	At   time.Time // the engine's clock

	Execution uuid.UUID
	Saga      string
	Version   int
	Partition string
	Resource  Resource
	Status    store.Status // after the event
	Epoch     int

	Step      string
	Direction Direction
	Attempt   int
	Took      time.Duration // of a finished attempt
	Err       error         // of a failure; may be a *FailureError where the cause was in another process
	Reason    string
}

// A FailureError is a stored [Failure] as an error.
type FailureError struct{ Failure Failure }

func (e *FailureError) Error() string { return e.Failure.Message }
