package saga_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// cutOff is a store that a process can be cut off from, and whose clock can be
// wrong.
type cutOff struct {
	*memory.Store
	off  atomic.Bool
	skew time.Duration
}

var errOff = errors.New("connection refused")

func (s *cutOff) Renew(ctx context.Context, l []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if s.off.Load() {
		return nil, errOff
	}
	return s.Store.Renew(ctx, l, r)
}

func (s *cutOff) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	if s.off.Load() {
		return errOff
	}
	return s.Store.Advance(ctx, x, c)
}

func (s *cutOff) WithLock(ctx context.Context, id uuid.UUID, f func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if s.off.Load() {
		return nil, errOff
	}
	return s.Store.WithLock(ctx, id, f)
}

func (s *cutOff) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	if s.off.Load() {
		return nil, errOff
	}
	return s.Store.ClaimDue(ctx, q)
}

func (s *cutOff) Now(ctx context.Context) (time.Time, error) {
	if s.off.Load() {
		return time.Time{}, errOff
	}
	t, err := s.Store.Now(ctx)
	return t.Add(s.skew), err
}

func TestLongStepKeepsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		step := saga.Step[order]{Name: "a", Timeout: saga.NoTimeout, Execute: func(ctx context.Context, _ *saga.Run[order]) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(24 * time.Hour):
				return nil
			}
		}}
		r := newRig(t, saga.Config{Store: st}, step)
		other := newRig(t, saga.Config{Store: st}, step)
		go func() { _ = other.e.Run(t.Context()) }()
		x := r.runOne()
		if x.Status != store.StatusCompleted {
			t.Errorf("%s", x.Status)
		}
		wantEqual(t, "attempts", r.statuses(x.ID), []string{"a succeeded"})
	})
}

func TestWorkerThatCannotRenewStopsItsStepBeforeAnotherTakesOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memory.New()
		st := &cutOff{Store: inner}
		var cause error
		var stopped, taken time.Time
		cut := newRig(t, saga.Config{Store: st, Lease: 30 * time.Second}, saga.Step[order]{Name: "a", Compensate: ok, Execute: func(ctx context.Context, _ *saga.Run[order]) error {
			st.off.Store(true)
			<-ctx.Done()
			cause, stopped = context.Cause(ctx), time.Now()
			return ctx.Err()
		}})
		r := newRig(t, saga.Config{Store: inner, Lease: 30 * time.Second}, saga.Step[order]{Name: "a", Compensate: ok, Execute: func(ctx context.Context, run *saga.Run[order]) error {
			taken = time.Now()
			if !run.InDoubt {
				t.Error("the second attempt is not told that the first is in doubt")
			}
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- cut.e.Run(ctx) }()
		pass(0)
		id := cut.start(ctx)
		pass(time.Second)
		runEngine(t, r.e, func(ctx context.Context) { r.wait(ctx, id) })
		if !errors.Is(cause, saga.ErrAttemptLost) || !stopped.Before(taken) || taken.Sub(stopped) < 2*time.Second {
			t.Errorf("cause %v, stopped %v, taken over %v: want ErrAttemptLost a margin before", cause, stopped, taken)
		}
		wantEqual(t, "attempts", r.statuses(id), []string{"a abandoned", "a succeeded"})
		st.off.Store(false)
		pass(time.Minute)
		if a := r.attempts(id)[0]; !a.Late || a.LateStatus != store.AttemptInterrupted {
			t.Errorf("late %v %q: the loser's result is recorded on its own attempt", a.Late, a.LateStatus)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestResultUnderALapsedLeaseThatNobodyTookCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &cutOff{Store: memory.New()}
		r := newRig(t, saga.Config{Store: st, Lease: 30 * time.Second}, saga.Step[order]{Name: "a", Execute: func(ctx context.Context, _ *saga.Run[order]) error {
			st.off.Store(true)
			<-ctx.Done()
			return nil
		}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			// Its own sweep must not take it over either before the margin is over.
			pass(29 * time.Second)
			st.off.Store(false)
			x := r.wait(ctx, id)
			wantEqual(t, "attempts", r.statuses(x.ID), []string{"a succeeded"})
		})
	})
}

func TestBodyThatIgnoresItsEndIsReportedAndTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		free := make(chan struct{})
		var runs atomic.Int32
		var stuck atomic.Int32
		r := newRig(t, saga.Config{Workers: 2, Observe: func(_ context.Context, e saga.Event) {
			if e.Kind == saga.EventStepStuck {
				stuck.Add(1)
			}
		}}, saga.Step[order]{Name: "a", Timeout: time.Minute, Execute: func(context.Context, *saga.Run[order]) error {
			if runs.Add(1) == 1 {
				<-free
			}
			return nil
		}})
		runEngine(t, r.e, func(ctx context.Context) {
			begun := time.Now()
			id := r.start(ctx)
			r.wait(ctx, id)
			if took := time.Since(begun); took < 110*time.Second || took > 3*time.Minute {
				t.Errorf("taken over after %v, want its time-out, a lease without end, and a lease that ran out", took)
			}
			if stuck.Load() != 1 {
				t.Errorf("reported %d times", stuck.Load())
			}
			wantEqual(t, "attempts", r.statuses(id), []string{"a abandoned", "a succeeded"})
			close(free)
			pass(time.Second)
			if a := r.attempts(id)[0]; !a.Late {
				t.Error("its late result was not recorded")
			}
		})
	})
}

func TestEngineFollowsTheClockOfTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &cutOff{Store: memory.New(), skew: 10 * time.Hour}
		r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: func(_ context.Context, run *saga.Run[order]) error {
			if d := time.Until(run.Now()); d < 10*time.Hour-time.Second || d > 10*time.Hour+time.Second {
				t.Errorf("the step's clock is %v ahead", d)
			}
			return nil
		}})
		x := r.runOne()
		if d := time.Until(x.CreatedAt); d < 9*time.Hour {
			t.Errorf("created %v from now, want the store's clock", d)
		}
	})
}

// deaf is a store whose calls that write, once armed, do what they should but
// never say so, or do nothing and do not say so either.
type deaf struct {
	*memory.Store
	armed atomic.Int32 // 1: done, 2: not done
}

func (s *deaf) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	switch s.armed.Swap(0) {
	case 1:
		_ = s.Store.Advance(ctx, x, c)
		return errOff
	case 2:
		return errOff
	}
	return s.Store.Advance(ctx, x, c)
}

func TestUnknownCommitRunsNoStepTwice(t *testing.T) {
	for name, how := range map[string]int32{"done": 1, "not done": 2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := &deaf{Store: memory.New()}
				var j journal
				note := func(name string) fn {
					return func(context.Context, *saga.Run[order]) error { j.add(name); st.armed.Store(how); return nil }
				}
				r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: note("a")}, saga.Step[order]{Name: "b", Execute: note("b")})
				x := r.runOne()
				wantEqual(t, "ran", j.all(), []string{"a", "b"})
				wantEqual(t, "attempts", r.statuses(x.ID), []string{"a succeeded", "b succeeded"})
			})
		})
	}
}
