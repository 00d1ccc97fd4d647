package saga_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

func TestMiddlewareStandsAroundStepsAndUndos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		around := func(name string) saga.Middleware {
			return func(ctx context.Context, call *saga.Call, next func(context.Context) error) error {
				j.add(name + " " + call.Step + " " + string(call.Direction))
				switch {
				case call.Step == "skipped" && call.Direction == store.DirectionExecute:
					return nil // in the step's place
				case call.Step == "refused" && name == "inner":
					if err := next(ctx); err != nil {
						return err
					}
					return saga.Fail(errors.New("refused"))
				}
				return next(ctx)
			}
		}
		body := func(ctx context.Context, run *saga.Run[order]) error {
			if c, ok := saga.CallFrom(ctx); !ok || c.Step != run.Step {
				t.Errorf("CallFrom: %v, %v", c, ok)
			}
			j.add(run.Step)
			run.State.Charged = run.Step == "refused"
			run.State.Reserved = run.Step == "skipped" && run.Direction == store.DirectionExecute
			return nil
		}
		e, err := saga.New(saga.Config{Store: memory.New(), Middleware: []saga.Middleware{around("outer"), around("inner")}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := saga.Register(e, saga.Definition[order]{Name: "checkout", Steps: []saga.Step[order]{
			{Name: "skipped", Execute: body, Compensate: body}, {Name: "refused", Execute: body},
		}})
		if err != nil {
			t.Fatal(err)
		}
		runEngine(t, e, func(ctx context.Context) {
			x, err := s.Start(ctx, saga.Resource{}, order{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			y, err := e.Wait(ctx, x.ID)
			if err != nil || y.Status != store.StatusCompensated || string(y.State) != "{}" {
				t.Errorf("execution %s, %s, %v", y.Status, y.State, err)
			}
		})
		want := []string{
			"outer skipped execute",
			"outer refused execute", "inner refused execute", "refused",
			"outer skipped compensate", "inner skipped compensate", "skipped",
		}
		if got := j.all(); !slices.Equal(got, want) {
			t.Errorf("called %q\nwant   %q", got, want)
		}
	})
}

func TestNilMiddlewareIsRefused(t *testing.T) {
	_, err := saga.New(saga.Config{Store: memory.New(), Middleware: []saga.Middleware{nil}})
	if !errors.Is(err, saga.ErrInvalid) || !strings.Contains(err.Error(), "Middleware[0] is nil") {
		t.Errorf("New: %v", err)
	}
}
