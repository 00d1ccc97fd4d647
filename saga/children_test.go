package saga_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A leg is the state of a child.
type leg struct {
	Number int    `json:"number"`
	Result string `json:"result,omitempty"`
}

const legName saga.Name[leg] = "leg"

// A family is a saga whose second step starts three others.
type family struct {
	*rig
	mu   sync.Mutex
	log  []string
	undo error
	fail map[int]error
	slow time.Duration
}

func (f *family) say(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, what)
}

func newFamily(t *testing.T, join saga.Join, last fn, cfg saga.Config) *family {
	f := &family{fail: map[int]error{}}
	run := func(what string, err func(n int) error) saga.Func[leg] {
		return func(ctx context.Context, run *saga.Run[leg]) error {
			select {
			case <-time.After(f.slow + time.Duration(run.State.Number)*time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
			f.say(fmt.Sprint(what, run.State.Number))
			run.State.Result = fmt.Sprint("r", run.State.Number)
			return err(run.State.Number)
		}
	}
	children := &saga.Children[order]{Join: join, Start: func(_ context.Context, r *saga.Run[order]) (list []saga.Child, err error) {
		for n := range 3 {
			list = append(list, legName.Child(fmt.Sprint(n), saga.Resource{Type: "leg", ID: fmt.Sprint(n)}, leg{Number: n}))
		}
		return list, nil
	}}
	f.rig = newRig(t, cfg, saga.Step[order]{Name: "a", Execute: ok, Compensate: func(context.Context, *saga.Run[order]) error { f.say("undo a"); return nil }},
		saga.Step[order]{Name: "legs", Children: children, CompensateRetry: quick, Execute: func(_ context.Context, run *saga.Run[order]) error {
			for n := range 3 {
				res, err := legName.Result(run, fmt.Sprint(n))
				if err != nil {
					t.Error(err)
				}
				f.say(fmt.Sprint(res.Status, " ", res.State.Result))
			}
			if _, err := legName.Result(run, "9"); !errors.Is(err, saga.ErrNoChild) {
				t.Error(err)
			}
			return nil
		}},
		saga.Step[order]{Name: "z", Execute: last})
	_, err := saga.Register(f.e, saga.Definition[leg]{Name: legName, Steps: []saga.Step[leg]{
		{Name: "fly", Execute: run("fly", func(n int) error { return f.fail[n] }), Compensate: run("back", func(int) error { return f.undo }),
			CompensateRetry: saga.RetryPolicy{Attempts: 1}},
		{Name: "land", Execute: func(context.Context, *saga.Run[leg]) error { return nil }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *family) children(id uuid.UUID) []*store.Execution {
	f.t.Helper()
	list, err := f.store.Children(f.t.Context(), store.ChildQuery{Parent: id, Limit: 100})
	if err != nil {
		f.t.Fatal(err)
	}
	return list
}

func (f *family) ends(id uuid.UUID) map[store.Status]int {
	n := map[store.Status]int{}
	for _, c := range f.children(id) {
		n[c.Status]++
	}
	return n
}

func TestChildren(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFamily(t, "", ok, saga.Config{})
		f.slow = 2 * time.Minute
		runEngine(t, f.e, func(ctx context.Context) {
			id := f.start(ctx)
			pass(time.Minute)
			x := f.get(id)
			if x.Status != store.StatusWaiting || x.Gate.Kind != store.GateChildren || x.Attempt != nil || len(f.children(id)) != 3 {
				t.Errorf("%s, %+v", x.Status, x.Gate)
			}
			if c := f.children(id)[0]; c.Parent.Execution != id || c.Parent.Step != "legs" {
				t.Errorf("%+v", c.Parent)
			}
			x = f.wait(ctx, id)
			if x.Status != store.StatusCompleted || x.FinishedAt.Sub(x.CreatedAt) > 2*time.Minute+4*time.Second {
				t.Errorf("%s after %v", x.Status, x.FinishedAt.Sub(x.CreatedAt))
			}
		})
		if want := []string{"fly0", "fly1", "fly2", "completed r0", "completed r1", "completed r2"}; !slices.Equal(f.log, want) {
			t.Errorf("%q", f.log)
		}
	})
}

func TestChildrenCompensate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFamily(t, "", results(saga.Fail(errors.New("no"))), saga.Config{})
		runEngine(t, f.e, func(ctx context.Context) {
			id := f.start(ctx)
			if x := f.wait(ctx, id); x.Status != store.StatusCompensated {
				t.Errorf("%s", x.Status)
			}
			if n := f.ends(id); n[store.StatusCompensated] != 3 {
				t.Errorf("%v", n)
			}
		})
		if got := f.log[len(f.log)-4:]; !slices.Equal(got, []string{"back0", "back1", "back2", "undo a"}) {
			t.Errorf("%q", f.log)
		}
	})
}

// With JoinAll the first that does not complete turns the saga around: the others
// are cancelled or compensated.
func TestOneChildFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFamily(t, "", ok, saga.Config{})
		f.fail[1] = saga.Fail(errors.New("no"))
		runEngine(t, f.e, func(ctx context.Context) {
			id := f.start(ctx)
			x := f.wait(ctx, id)
			if x.Status != store.StatusCompensated || x.Cause == nil || x.Cause.Class != "child_failed" {
				t.Errorf("%s, %+v", x.Status, x.Cause)
			}
			if n := f.ends(id); n[store.StatusFailed] != 1 || n[store.StatusCompleted] != 0 || len(f.children(id)) != 3 {
				t.Errorf("%v", n)
			}
		})
	})
}

