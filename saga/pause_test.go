package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// in starts an execution in a partition.
func (r *rig) in(ctx context.Context, partition string) uuid.UUID {
	r.t.Helper()
	x, err := r.s.Start(ctx, saga.Resource{Type: "order", ID: "1"}, order{}, &saga.StartOptions{Partition: partition})
	if err != nil {
		r.t.Fatal(err)
	}
	return x.ID
}

func (r *rig) pause(s saga.Scope) {
	r.t.Helper()
	if err := r.e.Pause(r.t.Context(), s, anna); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) unpause(s saga.Scope) {
	r.t.Helper()
	if err := r.e.Unpause(r.t.Context(), s, anna); err != nil {
		r.t.Fatal(err)
	}
}

// still checks that an execution waits where it came due, published to nobody.
func (r *rig) still(id uuid.UUID, step string, due time.Time) {
	r.t.Helper()
	x := r.get(id)
	if x.Status != store.StatusRunning || x.Step != step || x.Attempt != nil || x.Resumes != 0 || x.OfferedAt != nil || x.DueAt == nil || !x.DueAt.Equal(store.Micros(due)) {
		r.t.Errorf("%s at %s, attempt %v, %d resumes, offered %v, due %v; want it at %s, due %v", x.Status, x.Step, x.Attempt, x.Resumes, x.OfferedAt, x.DueAt, step, due)
	}
}

func takes(d time.Duration) fn {
	return func(ctx context.Context, _ *saga.Run[order]) error {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
		return ctx.Err()
	}
}

// TestPause of a partition and of a saga, over two engines on one store: what
// runs goes on to the end of its step, what is started waits, others go on, and
// the end of the pause is heard in the other process, too.
func TestPause(t *testing.T) {
	for _, scope := range []saga.Scope{{Partition: "held"}, {Saga: "checkout"}} {
		t.Run(scope.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newMemory()
				steps := []saga.Step[order]{{Name: "a", Execute: takes(10 * time.Second)}, {Name: "b", Execute: ok}}
				a, b := newRig(t, saga.Config{Store: st}, steps...), newRig(t, saga.Config{Store: st}, steps...)
				other, err := saga.Register(a.e, saga.Definition[order]{Name: "other", Steps: steps})
				if err != nil {
					t.Fatal(err)
				}
				runEngine(t, a.e, func(ctx context.Context) {
					runEngine(t, b.e, func(ctx context.Context) {
						begun := time.Now()
						first := a.in(ctx, "held")
						pass(5 * time.Second)
						b.pause(scope)
						pass(2 * time.Second)
						started := time.Now()
						second := a.in(ctx, "held")
						x, err := other.Start(ctx, saga.Resource{Type: "order", ID: "2"}, order{}, &saga.StartOptions{Partition: "free"})
						if err != nil {
							t.Fatal(err)
						}
						pass(5 * time.Minute)
						a.still(first, "b", begun.Add(10*time.Second))
						a.still(second, "a", started)
						if y := a.get(x.ID); y.Status != store.StatusCompleted {
							t.Errorf("what is not paused is %s", y.Status)
						}
						b.unpause(scope)
						pass(12 * time.Second)
						for _, id := range []uuid.UUID{first, second} {
							if y := a.get(id); y.Status != store.StatusCompleted {
								t.Errorf("after the pause: %s at %s", y.Status, y.Step)
							}
						}
					})
				})
			})
		})
	}
}

// TestPauseKeepsPlaces: after a pause, executions go on in the order in which
// they came due, retries among them.
func TestPauseKeepsPlaces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var ran []uuid.UUID
		fail := atomic.Bool{}
		r := newRig(t, saga.Config{Workers: 1}, saga.Step[order]{Name: "a", Retry: quick, Execute: func(_ context.Context, run *saga.Run[order]) error {
			if fail.Load() {
				return saga.RetryAfter(3500*time.Millisecond, errors.New("busy"))
			}
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, run.Execution)
			return nil
		}})
		runEngine(t, r.e, func(ctx context.Context) {
			fail.Store(true)
			retried := r.start(ctx) // due again after 3.5 s
			pass(time.Millisecond)
			fail.Store(false)
			r.pause(saga.Scope{Partition: "default"})
			var want []uuid.UUID
			for i := range 6 {
				pass(time.Second)
				if i == 3 {
					want = append(want, retried)
				}
				want = append(want, r.start(ctx))
			}
			pass(5 * time.Minute)
			r.unpause(saga.Scope{Partition: "default"})
			pass(5 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(ran, want) {
				t.Errorf("ran\n%v, want\n%v", ran, want)
			}
		})
	})
}

