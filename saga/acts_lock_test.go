package saga_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

func newMemory() *memory.Store { return memory.New() }

var errCommit = errors.New("commit failed")

// A commitStore fails commits: before they are done, or, with lost, after.
type commitStore struct {
	store.Store
	fails atomic.Int64
	lost  bool
}

func (s *commitStore) WithLock(ctx context.Context, id uuid.UUID, f func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if s.fails.Load() <= 0 {
		return s.Store.WithLock(ctx, id, f)
	}
	s.fails.Add(-1)
	if s.lost {
		if _, err := s.Store.WithLock(ctx, id, f); err != nil {
			return nil, err
		}
		return nil, errCommit
	}
	return s.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
		if c, err := f(x); err != nil {
			return c, err
		}
		return store.Change{}, errCommit
	})
}

// TestActsUnderLock: an act and its entry in the trail are one transaction.
func TestActsUnderLock(t *testing.T) {
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := &commitStore{Store: newMemory()}
				r := actsRig(t, st)
				status := store.StatusHalted
				if c.name == "retry" {
					status = store.StatusFailed
				}
				id := r.row(status)
				before := r.get(id)
				trail := func() []store.AuditEntry {
					all, err := st.Audit(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					return all
				}
				for _, request := range []string{"", "r-1"} {
					st.fails.Store(1)
					by := saga.By{Actor: "anna", Reason: "on call", Request: request}
					if x, err := c.do(r.e, t.Context(), id, by, nil); !errors.Is(err, errCommit) || x != nil {
						t.Errorf("the commit failed, and it returned %v, %v", x, err)
					}
					if now := r.get(id); !reflect.DeepEqual(before, now) || len(trail()) > 0 {
						t.Errorf("the commit failed, and something was written: %+v, %+v", now, trail())
					}
				}
				if _, err := c.do(r.e, t.Context(), id, anna, &saga.ActOptions{IfRevision: before.Revision + 1}); !errors.Is(err, saga.ErrChanged) {
					t.Errorf("of another revision: %v", err)
				}
				if now := r.get(id); !reflect.DeepEqual(before, now) || len(trail()) > 0 {
					t.Errorf("refused, and something was written")
				}
				x, err := c.do(r.e, t.Context(), id, anna, &saga.ActOptions{IfRevision: before.Revision})
				if err != nil || x.Revision != before.Revision+1 {
					t.Fatalf("of this revision: %v, %v", x, err)
				}
				if all := trail(); len(all) != 1 || all[0].Act != c.name || all[0].At != store.Micros(time.Now()) {
					t.Errorf("trail %+v", all)
				}
				if _, err := c.do(r.e, t.Context(), id, anna, &saga.ActOptions{IfRevision: before.Revision}); !errors.Is(err, saga.ErrChanged) {
					t.Errorf("once more, of the revision that was: %v", err)
				}
			})
		})
	}
}

// TestActAfterLostReply: the reply to the commit was lost. With a name the act is
// known to have been done; without one the caller is told that it is not known.
func TestActAfterLostReply(t *testing.T) {
	for _, c := range calls {
		bubble(t, func(t *testing.T) {
			st := &commitStore{Store: newMemory(), lost: true}
			r := actsRig(t, st)
			status := store.StatusHalted
			if c.name == "retry" {
				status = store.StatusFailed
			}
			by := saga.By{Actor: "anna", Reason: "on call", Request: "r-1"}
			for name, want := range map[string]error{"": errCommit, "r-1": nil} {
				by.Request = name
				id := r.row(status)
				st.fails.Store(1)
				if _, err := c.do(r.e, t.Context(), id, by, nil); !errors.Is(err, want) {
					t.Errorf("%s, request %q: %v", c.name, name, err)
				}
				if trail, _ := st.Audit(t.Context(), id); len(trail) != 1 {
					t.Errorf("%s, request %q: %d entries", c.name, name, len(trail))
				}
			}
		})
	}
}

