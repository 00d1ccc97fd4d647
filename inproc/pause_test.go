package inproc_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/inproc"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

var ann = saga.By{Actor: "ann", Reason: "test"}

func pause(t *testing.T, e *saga.Engine) {
	t.Helper()
	if err := e.Pause(t.Context(), saga.Scope{Worker: e.Worker()}, ann); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func unpause(t *testing.T, e *saga.Engine) {
	t.Helper()
	if err := e.Unpause(t.Context(), saga.Scope{Worker: e.Worker()}, ann); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func wantDepth(t *testing.T, b *inproc.Broker, wantReady, wantConsumers int) {
	t.Helper()
	ready, consumers, err := b.Depth(t.Context(), "default")
	if err != nil || ready != wantReady || consumers != wantConsumers {
		t.Errorf("Depth: %d ready, %d consumers, %v; want %d and %d", ready, consumers, err, wantReady, wantConsumers)
	}
}

// A paused worker finishes what runs, takes nothing more, and is not counted;
// afterwards it takes up what waited.
func TestPausedWorkerTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int64
		d := saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "a", Execute: func(ctx context.Context, run *saga.Run[order]) error {
			begun.Add(1)
			return work(time.Second)(ctx, run)
		}}}}
		b, e, c := setUp(t, memory.New(), 0, map[string]int{"default": 2}, d)
		run(t, e, func(ctx context.Context) {
			synctest.Wait()
			wantDepth(t, b, 0, 1)
			ids := start(t, e, "checkout", "default", 5)
			synctest.Wait()
			pause(t, e)
			wantDepth(t, b, 3, 0)
			<-time.After(10 * time.Second)
			if n := begun.Load(); n != 2 {
				t.Errorf("%d steps began, want the 2 of before the pause", n)
			}
			for _, id := range ids[:2] {
				if x, err := e.Get(ctx, id); err != nil || x.Status != store.StatusCompleted {
					t.Errorf("what ran when the pause began: %+v, %v", x, err)
				}
			}
			wantDepth(t, b, 3, 0)
			unpause(t, e)
			wantDepth(t, b, 1, 1)
			for _, id := range ids {
				if x, err := e.Wait(ctx, id); err != nil || x.Status != store.StatusCompleted {
					t.Errorf("after the pause: %+v, %v", x, err)
				}
			}
		}, c)
		wantDepth(t, b, 0, 0)
	})
}

// The queue of a paused worker goes to the others.
func TestPausedWorkerLeavesTheWorkToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "a", Execute: work(time.Second)}}}
		st := memory.New()
		b, paused, c := setUp(t, st, 0, map[string]int{"default": 2}, d)
		other, err := saga.New(saga.Config{Store: st, Publisher: b, Worker: "other"})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.RegisterAll(d); err != nil {
			t.Fatal(err)
		}
		oc, err := inproc.NewConsumer(b, other, inproc.ConsumerConfig{Workers: map[string]int{"default": 1}})
		if err != nil {
			t.Fatal(err)
		}
		run(t, paused, func(context.Context) {
			run(t, other, func(ctx context.Context) {
				synctest.Wait()
				wantDepth(t, b, 0, 2)
				pause(t, paused)
				wantDepth(t, b, 0, 1)
				for _, id := range start(t, paused, "checkout", "default", 5) {
					if x, err := other.Wait(ctx, id); err != nil || x.Status != store.StatusCompleted {
						t.Errorf("execution: %+v, %v", x, err)
					}
					attempts, err := other.Attempts(ctx, id)
					if err != nil || len(attempts) != 1 || attempts[0].Worker != other.Worker() {
						t.Errorf("attempts: %+v, %v", attempts, err)
					}
				}
			}, oc)
		}, c)
	})
}

func TestShutdownWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "a", Execute: work(time.Second)}}}
		b, e, c := setUp(t, memory.New(), 0, map[string]int{"default": 1}, d)
		var ids []uuid.UUID
		run(t, e, func(context.Context) {
			synctest.Wait()
			ids = start(t, e, "checkout", "default", 2)
			synctest.Wait()
			pause(t, e)
			wantDepth(t, b, 1, 0)
		}, c)
		wantDepth(t, b, 1, 0)
		for i, want := range []store.Status{store.StatusCompleted, store.StatusRunning} {
			if x, err := e.Get(t.Context(), ids[i]); err != nil || x.Status != want {
				t.Errorf("execution %d: %+v, %v, want %s", i, x, err, want)
			}
		}
	})
}
