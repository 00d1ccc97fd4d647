package saga_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

type order struct {
	Reserved bool `json:"reserved,omitempty"`
	Charged  bool `json:"charged,omitempty"`
}

// journal keeps what steps did, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// runEngine runs an engine until the test's bubble is done with f.
func runEngine(t *testing.T, e *saga.Engine, f func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	synctest.Wait()
	f(ctx)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestStepsRunInOrderAndComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		e, err := saga.New(saga.Config{Store: memory.New()})
		if err != nil {
			t.Fatal(err)
		}
		s, err := saga.Register(e, saga.Definition[order]{Name: "checkout", Steps: []saga.Step[order]{
			{Name: "reserve", Execute: func(ctx context.Context, run *saga.Run[order]) error {
				j.add("reserve")
				run.State.Reserved = true
				return nil
			}},
			{Name: "charge", Execute: func(ctx context.Context, run *saga.Run[order]) error {
				j.add("charge")
				run.State.Charged = run.State.Reserved
				return nil
			}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		runEngine(t, e, func(ctx context.Context) {
			x, err := s.Start(ctx, saga.Resource{Type: "order", ID: "1"}, order{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			y, err := e.Wait(ctx, x.ID)
			if err != nil {
				t.Fatal(err)
			}
			if y.Status != store.StatusCompleted {
				t.Errorf("status %s, want completed", y.Status)
			}
			if st, _ := s.State(y); !st.Charged {
				t.Errorf("state %+v, want charged", st)
			}
		})
		if got, want := j.all(), []string{"reserve", "charge"}; !slices.Equal(got, want) {
			t.Errorf("ran %v, want %v", got, want)
		}
	})
}

func TestFailureUndoesInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		step := func(name string, err error) saga.Step[order] {
			return saga.Step[order]{Name: name,
				Execute:    func(context.Context, *saga.Run[order]) error { j.add(name); return err },
				Compensate: func(context.Context, *saga.Run[order]) error { j.add("undo " + name); return nil },
			}
		}
		e, err := saga.New(saga.Config{Store: memory.New()})
		if err != nil {
			t.Fatal(err)
		}
		s, err := saga.Register(e, saga.Definition[order]{Name: "checkout", Steps: []saga.Step[order]{
			step("a", nil), step("b", nil), step("c", errors.New("no courier")),
		}})
		if err != nil {
			t.Fatal(err)
		}
		runEngine(t, e, func(ctx context.Context) {
			begun := time.Now()
			x, err := s.Start(ctx, saga.Resource{}, order{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			y, err := e.Wait(ctx, x.ID)
			if err != nil {
				t.Fatal(err)
			}
			if y.Status != store.StatusCompensated || y.Failure == nil || y.Failure.Message != "no courier" {
				t.Errorf("status %s, failure %+v", y.Status, y.Failure)
			}
			if took := time.Since(begun); took < 2*time.Second || took > 4*time.Second {
				t.Errorf("took %v, want about 1 s + 2 s of backoff", took)
			}
		})
		if got, want := j.all(), []string{"a", "b", "c", "c", "c", "undo b", "undo a"}; !slices.Equal(got, want) {
			t.Errorf("ran %v, want %v", got, want)
		}
	})
}
