package saga_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

func wantEqual(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestOutcomesOfOneStep(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name   string
		errs   []error
		status store.Status
		tries  []string // of the attempts
		ledger string
	}{
		{"nil", nil, "completed", []string{"a succeeded", "b succeeded"}, "done"},
		{"Skip", []error{saga.Skip("nothing to do")}, "completed", []string{"a skipped", "b succeeded"}, "skipped"},
		{"Skip, wrapped", []error{fmt.Errorf("well: %w", saga.Skip("x"))}, "completed", []string{"a skipped", "b succeeded"}, "skipped"},
		{"Complete", []error{saga.Complete("early")}, "completed", []string{"a succeeded"}, "done"},
		{"error, then nil", []error{boom}, "completed", []string{"a failed", "a succeeded", "b succeeded"}, "done"},
		{"errors", []error{boom, boom, boom}, "failed", []string{"a failed", "a failed", "a failed"}, "pending"},
		{"Fail", []error{saga.Fail(boom)}, "failed", []string{"a failed"}, "pending"},
		{"Fail of Unknown", []error{saga.Fail(saga.Unknown(boom))}, "compensated", []string{"a failed", "undo a succeeded"}, "undone"},
		{"Unknown", []error{saga.Unknown(boom), boom, boom}, "compensated", []string{"a failed", "a failed", "a failed", "undo a succeeded"}, "undone"},
		{"Unknown, then NoEffect", []error{saga.Unknown(boom), saga.Fail(saga.NoEffect(boom))}, "failed", []string{"a failed", "a failed"}, "pending"},
		{"Unknown, then Skip", []error{saga.Unknown(boom), saga.Skip("?")}, "completed", []string{"a failed", "a skipped", "b succeeded"}, "in_doubt"},
		{"a ctx error", []error{context.DeadlineExceeded, saga.Fail(boom)}, "compensated", []string{"a failed", "a failed", "undo a succeeded"}, "undone"},
		{"Snooze", []error{saga.Snooze(time.Hour), boom, boom}, "completed", []string{"a snoozed", "a failed", "a failed", "a succeeded", "b succeeded"}, "done"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, saga.Config{},
					saga.Step[order]{Name: "a", Execute: results(tt.errs...), Compensate: ok},
					saga.Step[order]{Name: "b", Execute: ok})
				x := r.runOne()
				if x.Status != tt.status {
					t.Errorf("status %s, want %s", x.Status, tt.status)
				}
				wantEqual(t, "attempts", r.statuses(x.ID), tt.tries)
				if got := string(x.Entry("a").Status); got != tt.ledger {
					t.Errorf("ledger of a: %s, want %s", got, tt.ledger)
				}
			})
		})
	}
}

func TestOutcomesOfAnUndo(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name   string
		errs   []error
		status store.Status
		tries  []string
	}{
		{"Skip", []error{saga.Skip("never was")}, "compensated", []string{"undo a skipped"}},
		{"Complete is an error", []error{saga.Complete("no")}, "compensated", []string{"undo a failed", "undo a succeeded"}},
		{"Fail", []error{saga.Fail(boom)}, "compensation_failed", []string{"undo a failed"}},
		{"errors", []error{boom, boom, boom}, "compensation_failed", []string{"undo a failed", "undo a failed", "undo a failed"}},
		{"panic-like unknown", []error{saga.Unknown(boom)}, "compensated", []string{"undo a failed", "undo a succeeded"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, saga.Config{},
					saga.Step[order]{Name: "a", Execute: ok, Compensate: results(tt.errs...), CompensateRetry: quick},
					saga.Step[order]{Name: "b", Execute: results(saga.Fail(boom))})
				x := r.runOne()
				if x.Status != tt.status {
					t.Errorf("status %s, want %s", x.Status, tt.status)
				}
				wantEqual(t, "attempts", r.statuses(x.ID), append([]string{"a succeeded", "b failed"}, tt.tries...))
			})
		})
	}
}

func TestPanicIsAFailureWithStackThatLeavesDoubt(t *testing.T) {
	for name, body := range map[string]func(){
		"panic":  func() { panic("out of cheese") },
		"Goexit": func() { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Compensate: ok, Retry: saga.RetryPolicy{Attempts: 1},
					Execute: func(context.Context, *saga.Run[order]) error { body(); return nil }})
				x := r.runOne()
				wantEqual(t, "attempts", r.statuses(x.ID), []string{"a failed", "undo a succeeded"})
				if a := r.attempts(x.ID)[0]; !strings.Contains(a.Stack, "outcome_test.go") {
					t.Errorf("stack does not name this file:\n%s", a.Stack)
				}
			})
		})
	}
}

func TestTimeoutIsAFailedTryInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Compensate: ok, Timeout: 3 * time.Second, Retry: saga.RetryPolicy{Attempts: 2, Initial: time.Second},
			Execute: func(ctx context.Context, run *saga.Run[order]) error { <-ctx.Done(); return errors.New("gave up") }})
		begun := time.Now()
		x := r.runOne()
		wantEqual(t, "attempts", r.statuses(x.ID), []string{"a failed", "a failed", "undo a succeeded"})
		if took := time.Since(begun); took < 6*time.Second || took > 9*time.Second {
			t.Errorf("took %v, want two time-outs of 3 s and a second", took)
		}
	})
}

func TestSnoozeKeepsStateAndBurnsNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := 0
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Retry: saga.RetryPolicy{Attempts: 1},
			Execute: func(_ context.Context, run *saga.Run[order]) error {
				if n++; n < 4 {
					run.State.Reserved = true
					return saga.Snooze(time.Minute)
				}
				run.State.Charged = run.State.Reserved
				return nil
			}})
		x := r.runOne()
		if st, _ := r.s.State(x); x.Status != store.StatusCompleted || !st.Charged {
			t.Errorf("%s %+v, want completed with the state of the snoozes", x.Status, st)
		}
		if took := x.FinishedAt.Sub(x.CreatedAt); took < 3*time.Minute || took > 3*time.Minute+time.Second {
			t.Errorf("took %v, want three minutes", took)
		}
	})
}

func TestErrorDropsTheState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := 0
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Retry: quick,
			Execute: func(_ context.Context, run *saga.Run[order]) error {
				if run.State.Reserved {
					t.Error("the state of a failed attempt was kept")
				}
				run.State.Reserved = true
				if n++; n < 3 {
					return errors.New("no")
				}
				return nil
			}})
		if x := r.runOne(); x.Status != store.StatusCompleted {
			t.Errorf("status %s", x.Status)
		}
	})
}

func TestHaltParksAndResumeGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: results(saga.Halt("ask somebody")), Compensate: ok},
			saga.Step[order]{Name: "b", Execute: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Hour)
			x := r.get(id)
			if x.Status != store.StatusHalted || x.Reason != "ask somebody" || x.DueAt != nil {
				t.Fatalf("status %s, reason %q, due %v", x.Status, x.Reason, x.DueAt)
			}
			if _, err := r.e.Retry(ctx, id, anna, nil); !errors.Is(err, saga.ErrNotRetryable) {
				t.Errorf("Retry of a halted one: %v", err)
			}
			if _, err := r.e.Resume(ctx, id, anna, nil); err != nil {
				t.Fatal(err)
			}
			x = r.wait(ctx, id)
			wantEqual(t, "attempts", r.statuses(id), []string{"a failed", "a succeeded", "b succeeded"})
			if x.Epoch != 1 {
				t.Errorf("epoch %d, want 1", x.Epoch)
			}
			audit, _ := r.e.Audit(ctx, id)
			if len(audit) != 1 || audit[0].Act != string(saga.ActResume) || audit[0].Actor != "anna" || audit[0].Reason != "on call" ||
				audit[0].Before != store.StatusHalted || audit[0].After != store.StatusRunning {
				t.Errorf("audit %+v", audit)
			}
		})
	})
}

func TestStateThatCannotBeKept(t *testing.T) {
	type wild = map[string]any
	for name, v := range map[string]any{"NaN": nan(), "too large": strings.Repeat("x", store.MaxState)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, saga.Config{}, saga.Step[order]{Name: "x", Execute: ok})
				undone := false
				s, err := saga.Register(r.e, saga.Definition[wild]{Name: "wild", Steps: []saga.Step[wild]{{Name: "a",
					Execute:    func(_ context.Context, run *saga.Run[wild]) error { run.State["v"] = v; return nil },
					Compensate: func(_ context.Context, run *saga.Run[wild]) error { undone = true; return nil },
				}}})
				if err != nil {
					t.Fatal(err)
				}
				runEngine(t, r.e, func(ctx context.Context) {
					x, err := s.Start(ctx, saga.Resource{}, wild{"k": 1}, nil)
					if err != nil {
						t.Fatal(err)
					}
					y := r.wait(ctx, x.ID)
					if y.Status != store.StatusCompensated || !undone {
						t.Errorf("status %s, undone %v: the step was done, so it must be undone", y.Status, undone)
					}
					if f := y.Failure; f == nil || f.Class != "state_refused" || !strings.Contains(f.Message, `saga "wild", step "a"`) || len(f.Message) > 200 {
						t.Errorf("failure %+v, want a short one that names saga and step", f)
					}
					if string(y.State) != `{"k":1}` {
						t.Errorf("state %s", y.State)
					}
					if _, err := s.Start(ctx, saga.Resource{}, wild{"v": v}, nil); !errors.Is(err, saga.ErrInvalid) {
						t.Errorf("Start with it: %v, want ErrInvalid", err)
					}
				})
			})
		})
	}
}

func nan() float64 { var z float64; return z / z }
