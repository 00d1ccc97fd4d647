package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// Children lets a step start other sagas, wait until they have ended, and go on.
// The step's compensation compensates them.
//
// Start runs as an attempt of the step and says which executions to start; they
// are started in the write that settles it, all or none, under ids that follow
// from the step and their keys, so that none is ever started twice. Then the
// execution waits, without an attempt. When they have ended the step's Execute
// runs, if it has one, and finds their results by [Name.Result].
//
// A saga that turns around, by failure, Cancel or Compensate, undoes the step:
// children that are still at work are cancelled, and those that have completed
// are compensated. The undo is done when all of them have ended; it fails, and is tried again,
// while one is compensation_failed.
type Children[S any] struct {
	// Start returns the children, at most 1000, with different keys. It has
	// no effects of its own. Required.
	Start func(ctx context.Context, run *Run[S]) ([]Child, error)

	// Join says when the saga goes on. Defaults to JoinAll.
	Join Join
}

// A Join says when a saga goes on that has started others.
type Join string

// The joins.
const (
	// JoinAll: when all have completed. As soon as one ends in another way the
	// step has failed, without another try.
	JoinAll Join = "all"
	// JoinSettled: when all have ended in any way; Execute looks how.
	JoinSettled Join = "settled"
)

func (j Join) valid() bool { return j == "" || j == JoinAll || j == JoinSettled }

// A Child is an execution to start. Make one with [Name.Child].
type Child struct {
	saga     string
	key      string
	resource Resource
	state    json.RawMessage
	err      error
	// Options are those of its start; nil for none. ID, Key, OnConflict,
	// Deadline, StartAfter and Signals are not taken.
	Options *StartOptions
}

// Child returns an execution of this saga for a step's [Children] to start. key
// tells it from the step's other children: 1 to 200 bytes.
func (n Name[S]) Child(key string, r Resource, state S) Child {
	b, err := (&stateCodec[S]{}).encode(state, nil)
	return Child{saga: string(n), key: key, resource: r, state: b, err: err}
}

// ChildResult is what a child has come to.
type ChildResult[S any] struct {
	Execution uuid.UUID
	Status    store.Status
	State     S
	Failure   *Failure
}

// ErrNoChild: the step has no child of this saga with this key.
var ErrNoChild = errors.New("saga: the step has no such child")

// Result returns, in the Execute of a step with [Children], what the child with
// this key has come to. When it has continued as new, that is the last one.
func (n Name[S]) Result(run AnyRun, key string) (ChildResult[S], error) {
	var last *store.Execution
	for _, x := range run.call().children {
		if x.Saga == string(n) && x.Parent.Key == key && (last == nil || x.CreatedAt.After(last.CreatedAt)) && x.ContinuedAs == nil {
			last = x
		}
	}
	if last == nil {
		return ChildResult[S]{}, fmt.Errorf("%w: saga %q, key %q", ErrNoChild, string(n), key)
	}
	state, err := (&stateCodec[S]{}).decode(last.State)
	return ChildResult[S]{Execution: last.ID, Status: last.Status, State: state, Failure: last.Failure}, err
}

// childPlan is a step's Children without their type.
type childPlan struct {
	start func(ctx context.Context, call *Call, state json.RawMessage) ([]Child, json.RawMessage, error, error)
	join  Join
}

func childPlanOf[S any](codec *stateCodec[S], c *Children[S], classify func(error) error) *childPlan {
	if c == nil {
		return nil
	}
	p := &childPlan{join: c.Join}
	setDefault(&p.join, JoinAll)
	p.start = func(ctx context.Context, call *Call, state json.RawMessage) (list []Child, next json.RawMessage, stateErr, err error) {
		next, stateErr, err = callOn(ctx, codec, call, state, func(ctx context.Context, run *Run[S]) (err error) {
			list, err = c.Start(ctx, run)
			return err
		}, classify)
		return list, next, stateErr, err
	}
	return p
}

// A child is a checked [Child] with its id.
type child struct {
	id uuid.UUID
	Child
	plan *plan // nil: not known here
}

// maxChildren is how many one step starts.
const maxChildren = 1000

// childID returns the id of a child, always the same.
func childID(parent uuid.UUID, step, key string) uuid.UUID {
	return uuid.NewSHA1(parent, []byte(step+"/"+key))
}