// TestRequestEndsTheStep: Compensate while an attempt runs. Its ctx ends, for the
// reason given, within a third of a lease, and what the step then reports is
// undone.
func TestRequestEndsTheStep(t *testing.T) {
	for _, act := range []saga.Act{saga.ActCompensate, saga.ActCancel} {
		bubble(t, func(t *testing.T) {
			const lease = 30 * time.Second
			var asked, ended time.Time
			var cause error
			var undos atomic.Int64
			r := newRig(t, saga.Config{Lease: lease}, saga.Step[order]{
				Name: "a", Timeout: saga.NoTimeout,
				Execute: func(ctx context.Context, run *saga.Run[order]) error {
					<-ctx.Done()
					ended, cause = time.Now(), context.Cause(ctx)
					return nil // its effect was had before it noticed
				},
				Compensate: func(context.Context, *saga.Run[order]) error { undos.Add(1); return nil },
			}, saga.Step[order]{Name: "b", Execute: ok})
			runEngine(t, r.e, func(ctx context.Context) {
				id := r.start(ctx)
				pass(45 * time.Second)
				asked = time.Now()
				x, err := r.e.Act(ctx, id, act, anna, nil)
				if err != nil || x.Request == nil || x.Status != store.StatusRunning {
					t.Fatalf("%v, %v", x, err)
				}
				x, err = r.e.WaitAct(ctx, id, act)
				if err != nil || x.Status != store.StatusCompensated || undos.Load() != 1 {
					t.Errorf("%s after %d undos, %v", x.Status, undos.Load(), err)
				}
				if !errors.Is(cause, saga.ErrInterrupted) || ended.Sub(asked) > lease/3 {
					t.Errorf("ctx ended %v after it was asked for, with %v", ended.Sub(asked), cause)
				}
				if got := r.statuses(id); !slices.Equal(got, []string{"a succeeded", "undo a succeeded"}) {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// TestForcedActsAndLateEffects: by force an act does not wait for the attempt. A
// halted row does not move when its step then completes, and a compensation
// undoes what came late, once.
func TestForcedActsAndLateEffects(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var undos atomic.Int64
		goOn := make(chan struct{})
		r := newRig(t, saga.Config{}, saga.Step[order]{
			Name: "a", Timeout: 2 * time.Minute,
			Execute:    func(context.Context, *saga.Run[order]) error { <-goOn; return nil },
			Compensate: func(context.Context, *saga.Run[order]) error { undos.Add(1); return nil },
		}, saga.Step[order]{Name: "b", Execute: ok})
		force := &saga.ActOptions{Force: true}
		runEngine(t, r.e, func(ctx context.Context) {
			parked, turned := r.start(ctx), r.start(ctx)
			pass(time.Second)
			if _, err := r.e.Halt(ctx, parked, anna, force); err != nil {
				t.Fatal(err)
			}
			if _, err := r.e.Compensate(ctx, turned, anna, force); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			before := r.get(parked)
			goOn <- struct{}{}
			goOn <- struct{}{}
			pass(time.Second)
			x := r.get(parked)
			if x.Status != store.StatusHalted || x.Step != "a" || x.Epoch != before.Epoch || x.Entry("a").Status != store.StepDone || x.Reason != "on call" || x.ReasonBy != "anna" {
				t.Errorf("the halted row has moved: %+v", x)
			}
			if r.get(turned).Status != store.StatusCompensating || undos.Load() != 0 {
				t.Errorf("undone before the body's time was over: %s", r.get(turned).Status)
			}
			pass(3 * time.Minute)
			if x := r.get(turned); x.Status != store.StatusCompensated || undos.Load() != 1 {
				t.Errorf("%s after %d undos", x.Status, undos.Load())
			}
			if x := r.get(parked); x.Status != store.StatusHalted || x.Step != "a" {
				t.Errorf("the halted row has moved: %+v", x)
			}
			if got := r.statuses(parked); !slices.Equal(got, []string{"a abandoned"}) {
				t.Errorf("%v", got)
			}
		})
	})
}

// TestHaltWaitsForTheStep: a Halt that is requested does not disturb the attempt;
// the row parks behind it, and stays.
func TestHaltWaitsForTheStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ended := false
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: func(ctx context.Context, _ *saga.Run[order]) error {
			select {
			case <-ctx.Done():
				ended = true
			case <-time.After(time.Minute):
			}
			return nil
		}}, saga.Step[order]{Name: "b", Execute: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Second)
			if x, err := r.e.Halt(ctx, id, anna, nil); err != nil || x.Request == nil || !x.Request.Halt {
				t.Fatalf("%v, %v", x, err)
			}
			x, err := r.e.WaitAct(ctx, id, saga.ActHalt)
			if err != nil || ended || x.Status != store.StatusHalted || x.Step != "b" || x.Entry("a").Status != store.StepDone {
				t.Errorf("%+v, %v", x, err)
			}
			pass(time.Hour)
			if now := r.get(id); now.Revision != x.Revision {
				t.Errorf("the halted row has moved: %+v", now)
			}
			if _, err := r.e.Resume(ctx, id, anna, nil); err != nil {
				t.Fatal(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
		})
	})
}

// TestActsDoNotInterleave lets many people act on executions that are at work.
// Whatever order it comes to, the trail of each tells one story: each entry
// begins with the status of a row that was there, and attempts of a row follow
// each other.
func TestActsDoNotInterleave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		slow := func(ctx context.Context, _ *saga.Run[order]) error {
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Second):
			}
			return ctx.Err()
		}
		step := func(name string) saga.Step[order] {
			return saga.Step[order]{Name: name, Execute: slow, Compensate: ok, Retry: quick, CompensateRetry: quick, Timeout: 10 * time.Second}
		}
		r := newRig(t, saga.Config{Lease: 6 * time.Second}, step("a"), step("b"), step("c"))
		runEngine(t, r.e, func(ctx context.Context) {
			var ids []uuid.UUID
			for range 8 {
				ids = append(ids, r.start(ctx))
			}
			done := make(chan int)
			for person := range 6 {
				go func() {
					n := 0
					for i := range 12 {
						<-time.After(time.Duration(400+37*person) * time.Millisecond)
						c := calls[(person*5+i)%len(calls)]
						by := saga.By{Actor: fmt.Sprintf("p%d", person), Reason: "storm", Request: fmt.Sprintf("%d-%d", person, i)}
						if _, err := c.do(r.e, ctx, ids[(person+i)%len(ids)], by, &saga.ActOptions{Force: i%4 == 0}); err == nil {
							n++
						}
					}
					done <- n
				}()
			}
			total := 0
			for range 6 {
				total += <-done
			}
			pass(10 * time.Minute)
			noted := 0
			for _, id := range ids {
				x := r.get(id)
				if x.Attempt != nil || x.Request != nil || !x.Status.Finished() && x.Status != store.StatusHalted {
					t.Errorf("it does not end: %+v", x)
				}
				trail, _ := r.store.Audit(ctx, id)
				for _, a := range trail {
					if a.Actor != "engine" {
						noted++
					}
					if saga.Act(a.Act) == saga.ActResume && a.Before == a.After && a.Before == store.StatusHalted {
						t.Errorf("resumed, and still halted: %+v", a)
					}
				}
				var last time.Time
				for _, a := range r.attempts(id) {
					if a.StartedAt.Before(last) {
						t.Errorf("%s: attempt %+v began before %v, when the one before it ended", id, a, last)
					}
					last = *a.FinishedAt
				}
			}
			if noted != total || total < 20 {
				t.Errorf("%d acts were done, %d are in the trail", total, noted)
			}
		})
	})
}