// TestPauseIsNoLoss: pointers of what is paused are dropped, nothing is
// published, no resume is counted and nothing given up, however long it lasts.
func TestPauseIsNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		post := &lostPost{consumers: 1}
		r := newRig(t, saga.Config{Publisher: post}, saga.Step[order]{Name: "a", Execute: ok})
		runEngineWith(t, r.e, func(ctx context.Context) {
			begun := time.Now()
			id := r.start(ctx)
			lost := r.start(ctx)
			pass(time.Second)
			r.pause(saga.Scope{Partition: "default"})
			if res, err := r.e.Handle(ctx, post.sent[0]); err != nil || res != (saga.Result{Disposition: saga.Ack, Reason: saga.DropPaused}) {
				t.Errorf("%v, %v", res, err)
			}
			r.still(id, "a", begun)
			started := time.Now()
			late := r.start(ctx)
			pass(30 * time.Minute)
			r.still(id, "a", begun)
			r.still(late, "a", started)
			if x := r.get(lost); x.Resumes != 0 || x.Status != store.StatusRunning {
				t.Errorf("the pointer that was lost before: %s, %d resumes", x.Status, x.Resumes)
			}
			report, err := r.e.ResumeStuck(ctx, anna, nil)
			if err != nil || len(report.Items) != 3 {
				t.Errorf("%v, %v", report, err)
			}
			for _, item := range report.Items {
				if item.Result != saga.ResumeSkipped || item.Reason != "paused" {
					t.Errorf("%+v", item)
				}
			}
			if n := len(post.sent); n != 2 {
				t.Errorf("%d pointers were published", n)
			}
			r.unpause(saga.Scope{Partition: "default"})
			pass(time.Second)
			if n := len(post.sent); n != 5 {
				t.Errorf("%d pointers after the pause, want one of each", n)
			}
		}, idle{})
	})
}

// TestPauseTakesActs: starts and acts are taken, and what needs no step is done.
func TestPauseTakesActs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: takes(time.Minute), Compensate: ok}, saga.Step[order]{Name: "b", Execute: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			runs := r.start(ctx)
			pass(time.Second)
			r.pause(saga.Scope{Saga: "checkout"})
			id := r.start(ctx)
			if x, err := r.e.Cancel(ctx, id, anna, nil); err != nil || x.Status != store.StatusCancelled {
				t.Errorf("%v, %v", x, err)
			}
			if _, err := r.e.Cancel(ctx, runs, anna, nil); err != nil {
				t.Error(err)
			}
			pass(5 * time.Minute)
			if x := r.get(runs); x.Status != store.StatusCompensating || x.Request != nil || x.Attempt != nil {
				t.Errorf("the request was not applied, or its undo was run: %+v", x)
			}
			moved := r.start(ctx)
			if _, err := r.e.SkipStep(ctx, moved, anna, nil); err != nil {
				t.Error(err)
			}
			pass(time.Minute)
			if x := r.get(moved); x.Status != store.StatusRunning || x.Step != "b" || x.Attempt != nil {
				t.Errorf("skipped: %s at %s", x.Status, x.Step)
			}
			r.unpause(saga.Scope{Saga: "checkout"})
			pass(time.Minute)
			if a, b := r.get(runs), r.get(moved); a.Status != store.StatusCompensated || b.Status != store.StatusCompleted {
				t.Errorf("%s and %s", a.Status, b.Status)
			}
		})
	})
}