func TestJoinSettled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFamily(t, saga.JoinSettled, ok, saga.Config{})
		f.fail[1] = saga.Fail(errors.New("no"))
		runEngine(t, f.e, func(ctx context.Context) {
			id := f.start(ctx)
			if x := f.wait(ctx, id); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
		})
		if got := f.log[len(f.log)-3:]; !slices.Equal(got, []string{"completed r0", "failed ", "completed r2"}) {
			t.Errorf("%q", f.log)
		}
	})
}

func TestCancelPassesDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFamily(t, "", ok, saga.Config{})
		f.slow = time.Minute
		runEngine(t, f.e, func(ctx context.Context) {
			id := f.start(ctx)
			pass(time.Minute + 1500*time.Millisecond) // two have flown, one is at it
			if _, err := f.e.Cancel(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			x := f.wait(ctx, id)
			if x.Status != store.StatusCompensated || x.Turn != store.TurnCancel {
				t.Errorf("%s", x.Status)
			}
			if n := f.ends(id); n[store.StatusCompensated] != 3 {
				t.Errorf("%v", n)
			}
		})
	})
}

func TestAChildThatCannotBeUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFamily(t, "", results(saga.Fail(errors.New("no"))), saga.Config{})
		f.undo = errors.New("stuck")
		runEngine(t, f.e, func(ctx context.Context) {
			id := f.start(ctx)
			x := f.wait(ctx, id)
			if x.Status != store.StatusCompensationFailed || x.Failure.Class != "child_compensation_failed" {
				t.Errorf("%s, %+v", x.Status, x.Failure)
			}
			for _, c := range f.children(id) {
				f.wait(ctx, c.ID) // the parent does not wait for the second one, which must be stuck before it is mended
			}
			f.undo = nil
			for _, c := range f.children(id) {
				if _, err := f.e.Retry(ctx, c.ID, anna, nil); err != nil {
					t.Error(err)
				}
			}
			if _, err := f.e.Retry(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			if x := f.wait(ctx, id); x.Status != store.StatusCompensated {
				t.Errorf("%s", x.Status)
			}
		})
	})
}

// A worker that dies between any two writes starts no child twice, and loses none.
func TestChildrenAreStartedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := 0
		count := &saga.Children[order]{Start: func(context.Context, *saga.Run[order]) ([]saga.Child, error) {
			if n++; n < 3 {
				return nil, errors.New("no")
			}
			return []saga.Child{legName.Child("x", saga.Resource{}, leg{})}, nil
		}}
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "legs", Children: count, Retry: quick}, saga.Step[order]{Name: "b", Execute: results(saga.Halt("look"))})
		if _, err := saga.Register(r.e, saga.Definition[leg]{Name: legName, Steps: []saga.Step[leg]{{Name: "fly", Execute: func(context.Context, *saga.Run[leg]) error { return nil }}}}); err != nil {
			t.Fatal(err)
		}
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Minute)
			if x := r.get(id); x.Status != store.StatusHalted || x.Step != "b" || !slices.Equal(ledgerOf(x), []string{"legs done", "b in_doubt"}) {
				t.Errorf("%s at %s, %v", x.Status, x.Step, ledgerOf(x))
			}
			list, _ := r.store.Children(ctx, store.ChildQuery{Parent: id, Limit: 10})
			if len(list) != 1 || n != 3 {
				t.Errorf("%d children after %d calls", len(list), n)
			}
		})
	})
}

func TestNoChildren(t *testing.T) {
	bubble(t, func(t *testing.T) {
		none := &saga.Children[order]{Start: func(context.Context, *saga.Run[order]) ([]saga.Child, error) { return nil, nil }}
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "legs", Children: none}, saga.Step[order]{Name: "b", Execute: ok})
		if x := r.runOne(); x.Status != store.StatusCompleted {
			t.Errorf("%s", x.Status)
		}
	})
}

func TestBadChildrenFail(t *testing.T) {
	for name, list := range map[string][]saga.Child{
		"twice": {legName.Child("x", saga.Resource{}, leg{}), legName.Child("x", saga.Resource{}, leg{})},
		"key":   {legName.Child("", saga.Resource{}, leg{})},
		"name":  {saga.Name[leg]("Leg!").Child("x", saga.Resource{}, leg{})},
		"state": {saga.Name[int]("leg").Child("x", saga.Resource{}, 1)},
		"made":  {{}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := &saga.Children[order]{Start: func(context.Context, *saga.Run[order]) ([]saga.Child, error) { return list, nil }}
				r := newRig(t, saga.Config{}, saga.Step[order]{Name: "legs", Children: c})
				if x := r.runOne(); x.Status != store.StatusFailed || x.Failure.Class != "children_refused" {
					t.Errorf("%s, %+v", x.Status, x.Failure)
				}
			})
		})
	}
}