// checkChildren returns children with all that is needed to start them.
func (e *Engine) checkChildren(parent uuid.UUID, step string, list []Child) ([]*child, error) {
	if len(list) > maxChildren {
		return nil, fmt.Errorf("%w: %d children, at most %d", ErrInvalid, len(list), maxChildren)
	}
	seen := map[string]bool{}
	out := make([]*child, len(list))
	for i, c := range list {
		switch {
		case !nameRule.MatchString(c.saga):
			return nil, fmt.Errorf("%w: child %d: saga name %s", ErrInvalid, i+1, nameFault(c.saga))
		case c.key == "" || len(c.key) > maxKey || !cleanText(c.key):
			return nil, fmt.Errorf("%w: child %d: its key must be valid UTF-8 without NUL of 1 to %d bytes", ErrInvalid, i+1, maxKey)
		case seen[c.key]:
			return nil, fmt.Errorf("%w: child %d: its key is that of another one", ErrInvalid, i+1)
		case c.err != nil:
			return nil, fmt.Errorf("%w: child %d: %w", ErrInvalid, i+1, c.err)
		}
		seen[c.key] = true
		out[i] = &child{id: childID(parent, step, c.key), Child: c, plan: e.latest(c.saga)}
		if o := c.Options; o != nil {
			if o.ID != uuid.Nil || o.Key != "" || o.OnConflict != "" || !o.Deadline.IsZero() || !o.StartAfter.IsZero() || o.Signals != nil {
				return nil, fmt.Errorf("%w: child %d: of its options only Partition, Tags and TraceParent are taken", ErrInvalid, i+1)
			}
			if o.Partition != "" && !partitionRule.MatchString(o.Partition) {
				return nil, fmt.Errorf("%w: child %d: partition %s", ErrInvalid, i+1, partitionFault(o.Partition))
			}
			if err := store.ValidateTags(o.Tags); err != nil {
				return nil, fmt.Errorf("child %d: %w", i+1, err)
			}
		}
	}
	return out, nil
}

// latest returns the newest version of a saga that this process knows, or nil.
func (e *Engine) latest(saga string) *plan {
	e.plans.RLock()
	defer e.plans.RUnlock()
	return e.plans.latest[saga]
}

// newID returns an id of now.
func (e *Engine) newID() uuid.UUID {
	id, err := newID(e.clock.now())
	if err != nil {
		return uuid.New()
	}
	return id
}

// childrenBody is the body of a step with children: it says which to start, or,
// when they have ended, runs Execute; as an undo it compensates them.
func (e *Engine) childrenBody(x *store.Execution, s *planStep, ret *spawning) body {
	switch {
	case x.Direction == store.DirectionCompensate:
		return func(ctx context.Context, _ *Call, _ json.RawMessage) (json.RawMessage, error, error) {
			open, err := e.undoChildren(ctx, x)
			ret.joining = open > 0
			return nil, nil, err
		}
	case x.Gate != nil && x.Gate.Open:
		return func(ctx context.Context, call *Call, state json.RawMessage) (json.RawMessage, error, error) {
			list, err := e.childrenOf(ctx, x.ID, x.Step)
			if err != nil {
				return nil, nil, err
			}
			call.children = list
			return s.execute(ctx, call, state)
		}
	}
	return func(ctx context.Context, call *Call, state json.RawMessage) (json.RawMessage, error, error) {
		list, next, stateErr, err := s.children.start(ctx, call, state)
		if err != nil || stateErr != nil {
			return next, stateErr, err
		}
		if ret.children, err = e.checkChildren(x.ID, x.Step, list); err != nil {
			return nil, nil, Fail(Class("children_refused", err))
		}
		ret.spawned = true
		return next, nil, nil
	}
}

// spawning is what a step with children has come to, besides what it returned.
type spawning struct {
	spawned  bool // children are to be started
	children []*child
	joining  bool // they have not ended yet
}

// childrenOf reads all children of a step.
func (e *Engine) childrenOf(ctx context.Context, parent uuid.UUID, step string) ([]*store.Execution, error) {
	const page = 200
	q := store.ChildQuery{Parent: parent, Step: step, Limit: page}
	var out []*store.Execution
	for {
		list, err := e.store.Children(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("saga: children of %s: %w", parent, err)
		}
		out = append(out, list...)
		if len(list) < page {
			return out, nil
		}
		q.After = list[len(list)-1].ID
	}
}

// undoChildren cancels or compensates the children of a step, and returns how
// many have not ended.
func (e *Engine) undoChildren(ctx context.Context, x *store.Execution) (open int, err error) {
	list, err := e.childrenOf(ctx, x.ID, x.Step)
	if err != nil {
		return 0, err
	}
	by := engineBy("its parent, execution " + x.ID.String() + ", turned around")
	for _, c := range list {
		if c.Status == store.StatusCompleted && c.ContinuedAs == nil || !c.Status.Finished() && c.Direction == store.DirectionExecute && (c.Request == nil || c.Request.Turn == store.TurnNone) {
			c, err = e.decideIn(ctx, c.ID, func(m *machine) error { return m.undoForParent(by) })
			if errors.Is(err, store.ErrNotFound) {
				continue // purged
			}
			if err != nil {
				return 0, fmt.Errorf("saga: undo a child: %w", err)
			}
		}
		switch {
		case c.Status == store.StatusCompensationFailed:
			return 0, Class("child_compensation_failed", fmt.Errorf("the compensation of child %s has failed", c.ID))
		case !c.Status.Finished():
			open++
		}
	}
	return open, nil
}
