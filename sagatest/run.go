package sagatest

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A RunConfig says more about a Run that is made by [NewRun].
type RunConfig struct {
	// Call is what the step is to see. Fields that are zero get values that
	// fit: a new execution, the first attempt, the execute direction, the
	// time of now.
	Call saga.Call

	// Checkpoint, if not nil, is what an earlier attempt is to have left with
	// [saga.Call.Checkpoint]: a value that can be encoded as JSON.
	Checkpoint any

	// Signals are what the step is to have received, by their names: values that
	// can be encoded as JSON. Of a step that awaits, none means that the
	// deadline passed.
	Signals map[string]any

	// Children are what the executions have come to that the step has started.
	Children []Child
}

// A Child is what an execution that a step has started has come to, for
// [saga.Name.Result].
type Child struct {
	Saga   string
	Key    string
	Status store.Status // "": completed
	State  any          // a value that can be encoded as a JSON object; nil: {}
}

// NewRun returns a Run for testing the function of one step alone, without an
// engine: call it with any ctx, and look at its error and at run.State. Keys are
// made as always; Now is the time, and Logger the default one. A nil cfg is the
// zero RunConfig.
//
//	run := sagatest.NewRun(Order{Cents: 1999}, nil)
//	err := charge(t.Context(), run)
//
// The run of an undo finds its effect under the execute key, as in an engine:
//
//	run := sagatest.NewRun(order, &sagatest.RunConfig{Call: saga.Call{
//		Execution: id, Step: "charge", Direction: store.DirectionCompensate,
//	}})
func NewRun[S any](state S, cfg *RunConfig) *saga.Run[S] {
	var c saga.Call
	if cfg != nil {
		c = cfg.Call
	}
	if c.Execution == uuid.Nil {
		c.Execution = uuid.New()
	}
	now := store.Micros(time.Now())
	orDefault(&c.Saga, "saga")
	orDefault(&c.Version, 1)
	orDefault(&c.Step, "step")
	orDefault(&c.Direction, store.DirectionExecute)
	orDefault(&c.Partition, "default")
	orDefault(&c.Attempt, 1)
	orDefault(&c.ReachedAt, now)
	orDefault(&c.StartedAt, now)
	if cfg != nil {
		c = c.WithReceived(messages(cfg.Signals, now)...).WithChildren(executions(cfg.Children, &c)...)
	}
	run := &saga.Run[S]{State: state, Call: c}
	if cfg != nil && cfg.Checkpoint != nil {
		if err := run.Checkpoint(context.Background(), cfg.Checkpoint); err != nil {
			panic(err) // a test that cannot be meant
		}
	}
	return run
}

func messages(signals map[string]any, now time.Time) (list []store.Message) {
	for _, name := range slices.Sorted(maps.Keys(signals)) {
		list = append(list, store.Message{Name: name, Payload: encoded(signals[name]), At: now})
	}
	return list
}

func executions(children []Child, c *saga.Call) (list []*saga.Execution) {
	for _, child := range children {
		orDefault(&child.Status, store.StatusCompleted)
		x := &saga.Execution{
			ID: uuid.New(), Saga: child.Saga, Version: 1, Status: child.Status, State: json.RawMessage("{}"), CreatedAt: c.StartedAt,
			Parent: &store.Parent{Execution: c.Execution, Step: c.Step, Key: child.Key},
		}
		if child.State != nil {
			x.State = encoded(child.State)
		}
		list = append(list, x)
	}
	return list
}

// encoded returns a value as JSON. One that cannot be encoded is a test that
// cannot be meant.
func encoded(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
