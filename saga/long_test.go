package saga_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A loop inside a step goes on where the last attempt left it.
func TestCheckpointIsFoundByTheNextAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var done []int
		broken := true
		work := func(ctx context.Context, run *saga.Run[order]) error {
			next := 0
			if _, err := run.LoadCheckpoint(&next); err != nil {
				return err
			}
			for ; next < 6; next++ {
				if next == 3 && broken {
					broken = false
					return errors.New("broken")
				}
				done = append(done, next)
				if err := run.Checkpoint(ctx, next+1); err != nil {
					return err
				}
			}
			return nil
		}
		var after bool
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "loop", Execute: work, Retry: quick},
			saga.Step[order]{Name: "next", Execute: func(_ context.Context, run *saga.Run[order]) error {
				after, _ = run.LoadCheckpoint(new(int))
				return nil
			}})
		x := r.runOne()
		if want := []int{0, 1, 2, 3, 4, 5}; !slices.Equal(done, want) {
			t.Errorf("did %v, want %v", done, want)
		}
		if after || x.Checkpoint != nil || x.Status != store.StatusCompleted {
			t.Errorf("the checkpoint outlived its step: %s, %v", x.Checkpoint, after)
		}
	})
}

// A failed saga that is retried goes on from its checkpoint.
func TestCheckpointOutlivesFailureUntilRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen []string
		fail := true
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "loop", Execute: func(ctx context.Context, run *saga.Run[order]) error {
			at := "nothing"
			_, err := run.LoadCheckpoint(&at)
			seen = append(seen, at)
			if err != nil || !fail {
				return err
			}
			fail = false
			if err := run.Checkpoint(ctx, "half"); err != nil {
				return err
			}
			return saga.Fail(errors.New("broken"))
		}})
		runEngine(t, r.e, func(ctx context.Context) {
			x := r.wait(ctx, r.start(ctx))
			if x.Status != store.StatusFailed || string(x.Checkpoint) != `"half"` {
				t.Errorf("%s, checkpoint %s", x.Status, x.Checkpoint)
			}
			if _, err := r.e.Retry(ctx, x.ID, anna, nil); err != nil {
				t.Fatal(err)
			}
			if x := r.wait(ctx, x.ID); x.Status != store.StatusCompleted {
				t.Errorf("ends %s", x.Status)
			}
		})
		if want := []string{"nothing", "half"}; !slices.Equal(seen, want) {
			t.Errorf("saw %q, want %q", seen, want)
		}
	})
}

// An attempt that was taken away keeps nothing more, nor does one that has
// returned; and whoever has it now is not disturbed.
func TestCheckpointIsFenced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var late *saga.Run[order]
		var lost error
		calls := 0
		var r *rig
		r = newRig(t, saga.Config{}, saga.Step[order]{Name: "loop", Execute: func(ctx context.Context, run *saga.Run[order]) error {
			if calls++; calls > 1 {
				return nil
			}
			late = run
			if err := run.Checkpoint(ctx, 1); err != nil {
				t.Error(err)
			}
			if _, err := r.e.Retry(ctx, run.Execution, anna, &saga.ActOptions{Force: true}); err != nil {
				t.Error(err)
			}
			lost = run.Checkpoint(ctx, 2)
			return errors.New("broken")
		}})
		x := r.runOne()
		if !errors.Is(lost, saga.ErrAttemptLost) {
			t.Errorf("after the attempt was forced away: %v", lost)
		}
		if err := late.Checkpoint(t.Context(), 3); !errors.Is(err, saga.ErrAttemptLost) {
			t.Errorf("after the step had returned: %v", err)
		}
		if x.Status != store.StatusCompleted || calls != 2 {
			t.Errorf("%s after %d calls", x.Status, calls)
		}
	})
}

