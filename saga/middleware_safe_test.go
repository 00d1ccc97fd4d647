package saga_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// noting returns a middleware that writes down what passes it.
func noting(j *journal, name string) saga.Middleware {
	return func(ctx context.Context, call *saga.Call, next func(context.Context) error) error {
		at := fmt.Sprintf("%s %s %s %d", name, call.Step, call.Direction, call.Attempt)
		j.add(at)
		err := next(ctx)
		j.add(at + " " + string(call.Verdict(err).Kind))
		return err
	}
}

func TestMiddlewareOfTheEngineStandsOutsideThatOfTheSaga(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		body := func(err error) fn {
			return func(_ context.Context, run *saga.Run[order]) error { j.add("step " + run.Step); return err }
		}
		r := newRigFor(t, saga.Config{Middleware: []saga.Middleware{noting(&j, "engine1"), noting(&j, "engine2")}}, saga.Definition[order]{
			Name: "checkout", Middleware: []saga.Middleware{noting(&j, "saga1"), noting(&j, "saga2")},
			Steps: []saga.Step[order]{{Name: "a", Execute: body(nil), Compensate: body(nil)}, {Name: "b", Execute: body(saga.Fail(errors.New("no")))}},
		})
		other, err := saga.Register(r.e, saga.Definition[order]{Name: "other", Steps: []saga.Step[order]{{Name: "c", Execute: body(nil)}}})
		if err != nil {
			t.Fatal(err)
		}
		r.runOne()
		around := func(step, direction, verdict string) (out []string) {
			for _, name := range []string{"engine1", "engine2", "saga1", "saga2"} {
				out = append(out, name+" "+step+" "+direction+" 1")
			}
			out = append(out, "step "+step)
			for _, name := range []string{"saga2", "saga1", "engine2", "engine1"} {
				out = append(out, name+" "+step+" "+direction+" 1 "+verdict)
			}
			return out
		}
		want := append(append(around("a", "execute", "succeeded"), around("b", "execute", "gave_up")...), around("a", "compensate", "succeeded")...)
		wantEqual(t, "calls", j.all(), want)

		j.lines = nil
		runEngine(t, r.e, func(ctx context.Context) {
			x, err := other.Start(ctx, saga.Resource{}, order{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.wait(ctx, x.ID)
		})
		wantEqual(t, "calls of another saga", j.all(), []string{
			"engine1 c execute 1", "engine2 c execute 1", "step c", "engine2 c execute 1 succeeded", "engine1 c execute 1 succeeded",
		})
	})
}

func TestNilMiddlewareOfASagaIsRefused(t *testing.T) {
	e, err := saga.New(saga.Config{Store: memory.New(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	_, err = saga.Register(e, saga.Definition[order]{Name: "checkout", Steps: []saga.Step[order]{{Name: "a", Execute: ok}}, Middleware: []saga.Middleware{noting(nil, ""), nil}})
	if !errors.Is(err, saga.ErrInvalid) || !strings.Contains(err.Error(), `saga "checkout": Middleware[1] is nil`) {
		t.Errorf("Register: %v", err)
	}
}

// What a middleware can do wrong, on the first attempt of a step that can be
// undone and has one attempt.
func TestMiddlewareThatMisbehavesDoesNoHarm(t *testing.T) {
	type next = func(context.Context) error
	boom := errors.New("boom")
	for name, row := range map[string]struct {
		around func(ctx context.Context, call *saga.Call, next next) error
		step   error
		status store.Status
		runs   int // of the step's function
		undone bool
	}{
		"calls next twice": {
			around: func(ctx context.Context, _ *saga.Call, next next) error { _ = next(ctx); return next(ctx) },
			status: store.StatusCompensated, runs: 1, undone: true,
		},
		"calls next twice and forgets it": {
			around: func(ctx context.Context, _ *saga.Call, next next) error { err := next(ctx); _ = next(ctx); return err },
			status: store.StatusCompleted, runs: 1,
		},
		"never calls next": {
			around: func(context.Context, *saga.Call, next) error { return nil },
			status: store.StatusCompleted,
		},
		"fails without next": {
			around: func(context.Context, *saga.Call, next) error { return boom },
			status: store.StatusFailed,
		},
		"swallows the error": {
			around: func(ctx context.Context, _ *saga.Call, next next) error { _ = next(ctx); return nil },
			step:   boom, status: store.StatusCompleted, runs: 1,
		},
		"panics before": {
			around: func(context.Context, *saga.Call, next) error { panic(boom) },
			status: store.StatusCompensated, undone: true,
		},
		"panics after": {
			around: func(ctx context.Context, _ *saga.Call, next next) error { _ = next(ctx); panic(boom) },
			status: store.StatusCompensated, runs: 1, undone: true,
		},
		"hides an effect behind an error": {
			around: func(ctx context.Context, _ *saga.Call, next next) error { _ = next(ctx); return boom },
			status: store.StatusCompensated, runs: 1, undone: true,
		},
		"hides an effect behind a skip": {
			around: func(ctx context.Context, _ *saga.Call, next next) error {
				if call := next(ctx); call != nil {
					return call
				}
				return saga.Skip("nothing to see")
			},
			status: store.StatusCompleted, runs: 1,
		},
		"hides a doubt": {
			around: func(ctx context.Context, _ *saga.Call, next next) error { return fmt.Errorf("lost: %v", next(ctx)) },
			step:   saga.Unknown(boom), status: store.StatusCompensated, runs: 1, undone: true,
		},
		"has undone the effect": {
			around: func(ctx context.Context, _ *saga.Call, next next) error { _ = next(ctx); return saga.NoEffect(boom) },
			status: store.StatusFailed, runs: 1,
		},
		"passes an error on in other words": {
			around: func(ctx context.Context, _ *saga.Call, next next) error { return fmt.Errorf("no: %w", next(ctx)) },
			step:   boom, status: store.StatusFailed, runs: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var runs atomic.Int32
				var undone atomic.Bool
				mw := func(ctx context.Context, call *saga.Call, next func(context.Context) error) error {
					if call.Direction == store.DirectionCompensate {
						return next(ctx)
					}
					return row.around(ctx, call, next)
				}
				r := newRig(t, saga.Config{Middleware: []saga.Middleware{mw}}, saga.Step[order]{
					Name: "a", Retry: saga.RetryPolicy{Attempts: 1},
					Execute:    func(context.Context, *saga.Run[order]) error { runs.Add(1); return row.step },
					Compensate: func(context.Context, *saga.Run[order]) error { undone.Store(true); return nil },
				})
				if x := r.runOne(); x.Status != row.status || int(runs.Load()) != row.runs || undone.Load() != row.undone {
					t.Errorf("%s, %d runs, undone %v; want %s, %d, %v", x.Status, runs.Load(), undone.Load(), row.status, row.runs, row.undone)
				}
			})
		})
	}
}

