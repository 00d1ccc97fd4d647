package saga

import (
	"context"

	"github.com/google/uuid"
)

// A Pointer says "look at execution X". It is a hint: it may be lost, doubled,
// late or out of order, and nothing but time is lost by it. What it points at
// besides the execution tells stale ones apart and makes queues readable; what
// is done next is decided from the execution's row alone.
type Pointer struct {
	V         int       `json:"v"` // 1
	Store     uuid.UUID `json:"store"`
	Execution uuid.UUID `json:"execution"`
	Saga      string    `json:"saga"`
	Step      string    `json:"step"`
	Direction Direction `json:"direction"`
	Epoch     int       `json:"epoch"`

	// TraceParent is the W3C trace context of the execution's start. It
	// travels beside the body, in a header.
	TraceParent string `json:"-"`
}

// PointerVersion is the version of pointers this build writes and the newest it
// reads.
const PointerVersion = 1

// A Publisher carries pointers to the executor consumers of a partition. It is
// called by the engine after the transaction that made the pointer true. Package
// amqp has one over RabbitMQ, package inproc one in the process.
type Publisher interface {
	// Publish sends one pointer, or hands it on to be sent: it waits for no
	// confirmation, and not for a broker that is away. An error means that the
	// pointer is probably lost; the engine reports it and goes on: the
	// execution comes due again. It is safe for concurrent use.
	Publish(ctx context.Context, partition string, p Pointer) error
}

// A DepthProber is a Publisher that knows how much is queued for a partition.
// Without it the sweep publishes a pointer again and again, in growing intervals,
// until it is picked up.
type DepthProber interface {
	// Depth returns how many pointers are ready to be delivered and how many
	// consumers there are. An error: not known now. It has to return when ctx
	// ends. The engine does not wait for a call that does not, and asks no more
	// about the partition until it has returned.
	Depth(ctx context.Context, partition string) (ready, consumers int, err error)
}

// A Connector is a Publisher that knows whether its broker can be reached.
// While it cannot, new work is due at once instead of being published, the
// engine's sweep claims nothing, and consumers work the store themselves
// through [Engine.WorkStore]. A Publisher that is no Connector counts as connected.
type Connector interface {
	Connected() bool
}

// A Reporter is a Publisher that learns only later what became of pointers. New
// gives it the function to call, once for each pointer that was returned
// (EventPointerUnroutable) or refused or never confirmed
// (EventPointerUnpublished), and for each message that a consumer put aside
// without asking [Engine.Handle], because it is no pointer (EventPointerDead).
// The function is quick and safe for concurrent use.
type Reporter interface {
	Report(report func(partition string, p Pointer, kind EventKind, err error))
}

// A Runner is something that works while [Engine.Run] does: an executor
// consumer. Run returns when ctx is done and all that it started has ended.
// Consumers call [Engine.Handle] for each pointer.
type Runner interface {
	Run(ctx context.Context) error
}

// A Disposition is what a consumer does with the message of a pointer.
type Disposition string

const (
	// Ack: done with it.
	Ack Disposition = "ack"
	// DeadLetter: put it aside, with the Reason, for a person to look at.
	DeadLetter Disposition = "dead_letter"
)

// A Result says what came of a pointer. Reason is "" when an attempt was run,
// else one of the Drop and Dead constants.
type Result struct {
	Disposition Disposition
	Reason      string
}

// The reasons of a Result.
const (
	DropOrphan   = "orphan"   // no such execution
	DropFinished = "finished" // the execution had ended or halted before
	DropStale    = "stale"    // of an older epoch
	DropBusy     = "busy"     // an attempt is running under a live lease
	DropEarly    = "early"    // not before a later time
	DropUnknown  = "unknown"  // saga or step not known to this process
	DropPaused   = "paused"   // its partition or saga is paused
	DropEnded    = "ended"    // handling it ended or parked the execution without an attempt

	DeadForeignStore = "foreign_store"       // of another store: two services on one prefix?
	DeadFutureEpoch  = "future_epoch"        // of an epoch the store has not reached: a restored backup?
	DeadVersion      = "unsupported_version" // written by a newer build
)
