package saga_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// heard is an EventPublisher that remembers.
type heard struct {
	mu   sync.Mutex
	all  []saga.StatusEvent
	fail error // with this, after it was heard
	away bool
}

func (h *heard) PublishEvents(_ context.Context, events []saga.StatusEvent) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, events...)
	if h.fail != nil && h.fail.Error() == "panic" {
		panic("no")
	}
	return h.fail
}

func (h *heard) Connected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.away
}

func (h *heard) set(away bool, fail error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away, h.fail = away, fail
}

// of lists the statuses of an execution's events, in the order of their
// revisions, each once.
func (h *heard) of(id uuid.UUID) (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []saga.StatusEvent
	for _, e := range h.all {
		if e.Execution == id && !slices.ContainsFunc(list, func(o saga.StatusEvent) bool { return o.ID == e.ID }) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b saga.StatusEvent) int { return int(a.Revision - b.Revision) })
	for _, e := range list {
		out = append(out, fmt.Sprint(e.Previous, ">", e.Status))
	}
	return out
}

func eventful(steps ...saga.Step[order]) saga.Definition[order] {
	return saga.Definition[order]{Name: "checkout", Events: true, Steps: steps}
}

func TestStatusEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &heard{}
		r := newRigFor(t, saga.Config{Events: h}, eventful(
			saga.Step[order]{Name: "a", Execute: ok, Compensate: ok},
			saga.Step[order]{Name: "b", Wait: time.Hour, Execute: results(saga.Halt("look"), saga.Fail(errors.New("no")))}))
		runEngine(t, r.e, func(ctx context.Context) {
			x, err := r.s.Start(ctx, saga.Resource{Type: "order", ID: "7"}, order{}, &saga.StartOptions{Key: "k", TraceParent: "tp"})
			if err != nil {
				t.Fatal(err)
			}
			pass(2 * time.Hour)
			if _, err := r.e.Resume(ctx, x.ID, anna, nil); err != nil {
				t.Fatal(err)
			}
			r.wait(ctx, x.ID)
			pass(time.Second)
			want := []string{">running", "running>waiting", "waiting>running", "running>halted", "halted>running", "running>compensating", "compensating>compensated"}
			if got := h.of(x.ID); !slices.Equal(got, want) {
				t.Errorf("%q", got)
			}
			last := h.all[len(h.all)-1]
			id, _ := r.store.ID(ctx)
			want1 := saga.StatusEvent{
				V: 1, ID: fmt.Sprintf("%s/%d", x.ID, r.get(x.ID).Revision), Store: id, Execution: x.ID, Revision: r.get(x.ID).Revision,
				Saga: "checkout", Version: 1, Partition: "default", Resource: saga.Resource{Type: "order", ID: "7"}, Key: "k",
				Status: "compensated", Previous: "compensating", Step: last.Step, Direction: "compensate", Epoch: 1,
				FailureClass: "no", FailureStep: "b",
				At: *r.get(x.ID).FinishedAt, TraceParent: "tp",
			}
			if last != want1 {
				t.Errorf("%+v\nwant %+v", last, want1)
			}
			if len(h.all) != len(want) {
				t.Errorf("%d events were published", len(h.all))
			}
		})
	})
}

// What is started in other ways than by Start has events, too, and what is not
// asked for them has none.
func TestStatusEventsOfAllStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &heard{}
		st := memory.New()
		r := newRigFor(t, saga.Config{Store: st, Events: h}, eventful(saga.Step[order]{Name: "a", Execute: results(saga.Fail(errors.New("no")))}))
		if _, err := saga.Register(r.e, saga.Definition[leg]{Name: "silent", Steps: []saga.Step[leg]{
			{Name: "a", Execute: func(context.Context, *saga.Run[leg]) error { return nil }},
		}}); err != nil {
			t.Fatal(err)
		}
		starter, err := saga.New(saga.Config{Store: st, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		declared, err := saga.Declare[order](starter, "checkout", nil)
		if err != nil {
			t.Fatal(err)
		}
		silent, err := saga.Declare[leg](starter, "silent", nil)
		if err != nil {
			t.Fatal(err)
		}
		runEngine(t, r.e, func(ctx context.Context) {
			x, err := declared.Start(ctx, saga.Resource{}, order{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.wait(ctx, x.ID)
			again, err := r.e.Rerun(ctx, x.ID, anna, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.wait(ctx, again.ID)
			y, err := silent.Start(ctx, saga.Resource{}, leg{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.wait(ctx, y.ID)
			pass(2 * time.Second)
			if got := h.of(x.ID); !slices.Equal(got, []string{">running", "running>failed"}) {
				t.Errorf("declared: %q", got)
			}
			if got := h.of(again.ID); !slices.Equal(got, []string{">running", "running>completed"}) {
				t.Errorf("rerun: %q", got)
			}
			if got := h.of(y.ID); got != nil {
				t.Errorf("silent: %q", got)
			}
		})
	})
}

// A publisher that fails, panics or is away loses nothing, and Health says how
// long that has been so.
func TestStatusEventsAtLeastOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &heard{}
		r := newRigFor(t, saga.Config{Events: h}, eventful(saga.Step[order]{Name: "a", Execute: ok}))
		runEngine(t, r.e, func(ctx context.Context) {
			for _, fault := range []func(){
				func() { h.set(false, errors.New("no")) },
				func() { h.set(false, errors.New("panic")) },
				func() { h.set(true, nil) },
			} {
				fault()
				id := r.start(ctx)
				r.wait(ctx, id)
				pass(2 * time.Minute)
				if !slices.ContainsFunc(r.e.Health(ctx).Causes, func(c saga.Cause) bool { return c.Code == saga.HealthEventsLate }) {
					t.Errorf("Health says nothing of events")
				}
				h.set(false, nil)
				h.mu.Lock()
				h.all = nil
				h.mu.Unlock()
				pass(31 * time.Second)
				if got := h.of(id); !slices.Equal(got, []string{">running", "running>completed"}) {
					t.Errorf("%q", got)
				}
				n := len(h.all)
				pass(2 * time.Minute)
				if len(h.all) != n {
					t.Errorf("an event was published again")
				}
				if c := r.e.Health(ctx).Causes; len(c) > 0 {
					t.Errorf("%+v", c)
				}
			}
		})
	})
}

// What the last steps of a process record is published before Run returns.
func TestStatusEventsAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &heard{}
		var r *rig
		var id uuid.UUID
		stop := make(chan struct{})
		r = newRigFor(t, saga.Config{Events: h, SweepEvery: time.Minute}, eventful(saga.Step[order]{Name: "a", Execute: func(context.Context, *saga.Run[order]) error {
			close(stop)
			time.Sleep(time.Second) // in the bubble: the ctx of Run ends meanwhile
			return nil
		}}))
		runEngine(t, r.e, func(ctx context.Context) {
			id = r.start(ctx)
			<-stop
		})
		if got := h.of(id); !slices.Equal(got, []string{">running", "running>completed"}) {
			t.Errorf("%q", got)
		}
	})
}

// A store that records nothing cannot have events.
func TestStatusEventsNeedAnOutbox(t *testing.T) {
	e, err := saga.New(saga.Config{Store: struct{ store.Store }{memory.New()}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = saga.Register(e, eventful(saga.Step[order]{Name: "a", Execute: ok}))
	if !errors.Is(err, saga.ErrInvalid) || !strings.Contains(err.Error(), "store.Outbox") {
		t.Error(err)
	}
}
