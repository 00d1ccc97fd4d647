package saga_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A gate is an observer that can be shut.
type gate struct {
	journal
	shut atomic.Pointer[chan struct{}]
}

func (g *gate) observe(_ context.Context, ev saga.Event) {
	if c := g.shut.Load(); c != nil {
		<-*c
	}
	g.add(ev.Execution.String() + " " + string(ev.Kind))
}

// close shuts the gate until the returned function is called.
func (g *gate) close() (open func()) {
	c := make(chan struct{})
	g.shut.Store(&c)
	return func() { g.shut.Store(nil); close(c) }
}

func TestEventsAreObservedBeforeTheCallReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &gate{}
		r := newRig(t, saga.Config{Observe: g.observe}, saga.Step[order]{Name: "a", Execute: ok})
		for n := range 100 {
			r.start(t.Context())
			if got := len(g.all()); got != n+1 {
				t.Fatalf("%d events observed after %d starts", got, n+1)
			}
		}
		if s := r.e.Stats(); s.EventsQueued != 0 || s.EventsDropped != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestObserverThatBlocksDoesNotHoldTheEngine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &gate{}
		r := newRig(t, saga.Config{Observe: g.observe}, saga.Step[order]{Name: "a", Execute: ok, Compensate: ok},
			saga.Step[order]{Name: "b", Execute: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			open := g.close()
			begun := time.Now()
			first := r.start(ctx)
			if took := time.Since(begun); took != 100*time.Millisecond {
				t.Errorf("the start waited %v for the observer, want 100 ms", took)
			}
			begun = time.Now()
			ids := []uuid.UUID{first}
			for range 50 {
				ids = append(ids, r.start(ctx))
			}
			for _, id := range ids {
				r.wait(ctx, id)
			}
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("51 executions took %v by an observer that is known to be slow", took)
			}
			if s := r.e.Stats(); s.EventsQueued == 0 || s.EventsDropped != 0 {
				t.Errorf("%+v", s)
			}
			open()
			synctest.Wait()
			if s := r.e.Stats(); s.EventsQueued != 0 || s.EventsDropped != 0 {
				t.Errorf("after it has caught up: %+v", s)
			}
			// Nothing is missing, and each execution's events are in order.
			got := g.all()
			for _, id := range ids {
				var mine []string
				for _, line := range got {
					if line[:36] == id.String() {
						mine = append(mine, line[37:])
					}
				}
				// A worker may be quicker than the caller of Start.
				if i := slices.Index(mine, "saga.started"); i >= 0 {
					mine = slices.Delete(mine, i, i+1)
				} else {
					t.Errorf("%s: its start is missing", id)
				}
				want := []string{"saga.step.started", "saga.step.finished", "saga.step.started", "saga.step.finished", "saga.completed"}
				if !slices.Equal(mine, want) {
					t.Errorf("%s: %q", id, mine)
				}
			}

			// It is waited for again.
			n := len(g.all())
			r.start(ctx)
			if len(g.all()) == n {
				t.Error("it is not waited for after it has caught up")
			}
		})
	})
}

func TestEventsThatAreTooManyAreDroppedAndCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &gate{}
		r := newRig(t, saga.Config{Observe: g.observe}, saga.Step[order]{Name: "a", Execute: ok})
		open := g.close()
		const starts = 3000
		for range starts {
			r.start(t.Context())
		}
		s := r.e.Stats()
		if s.EventsQueued != 1024 || s.EventsDropped != starts-1025 { // one is being delivered
			t.Errorf("%d queued, %d dropped", s.EventsQueued, s.EventsDropped)
		}
		open()
		synctest.Wait()
		if got := len(g.all()); got != 1025 {
			t.Errorf("%d events observed", got)
		}
		r.start(t.Context())
		if got := len(g.all()); got != 1026 {
			t.Errorf("%d events observed after it recovered", got)
		}
	})
}

func TestObserverMayCallTheEngine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var r *rig
		var j journal
		r = newRig(t, saga.Config{Observe: func(ctx context.Context, ev saga.Event) {
			j.add(string(ev.Kind))
			if ev.Kind == saga.EventHalted {
				if _, err := r.e.Compensate(ctx, ev.Execution, anna, nil); err != nil {
					t.Error(err)
				}
				j.add("asked")
			}
		}}, saga.Step[order]{Name: "a", Execute: results(saga.Halt("look")), Compensate: ok})
		begun := time.Now()
		if x := r.runOne(); x.Status != store.StatusCompensated {
			t.Error(x.Status)
		}
		if got := j.all(); !slices.Contains(got, "asked") || slices.Index(got, "asked") > slices.Index(got, "saga.compensation_started") {
			t.Errorf("events %q", got)
		}
		if s := r.e.Stats(); s.EventsDropped != 0 || time.Since(begun) > 2*time.Second {
			t.Errorf("%+v after %v", s, time.Since(begun))
		}
	})
}

func TestObserverGetsTheValuesOfTheCallersCtxAndNotItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		var seen []any
		r := newRig(t, saga.Config{Observe: func(ctx context.Context, _ saga.Event) {
			<-time.After(time.Second) // longer than Start waits
			seen = append(seen, ctx.Value(key{}), ctx.Err())
		}}, saga.Step[order]{Name: "a", Execute: ok})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "caller"))
		r.start(ctx)
		cancel()
		pass(2 * time.Second)
		if !slices.Equal(seen, []any{"caller", nil}) {
			t.Errorf("value and end: %v", seen)
		}
	})
}

// The goroutine of an observer that ends it is replaced, and those that wait go
// on.
func TestObserverThatEndsItsGoroutineDoesNoHarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n atomic.Int32
		r := newRig(t, saga.Config{Observe: func(context.Context, saga.Event) { n.Add(1); runtime.Goexit() }}, saga.Step[order]{Name: "a", Execute: ok})
		begun := time.Now()
		for range 10 {
			r.start(t.Context())
		}
		if n.Load() != 10 || time.Since(begun) > 0 {
			t.Errorf("%d events in %v", n.Load(), time.Since(begun))
		}
	})
}
