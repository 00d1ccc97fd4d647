package saga

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// StartOptions says more about a start.
type StartOptions struct {
	// ID of the execution. Defaults to a new UUIDv7 of the engine's clock. With
	// an ID of the caller's own a start can be repeated without starting twice:
	// the second one returns an error that wraps store.ErrExists. See [IDFor].
	ID uuid.UUID

	// Key is the start key, instead of the definition's: see [Definition.Key].
	Key string

	// OnConflict is what becomes of the start when its key is held, instead of
	// what the definition says.
	OnConflict OnConflict

	// Deadline is when the execution is compensated if it has not ended,
	// instead of the definition's. In the past it is refused.
	Deadline time.Time

	// StartAfter is the time before which the first step does not begin. In the past
	// it means now.
	StartAfter time.Time

	// Tags are words by which people find the execution, at most 32: names of 1
	// to 100 bytes, values of at most 200.
	Tags map[string]string

	// Signals are taken in with the start, as if they had come right after it.
	Signals []StartSignal

	// Partition overrides the definition's.
	Partition string

	// TraceParent is the W3C trace context to hand on to the steps, at most
	// 1000 bytes. Defaults to what [Config.TraceParent] returns.
	TraceParent string
}

// A StartSignal is a signal that an execution has from its start. See
// [Engine.Signal].
type StartSignal struct {
	Name, Key string
	Payload   any
}

// Started is an execution that was started, or that a start came to.
type Started struct {
	*Execution
	// Existing says that nothing was started: the execution held the key
	// before (OnConflictExisting). Differs says that it was started with
	// another resource or state.
	Existing bool
	Differs  bool
	// Replaces is the execution that was cancelled for this one
	// (OnConflictReplace).
	Replaces *uuid.UUID
}

// Start starts an execution with this state. It has started when the store has
// committed it, whether the broker can be reached or not: nil means that it will
// be run. A process that dies before the commit has started nothing, one that
// dies after it has. opts may be nil.
//
// Errors: one that wraps [ErrInvalid] for a bad resource, option or state (not a
// JSON object, more than 1 MiB); store.ErrExists for a used ID;
// *store.KeyTakenError for a key that is held, with OnConflictReject; anything
// else means that the store could not be asked: it may have started, and with an
// ID of one's own one can find out.
func (s *Saga[S]) Start(ctx context.Context, r Resource, state S, opts *StartOptions) (*Started, error) {
	return s.start(ctx, s.engine.desk(), r, state, opts)
}

func (s *Saga[S]) start(ctx context.Context, d desk, r Resource, state S, opts *StartOptions) (*Started, error) {
	o := order{saga: string(s.name), version: s.version, plan: s.plan, resource: r}
	if opts != nil {
		o.StartOptions = *opts
	}
	err := s.fill(&o, r, state)
	if err == nil {
		var x *Started
		if x, err = d.start(ctx, &o); err == nil {
			return x, nil
		}
	}
	return nil, fmt.Errorf("saga %q: start: %w", s.name, err)
}

// fill adds what the definition says.
func (s *Saga[S]) fill(o *order, r Resource, state S) (err error) {
	if o.state, err = s.codec.encode(state, nil); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	setDefault(&o.Partition, s.partition)
	return s.identity.fill(o, state)
}

// An order is what is to be started.
type order struct {
	StartOptions
	saga     string
	version  int
	plan     *plan // nil: not known here
	resource Resource
	state    json.RawMessage
	within   time.Duration // the definition's deadline
}

func (d desk) start(ctx context.Context, o *order) (*Started, error) {
	e := d.e
	if err := e.clock.ready(ctx); err != nil {
		return nil, err
	}
	inbox, err := e.checkOrder(o)
	if err != nil {
		return nil, err
	}
	ownID := o.ID != uuid.Nil
	if o.TraceParent == "" {
		o.TraceParent = e.traceParent(ctx)
	}
	for range maxAsks { // each time the key has gone to another one in between
		x, m, err := d.newExecution(o, inbox)
		if err != nil {
			return nil, err
		}
		err = d.create(ctx, x, ownID)
		var taken *store.KeyTakenError
		switch {
		case err == nil:
			d.committed(ctx, m, x)
			return &Started{Execution: x}, nil
		case !errors.As(err, &taken) || o.OnConflict == OnConflictReject:
			return nil, err
		case o.OnConflict == OnConflictExisting:
			y, err := d.holder(ctx, taken.Execution)
			if err != nil {
				return nil, err
			}
			if y != nil {
				return &Started{Execution: y, Existing: true, Differs: y.Resource != o.resource || !bytes.Equal(startedWith(y), o.state)}, nil
			}
		default:
			x.Revision = 0
			err := d.replace(ctx, taken.Execution, x, m)
			if err == nil {
				x.Revision = 1
				return &Started{Execution: x, Replaces: &taken.Execution}, nil
			}
			if !errors.Is(err, errKeyFree) {
				return nil, err
			}
		}
	}
	return nil, fmt.Errorf("the key %q goes from one execution to the next too fast", o.Key)
}

