package saga_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// line is a, the pivot, and b behind it; each does what it is given.
func line(a, pivot, b fn) []saga.Step[order] {
	once := saga.RetryPolicy{Attempts: 2, Initial: time.Second, Max: time.Second}
	return []saga.Step[order]{
		{Name: "a", Execute: a, Compensate: ok, Retry: once},
		{Name: "pivot", Pivot: true, Execute: pivot, Retry: once},
		{Name: "b", Execute: b, Retry: once},
	}
}

func TestPivot(t *testing.T) {
	no := errors.New("no")
	unknown := saga.Unknown(no)
	for name, c := range map[string]struct {
		pivot, b fn
		want     store.Status
		reason   string
	}{
		"completes":             {ok, ok, store.StatusCompleted, ""},
		"fails cleanly":         {results(no, no), ok, store.StatusCompensated, ""},
		"fails in doubt":        {results(unknown, no), ok, store.StatusHalted, "pivot_in_doubt"},
		"in doubt, no effect":   {results(unknown, saga.NoEffect(no)), ok, store.StatusCompensated, ""},
		"in doubt, then done":   {results(unknown), ok, store.StatusCompleted, ""},
		"given up behind it":    {ok, results(no, no), store.StatusHalted, "past_pivot"},
		"given up at once":      {ok, results(saga.Fail(no)), store.StatusHalted, "past_pivot"},
		"skipped, then a fails": {results(saga.Skip("none")), results(saga.Fail(no)), store.StatusCompensated, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, saga.Config{}, line(ok, c.pivot, c.b)...)
				runEngine(t, r.e, func(ctx context.Context) {
					id := r.start(ctx)
					pass(time.Minute)
					if x := r.get(id); x.Status != c.want || x.Reason != c.reason {
						t.Errorf("%s %q", x.Status, x.Reason)
					}
				})
			})
		})
	}
}

func TestPastThePivotOnlyForceTurnsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		steps := line(ok, ok, ok)
		steps[2].Wait = time.Hour
		undone := false
		steps[0].Compensate = func(context.Context, *saga.Run[order]) error { undone = true; return nil }
		r := newRigFor(t, saga.Config{}, saga.Definition[order]{Name: "checkout", Steps: steps, Deadline: time.Minute})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(10 * time.Minute) // the deadline counts no more
			for _, act := range []saga.Act{saga.ActCancel, saga.ActCompensate} {
				if _, err := r.e.Act(ctx, id, act, anna, nil); !errors.Is(err, saga.ErrPastPivot) {
					t.Errorf("%s: %v", act, err)
				}
				if p, err := r.e.Plan(ctx, id, act, nil); err != nil || !errors.Is(p.Refused, saga.ErrPastPivot) {
					t.Errorf("%s: %+v, %v", act, p, err)
				}
			}
			if _, err := r.e.Cancel(ctx, id, anna, &saga.ActOptions{Force: true}); err != nil {
				t.Error(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompensated || !undone {
				t.Errorf("%s", x.Status)
			}
		})
	})
}

func TestARunningPivotIsNotCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		slow := func(context.Context, *saga.Run[order]) error { <-time.After(time.Minute); return nil }
		r := newRig(t, saga.Config{}, line(slow, slow, ok)...)
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(90 * time.Second)
			if _, err := r.e.Cancel(ctx, id, anna, nil); !errors.Is(err, saga.ErrPastPivot) {
				t.Error(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
			id = r.start(ctx)
			pass(30 * time.Second) // before it: a request, done when the step settles
			if _, err := r.e.Cancel(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompensated {
				t.Errorf("%s", x.Status)
			}
		})
	})
}

func TestPivotsAreChecked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: ok}).e
		for text, steps := range map[string][]saga.Step[order]{
			"two pivots":           {{Name: "a", Pivot: true, Execute: ok}, {Name: "b", Pivot: true, Execute: ok}},
			"behind the pivot":     {{Name: "a", Pivot: true, Execute: ok}, {Name: "b", Execute: ok, Compensate: ok}},
			"no pivot before it":   {{Name: "a", Execute: ok, AfterPivot: true}},
			"both Execute":         {{Name: "a", Execute: ok, ExecuteTx: store.NewTxFunc("x", func(context.Context, *saga.Run[order], store.Tx) error { return nil })}},
			"does not have":        {{Name: "a", ExecuteTx: store.NewTxFunc("x", func(context.Context, *saga.Run[order], store.Tx) error { return nil })}},
			"Start":                {{Name: "a", Children: &saga.Children[order]{}}},
			"another compensation": {{Name: "a", Compensate: ok, Children: &saga.Children[order]{}}},
		} {
			_, err := saga.Register(e, saga.Definition[order]{Name: "x", Steps: steps})
			if !errors.Is(err, saga.ErrInvalid) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", text, err)
			}
		}
		if _, err := saga.Register(e, saga.Definition[order]{Name: "y", Steps: []saga.Step[order]{
			{Name: "a", Pivot: true, Execute: ok}, {Name: "b", AfterPivot: true, Execute: ok, Compensate: ok},
		}}); err != nil {
			t.Error(err)
		}
	})
}