// TestPauseWorker: a paused worker takes nothing, the others do; the name without
// its random part holds over restarts.
func TestPauseWorker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newMemory()
		step := saga.Step[order]{Name: "a", Execute: takes(10 * time.Second)}
		chain := saga.Step[order]{Name: "b", Execute: ok}
		a, b := newRig(t, saga.Config{Store: st, Worker: "one"}, step, chain), newRig(t, saga.Config{Store: st, Worker: "two"}, step, chain)
		runEngine(t, a.e, func(ctx context.Context) {
			running := a.start(ctx)
			pass(time.Second)
			taking, changed := a.e.Taking()
			if !taking {
				t.Error("it does not take before the pause")
			}
			b.pause(saga.Scope{Worker: "one"})
			pass(2 * time.Second)
			select {
			case <-changed:
			default:
				t.Error("the pause was not announced")
			}
			if taking, changed = a.e.Taking(); taking {
				t.Error("it takes while it is paused")
			}
			id, _ := st.ID(ctx)
			if _, err := a.e.Handle(ctx, saga.Pointer{V: 1, Store: id, Execution: running}); !errors.Is(err, saga.ErrPaused) {
				t.Errorf("Handle: %v", err)
			}
			waiting := a.start(ctx)
			pass(time.Minute)
			if x := a.get(running); x.Step != "b" || x.Attempt != nil || x.Entry("a").Status != store.StepDone {
				t.Errorf("what ran when it was paused: %+v", x)
			}
			if x := a.get(waiting); x.Entry("a").Opens != 0 {
				t.Errorf("it took up work: %+v", x)
			}
			select {
			case <-changed:
				t.Error("the end of the pause was announced")
			default:
			}
			runEngine(t, b.e, func(ctx context.Context) {
				pass(2 * time.Minute)
				for _, id := range []uuid.UUID{running, waiting} {
					x := b.get(id)
					last := b.attempts(id)
					if x.Status != store.StatusCompleted || last[len(last)-1].Worker != b.e.Worker() {
						t.Errorf("%s by %s", x.Status, last[len(last)-1].Worker)
					}
				}
			})
		})
		again := newRig(t, saga.Config{Store: st, Worker: "one"}, step, chain)
		runEngine(t, again.e, func(ctx context.Context) {
			id := again.start(ctx)
			pass(5 * time.Minute)
			if x := again.get(id); x.Entry("a").Opens != 0 {
				t.Errorf("after a restart it took up work: %+v", x)
			}
			_, changed := again.e.Taking()
			again.unpause(saga.Scope{Worker: "one"})
			<-changed
			pass(15 * time.Second)
			if x := again.get(id); x.Status != store.StatusCompleted {
				t.Errorf("after the pause: %s", x.Status)
			}
		})
	})
}

// TestPauseHoldsOverRestarts: the pause is in the store.
func TestPauseHoldsOverRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newMemory()
		r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: ok})
		r.pause(saga.Scope{Partition: "default"})
		r = newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: ok})
		id := r.start(t.Context()) // before it has read what is paused
		runEngine(t, r.e, func(ctx context.Context) {
			pass(5 * time.Minute)
			if x := r.get(id); x.Entry("a").Opens != 0 || x.Resumes != 0 {
				t.Errorf("%+v", x)
			}
			r.unpause(saga.Scope{Partition: "default"})
			if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
		})
	})
}

// TestPauseList checks what is listed, once per request, and bad input.
func TestPauseList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := actsRig(t, nil)
		ctx := t.Context()
		named := saga.By{Actor: "anna", Reason: "on call", Request: "r-1"}
		p, s := saga.Scope{Partition: "p"}, saga.Scope{Saga: "s"}
		for range 2 {
			if err := r.e.Pause(ctx, p, named); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.e.Unpause(ctx, p, named); !errors.Is(err, saga.ErrRequestUsed) {
			t.Errorf("another act under its name: %v", err)
		}
		if err := r.e.Pause(ctx, s, named); !errors.Is(err, saga.ErrRequestUsed) {
			t.Errorf("another scope under its name: %v", err)
		}
		r.pause(s)
		pass(time.Second)
		if err := r.e.Pause(ctx, s, saga.By{Actor: "bob", Reason: "still"}); err != nil {
			t.Fatal(err)
		}
		now, err := r.e.Pauses(ctx)
		if err != nil || len(now) != 2 || now[0].Scope != p || now[1].Scope != s || now[1].Actor != "bob" || now[1].Reason != "still" || !now[1].At.Equal(store.Micros(time.Now())) {
			t.Errorf("%+v, %v", now, err)
		}
		r.unpause(p)
		r.unpause(p) // nothing to do, but noted
		log, err := r.e.PauseLog(ctx)
		var acts []string
		for _, l := range log {
			acts = append(acts, fmt.Sprintf("%s %s by %s", l.Act, l.Scope, l.Actor))
		}
		if want := []string{"pause partition/p by anna", "pause saga/s by anna", "pause saga/s by bob", "unpause partition/p by anna", "unpause partition/p by anna"}; err != nil || !slices.Equal(acts, want) {
			t.Errorf("%v, %v", acts, err)
		}
		for _, bad := range []saga.Scope{{}, {Partition: "p", Saga: "s"}, {Partition: "a.b"}, {Saga: "No"}, {Worker: strings.Repeat("w", 1001)}, {Worker: "\xff"}} {
			if err := r.e.Pause(ctx, bad, anna); !errors.Is(err, saga.ErrInvalid) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		if err := r.e.Pause(ctx, p, saga.By{Actor: "anna"}); !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("without a reason: %v", err)
		}
		bare := actsRig(t, &brokenStore{Store: newMemory()}) // no store.Cells
		if err := bare.e.Pause(ctx, p, anna); !errors.Is(err, saga.ErrNotSupported) {
			t.Errorf("without store.Cells: %v", err)
		}
		if now, err := bare.e.Pauses(ctx); err != nil || len(now) > 0 {
			t.Errorf("without store.Cells: %v, %v", now, err)
		}
	})
}