// A body that ignores the end of its ctx cannot hold its execution by
// checkpoints.
func TestCheckpointDoesNotHoldAStuckAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lost error
		let := make(chan struct{})
		first := true
		r := newRig(t, saga.Config{Lease: 10 * time.Second}, saga.Step[order]{Name: "loop", Timeout: 5 * time.Second, Retry: quick, Execute: func(ctx context.Context, run *saga.Run[order]) error {
			if !first {
				return nil
			}
			first = false
			for i := 0; ; i++ {
				select {
				case <-let:
					return nil
				case <-time.After(time.Second):
				}
				if lost = run.Checkpoint(context.Background(), i); lost != nil {
					<-let
					return lost
				}
			}
		}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(5 * time.Minute)
			if x := r.get(id); x.Status != store.StatusCompleted || !errors.Is(lost, saga.ErrAttemptLost) {
				t.Errorf("%s, attempt %+v, checkpoint: %v", x.Status, x.Attempt, lost)
			}
			close(let)
		})
	})
}

// Bad checkpoints are refused, and say nothing of the value.
func TestCheckpointRefusesWhatItCannotKeep(t *testing.T) {
	run := &saga.Run[order]{}
	for name, v := range map[string]any{
		"a function": func() {}, "too much": strings.Repeat("secret", 200_000), "a channel": make(chan int),
	} {
		err := run.Checkpoint(t.Context(), v)
		if !errors.Is(err, saga.ErrInvalid) || strings.Contains(fmt.Sprint(err), "secretsecret") {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	if err := run.Checkpoint(t.Context(), map[string]int{"page": 7}); err != nil {
		t.Fatal(err)
	}
	var got struct{ Page int }
	if ok, err := run.LoadCheckpoint(&got); !ok || err != nil || got.Page != 7 {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if _, err := run.LoadCheckpoint(new(string)); err == nil {
		t.Error("a checkpoint was decoded into another type")
	}
}

// A checkpoint is a write on the row as the worker knows it, or, when somebody
// has touched the row, under its lock; either way the step settles as ever.
func TestCheckpointAfterAnotherWrite(t *testing.T) {
	for _, advancer := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			var st store.Store = memory.New()
			if !advancer {
				st = plainStore{st}
			}
			var r *rig
			r = newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "loop", Execute: func(ctx context.Context, run *saga.Run[order]) error {
				for i := range 5 {
					if err := run.Checkpoint(ctx, i); err != nil {
						return err
					}
					if i == 2 { // somebody else writes
						if _, err := r.e.Halt(ctx, run.Execution, anna, nil); err != nil {
							return err
						}
						if _, err := r.e.Resume(ctx, run.Execution, anna, nil); err != nil {
							return err
						}
					}
				}
				return nil
			}})
			x := r.runOne()
			if got := r.statuses(x.ID); len(got) != 1 || x.Status != store.StatusCompleted {
				t.Errorf("advancer %v: %s after %q", advancer, x.Status, got)
			}
		})
	}
}

// plainStore hides the optional abilities of a store.
type plainStore struct{ store.Store }

// Progress goes with a renewal, and is gone with the attempt.
func TestProgressGoesWithTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		r := newRig(t, saga.Config{Lease: 30 * time.Second}, saga.Step[order]{Name: "loop", Execute: func(_ context.Context, run *saga.Run[order]) error {
			run.Progress(1, 10, "the first")
			run.Progress(2, 10, "the second")
			<-let
			return nil
		}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(15 * time.Second)
			p := r.get(id).Attempt.Progress
			if p == nil || p.Done != 2 || p.Total != 10 || p.Note != "the second" || p.At.IsZero() {
				t.Errorf("got %+v", p)
			}
			revision := r.get(id).Revision
			pass(time.Minute)
			if r.get(id).Revision != revision {
				t.Error("progress cost a write of its own")
			}
			close(let)
			if x := r.wait(ctx, id); x.Attempt != nil {
				t.Error("an attempt is open")
			}
		})
		synctest.Wait()
	})
}
