package sagatest

import (
	"context"
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
	run := &saga.Run[S]{State: state, Call: c}
	if cfg != nil && cfg.Checkpoint != nil {
		if err := run.Checkpoint(context.Background(), cfg.Checkpoint); err != nil {
			panic(err) // a test that cannot be meant
		}
	}
	return run
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