func TestClassify(t *testing.T) {
	no := errors.New("no")
	bubble(t, func(t *testing.T) {
		ran := map[string]int{}
		count := func(name string, err error) fn {
			return func(context.Context, *saga.Run[order]) error { ran[name]++; return err }
		}
		halt := func(err error) error { return saga.Halt(err.Error()) }
		for name, c := range map[string]struct {
			step, definition func(error) error
			err              error
			want             store.Status
			ran              int
		}{
			"step":       {func(err error) error { return saga.Fail(err) }, halt, no, store.StatusFailed, 1},
			"definition": {nil, halt, no, store.StatusHalted, 1},
			"itself":     {func(err error) error { return err }, halt, no, store.StatusFailed, 3},
			"nil":        {func(error) error { return nil }, halt, no, store.StatusFailed, 3},
			"panic":      {func(error) error { panic("oh") }, halt, no, store.StatusFailed, 3},
			"an outcome": {func(error) error { t.Error("asked"); return nil }, nil, saga.Fail(no), store.StatusFailed, 1},
		} {
			r := newRigFor(t, saga.Config{}, saga.Definition[order]{Name: "checkout", Classify: c.definition, Steps: []saga.Step[order]{
				{Name: "a", Execute: count(name, c.err), Classify: c.step, Retry: quick},
			}})
			runEngine(t, r.e, func(ctx context.Context) {
				id := r.start(ctx)
				pass(time.Minute)
				if x := r.get(id); x.Status != c.want || ran[name] != c.ran {
					t.Errorf("%s: %s after %d", name, x.Status, ran[name])
				}
			})
		}
	})
}

func TestContinueAsNew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		n := 0
		step := saga.Step[order]{Name: "renew", Await: &saga.Await[order]{Signal: paidSignal, Timeout: time.Hour}, Execute: func(ctx context.Context, run *saga.Run[order]) error {
			if err := receive(&log, nil)(ctx, run); err != nil {
				return err
			}
			run.State.Charged = true
			if n++; n < 3 {
				return saga.ContinueAsNew("another year")
			}
			return nil
		}}
		d := byResource("", step, saga.Step[order]{Name: "end", Execute: ok})
		d.Deadline = 24 * time.Hour
		r := newRigFor(t, saga.Config{}, d)
		runEngine(t, r.e, func(ctx context.Context) {
			first := r.mustStartFor("1", &saga.StartOptions{Tags: map[string]string{"tenant": "x"}})
			pass(time.Minute)
			r.send(first.ID, 1, "k1")
			if got := r.send(first.ID, 2, "k2"); got != saga.SignalBuffered { // moves on with it
				t.Error(got)
			}
			x := r.wait(ctx, first.ID)
			if x.Status != store.StatusCompleted || x.ContinuedAs == nil || x.Reason != "another year" {
				t.Fatalf("%s, %v, %q", x.Status, x.ContinuedAs, x.Reason)
			}
			y := r.wait(ctx, *x.ContinuedAs)
			if y.Continues == nil || *y.Continues != x.ID || y.Key != "1" || y.Tags["tenant"] != "x" || y.Resource != x.Resource || y.ContinuedAs == nil {
				t.Fatalf("%+v", y)
			}
			if d := y.Deadline.Sub(y.CreatedAt); d != 24*time.Hour {
				t.Errorf("deadline after %v", d)
			}
			z, err := r.e.Live(ctx, "checkout", "1")
			if err != nil || z.ID != *y.ContinuedAs {
				t.Error(z, err)
			}
			if got, err := paidSignal.SendKey(ctx, r.e, "checkout", "1", payment{1}, &saga.SignalOptions{Key: "k1"}); got != saga.SignalDuplicate || err != nil {
				t.Error(got, err)
			}
			if z := r.wait(ctx, z.ID); z.Status != store.StatusCompleted || z.ContinuedAs != nil {
				t.Errorf("%s", z.Status)
			}
		})
		if !slices.Equal(log, []string{"1 true <nil>", "2 true <nil>", "0 false <nil>"}) {
			t.Errorf("%q", log)
		}
	})
}
