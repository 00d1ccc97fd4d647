package saga_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A rerun starts from what the first one started with, and both know of each
// other.
func TestRerunStartsFromTheInitialState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []order
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "pay", Execute: func(_ context.Context, run *saga.Run[order]) error {
			mu.Lock()
			seen = append(seen, run.State)
			mu.Unlock()
			run.State.Charged = true
			return nil
		}})
		if _, err := r.e.Rerun(t.Context(), r.start(t.Context()), anna, nil); !errors.Is(err, saga.ErrNotFinished) {
			t.Errorf("of an unfinished one: %v", err)
		}
		runEngine(t, r.e, func(ctx context.Context) {
			s, err := r.s.Start(ctx, saga.Resource{Type: "order", ID: "7"}, order{Reserved: true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			old := r.wait(ctx, s.ID)
			by := anna
			by.Request = "r1"
			again, err := r.e.Rerun(ctx, old.ID, by, nil)
			if err != nil {
				t.Fatal(err)
			}
			x := r.wait(ctx, again.ID)
			if *x.RerunOf != old.ID || x.Resource != old.Resource || x.Status != store.StatusCompleted {
				t.Errorf("got %+v", x)
			}
			if old = r.get(old.ID); old.RerunAs == nil || *old.RerunAs != x.ID || old.Status != store.StatusCompleted {
				t.Errorf("the old one is %+v", old)
			}
			twice, err := r.e.Rerun(ctx, old.ID, by, nil)
			if err != nil || twice.ID != again.ID {
				t.Errorf("the same request started %v, %v; want %s", twice, err, again.ID)
			}
			if _, err := r.e.Rerun(ctx, old.ID, by, &saga.RerunOptions{Partition: "other"}); !errors.Is(err, saga.ErrRequestUsed) {
				t.Errorf("the same request with other content: %v", err)
			}
			third, err := r.e.Rerun(ctx, old.ID, anna, nil)
			if err != nil || third.ID == again.ID {
				t.Errorf("without a request: %v, %v", third, err)
			}
			r.wait(ctx, third.ID)
			if got := r.get(old.ID).RerunAs; *got != third.ID {
				t.Errorf("the link is to %s, want the last one", got)
			}
		})
		first := order{Reserved: true}
		if len(seen) != 4 || seen[2] != first || seen[3] != first {
			t.Errorf("the steps saw %v", seen)
		}
	})
}

// A process that does not know the saga leaves the plan to the first worker.
func TestRerunFromOutside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "pay", Execute: ok})
		outside, err := saga.New(saga.Config{Store: r.store, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		runEngine(t, r.e, func(ctx context.Context) {
			old := r.wait(ctx, r.start(ctx))
			again, err := outside.Rerun(ctx, old.ID, anna, nil)
			if err != nil {
				t.Fatal(err)
			}
			if x := r.wait(ctx, again.ID); x.Status != store.StatusCompleted || x.Version != 1 || len(x.Ledger) != 1 {
				t.Errorf("got %+v", x)
			}
		})
	})
}

// A repeated request finds its rerun though the text of the acts is erased.
func TestRerunRequestAfterErase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: ok})
		x := r.runOne()
		by := saga.By{Actor: "anna", Reason: "again", Request: "r1"}
		first, err := r.e.Rerun(t.Context(), x.ID, by, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.e.Erase(t.Context(), store.Filter{}, anna, nil); err != nil {
			t.Fatal(err)
		}
		second, err := r.e.Rerun(t.Context(), x.ID, by, nil)
		if err != nil || second.ID != first.ID {
			t.Errorf("%v, %v", second, err)
		}
	})
}
