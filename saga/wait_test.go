package saga_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// at returns an Execute that notes when it ran.
func at(when *[]time.Duration, begun time.Time) fn {
	return func(context.Context, *saga.Run[order]) error {
		*when = append(*when, time.Since(begun).Round(time.Millisecond))
		return nil
	}
}

func TestWait(t *testing.T) {
	day := time.Hour
	for name, step := range map[string]saga.Step[order]{
		"Wait":      {Wait: 3 * day},
		"WaitFunc":  {WaitFunc: func(order) time.Duration { return 3 * day }},
		"WaitUntil": {WaitUntil: func(order) time.Time { return time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var ran []time.Duration
				step.Name, step.Execute = "ship", at(&ran, time.Now())
				r := newRig(t, saga.Config{SweepEvery: time.Minute}, saga.Step[order]{Name: "pack", Execute: ok}, step)
				runEngine(t, r.e, func(ctx context.Context) {
					id := r.start(ctx)
					pass(day)
					x := r.get(id)
					if x.Status != store.StatusWaiting || x.Step != "ship" || x.Attempt != nil || x.OfferedAt != nil || !x.DueAt.Equal(time.Now().Add(2*day)) {
						t.Errorf("%s at %s, due %v, offered %v", x.Status, x.Step, x.DueAt, x.OfferedAt)
					}
					if d := r.diagnose(id); d.Code != saga.DiagnosisWaiting || d.Until == nil || !d.Until.Equal(*x.DueAt) {
						t.Errorf("%+v", d)
					}
					if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
						t.Errorf("%s", x.Status)
					}
				})
				if !slices.Equal(ran, []time.Duration{3 * day}) {
					t.Errorf("ran after %v", ran)
				}
			})
		})
	}
}

func TestWaitThatHasPassedRunsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ran []time.Duration
		begun := time.Now()
		r := newRig(t, saga.Config{SweepEvery: time.Minute},
			saga.Step[order]{Name: "a", WaitUntil: func(order) time.Time { return begun.Add(-time.Hour) }, Execute: at(&ran, begun)},
			saga.Step[order]{Name: "b", WaitFunc: func(order) time.Duration { return -time.Hour }, Execute: at(&ran, begun)},
			saga.Step[order]{Name: "c", WaitUntil: func(order) time.Time { return time.Time{} }, Execute: at(&ran, begun)})
		r.runOne()
		if !slices.Equal(ran, []time.Duration{0, 0, 0}) {
			t.Errorf("%v", ran)
		}
	})
}

// A wait is counted once: neither a failed attempt, nor a retry by hand, nor a
// halt makes it wait again.
func TestWaitIsCountedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ran []time.Duration
		begun := time.Now()
		broken := true
		r := newRig(t, saga.Config{SweepEvery: time.Minute}, saga.Step[order]{Name: "a", Wait: time.Hour, Retry: quick, Execute: func(context.Context, *saga.Run[order]) error {
			ran = append(ran, time.Since(begun).Round(time.Millisecond))
			if broken {
				return errors.New("no")
			}
			return nil
		}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(20 * time.Minute)
			if _, err := r.e.Halt(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			pass(20 * time.Minute)
			x, err := r.e.Resume(ctx, id, anna, nil)
			if err != nil || x.Status != store.StatusWaiting || !x.DueAt.Equal(begun.Add(time.Hour)) {
				t.Errorf("%v, %v", x, err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusFailed {
				t.Errorf("%s", x.Status)
			}
			broken = false
			if _, err := r.e.Retry(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			r.wait(ctx, id)
		})
		h := time.Hour
		if len(ran) != 4 || ran[0] != h || ran[3] > h+5*time.Second {
			t.Errorf("%v", ran)
		}
	})
}

func TestWaitUntilIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ran []time.Duration
		begun := time.Now()
		date := begun.Add(time.Hour)
		r := newRig(t, saga.Config{SweepEvery: time.Minute}, saga.Step[order]{Name: "a", WaitUntil: func(order) time.Time { return date }, Execute: at(&ran, begun)})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(30 * time.Minute)
			date = begun.Add(3 * time.Hour)
			r.wait(ctx, id)
		})
		if !slices.Equal(ran, []time.Duration{3 * time.Hour}) {
			t.Errorf("%v", ran)
		}
	})
}