// slowCells is a store whose cells take a while to be read.
type slowCells struct {
	store.Store
	store.Cells
	slow atomic.Bool
}

func (s *slowCells) Cell(ctx context.Context, name string) (json.RawMessage, int64, error) {
	b, revision, err := s.Cells.Cell(ctx, name)
	if s.slow.Load() {
		<-time.After(5 * time.Second)
	}
	return b, revision, err
}

// TestPauseAtOnce: many pause and unpause at the same time, in several processes,
// and nothing is lost; and what a process read before a pause of its own does not
// undo it.
func TestPauseAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newMemory()
		done := make(chan error)
		for i := range 8 {
			r := actsRig(t, st)
			go func() {
				s := saga.Scope{Partition: fmt.Sprintf("p%d", i)}
				err := r.e.Pause(t.Context(), s, anna)
				if err == nil && i%2 == 0 {
					err = r.e.Unpause(t.Context(), s, anna)
				}
				done <- err
			}()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		r := actsRig(t, st)
		now, _ := r.e.Pauses(t.Context())
		log, _ := r.e.PauseLog(t.Context())
		if len(now) != 4 || len(log) != 12 {
			t.Errorf("%d pauses, %d entries", len(now), len(log))
		}
	})
	bubble(t, func(t *testing.T) {
		m := newMemory()
		st := &slowCells{Store: m, Cells: m}
		r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			st.slow.Store(true)
			pass(2 * time.Second) // a look is under way
			r.pause(saga.Scope{Partition: "default"})
			id := r.start(ctx)
			pass(20 * time.Second)
			if x := r.get(id); x.Entry("a").Opens != 0 {
				t.Errorf("the pause was forgotten: %+v", x)
			}
		})
	})
}

// No more is paused than a claim can name; what names more, as another build may
// have written it, does not keep the rest from running.
func TestManyPausesDoNotStopTheRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: ok})
		put := func(n int, revision int64) {
			t.Helper()
			var now []saga.Pause
			for i := range n {
				now = append(now, saga.Pause{Scope: saga.Scope{Partition: fmt.Sprintf("p%d", i)}, Actor: "anna", Reason: "x", At: time.Now()})
			}
			b, err := json.Marshal(map[string]any{"now": now, "log": []int{}})
			if err != nil {
				t.Fatal(err)
			}
			cells, _ := store.As[store.Cells](r.store)
			if _, err := cells.SetCell(t.Context(), "pauses", b, revision); err != nil {
				t.Fatal(err)
			}
		}
		put(500, 0)
		if err := r.e.Pause(t.Context(), saga.Scope{Partition: "p500"}, anna); !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("one more: %v", err)
		}
		for _, s := range []saga.Scope{{Partition: "p7"}, {Saga: "other"}, {Worker: "other"}} {
			if err := r.e.Pause(t.Context(), s, anna); err != nil {
				t.Errorf("%s: %v", s, err)
			}
		}
		put(store.MaxFilter+10, 4)
		runEngine(t, r.e, func(ctx context.Context) {
			held := r.in(ctx, "p7")
			id := r.start(ctx)
			pass(10 * time.Second)
			if x := r.get(id); x.Status != store.StatusCompleted {
				t.Errorf("what is not paused is %s", x.Status)
			}
			if x := r.get(held); x.Status != store.StatusRunning || x.Attempt != nil {
				t.Errorf("what is paused is %s", x.Status)
			}
		})
	})
}

// flakyCells refuses for a while to read cells.
type flakyCells struct {
	*memory.Store
	until time.Time
}

func (f *flakyCells) Cell(ctx context.Context, name string) (json.RawMessage, int64, error) {
	if time.Now().Before(f.until) {
		return nil, 0, errors.New("too many connections")
	}
	return f.Store.Cell(ctx, name)
}

// A worker that cannot read at its start what is paused runs nothing until it can.
func TestPauseHoldsOverARestartWhoseFirstLookFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &flakyCells{Store: memory.New()}
		ran := false
		r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: func(context.Context, *saga.Run[order]) error { ran = true; return nil }})
		r.pause(saga.Scope{Saga: "checkout"})
		r.start(t.Context())
		st.until = time.Now().Add(5 * time.Second)
		runEngine(t, r.e, func(ctx context.Context) {
			pass(30 * time.Second)
			if ran {
				t.Error("ran while paused")
			}
		})
	})
}
