package saga

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// RerunOptions says more about a rerun.
type RerunOptions struct {
	// Partition defaults to that of the execution which is repeated.
	Partition string
	// IfRevision, if not 0, makes it fail with ErrChanged when the execution
	// is at another revision.
	IfRevision int64
}

// Rerun starts a new execution with what a finished one was started with: saga,
// resource, key, tags, initial state, and a deadline of the same length. It is run by the plan of the version that is
// registered here, or, in a process that does not know the saga, of the first
// worker's that has it. The two are linked both ways (RerunOf, RerunAs), in the
// transaction that starts the new one, with an audit entry on the old one.
//
// It returns [ErrNotFinished] for an unfinished execution, [ErrErased] for one
// whose state was erased, and an error that wraps *store.KeyTakenError when its
// key is held by another. With By.Request a repetition returns the execution
// that was started first. opts may be nil. What holds for all acts: see
// [Engine.Act].
func (e *Engine) Rerun(ctx context.Context, id uuid.UUID, by By, opts *RerunOptions) (*Started, error) {
	var o RerunOptions
	if opts != nil {
		o = *opts
	}
	if o.Partition != "" && !partitionRule.MatchString(o.Partition) {
		return nil, fmt.Errorf("%w: saga: rerun: partition %s", ErrInvalid, partitionFault(o.Partition))
	}
	if err := e.clock.ready(ctx); err != nil {
		return nil, err
	}
	again, err := newID(e.clock.now())
	if err != nil {
		return nil, err
	}
	var started *machine // of the new execution
	op := operation{act: ActRerun, by: by, ifRevision: o.IfRevision, content: []string{o.Partition}}
	x, err := e.operate(ctx, id, op, func(m *machine) error {
		y := e.repetition(m.x, again, o.Partition)
		started = e.machine(y)
		started.was = ""
		y.State = startedWith(m.x)
		if started.queueUp(); !started.resting() {
			started.offer()
		}
		started.emit(EventStarted)
		return m.operate(ActRerun, by, detailOf(map[string]any{"rerun_as": again}), func() error { return m.rerunAs(y) })
	})
	if err != nil {
		return nil, err
	}
	if started == nil || x.RerunAs == nil || *x.RerunAs != again { // done before, under this request
		if again, err = e.rerunOf(ctx, x, by.Request); err != nil {
			return nil, err
		}
		started = nil
	}
	y, err := e.store.Get(ctx, again)
	if err != nil {
		return nil, fmt.Errorf("saga: rerun %s: %w", id, err)
	}
	if started != nil {
		e.committed(ctx, started, y)
	}
	return &Started{Execution: y}, nil
}

// repetition returns a new execution of what x was started with; its state comes
// later.
func (e *Engine) repetition(x *store.Execution, id uuid.UUID, partition string) *store.Execution {
	setDefault(&partition, x.Partition)
	now := e.clock.now()
	y := &store.Execution{
		ID: id, Saga: x.Saga, Version: x.Version, Partition: partition, Resource: x.Resource, Key: x.Key, Tags: x.Tags,
		Status: store.StatusRunning, Direction: store.DirectionExecute,
		CreatedAt: now, UpdatedAt: now, ProgressAt: now,
	}
	if x.Deadline != nil {
		at := now.Add(x.Deadline.Sub(x.CreatedAt))
		y.Deadline = &at
	}
	p := e.planFor(x)
	if p == nil {
		y.Version = 0 // whichever the first worker has
		return y
	}
	p.equip(y)
	return y
}

// rerunOf returns the execution that was started by a request before.
func (e *Engine) rerunOf(ctx context.Context, x *store.Execution, request string) (uuid.UUID, error) {
	trail, err := e.store.Audit(ctx, x.ID)
	if err != nil {
		return uuid.Nil, fmt.Errorf("saga: rerun %s: %w", x.ID, err)
	}
	for i := range trail {
		var detail struct {
			RerunAs uuid.UUID `json:"rerun_as"`
		}
		if trail[i].Request == request && json.Unmarshal(trail[i].Detail, &detail) == nil {
			return detail.RerunAs, nil
		}
	}
	if x.ErasedAt != nil && x.RerunAs != nil { // the detail is erased, the link is not
		return *x.RerunAs, nil
	}
	return uuid.Nil, fmt.Errorf("saga: rerun %s: %w", x.ID, store.ErrNotFound)
}
