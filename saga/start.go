package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// StartOptions says more about a start.
type StartOptions struct {
	// ID of the execution. Defaults to a new UUIDv7 of the engine's clock. With
	// an ID of the caller's own a start can be repeated without starting twice:
	// the second one returns an error that wraps store.ErrExists.
	ID uuid.UUID

	// Partition overrides the definition's.
	Partition string

	// TraceParent is the W3C trace context to hand on to the steps, at most
	// 1000 bytes. Defaults to what [Config.TraceParent] returns.
	TraceParent string
}

// Started is an execution that was started.
type Started struct {
	*Execution
}

// Start starts an execution with this state. It has started when the store has
// committed it, whether the broker can be reached or not: nil means that it will
// be run. A process that dies before the commit has started nothing, one that
// dies after it has. opts may be nil.
//
// Errors: one that wraps [ErrInvalid] for a bad resource, option or state (not a
// JSON object, more than 1 MiB); store.ErrExists for a used ID; anything else
// means that the store could not be asked: it may have started, and with an ID
// of one's own one can find out.
func (s *Saga[S]) Start(ctx context.Context, r Resource, state S, opts *StartOptions) (*Started, error) {
	var o StartOptions
	if opts != nil {
		o = *opts
	}
	b, err := s.codec.encode(state, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: saga %q: start: %w", ErrInvalid, s.name, err)
	}
	e := s.engine
	if err := e.clock.ready(ctx); err != nil {
		return nil, err
	}
	now := e.clock.now()
	setDefault(&o.Partition, s.partition)
	if !partitionRule.MatchString(o.Partition) {
		return nil, fmt.Errorf("%w: partition %s", ErrInvalid, partitionFault(o.Partition))
	}
	ownID := o.ID != uuid.Nil
	if !ownID {
		if o.ID, err = newID(now); err != nil {
			return nil, err
		}
	}
	if o.TraceParent == "" {
		o.TraceParent = e.traceParent(ctx)
	}
	x := &store.Execution{
		ID: o.ID, Saga: string(s.name), Version: s.version, Partition: o.Partition, Resource: r,
		Status: store.StatusRunning, Direction: store.DirectionExecute, State: b, TraceParent: o.TraceParent,
		CreatedAt: now, UpdatedAt: now, ProgressAt: now,
	}
	if s.plan != nil {
		x.Ledger = s.plan.ledger()
		x.Step = x.Ledger[0].Name
	}
	m := e.machine(x)
	m.offer()
	m.emit(EventStarted)
	if err := e.create(ctx, x, ownID); err != nil {
		return nil, fmt.Errorf("saga %q: start: %w", s.name, err)
	}
	e.committed(ctx, m, x)
	return &Started{Execution: x}, nil
}

// traceParent asks Config.TraceParent, which can do no harm to a start.
func (e *Engine) traceParent(ctx context.Context) (trace string) {
	if e.cfg.TraceParent == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			trace = ""
		}
	}()
	if t := e.cfg.TraceParent(ctx); len(t) <= store.MaxText && cleanText(t) {
		trace = t
	}
	return trace
}

// create inserts x. When the outcome of the first try is not known it tries once
// more, and recognises its own row, which a worker may have moved on meanwhile.
// ownID: the id is the caller's, so that the row may be another call's.
func (e *Engine) create(ctx context.Context, x *store.Execution, ownID bool) error {
	err := e.store.Create(ctx, x)
	if err == nil || definite(err) || ctx.Err() != nil {
		return err
	}
	again := e.store.Create(ctx, x)
	if !errors.Is(again, store.ErrExists) {
		return again
	}
	y, getErr := e.store.Get(ctx, x.ID)
	if getErr != nil {
		return err
	}
	if ownID && !(y.CreatedAt.Equal(x.CreatedAt) && y.Saga == x.Saga && y.Resource == x.Resource && y.TraceParent == x.TraceParent) {
		return again
	}
	*x = *y
	return nil
}

// newID returns a UUIDv7 of this time.
func newID(now time.Time) (uuid.UUID, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return id, fmt.Errorf("saga: make an id: %w", err)
	}
	ms := now.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	// The microseconds order ids of one millisecond.
	us := now.UnixMicro() % 1000
	sub := us << 2
	id[6] = 0x70 | byte(sub>>8)&0x0f
	id[7] = byte(sub)
	id[8] = 0x80 | id[8]&0x3f
	return id, nil
}

// waitPoll is how often Wait looks, at first and at most.
const (
	waitPollFirst = 20 * time.Millisecond
	waitPollMost  = time.Second
)

// Wait returns the execution when it has ended, wherever it is run, or ctx's
// error. A halted execution has not ended. Errors of the store end the wait,
// too.
func (e *Engine) Wait(ctx context.Context, id uuid.UUID) (*Execution, error) {
	told := e.waiters.add(id)
	defer e.waiters.remove(id, told)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := waitPollFirst; ; wait = min(2*wait, waitPollMost) {
		x, err := e.store.Get(ctx, id)
		if err != nil || x.Status.Finished() {
			return x, err
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return x, ctx.Err()
		case <-told:
		case <-timer.C:
		}
	}
}
