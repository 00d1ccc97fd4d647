package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// untilDone is a step that runs until its ctx ends, and says why it did.
func untilDone(cause *error) fn {
	return func(ctx context.Context, run *saga.Run[order]) error {
		<-ctx.Done()
		*cause = context.Cause(ctx)
		return ctx.Err()
	}
}

func TestShutdownBurnsNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var cause error
		n := 0
		r := newRig(t, saga.Config{Grace: 5 * time.Second}, saga.Step[order]{Name: "a", Retry: saga.RetryPolicy{Attempts: 1},
			Execute: func(ctx context.Context, run *saga.Run[order]) error {
				if n++; n == 1 {
					return untilDone(&cause)(ctx, run)
				}
				return nil
			}})
		var id uuid.UUID
		runEngine(t, r.e, func(ctx context.Context) { id = r.start(ctx); pass(time.Second) })
		if !errors.Is(cause, saga.ErrShutdown) {
			t.Errorf("cause %v, want ErrShutdown", cause)
		}
		x := r.get(id)
		if x.Status != store.StatusRunning || x.Attempt != nil || x.Tries != 0 || x.DueAt.After(time.Now()) {
			t.Errorf("%s, attempt %v, tries %d, due %v: want it due now with no try spent", x.Status, x.Attempt, x.Tries, x.DueAt)
		}
		runEngine(t, r.e, func(ctx context.Context) { x = r.wait(ctx, id) })
		wantEqual(t, "attempts", r.statuses(id), []string{"a interrupted", "a succeeded"})
		if as := r.attempts(id); as[1].Number != 2 {
			t.Errorf("number %d, want 2: never used again", as[1].Number)
		}
	})
}

func TestShutdownWaitsForStepsInPeace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{Grace: 5 * time.Second},
			saga.Step[order]{Name: "a", Execute: func(ctx context.Context, _ *saga.Run[order]) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(4 * time.Second):
					return nil
				}
			}},
			saga.Step[order]{Name: "b", Execute: ok})
		var id uuid.UUID
		runEngine(t, r.e, func(ctx context.Context) { id = r.start(ctx); pass(time.Millisecond) })
		wantEqual(t, "attempts", r.statuses(id), []string{"a succeeded"})
		if x := r.get(id); x.Step != "b" || x.Attempt != nil {
			t.Errorf("at %s with %v, want at b with no attempt: none is opened while draining", x.Step, x.Attempt)
		}
	})
}

func TestShutdownNamesStepsThatIgnoreIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		free := make(chan struct{})
		r := newRig(t, saga.Config{Grace: 5 * time.Second},
			saga.Step[order]{Name: "deaf", Execute: func(context.Context, *saga.Run[order]) error { <-free; return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.e.Run(ctx) }()
		pass(time.Second)
		id := r.start(ctx)
		pass(time.Second)
		begun := time.Now()
		cancel()
		err := <-done
		var incomplete *saga.ShutdownIncompleteError
		if !errors.As(err, &incomplete) || len(incomplete.Steps) != 1 || !strings.Contains(incomplete.Steps[0], "checkout/deaf/execute of "+id.String()) {
			t.Errorf("Run: %v, want it to name the step", err)
		}
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("took %v, want two graces", took)
		}
		close(free)
		synctest.Wait()
	})
}

func TestHandleOutsideRunIsRefused(t *testing.T) {
	r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: ok})
	if _, err := r.e.Handle(t.Context(), saga.Pointer{}); !errors.Is(err, saga.ErrNotRunning) {
		t.Errorf("Handle: %v, want ErrNotRunning", err)
	}
}

func TestRunTwiceAtOnceIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			if err := r.e.Run(ctx); !errors.Is(err, saga.ErrRunning) {
				t.Errorf("second Run: %v", err)
			}
		})
	})
}

func TestCompensateInterruptsARunningStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var cause error
		r := newRig(t, saga.Config{Lease: 30 * time.Second},
			saga.Step[order]{Name: "a", Execute: ok, Compensate: ok},
			saga.Step[order]{Name: "b", Execute: untilDone(&cause), Compensate: ok, Timeout: saga.NoTimeout})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Minute)
			asked := time.Now()
			x, err := r.e.Compensate(ctx, id, anna, nil)
			if err != nil || x.Request == nil || x.Request.Turn != store.TurnCompensate || x.Epoch != 0 {
				t.Fatalf("Compensate: %+v, %v; want a request", x, err)
			}
			x = r.wait(ctx, id)
			if !errors.Is(cause, saga.ErrInterrupted) {
				t.Errorf("cause %v", cause)
			}
			if took := time.Since(asked); took > 14*time.Second {
				t.Errorf("noticed after %v, want within a third of a lease", took)
			}
			if x.Status != store.StatusCompensated || x.Epoch != 1 {
				t.Errorf("%s, epoch %d", x.Status, x.Epoch)
			}
			wantEqual(t, "attempts", r.statuses(id), []string{"a succeeded", "b interrupted", "undo b succeeded", "undo a succeeded"})
		})
	})
}

func TestRetryStartsAgainAtTheFailingStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{},
			saga.Step[order]{Name: "a", Execute: ok},
			saga.Step[order]{Name: "b", Execute: results(saga.Fail(errors.New("no"))), Compensate: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			if x := r.wait(ctx, id); x.Status != store.StatusFailed || x.Step != "b" {
				t.Fatalf("%s at %s", x.Status, x.Step)
			}
			if _, err := r.e.Compensate(ctx, id, anna, nil); !errors.Is(err, saga.ErrFinished) {
				t.Errorf("Compensate of a failed one: %v", err)
			}
			if _, err := r.e.Retry(ctx, id, saga.By{Actor: " ", Reason: "x"}, nil); !errors.Is(err, saga.ErrInvalid) {
				t.Errorf("Retry by nobody: %v", err)
			}
			if _, err := r.e.Retry(ctx, id, anna, &saga.ActOptions{IfRevision: 1}); !errors.Is(err, saga.ErrChanged) {
				t.Errorf("Retry at an old revision: %v", err)
			}
			if _, err := r.e.Retry(ctx, id, anna, nil); err != nil {
				t.Fatal(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
			if _, err := r.e.Retry(ctx, id, anna, nil); !errors.Is(err, saga.ErrFinished) {
				t.Errorf("Retry of a completed one: %v", err)
			}
			wantEqual(t, "attempts", r.statuses(id), []string{"a succeeded", "b failed", "b succeeded"})
		})
	})
}

func TestDeclaredStartIsAdoptedByTheHighestVersion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		starter, err := saga.New(saga.Config{Store: st, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		s, err := saga.Declare(starter, saga.Name[order]("checkout"), nil)
		if err != nil {
			t.Fatal(err)
		}
		x, err := s.Start(t.Context(), saga.Resource{}, order{Reserved: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if x.Step != "" || len(x.Ledger) != 0 || x.Version != 0 {
			t.Errorf("step %q, ledger %v, version %d before a worker has seen it", x.Step, x.Ledger, x.Version)
		}
		r := newRigFor(t, saga.Config{Store: st}, saga.Definition[order]{Name: "checkout", Version: 3, Steps: []saga.Step[order]{{Name: "new", Execute: ok}}})
		if _, err := saga.Register(r.e, saga.Definition[order]{Name: "checkout", Version: 2, Steps: []saga.Step[order]{{Name: "old", Execute: ok}}}); err != nil {
			t.Fatal(err)
		}
		runEngine(t, r.e, func(ctx context.Context) {
			y := r.wait(ctx, x.ID)
			if y.Version != 3 || y.Status != store.StatusCompleted || string(y.State) != `{"reserved":true}` {
				t.Errorf("version %d, %s, state %s", y.Version, y.Status, y.State)
			}
			wantEqual(t, "ledger", ledgerOf(y), []string{"new done"})
		})
	})
}

// Two builds: the second renames a step, removes another and adds one.
func TestLaterBuildGoesOnWithTheLedgerOfTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		var keys []string
		note := func(err error) fn {
			return func(_ context.Context, run *saga.Run[order]) error {
				keys = append(keys, run.Key()[37:])
				return err
			}
		}
		first := newRigFor(t, saga.Config{Store: st}, saga.Definition[order]{Name: "checkout", Steps: []saga.Step[order]{
			{Name: "a", Execute: note(nil), Compensate: note(nil)},
			{Name: "gone", Execute: note(nil), Compensate: note(nil)},
			{Name: "b", Execute: note(saga.Halt("deploy")), Compensate: note(nil)},
			{Name: "gone2", Execute: ok},
			{Name: "c", Execute: ok},
		}})
		var id uuid.UUID
		runEngine(t, first.e, func(ctx context.Context) { id = first.start(ctx); pass(time.Second) })
		second := newRigFor(t, saga.Config{Store: st}, saga.Definition[order]{Name: "checkout",
			Steps: []saga.Step[order]{
				{Name: "a", Execute: note(nil), Compensate: note(nil)},
				{Name: "b2", Was: []string{"b"}, Execute: note(nil), Compensate: note(nil)},
				{Name: "added", Execute: func(context.Context, *saga.Run[order]) error { t.Error("a step the ledger lacks was run"); return nil }},
				{Name: "c", Execute: note(saga.Fail(errors.New("no")))},
			},
			Removed: []saga.Step[order]{{Name: "gone", Compensate: note(nil)}, {Name: "gone2"}},
		})
		runEngine(t, second.e, func(ctx context.Context) {
			if _, err := second.e.Resume(ctx, id, anna, nil); err != nil {
				t.Fatal(err)
			}
			x := second.wait(ctx, id)
			wantEqual(t, "ledger", ledgerOf(x), []string{"a undone", "gone undone", "b undone", "gone2 skipped", "c pending"})
		})
		wantEqual(t, "keys", keys, []string{"a/execute", "gone/execute", "b/execute", "b/execute", "c/execute",
			"b/compensate", "gone/compensate", "a/compensate"})
	})
}

func TestUnknownSagaIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		stranger := newRigFor(t, saga.Config{Store: st}, saga.Definition[order]{Name: "other", Steps: []saga.Step[order]{{Name: "a", Execute: ok}}})
		r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: ok})
		id := r.start(t.Context())
		runEngine(t, stranger.e, func(ctx context.Context) {
			pass(24 * time.Hour)
			if x := r.get(id); x.Status != store.StatusRunning || x.Resumes != 0 || len(r.attempts(id)) != 0 {
				t.Errorf("%s, %d resumes", x.Status, x.Resumes)
			}
		})
		runEngine(t, r.e, func(ctx context.Context) {
			begun := time.Now()
			r.wait(ctx, id)
			if took := time.Since(begun); took > 2*time.Minute+2*time.Second {
				t.Errorf("took %v until it was due again, want two minutes at most", took)
			}
		})
	})
}

func TestStateOfAnotherBuildIsCarriedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: func(_ context.Context, run *saga.Run[order]) error {
			run.State.Reserved = true
			return nil
		}})
		var raw map[string]json.RawMessage
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			x := r.wait(ctx, id)
			_ = x
		})
		// A newer build started one with a key this one does not know.
		s, err := saga.Declare(r.e, saga.Name[map[string]any]("checkout"), nil)
		if err != nil {
			t.Fatal(err)
		}
		runEngine(t, r.e, func(ctx context.Context) {
			x, err := s.Start(ctx, saga.Resource{}, map[string]any{"coupon": map[string]any{"n": 1}, "charged": true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			y := r.wait(ctx, x.ID)
			if err := json.Unmarshal(y.State, &raw); err != nil {
				t.Fatal(err)
			}
			if got := string(raw["coupon"]) + string(raw["charged"]) + string(raw["reserved"]); got != `{"n":1}truetrue` {
				t.Errorf("state %s", y.State)
			}
		})
	})
}

func TestExclusiveAbandonsWhatADeadPredecessorLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		free := make(chan struct{})
		var runs atomic.Int32
		body := func(context.Context, *saga.Run[order]) error {
			if runs.Add(1) == 1 {
				<-free
			}
			return nil
		}
		dead := newRig(t, saga.Config{Store: st, Grace: time.Second}, saga.Step[order]{Name: "a", Execute: body, Compensate: ok})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- dead.e.Run(ctx) }()
		pass(0)
		id := dead.start(ctx)
		pass(0)
		cancel()
		<-done // as good as dead: its attempt is open
		if dead.get(id).Attempt == nil {
			t.Fatal("no open attempt to abandon")
		}
		r := newRig(t, saga.Config{Store: st, Exclusive: true}, saga.Step[order]{Name: "a", Execute: body, Compensate: ok})
		if _, err := saga.New(saga.Config{Store: st, Exclusive: true}); !errors.Is(err, store.ErrInUse) {
			t.Errorf("second exclusive engine: %v, want ErrInUse", err)
		}
		begun := time.Now()
		runEngine(t, r.e, func(ctx context.Context) { r.wait(ctx, id) })
		if took := time.Since(begun); took > time.Second {
			t.Errorf("took %v, want no waiting for the lease", took)
		}
		wantEqual(t, "attempts", r.statuses(id), []string{"a abandoned", "a succeeded"})
		close(free)
		synctest.Wait()
		if a := r.attempts(id)[0]; a.LateStatus != store.AttemptSucceeded || !a.Late {
			t.Errorf("late %v %q: the zombie's result is recorded on its own attempt", a.Late, a.LateStatus)
		}
	})
}

func TestObserversThatPanicDoNoHarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var kinds []string
		r := newRig(t, saga.Config{Observe: func(_ context.Context, ev saga.Event) {
			kinds = append(kinds, string(ev.Kind))
			panic("observer")
		}}, saga.Step[order]{Name: "a", Execute: ok, Compensate: ok}, saga.Step[order]{Name: "b", Execute: results(saga.Fail(errors.New("x")))})
		if x := r.runOne(); x.Status != store.StatusCompensated {
			t.Errorf("%s", x.Status)
		}
		wantEqual(t, "events", kinds, []string{"saga.started", "saga.step.started", "saga.step.finished", "saga.step.started", "saga.step.failed",
			"saga.compensation_started", "saga.step.started", "saga.step.finished", "saga.compensated"})
	})
}