// checkOrder checks what is not checked elsewhere, and returns the signals that
// come with the start.
func (e *Engine) checkOrder(o *order) (inbox []store.Message, err error) {
	now := e.clock.now()
	if !partitionRule.MatchString(o.Partition) {
		return nil, fmt.Errorf("%w: partition %s", ErrInvalid, partitionFault(o.Partition))
	}
	if !o.OnConflict.valid() {
		return nil, fmt.Errorf("%w: OnConflict %q is none of reject, existing and replace", ErrInvalid, o.OnConflict)
	}
	if !o.Deadline.IsZero() && !o.Deadline.After(now) {
		return nil, fmt.Errorf("%w: Deadline has passed", ErrInvalid)
	}
	for name, t := range map[string]time.Time{"Deadline": o.Deadline, "StartAfter": o.StartAfter} {
		if !t.IsZero() {
			if _, err := saneTime(name, t); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
			}
		}
	}
	if err := store.ValidateTags(o.Tags); err != nil {
		return nil, err
	}
	for i, s := range o.Signals {
		msg, err := e.message(s.Name, SignalOptions{Key: s.Key}, s.Payload)
		if err == nil && o.plan != nil && o.plan.signals[s.Name] != nil {
			err = o.plan.signals[s.Name].CheckPayload(msg.Payload)
		}
		if err != nil {
			return nil, fmt.Errorf("signal %d: %w", i+1, err)
		}
		if s.Key != "" && slices.ContainsFunc(inbox, func(m store.Message) bool { return m.Name == s.Name && m.Key == s.Key }) {
			continue
		}
		msg.At = now
		inbox = append(inbox, msg)
	}
	return inbox, nil
}

// newExecution makes the row of a start, and the machine that has moved it.
func (d desk) newExecution(o *order, inbox []store.Message) (*store.Execution, *machine, error) {
	now := d.e.clock.now()
	id := o.ID
	if id == uuid.Nil {
		var err error
		if id, err = newID(now); err != nil {
			return nil, nil, err
		}
	}
	x := &store.Execution{
		ID: id, Saga: o.saga, Version: o.version, Partition: o.Partition, Resource: o.resource, Key: o.Key,
		Tags: maps.Clone(o.Tags), Inbox: slices.Clone(inbox),
		Status: store.StatusRunning, Direction: store.DirectionExecute, State: o.state, TraceParent: o.TraceParent,
		CreatedAt: now, UpdatedAt: now, ProgressAt: now,
	}
	switch {
	case !o.Deadline.IsZero():
		at := store.Micros(o.Deadline)
		x.Deadline = &at
	case o.within > 0:
		at := now.Add(o.within)
		x.Deadline = &at
	}
	if o.plan != nil {
		o.plan.equip(x)
	}
	m := d.machine(x)
	m.was = ""
	m.emit(EventStarted)
	m.begin(o.StartAfter)
	return x, m, nil
}

// begin makes a new execution ready for its first step.
func (m *machine) begin(after time.Time) {
	if after.After(m.now) {
		at := store.Micros(after)
		m.awaitStart(store.GateStart, &at)
		return
	}
	if m.queueUp(); m.resting() {
		return
	}
	m.answers = m.plan.askFrom(m.x, m.x.Step, m.x.State)
	m.arrive()
	if !m.resting() {
		m.offer()
	}
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
func (d desk) create(ctx context.Context, x *store.Execution, ownID bool) error {
	err := d.store.Create(ctx, x)
	if err == nil || definite(err) || ctx.Err() != nil || d.tx != nil {
		return err
	}
	again := d.store.Create(ctx, x)
	if !errors.Is(again, store.ErrExists) {
		return again
	}
	y, getErr := d.store.Get(ctx, x.ID)
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
