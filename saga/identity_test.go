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

// byResource is a definition whose key is the resource's id.
func byResource(c saga.OnConflict, steps ...saga.Step[order]) saga.Definition[order] {
	return saga.Definition[order]{
		Name: "checkout", Key: func(r saga.Resource, _ order) string { return r.ID }, OnConflict: c, Steps: steps,
	}
}

func (r *rig) startFor(resource string, opts *saga.StartOptions) (*saga.Started, error) {
	return r.s.Start(r.t.Context(), saga.Resource{Type: "order", ID: resource}, order{}, opts)
}

func (r *rig) mustStartFor(resource string, opts *saga.StartOptions) *saga.Started {
	r.t.Helper()
	x, err := r.startFor(resource, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

func TestKeyRejects(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, byResource("", saga.Step[order]{Name: "a", Wait: time.Hour, Execute: ok}))
		runEngine(t, r.e, func(ctx context.Context) {
			first := r.mustStartFor("1", nil)
			r.mustStartFor("2", nil)
			var taken *store.KeyTakenError
			if _, err := r.startFor("1", nil); !errors.As(err, &taken) || taken.Execution != first.ID {
				t.Error(err)
			}
			if x, err := r.e.Live(ctx, "checkout", "1"); err != nil || x.ID != first.ID {
				t.Error(x, err)
			}
			r.wait(ctx, first.ID)
			if _, err := r.e.Live(ctx, "checkout", "1"); !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			}
			r.mustStartFor("1", nil)
		})
	})
}

func TestKeyReturnsTheExisting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, byResource(saga.OnConflictExisting, saga.Step[order]{Name: "a", Wait: time.Hour, Execute: ok}))
		first := r.mustStartFor("1", nil)
		again := r.mustStartFor("1", nil)
		if !again.Existing || again.Differs || again.ID != first.ID || first.Existing {
			t.Errorf("%+v", again)
		}
		again, err := r.s.Start(t.Context(), saga.Resource{Type: "order", ID: "1"}, order{Charged: true}, nil)
		if err != nil || !again.Existing || !again.Differs {
			t.Errorf("%+v, %v", again, err)
		}
		if _, err := r.startFor("1", &saga.StartOptions{OnConflict: saga.OnConflictReject}); err == nil {
			t.Error("started")
		}
	})
}

func TestBadKeysAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		key := ""
		d := byResource("", saga.Step[order]{Name: "a", Execute: ok})
		d.Key = func(saga.Resource, order) string {
			if key == "panic" {
				panic("oh")
			}
			return key
		}
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, d)
		for _, key = range []string{"", "  ", "\t\n", strings.Repeat("x", 201), "a\x00", "\xff", "panic"} {
			if _, err := r.startFor("1", nil); !errors.Is(err, saga.ErrInvalid) {
				t.Errorf("%q: %v", key, err)
			}
			if key != "" && key != "panic" {
				if _, err := r.startFor("1", &saga.StartOptions{Key: key}); !errors.Is(err, saga.ErrInvalid) {
					t.Errorf("%q: %v", key, err)
				}
			}
		}
		for name, o := range map[string]saga.StartOptions{
			"conflict": {OnConflict: "maybe"}, "deadline": {Deadline: time.Now()}, "far": {StartAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
			"tags": {Tags: map[string]string{"": "x"}}, "tag": {Tags: map[string]string{"x": strings.Repeat("x", 201)}},
			"signal": {Signals: []saga.StartSignal{{Name: "Paid!"}}},
		} {
			o.Key = "k"
			if _, err := r.startFor("1", &o); !errors.Is(err, saga.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestIDFor(t *testing.T) {
	const name saga.Name[order] = "checkout"
	if a := saga.IDFor(name, "x"); a != saga.IDFor(name, "x") || a == saga.IDFor(name, "y") || a == saga.IDFor(saga.Name[int]("other"), "x") || a == uuid.Nil {
		t.Error(a)
	}
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			o := saga.StartOptions{ID: saga.IDFor(name, "x")}
			r.wait(ctx, r.mustStartFor("1", &o).ID)
			if _, err := r.startFor("1", &o); !errors.Is(err, store.ErrExists) {
				t.Error(err)
			}
		})
	})
}

