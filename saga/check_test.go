package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

const arrived saga.Signal[struct{}] = "arrived"

// old is the build that has started the executions of the tests of Check.
func old() saga.Definition[order] {
	return saga.Definition[order]{Name: "ship", Steps: []saga.Step[order]{
		{Name: "pack", Execute: ok, Compensate: ok},
		{Name: "send", Was: []string{"post"}, Execute: ok},
		{Name: "arrive", Await: &saga.Await[order]{Signal: arrived}, Execute: ok},
		{Name: "bill", Execute: ok},
	}}
}

// parkedOld returns a store in which an old build has parked executions that
// await, and compensation_failed ones.
func parkedOld(t *testing.T) store.Store {
	t.Helper()
	s := memory.New()
	d := old()
	failing := old()
	failing.Name = "failing"
	failing.Steps[0].Compensate = func(context.Context, *saga.Run[order]) error { return errors.New("stuck") }
	failing.Steps[0].CompensateRetry = saga.RetryPolicy{Attempts: 1}
	failing.Steps[1].Execute = results(saga.Fail(errors.New("no")))
	bubble(t, func(t *testing.T) {
		e, err := saga.New(saga.Config{Store: s, SweepEvery: time.Second, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		ships, err := saga.Register(e, d)
		if err != nil {
			t.Fatal(err)
		}
		fails, err := saga.Register(e, failing)
		if err != nil {
			t.Fatal(err)
		}
		runEngine(t, e, func(ctx context.Context) {
			for range 3 {
				if _, err := ships.Start(ctx, saga.Resource{ID: "1"}, order{}, nil); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := fails.Start(ctx, saga.Resource{ID: "1"}, order{}, nil); err != nil {
				t.Fatal(err)
			}
			pass(10 * time.Second)
		})
	})
	return s
}

func TestCheck(t *testing.T) {
	s := parkedOld(t)
	failing := old()
	failing.Name = "failing"
	for _, c := range []struct {
		name  string
		build func(d *saga.Definition[order])
		want  []saga.CheckProblem
	}{
		{"the same build", func(*saga.Definition[order]) {}, nil},
		{"a step that was renamed", func(d *saga.Definition[order]) { d.Steps[2].Name, d.Steps[2].Was = "delivery", []string{"arrive"} }, nil},
		{"a step that was removed, as it should be", func(d *saga.Definition[order]) {
			d.Removed = []saga.Step[order]{{Name: "arrive"}, {Name: "pack", Compensate: ok}}
			d.Steps = []saga.Step[order]{d.Steps[1], d.Steps[3]}
		}, nil},
		{"a step that is gone", func(d *saga.Definition[order]) { d.Steps = slices.Delete(d.Steps, 2, 3) },
			[]saga.CheckProblem{{Code: saga.CheckUnknownStep, Step: "arrive", Count: 3}}},
		{"a step ahead that is gone", func(d *saga.Definition[order]) { d.Steps = d.Steps[:3] },
			[]saga.CheckProblem{{Code: saga.CheckStepAhead, Step: "bill", Count: 3}}},
		{"a compensation that is gone", func(d *saga.Definition[order]) { d.Steps[0].Compensate = nil },
			[]saga.CheckProblem{{Code: saga.CheckNoCompensation, Step: "pack", Count: 3}}},
		{"a step behind that is gone with its compensation", func(d *saga.Definition[order]) { d.Steps = d.Steps[1:] },
			[]saga.CheckProblem{{Code: saga.CheckNoCompensation, Step: "pack", Count: 3}}},
		{"another signal", func(d *saga.Definition[order]) { d.Steps[2].Await.Signal = saga.Signal[struct{}]("landed") },
			[]saga.CheckProblem{{Code: saga.CheckOtherWait, Step: "arrive", Count: 3}}},
		{"no signal", func(d *saga.Definition[order]) { d.Steps[2].Await = nil },
			[]saga.CheckProblem{{Code: saga.CheckOtherWait, Step: "arrive", Count: 3}}},
		{"signals that depend on the state", func(d *saga.Definition[order]) {
			d.Steps[2].Await = &saga.Await[order]{SignalsFunc: func(order) []saga.AnySignal { return []saga.AnySignal{arrived} }}
		}, nil},
		{"a new step", func(d *saga.Definition[order]) {
			d.Steps = append(d.Steps, saga.Step[order]{Name: "thank", Execute: ok})
		}, nil},
		{"another version", func(d *saga.Definition[order]) { d.Version = 2 },
			[]saga.CheckProblem{{Code: saga.CheckUnknownVersion, Count: 3}}},
		{"another saga", func(d *saga.Definition[order]) { d.Name = "freight" },
			[]saga.CheckProblem{{Code: saga.CheckUnknownSaga, Count: 3}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := old()
			c.build(&d)
			// As a service would write it down, and another program read it.
			b, err := json.Marshal([]saga.Outline{d.Outline(), failing.Outline()})
			if err != nil {
				t.Fatal(err)
			}
			var build []saga.Outline
			if err := json.Unmarshal(b, &build); err != nil {
				t.Fatal(err)
			}
			r, err := saga.Check(t.Context(), s, build...)
			if err != nil {
				t.Fatal(err)
			}
			if r.Checked != 4 {
				t.Errorf("%d were checked, want 4", r.Checked)
			}
			var got []saga.CheckProblem
			for _, p := range r.Problems {
				if p.Sentence == "" || p.Saga != "ship" || p.Version != 1 {
					t.Errorf("%+v", p)
				}
				if x, err := s.Get(t.Context(), p.Example); err != nil || x.Saga != "ship" {
					t.Errorf("the example of %s is %v, %v", p.Code, x, err)
				}
				got = append(got, saga.CheckProblem{Code: p.Code, Step: p.Step, Count: p.Count})
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	// What waits for a person is looked at, too.
	failing.Steps[0].Compensate = nil
	r, err := saga.Check(t.Context(), s, old().Outline(), failing.Outline())
	if err != nil || len(r.Problems) != 1 || r.Problems[0].Code != saga.CheckNoCompensation || r.Problems[0].Saga != "failing" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := saga.Check(t.Context(), struct{ store.Store }{s}, old().Outline()); !errors.Is(err, saga.ErrNotSupported) {
		t.Errorf("without a Querier: %v", err)
	}
	if _, err := saga.Check(t.Context(), s, saga.Outline{}); !errors.Is(err, saga.ErrInvalid) {
		t.Errorf("an outline of nothing: %v", err)
	}
}

// Workers leave their outlines in the store; the last build's is there.
func TestStoredOutlines(t *testing.T) {
	s := parkedOld(t)
	bubble(t, func(t *testing.T) {
		e, err := saga.New(saga.Config{Store: s, SweepEvery: time.Second, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		stored := func() []saga.Outline {
			t.Helper()
			list, err := e.StoredOutlines(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		first := stored()
		if len(first) != 2 || first[1].Saga != "ship" || len(first[1].Steps) != 4 || first[1].Steps[2].Awaits[0] != "arrived" {
			t.Fatalf("%+v", first)
		}
		d := old()
		d.Steps[0].Pivot = true
		d.Steps[0].Compensate = nil
		if _, err := saga.Register(e, d); err != nil {
			t.Fatal(err)
		}
		runEngine(t, e, func(context.Context) { pass(2 * time.Second) })
		second := stored()
		if len(second) != 2 || !second[1].Steps[0].Pivot || second[1].Steps[0].Compensable {
			t.Errorf("%+v", second)
		}
	})
}