func TestReschedule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ran []time.Duration
		begun := time.Now()
		r := newRig(t, saga.Config{SweepEvery: time.Minute}, saga.Step[order]{Name: "a", WaitUntil: func(order) time.Time { return begun.Add(time.Hour) }, Execute: at(&ran, begun)})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Minute)
			x, err := r.e.Reschedule(ctx, id, begun.Add(2*time.Hour), anna)
			if err != nil || !x.DueAt.Equal(begun.Add(2*time.Hour)) {
				t.Errorf("%v, %v", x, err)
			}
			pass(90 * time.Minute)
			if _, err := r.e.Reschedule(ctx, id, begun, anna); err != nil {
				t.Error(err)
			}
			r.wait(ctx, id)
			if _, err := r.e.Reschedule(ctx, id, begun, anna); !errors.Is(err, saga.ErrFinished) {
				t.Error(err)
			}
			trail, _ := r.e.Audit(ctx, id)
			if len(trail) != 2 || trail[0].Act != string(saga.ActReschedule) || trail[0].Detail == nil {
				t.Errorf("%+v", trail)
			}
		})
		if len(ran) != 1 || ran[0] != 91*time.Minute {
			t.Errorf("%v", ran)
		}
	})
}

func TestCancelAndCompensateWhileParked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		undone := 0
		r := newRig(t, saga.Config{SweepEvery: time.Minute},
			saga.Step[order]{Name: "a", Execute: ok, Compensate: func(context.Context, *saga.Run[order]) error { undone++; return nil }},
			saga.Step[order]{Name: "b", Wait: time.Hour, Execute: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			for _, act := range []saga.Act{saga.ActCancel, saga.ActCompensate} {
				id := r.start(ctx)
				pass(time.Minute)
				if _, err := r.e.Retry(ctx, id, anna, nil); !errors.Is(err, saga.ErrNotRetryable) {
					t.Error(err)
				}
				if _, err := r.e.Act(ctx, id, act, anna, nil); err != nil {
					t.Error(err)
				}
				if x := r.wait(ctx, id); x.Status != store.StatusCompensated || x.Gate != nil {
					t.Errorf("%s: %s, %+v", act, x.Status, x.Gate)
				}
			}
			id := r.start(ctx)
			pass(time.Minute)
			if _, err := r.e.SkipStep(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
				t.Error(x.Status)
			}
		})
		if undone != 2 {
			t.Errorf("undone %d times", undone)
		}
	})
}

func TestIf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		run := func(name string, state order) fn {
			return func(_ context.Context, r *saga.Run[order]) error {
				log = append(log, name)
				r.State = state
				return nil
			}
		}
		undo := func(name string) fn {
			return func(context.Context, *saga.Run[order]) error { log = append(log, "undo "+name); return nil }
		}
		paid := func(o order) bool { return o.Charged }
		r := newRig(t, saga.Config{SweepEvery: time.Minute},
			saga.Step[order]{Name: "a", If: func(order) bool { return true }, Execute: run("a", order{}), Compensate: undo("a")},
			saga.Step[order]{Name: "b", If: paid, Execute: run("b", order{}), Compensate: undo("b")},
			saga.Step[order]{Name: "c", If: paid, Wait: time.Hour, Execute: run("c", order{}), Compensate: undo("c")},
			saga.Step[order]{Name: "d", Execute: run("d", order{Charged: true}), Compensate: undo("d")},
			saga.Step[order]{Name: "e", If: paid, Isolated: true, Execute: run("e", order{}), Compensate: undo("e")},
			saga.Step[order]{Name: "f", Execute: results(saga.Fail(errors.New("no")))})
		x := r.runOne()
		if want := []string{"a", "d", "e", "undo e", "undo d", "undo a"}; !slices.Equal(log, want) {
			t.Errorf("%v", log)
		}
		if want := []string{"a undone", "b skipped", "c skipped", "d undone", "e undone", "f pending"}; !slices.Equal(ledgerOf(x), want) {
			t.Errorf("%v", ledgerOf(x))
		}
		if took := x.FinishedAt.Sub(x.CreatedAt); took > time.Second {
			t.Errorf("it took %v", took)
		}
		for _, a := range r.attempts(x.ID) {
			if a.Step == "b" || a.Step == "c" {
				t.Errorf("%+v", a)
			}
		}
	})
}