// A skip in the place of a success must not lose the effect: if the saga fails
// later, the step is undone.
func TestEffectBehindASkipIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mw := func(ctx context.Context, call *saga.Call, next func(context.Context) error) error {
			if err := next(ctx); err != nil || call.Direction == store.DirectionCompensate {
				return err
			}
			return saga.Skip("as if")
		}
		r := newRig(t, saga.Config{Middleware: []saga.Middleware{mw}}, saga.Step[order]{Name: "a", Execute: ok, Compensate: ok},
			saga.Step[order]{Name: "b", Execute: results(saga.Fail(errors.New("no")))})
		x := r.runOne()
		wantEqual(t, "ledger", ledgerOf(x), []string{"a undone", "b pending"})
	})
}

func TestMiddlewareThatReturnsBeforeNextDoesIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var again atomic.Value
		mw := func(ctx context.Context, call *saga.Call, next func(context.Context) error) error {
			begun := make(chan struct{})
			go func() {
				close(begun)
				_ = next(ctx)
				again.Store(fmt.Sprint(next(ctx)))
			}()
			<-begun
			<-time.After(time.Second)
			return errors.New("took too long")
		}
		r := newRig(t, saga.Config{Middleware: []saga.Middleware{mw}}, saga.Step[order]{Name: "a", Retry: saga.RetryPolicy{Attempts: 1}, Execute: func(context.Context, *saga.Run[order]) error {
			<-time.After(10 * time.Second)
			return nil
		}})
		begun := time.Now()
		x := r.runOne()
		if took := time.Since(begun); took < 10*time.Second || x.Status != store.StatusFailed {
			t.Errorf("%s after %v", x.Status, took)
		}
		wantEqual(t, "ledger", ledgerOf(x), []string{"a in_doubt"})
		if s, _ := again.Load().(string); !strings.Contains(s, "called next again") {
			t.Errorf("the second next: %q", s)
		}
	})
}

func TestCallAndStartKnowTheTrace(t *testing.T) {
	type key struct{}
	for name, row := range map[string]struct {
		hook func(context.Context) string
		opts *saga.StartOptions
		want string
	}{
		"no hook":            {nil, nil, ""},
		"the options":        {nil, &saga.StartOptions{TraceParent: "00-a"}, "00-a"},
		"the caller's":       {func(ctx context.Context) string { s, _ := ctx.Value(key{}).(string); return s }, nil, "00-ctx"},
		"the options first":  {func(context.Context) string { return "00-b" }, &saga.StartOptions{TraceParent: "00-a"}, "00-a"},
		"a hook that panics": {func(context.Context) string { panic("hook") }, nil, ""},
		"one too long":       {func(context.Context) string { return strings.Repeat("0", 1001) }, nil, ""},
		"one not clean":      {func(context.Context) string { return "a\x00b" }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var got atomic.Value
				r := newRig(t, saga.Config{TraceParent: row.hook}, saga.Step[order]{Name: "a", Execute: func(_ context.Context, run *saga.Run[order]) error {
					got.Store(run.TraceParent)
					return nil
				}})
				runEngine(t, r.e, func(ctx context.Context) {
					x, err := r.s.Start(context.WithValue(ctx, key{}, "00-ctx"), saga.Resource{}, order{}, row.opts)
					if err != nil {
						t.Fatal(err)
					}
					r.wait(ctx, x.ID)
				})
				if got.Load() != row.want {
					t.Errorf("TraceParent %q, want %q", got.Load(), row.want)
				}
			})
		})
	}
}
