package saga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// What a waiting execution is due for, a look at others or its deadline, is
// offered until somebody takes it up, as a step is.
func TestPointersToWhatWaitsAreSentAgain(t *testing.T) {
	child := saga.Name[order]("child")
	listen := saga.Step[order]{Name: "a", Await: &saga.Await[order]{Signal: saga.Signal[string]("go")}, Execute: ok}
	check := func(name string, d saga.Definition[order], due time.Duration, want func(x *store.Execution) bool) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				post := &lostPost{consumers: 1}
				r := newRigFor(t, saga.Config{Publisher: post, SweepEvery: 10 * time.Second}, d)
				_, err := saga.Register(r.e, saga.Definition[order]{Name: child, Steps: []saga.Step[order]{listen}})
				if err != nil {
					t.Fatal(err)
				}
				runEngineWith(t, r.e, func(ctx context.Context) {
					begun := time.Now()
					id := r.mustStartFor("1", nil).ID
					var sent []saga.Pointer
					for range 2 { // it, and its child
						pass(time.Minute / 4)
						post.set(func() { sent, post.sent, post.at = post.sent, nil, nil })
						for _, p := range sent {
							if _, err := r.e.Handle(ctx, p); err != nil {
								t.Fatal(err)
							}
						}
					}
					if x := r.get(id); x.Status != store.StatusWaiting {
						t.Fatalf("it is %s at %s", x.Status, x.Step)
					}
					pass(due - 40*time.Second)
					early := len(post.published(begun))
					pass(150 * time.Second)
					if n := len(post.published(begun)); early != 0 || n < 2 || n > 6 || r.get(id).Status != store.StatusWaiting {
						t.Errorf("sent %d times too early, and after %v s; it is %s", early, post.published(begun), r.get(id).Status)
					}
					handleLast(t, r, post, id)
					if x := r.get(id); !want(x) {
						t.Errorf("then it is %s at %s, %s, due %v", x.Status, x.Step, x.Reason, x.DueAt)
					}
				}, idle{})
			})
		})
	}
	check("a deadline before the step's time", saga.Definition[order]{
		Name: "wait", Deadline: 20 * time.Minute, Steps: []saga.Step[order]{{Name: "a", Wait: 5 * time.Hour, Execute: ok}},
	}, 20*time.Minute, func(x *store.Execution) bool { return x.Status == store.StatusFailed && x.Reason == "deadline" })
	check("a deadline while it waits for a signal", saga.Definition[order]{
		Name: "listen", Deadline: 20 * time.Minute, Steps: []saga.Step[order]{listen},
	}, 20*time.Minute, func(x *store.Execution) bool { return x.Status == store.StatusFailed && x.Reason == "deadline" })
	check("a look at the children", saga.Definition[order]{
		Name: "parent", Steps: []saga.Step[order]{{Name: "a", Children: &saga.Children[order]{Start: func(context.Context, *saga.Run[order]) ([]saga.Child, error) {
			return []saga.Child{child.Child("1", saga.Resource{}, order{})}, nil
		}}}},
	}, 10*time.Minute, func(x *store.Execution) bool {
		return x.Status == store.StatusWaiting && x.Resumes == 0 && x.DueAt.After(x.UpdatedAt.Add(9*time.Minute))
	})
}

// handleLast hands the last pointer to an execution to a worker.
func handleLast(t *testing.T, r *rig, post *lostPost, id uuid.UUID) {
	t.Helper()
	var last *saga.Pointer
	post.set(func() {
		for i := range post.sent {
			if post.sent[i].Execution == id {
				last = &post.sent[i]
			}
		}
	})
	if last == nil {
		t.Fatal("no pointer was sent")
	}
	if _, err := r.e.Handle(t.Context(), *last); err != nil {
		t.Fatal(err)
	}
}

// A deadline that has passed is no reason to send pointer after pointer.
func TestPastItsDeadlineItIsOfferedAsBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		post := &lostPost{consumers: 1}
		r := newRigFor(t, saga.Config{Publisher: post}, saga.Definition[order]{
			Name: "late", Deadline: 5 * time.Second, Steps: []saga.Step[order]{{Name: "a", Execute: ok}},
		})
		runEngineWith(t, r.e, func(ctx context.Context) {
			begun := time.Now()
			id := r.mustStartFor("1", nil).ID
			pass(40 * time.Second)
			if sent := post.published(begun); len(sent) > 4 {
				t.Errorf("sent after %v s", sent)
			}
			if x := r.get(id); x.Status != store.StatusRunning {
				t.Errorf("%s, %+v", x.Status, x.Failure)
			}
			handleLast(t, r, post, id)
			if x := r.get(id); x.Status != store.StatusFailed || x.Reason != "deadline" {
				t.Errorf("%s, %s", x.Status, x.Reason)
			}
		}, idle{})
	})
}

// A successor that is not to wait any more needs the key, as any other.
func TestSuccessorThatAPersonLetsRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRigFor(t, saga.Config{SweepEvery: time.Minute}, byResource(saga.OnConflictReplace,
			saga.Step[order]{Name: "a", Execute: ok, Compensate: results(saga.Fail(errors.New("no")))}, saga.Step[order]{Name: "b", Wait: time.Hour, Execute: ok}))
		runEngine(t, r.e, func(ctx context.Context) {
			first := r.mustStartFor("1", nil)
			pass(time.Second)
			second := r.mustStartFor("1", nil)
			if x := r.wait(ctx, first.ID); x.Status != store.StatusCompensationFailed {
				t.Fatalf("the first is %s", x.Status)
			}
			refused := func(act saga.Act) {
				t.Helper()
				var taken *store.KeyTakenError
				if _, err := r.e.Act(ctx, second.ID, act, anna, nil); !errors.As(err, &taken) || taken.Execution != first.ID {
					t.Errorf("%s: %v", act, err)
				}
			}
			refused(saga.ActSkipStep)
			if _, err := r.e.Compensate(ctx, second.ID, anna, nil); err != nil {
				t.Fatal(err)
			}
			if x := r.wait(ctx, second.ID); x.Status != store.StatusFailed {
				t.Fatalf("the second is %s", x.Status)
			}
			refused(saga.ActRetry)
			if _, err := r.e.SkipStep(ctx, first.ID, anna, nil); err != nil {
				t.Fatal(err)
			}
			r.wait(ctx, first.ID)
			if _, err := r.e.Retry(ctx, second.ID, anna, nil); err != nil {
				t.Errorf("with the key free: %v", err)
			}
			pass(time.Second)
			if x := r.get(second.ID); x.Step != "b" || !x.HoldsKey() {
				t.Errorf("it is at %s, holds its key %v", x.Step, x.HoldsKey())
			}
		})
	})
}