func TestAllStepsSkipped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		no := func(order) bool { return false }
		r := newRig(t, saga.Config{SweepEvery: time.Minute}, saga.Step[order]{Name: "a", If: no, Execute: ok}, saga.Step[order]{Name: "b", If: no, Execute: ok})
		if x := r.runOne(); x.Status != store.StatusCompleted || len(r.attempts(x.ID)) != 0 {
			t.Errorf("%s", x.Status)
		}
	})
}

func TestABrokenConditionHalts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := true
		r := newRig(t, saga.Config{SweepEvery: time.Minute}, saga.Step[order]{Name: "a", Execute: ok},
			saga.Step[order]{Name: "b", If: func(order) bool {
				if broken {
					panic("oh")
				}
				return true
			}, Execute: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Second)
			if x := r.get(id); x.Status != store.StatusHalted || x.Failure == nil || x.Failure.Class != "condition" {
				t.Errorf("%s, %+v", x.Status, x.Failure)
			}
			broken = false
			if _, err := r.e.Resume(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompleted || x.Failure != nil {
				t.Errorf("%s, %+v", x.Status, x.Failure)
			}
		})
	})
}

func TestStartAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ran []time.Duration
		begun := time.Now()
		r := newRig(t, saga.Config{SweepEvery: time.Minute}, saga.Step[order]{Name: "a", Wait: time.Hour, Execute: at(&ran, begun)})
		runEngine(t, r.e, func(ctx context.Context) {
			x, err := r.s.Start(ctx, saga.Resource{}, order{}, &saga.StartOptions{StartAfter: begun.Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			if y := r.get(x.ID); y.Status != store.StatusWaiting || y.Gate.Kind != store.GateStart {
				t.Errorf("%s, %+v", y.Status, y.Gate)
			}
			r.wait(ctx, x.ID)
		})
		if len(ran) != 1 || ran[0] != 2*time.Hour {
			t.Errorf("%v", ran)
		}
	})
}

func TestDeadline(t *testing.T) {
	step := func(name string, e fn) saga.Step[order] {
		return saga.Step[order]{Name: name, Execute: e, Compensate: ok, Timeout: saga.NoTimeout}
	}
	slow := func(ctx context.Context, _ *saga.Run[order]) error { <-ctx.Done(); return ctx.Err() }
	for name, second := range map[string]saga.Step[order]{
		"running": step("b", slow),
		"waiting": {Name: "b", Wait: 100 * time.Hour, Execute: ok},
		"backoff": {Name: "b", Execute: func(context.Context, *saga.Run[order]) error { return saga.RetryAfter(100*time.Hour, errors.New("no")) }},
		"awaits":  {Name: "b", Await: &saga.Await[order]{Signal: paidSignal}, Execute: ok},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, saga.Definition[order]{Name: "checkout", Deadline: time.Hour, Steps: []saga.Step[order]{step("a", ok), second}})
				runEngine(t, r.e, func(ctx context.Context) {
					id := r.start(ctx)
					x := r.wait(ctx, id)
					if x.Status != store.StatusCompensated || x.Reason != "deadline" || x.Cause == nil || x.Cause.Class != "deadline" {
						t.Errorf("%s, %q, %+v", x.Status, x.Reason, x.Cause)
					}
					if took := x.FinishedAt.Sub(x.CreatedAt); took < time.Hour || took > time.Hour+2*time.Second {
						t.Errorf("it took %v", took)
					}
				})
			})
		})
	}
}

// What is done is done: a last step that succeeds after the deadline completes.
func TestDeadlineDoesNotUndoWhatIsComplete(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, saga.Definition[order]{Name: "checkout", Deadline: time.Hour, Steps: []saga.Step[order]{
			{Name: "a", Compensate: ok, Timeout: saga.NoTimeout, Execute: func(ctx context.Context, _ *saga.Run[order]) error { <-ctx.Done(); return nil }},
		}})
		if x := r.runOne(); x.Status != store.StatusCompleted {
			t.Errorf("%s", x.Status)
		}
	})
}

func TestDeadlineWaitsForAHaltedOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, saga.Definition[order]{Name: "checkout", Deadline: time.Hour, Steps: []saga.Step[order]{
			{Name: "a", Execute: results(saga.Halt("look")), Compensate: ok},
		}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(3 * time.Hour)
			if x := r.get(id); x.Status != store.StatusHalted {
				t.Errorf("%s", x.Status)
			}
			if _, err := r.e.Resume(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			if x := r.wait(ctx, id); x.Reason != "deadline" {
				t.Errorf("%s %q", x.Status, x.Reason)
			}
		})
	})
}

// A Halt that was asked for while a step ran is not forgotten when the deadline
// turns the execution around: the walk is parked.
func TestDeadlineKeepsAPendingHalt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		step := saga.Step[order]{Name: "a", Compensate: ok, Timeout: saga.NoTimeout, Execute: func(ctx context.Context, _ *saga.Run[order]) error { <-ctx.Done(); return nil }}
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, saga.Definition[order]{Name: "checkout", Deadline: time.Hour, Steps: []saga.Step[order]{step, {Name: "b", Execute: ok}}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Minute)
			if _, err := r.e.Halt(ctx, id, anna, nil); err != nil {
				t.Fatal(err)
			}
			pass(2 * time.Hour)
			if x := r.get(id); x.Status != store.StatusHalted || x.Direction != store.DirectionCompensate || x.Request != nil {
				t.Errorf("%s, %s, %+v", x.Status, x.Direction, x.Request)
			}
			if _, err := r.e.Resume(ctx, id, anna, nil); err != nil {
				t.Fatal(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompensated {
				t.Errorf("%s", x.Status)
			}
		})
	})
}

func TestWaitsAreChecked(t *testing.T) {
	e, err := saga.New(saga.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	until := func(order) time.Time { return time.Time{} }
	for name, s := range map[string]saga.Step[order]{
		"two waits":        {Wait: 1, WaitUntil: until},
		"wait and await":   {Wait: 1, Await: &saga.Await[order]{Signal: paidSignal}},
		"negative":         {Wait: -1},
		"no signal":        {Await: &saga.Await[order]{}},
		"two kinds":        {Await: &saga.Await[order]{Signal: paidSignal, Signals: []saga.AnySignal{paidSignal}}},
		"twice":            {Await: &saga.Await[order]{Signals: []saga.AnySignal{paidSignal, paidSignal}}},
		"none":             {Await: &saga.Await[order]{Signals: []saga.AnySignal{}}},
		"nil signal":       {Await: &saga.Await[order]{Signals: []saga.AnySignal{nil}}},
		"bad name":         {Await: &saga.Await[order]{Signal: saga.Signal[int]("Paid!")}},
		"two deadlines":    {Await: &saga.Await[order]{Signal: paidSignal, Timeout: 1, Until: until}},
		"negative timeout": {Await: &saga.Await[order]{Signal: paidSignal, Timeout: -1}},
		"foreign choice":   {Await: &saga.Await[order]{Signal: paidSignal, Choices: []saga.Choice{saga.Signal[int]("other").Choice("x", 1)}}},
		"empty choice":     {Await: &saga.Await[order]{Signal: paidSignal, Choices: []saga.Choice{{}}}},
		"bad retry":        {RetryOnSignal: saga.Signal[int]("")},
	} {
		s.Name, s.Execute = "a", ok
		if _, err := saga.Register(e, saga.Definition[order]{Name: "x", Steps: []saga.Step[order]{s}}); !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, d := range map[string]saga.Definition[order]{
		"deadline": {Deadline: -1}, "conflict": {OnConflict: "maybe"},
		"removed": {Removed: []saga.Step[order]{{Name: "b", Wait: 1}}},
	} {
		d.Name = "x"
		d.Steps = []saga.Step[order]{{Name: "a", Execute: ok}}
		if _, err := saga.Register(e, d); !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
