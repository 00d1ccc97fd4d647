package saga_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A stage is a saga whose steps do as they are told, and then succeed.
type stage struct {
	mu     sync.Mutex
	script map[string]func(ctx context.Context) error // by step and direction; used once
	calls  []saga.PlannedStep
	resume chan struct{} // closed when held steps may end
}

func (s *stage) body(ctx context.Context, run *saga.Run[struct{}]) error {
	key := run.Step + "/" + string(run.Direction)
	s.mu.Lock()
	s.calls = append(s.calls, saga.PlannedStep{Name: run.Step, Direction: run.Direction})
	f := s.script[key]
	delete(s.script, key)
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx)
}

// hold waits until the stage goes on, or somebody interrupts it.
func (s *stage) hold(ctx context.Context) error {
	select {
	case <-s.resume:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// What a step can be told to do, so that the execution comes to rest.
func (s *stage) outcomes() []func(context.Context) error {
	broken := errors.New("broken")
	return []func(context.Context) error{
		func(context.Context) error { return saga.Fail(broken) },
		func(context.Context) error { return saga.Fail(saga.Unknown(broken)) },
		func(context.Context) error { return saga.Halt("look") },
		func(context.Context) error { return saga.RetryAfter(3*time.Minute, broken) },
		func(context.Context) error { return saga.RetryAfter(3*time.Minute, saga.Unknown(broken)) },
		func(context.Context) error { return saga.Skip("nothing to do") },
		s.hold,
	}
}

// A plan says exactly what then happens: which steps are run or undone, in which
// order, how it ends, and whether the act is taken at all.
func TestPlanAgreesWithAct(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 50
	}
	refused, moved, requested, ends := 0, 0, 0, map[store.Status]int{}
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			p := planAndAct(t, seed)
			switch {
			case p.Refused != nil:
				refused++
			case p.Requested:
				requested++
			default:
				moved++
			}
			ends[p.EndsAs]++
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d refused, %d done, %d requested; ends %v", refused, moved, requested, ends)
	if !testing.Short() && (refused == 0 || requested == 0 || moved == 0 || len(ends) < 6) {
		t.Error("the seeds do not reach everything")
	}
}

func planAndAct(t *testing.T, seed uint64) *saga.Plan {
	r := rand.New(rand.NewPCG(seed, 7))
	s := &stage{script: map[string]func(context.Context) error{}, resume: make(chan struct{})}
	st := memory.New()
	e, err := saga.New(saga.Config{Store: st, Logger: quiet, SweepEvery: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	d := saga.Definition[struct{}]{Name: "stage"}
	outcomes := s.outcomes()
	never := map[string]bool{} // steps whose condition is false
	for i := range 4 {
		step := saga.Step[struct{}]{Name: fmt.Sprintf("s%d", i), Execute: s.body, Timeout: saga.NoTimeout}
		if r.IntN(4) > 0 {
			step.Compensate = s.body
		}
		if r.IntN(4) == 0 {
			step.InDoubt = saga.InDoubtHalt
		}
		step.Isolated = r.IntN(3) == 0
		switch r.IntN(8) {
		case 0:
			step.If = func(struct{}) bool { return false }
			never[step.Name] = true
		case 1:
			step.If = func(struct{}) bool { return true }
		case 2:
			step.Wait = time.Duration(1+r.IntN(30)) * time.Second
		case 3: // nothing comes
			step.Await = &saga.Await[struct{}]{Signal: saga.Signal[struct{}]("go"), Timeout: 20 * time.Second}
		}
		d.Steps = append(d.Steps, step)
		for _, dir := range []string{"execute", "compensate"} {
			if r.IntN(3) == 0 {
				s.script[step.Name+"/"+dir] = outcomes[r.IntN(len(outcomes))]
			}
		}
	}
	sg, err := saga.Register(e, d)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	x, err := sg.Start(ctx, saga.Resource{}, struct{}{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(30*time.Second + 500*time.Millisecond) // it has come to rest, or an attempt is held; no wait ends right now

	// A process that knows nothing of the saga plans the same.
	planner := e
	if r.IntN(2) == 0 {
		if planner, err = saga.New(saga.Config{Store: st, Logger: quiet}); err != nil {
			t.Fatal(err)
		}
	}
	act := saga.Acts()[r.IntN(len(saga.Acts()))]
	opts := &saga.ActOptions{}
	plan, err := planner.Plan(ctx, x.ID, act, opts)
	if err != nil {
		t.Fatal(err)
	}
	before, err := e.Get(ctx, x.ID)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	clear(s.script)
	s.calls = nil
	s.mu.Unlock()
	opts.IfRevision = plan.Revision
	_, err = e.Act(ctx, x.ID, act, saga.By{Actor: "anna", Reason: "to see"}, opts)
	if plan.Refused != nil {
		if !errors.Is(err, plan.Refused) {
			t.Errorf("seed %d: %s of %s: planned to be refused with %v, but got %v", seed, act, before.Status, plan.Refused, err)
		}
		close(s.resume)
		return plan
	}
	if err != nil {
		t.Errorf("seed %d: %s of %s: not planned to be refused, but got %v", seed, act, before.Status, err)
		close(s.resume)
		return plan
	}
	<-time.After(30 * time.Second) // a request has reached the step
	close(s.resume)
	<-time.After(5 * time.Minute) // with all that it waits for
	after, err := e.Get(ctx, x.ID)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	calls := slices.Clone(s.calls)
	s.mu.Unlock()
	var want []saga.PlannedStep
	for _, p := range plan.Steps {
		if never[p.Name] && p.Direction == store.DirectionExecute {
			if planner == e && !p.Conditional {
				t.Errorf("seed %d: step %s is planned to run, and its condition is false", seed, p.Name)
			}
			continue
		}
		if !p.Running { // its call was before
			want = append(want, saga.PlannedStep{Name: p.Name, Direction: p.Direction})
		}
	}
	if !slices.Equal(calls, want) || after.Status != plan.EndsAs {
		t.Errorf("seed %d: %s of %s at %s/%s %v:\nplanned %v, ending %s\nhappened %v, ending %s (%s)", seed, act, before.Status,
			before.Step, before.Direction, ledger(before), want, plan.EndsAs, calls, after.Status, ledger(after))
	}
	if plan.HaltsAt != "" && after.Step != plan.HaltsAt {
		t.Errorf("seed %d: it halts at %s, planned at %s", seed, after.Step, plan.HaltsAt)
	}
	for _, name := range plan.Cannot {
		if l := after.Entry(name).Status; l != store.StepDone && l != store.StepInDoubt {
			t.Errorf("seed %d: step %s is %s, planned to stay as it is", seed, name, l)
		}
	}
	return plan
}

func ledger(x *saga.Execution) string {
	out := ""
	for _, l := range x.Ledger {
		out += fmt.Sprintf("%s=%s ", l.Name, l.Status)
	}
	return out
}

// What an execution waits for is in its plan.
func TestPlanOfWhatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		paid := saga.Signal[int]("paid")
		r := newRig(t, saga.Config{SweepEvery: time.Minute},
			saga.Step[order]{Name: "a", Wait: time.Hour, Execute: ok, Compensate: ok},
			saga.Step[order]{Name: "b", If: func(order) bool { return false }, Execute: ok},
			saga.Step[order]{Name: "c", Await: &saga.Await[order]{Signal: paid}, Execute: ok},
			saga.Step[order]{Name: "d", Children: &saga.Children[order]{Start: func(context.Context, *saga.Run[order]) ([]saga.Child, error) { return nil, nil }}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Minute)
			p, err := r.e.Plan(ctx, id, saga.ActHalt, nil)
			if err != nil || p.Refused != nil || p.EndsAs != store.StatusHalted || len(p.Steps) > 0 {
				t.Errorf("%+v, %v", p, err)
			}
			if _, err := r.e.Halt(ctx, id, anna, nil); err != nil {
				t.Fatal(err)
			}
			due := r.get(id).CreatedAt.Add(time.Hour)
			p, err = r.e.Plan(ctx, id, saga.ActResume, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := []saga.PlannedStep{
				{Name: "a", Direction: store.DirectionExecute, Waits: store.GateTime},
				{Name: "b", Direction: store.DirectionExecute, Conditional: true},
				{Name: "c", Direction: store.DirectionExecute, Waits: store.GateSignal},
				{Name: "d", Direction: store.DirectionExecute},
			}
			if !slices.Equal(p.Steps, want) || p.EndsAs != store.StatusCompleted || p.NotBefore == nil || !p.NotBefore.Equal(due) {
				t.Errorf("steps %+v, ending %s, not before %v, want %v", p.Steps, p.EndsAs, p.NotBefore, due)
			}
		})
	})
}

// An attempt whose lease has run out does not run: the plan begins it anew.
func TestPlanWithALapsedAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: ok, Compensate: ok}, saga.Step[order]{Name: "b", Execute: ok})
		id := r.start(t.Context())
		_, err := r.store.WithLock(t.Context(), id, func(x *store.Execution) (store.Change, error) {
			x.Direction, x.Status, x.Ledger[0].Status, x.Ledger[0].Opens = store.DirectionCompensate, store.StatusCompensating, store.StepDone, 1
			x.Attempt = &store.OpenAttempt{Number: 1, Worker: "dead/1", StartedAt: time.Now().Add(-time.Hour), LeaseUntil: time.Now().Add(-time.Minute)}
			return store.Change{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.e.Plan(t.Context(), id, saga.ActCompensate, nil)
		if err != nil || len(p.Steps) != 1 || p.Steps[0].Running {
			t.Errorf("%+v, %v", p, err)
		}
	})
}
