package saga

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A Run is one attempt of one step, as the step sees it: the saga's state,
// which the step may change, and the call.
type Run[S any] struct {
	State S
	Call
}

// A Call says which attempt of which step this is. It is not safe for use after
// the step has returned.
type Call struct {
	Execution uuid.UUID
	Saga      string
	Version   int
	// Step is the name in the execution's ledger: after a renaming, the one
	// it had when the execution started.
	Step      string
	Direction Direction
	Partition string
	Resource  Resource
	Tags      map[string]string // of the start; not to be changed
	Epoch     int
	// Attempt is the number of this attempt of the step in this direction and
	// epoch, from 1. Interrupted and snoozed ones are counted here too.
	Attempt int
	// ReachedAt is when the execution came to this step, StartedAt when this
	// attempt was opened.
	ReachedAt time.Time
	StartedAt time.Time
	// InDoubt says that an earlier attempt of the step's Execute may have had
	// its effect without anybody knowing, or, in Execute, that one certainly
	// had: its result came too late, or its state was refused.
	InDoubt bool
	// Failure is, in a compensation, what the saga failed with; nil when an
	// operator asked for it.
	Failure *Failure
	// TraceParent is the W3C trace context of the execution's start, or "".
	TraceParent string

	left     any             // the state when the step returned, to find in its error what is hidden
	received []store.Message // the signals that the step was given
	children []*store.Execution
	long     *longWork
	round    int // of the undo's key
	now      func() time.Time
	logger   *slog.Logger
	judged   *planStep       // nil: the call was not made by an engine
	ctx      context.Context // of the attempt, outside of all middleware
}

// Key returns the idempotency key of this step in this direction, the same for
// every attempt, epoch and build, and no other's. Pass it to every system the
// step calls; for more than one call, or for several systems that share a name
// space, name the effects: Key("hotel"), Key("flight").
//
// Only when an operator retries an undo whose effect came after it (see the
// package comment) does a compensation get a new key.
func (c *Call) Key(effect ...string) string { return c.key(c.Direction, c.round, effect) }

// ExecuteKey returns, in a compensation, the Key under which Execute had its
// effect, and in Execute the same as Key.
func (c *Call) ExecuteKey(effect ...string) string {
	return c.key(store.DirectionExecute, 1, effect)
}

func (c *Call) key(d Direction, round int, effect []string) string {
	var b strings.Builder
	b.WriteString(c.Execution.String())
	b.WriteByte('/')
	b.WriteString(c.Step)
	b.WriteByte('/')
	b.WriteString(string(d))
	if d == store.DirectionCompensate && round > 1 {
		b.WriteByte('/')
		b.WriteString(strconv.Itoa(round))
	}
	for _, e := range effect {
		b.WriteByte(':')
		b.WriteString(url.QueryEscape(e))
	}
	return b.String()
}

// Now returns the time by the engine's clock, which is the store's.
func (c *Call) Now() time.Time {
	if c.now == nil {
		return time.Now()
	}
	return c.now()
}

// Logger returns the engine's logger with the call's attributes.
func (c *Call) Logger() *slog.Logger {
	l := c.logger
	if l == nil {
		l = slog.Default()
	}
	return l.With("execution", c.Execution, "saga", c.Saga, "step", c.Step,
		"direction", string(c.Direction), "epoch", c.Epoch, "attempt", c.Attempt)
}

// Received returns the signals that this step has been given, with who sent
// them and when; [Signal.Receive] reads their payloads.
func (c *Call) Received() []store.Message {
	out := slices.Clone(c.received)
	for i := range out {
		out[i].Payload = bytes.Clone(out[i].Payload)
	}
	return out
}

type callKey struct{}

// CallFrom returns the call whose ctx this is, or one made from it, so that
// code deep below a step can use its key.
func CallFrom(ctx context.Context) (*Call, bool) {
	c, ok := ctx.Value(callKey{}).(*Call)
	return c, ok
}

func newCall(x *store.Execution, now func() time.Time, logger *slog.Logger) *Call {
	e := x.Entry(x.Step)
	var received []store.Message
	for _, m := range x.Inbox {
		if m.Step == x.Step && !m.Spent && x.Direction == store.DirectionExecute {
			received = append(received, m)
		}
	}
	return &Call{
		received:  received,
		Execution: x.ID, Saga: x.Saga, Version: x.Version, Step: x.Step, Direction: x.Direction,
		Partition: x.Partition, Resource: x.Resource, Tags: x.Tags, Epoch: x.Epoch, Attempt: x.Attempt.Number,
		ReachedAt: x.ProgressAt, StartedAt: x.Attempt.StartedAt,
		InDoubt: e.Status == store.StepInDoubt || x.Direction == store.DirectionExecute && e.Status == store.StepDone,
		Failure: x.Failure, TraceParent: x.TraceParent,
		round: max(e.Round, 1), now: now, logger: logger,
	}
}
