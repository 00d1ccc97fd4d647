//go:build linux

package faults

import (
	"context"
	"errors"
	"time"

	"github.com/leveret-go/leveret/saga"
)

const checkoutName = saga.Name[order]("checkout")

// The steps of the saga, in order.
var stepNames = []string{"reserve", "charge", "ship"}

const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 500 * time.Millisecond
)

// An order is the state of an execution. What happens in its steps follows from its number.
type order struct {
	N    int      `json:"n"`
	Done []string `json:"done,omitempty"` // steps whose result was saved
}

// fails returns the step that refuses the order for good; "" for none.
func (o order) fails() string {
	switch o.N % 10 {
	case 3:
		return "ship"
	case 8:
		return "charge"
	}
	return ""
}

// slow reports whether the order's charge takes longer.
func (o order) slow() bool { return o.N%4 == 1 }

// flaky reports whether the first call of the step, in this direction, fails.
func (o order) flaky(step string, d saga.Direction) bool {
	return o.N%7 == 2 && step == "charge" && d == "execute" || o.N%20 == 13 && step == "reserve" && d == "compensate"
}

// checkout is the saga as a worker runs it.
func checkout(s settings, p *client) saga.Definition[order] {
	d := saga.Definition[order]{Name: checkoutName}
	retry := saga.RetryPolicy{Attempts: 10, Initial: retryFirst, Max: retryMost}
	undo := retry
	undo.Attempts = 20
	for _, name := range stepNames {
		do := func(ctx context.Context, run *saga.Run[order]) error {
			took := time.Duration(s.Step)
			if run.State.slow() && name == "charge" {
				took = time.Duration(s.SlowStep)
			}
			if err := wait(ctx, took/2); err != nil {
				return err
			}
			if err := p.call(ctx, &run.Call, run.State); err != nil {
				return err
			}
			return wait(ctx, took/2)
		}
		d.Steps = append(d.Steps, saga.Step[order]{
			Name: name, Retry: retry, CompensateRetry: undo, Timeout: time.Duration(s.StepTimeout),
			Execute: func(ctx context.Context, run *saga.Run[order]) error {
				if err := do(ctx, run); err != nil {
					return err
				}
				run.State.Done = append(run.State.Done, name)
				return nil
			},
			Compensate: do,
		})
	}
	return d
}

var (
	errRefused = errors.New("refused for good")
	errFenced  = errors.New("refused: it was undone before")
	errOnce    = errors.New("not this time")
)

// wait is what a step does between its calls.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