// undoFor is a step whose undo takes long.
func undoFor(d time.Duration, result error) saga.Step[order] {
	return saga.Step[order]{
		Name: "a", Execute: ok, CompensateRetry: saga.RetryPolicy{Attempts: 1},
		Compensate: func(context.Context, *saga.Run[order]) error { <-time.After(d); return result },
	}
}

func TestReplaceAfterCompensation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, byResource(saga.OnConflictReplace, undoFor(time.Minute, nil), saga.Step[order]{Name: "b", Wait: time.Hour, Execute: ok}))
		runEngine(t, r.e, func(ctx context.Context) {
			first := r.mustStartFor("1", nil)
			pass(time.Second)
			var later []*saga.Started
			for range 3 { // the newest wins
				x := r.mustStartFor("1", nil)
				if x.Replaces == nil || *x.Replaces != first.ID || x.Status != store.StatusWaiting {
					t.Errorf("%s, %v", x.Status, x.Replaces)
				}
				later = append(later, x)
				pass(5 * time.Second)
			}
			if d := r.diagnose(later[2].ID); d.Code != saga.DiagnosisWaiting || !strings.Contains(d.Sentence, first.ID.String()) {
				t.Errorf("%+v", d)
			}
			if x, err := r.e.Live(ctx, "checkout", "1"); err != nil || x.ID != first.ID {
				t.Error(x, err)
			}
			old := r.wait(ctx, first.ID)
			if old.Status != store.StatusCompensated || old.ReplacedBy == nil || *old.ReplacedBy != later[2].ID || old.Turn != store.TurnCancel {
				t.Errorf("%s, %v", old.Status, old.ReplacedBy)
			}
			if x, err := r.e.Live(ctx, "checkout", "1"); err != nil || x.ID != later[2].ID {
				t.Error(x, err)
			}
			if x := r.wait(ctx, later[2].ID); x.Status != store.StatusCompleted || x.ProgressAt.Before(*old.FinishedAt) {
				t.Errorf("%s", x.Status)
			}
			for _, l := range later[:2] {
				if x := r.wait(ctx, l.ID); x.Status != store.StatusCancelled || x.Reason != "replaced" {
					t.Errorf("%s %q", x.Status, x.Reason)
				}
			}
		})
	})
}

func TestReplaceOfWhatHasDoneNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, byResource(saga.OnConflictReplace, saga.Step[order]{Name: "a", Wait: time.Hour, Execute: ok}))
		runEngine(t, r.e, func(ctx context.Context) {
			first := r.mustStartFor("1", nil)
			second := r.mustStartFor("1", nil)
			if x := r.get(first.ID); x.Status != store.StatusCancelled {
				t.Errorf("%s", x.Status)
			}
			if x := r.get(second.ID); x.Follows != nil || !x.HoldsKey() {
				t.Errorf("%+v", x)
			}
			if x := r.wait(ctx, second.ID); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
		})
	})
}

func TestReplaceWaitsBehindAFailedCompensation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := errors.New("no")
		step := saga.Step[order]{Name: "a", Execute: ok, CompensateRetry: saga.RetryPolicy{Attempts: 1}, Compensate: func(context.Context, *saga.Run[order]) error { return broken }}
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, byResource(saga.OnConflictReplace, step, saga.Step[order]{Name: "b", Wait: time.Hour, Execute: ok}))
		runEngine(t, r.e, func(ctx context.Context) {
			first := r.mustStartFor("1", nil)
			pass(time.Second)
			second := r.mustStartFor("1", nil)
			if x := r.wait(ctx, first.ID); x.Status != store.StatusCompensationFailed {
				t.Errorf("%s", x.Status)
			}
			pass(time.Hour)
			if d := r.diagnose(second.ID); !strings.Contains(d.Sentence, "compensation_failed") {
				t.Errorf("%+v", d)
			}
			third := r.mustStartFor("1", nil) // it goes behind the same one
			broken = nil
			if _, err := r.e.Retry(ctx, first.ID, anna, nil); err != nil {
				t.Error(err)
			}
			if x := r.wait(ctx, third.ID); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
			if x := r.wait(ctx, second.ID); x.Status != store.StatusCancelled {
				t.Errorf("%s", x.Status)
			}
		})
	})
}

func TestRetryWhoseKeyWasTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, byResource("", saga.Step[order]{Name: "a", Execute: results(saga.Fail(errors.New("no")))}, saga.Step[order]{Name: "b", Wait: time.Hour, Execute: ok}))
		runEngine(t, r.e, func(ctx context.Context) {
			first := r.mustStartFor("1", nil)
			r.wait(ctx, first.ID)
			second := r.mustStartFor("1", nil)
			var taken *store.KeyTakenError
			if _, err := r.e.Retry(ctx, first.ID, anna, nil); !errors.As(err, &taken) || taken.Execution != second.ID {
				t.Error(err)
			}
			r.wait(ctx, second.ID)
			if _, err := r.e.Retry(ctx, first.ID, anna, nil); err != nil {
				t.Error(err)
			}
		})
	})
}

// Two processes that start one key at once: exactly one wins.
func TestOneKeyManyStarters(t *testing.T) {
	for _, conflict := range []saga.OnConflict{saga.OnConflictReject, saga.OnConflictExisting, saga.OnConflictReplace} {
		t.Run(string(conflict), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := memory.New()
				running, most := 0, 0
				step := saga.Step[order]{Name: "a", Execute: func(context.Context, *saga.Run[order]) error {
					running++
					most = max(most, running)
					<-time.After(time.Minute)
					running--
					return nil
				}}
				var rigs []*rig
				for range 4 {
					rigs = append(rigs, newRigFor(t, saga.Config{Store: st}, byResource(conflict, step)))
				}
				runEngine(t, rigs[0].e, func(ctx context.Context) {
					for round := range 20 {
						var mu sync.Mutex
						var started []*saga.Started
						var all sync.WaitGroup
						for _, r := range rigs {
							all.Go(func() {
								x, err := r.startFor(fmt.Sprint(round), nil)
								mu.Lock()
								defer mu.Unlock()
								if err == nil {
									started = append(started, x)
								}
							})
						}
						all.Wait()
						fresh := slices.DeleteFunc(slices.Clone(started), func(x *saga.Started) bool { return x.Existing })
						if conflict != saga.OnConflictReplace && len(fresh) != 1 || conflict != saga.OnConflictReject && len(started) != 4 {
							t.Fatalf("round %d: %d new of %d", round, len(fresh), len(started))
						}
						completed := 0
						for _, x := range started {
							if y := rigs[0].wait(ctx, x.ID); y.Status == store.StatusCompleted {
								completed++
							}
						}
						if want := len(started) - len(fresh) + 1; conflict != saga.OnConflictReject && completed != want {
							t.Errorf("round %d: %d completed, want %d", round, completed, want)
						}
					}
				})
				if most != 1 {
					t.Errorf("%d ran at once", most)
				}
			})
		})
	}
}

func TestTagsAreFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: func(_ context.Context, run *saga.Run[order]) error {
			if run.Tags["tenant"] != "x" {
				t.Errorf("%v", run.Tags)
			}
			return nil
		}})
		runEngine(t, r.e, func(ctx context.Context) {
			x := r.mustStartFor("1", &saga.StartOptions{Tags: map[string]string{"tenant": "x"}})
			r.wait(ctx, x.ID)
		})
		l, err := r.e.List(t.Context(), store.Filter{Tags: map[string]string{"tenant": "x"}}, store.Page{})
		if err != nil || len(l.Executions) != 1 {
			t.Error(l, err)
		}
	})
}
