package saga_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/memory"
)

func TestKeysAreTheSameForEveryAttemptAndTellDirectionsApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var keys []string
		note := func(err error) fn {
			return func(ctx context.Context, run *saga.Run[order]) error {
				c, ok := saga.CallFrom(ctx)
				if !ok || c.Key() != run.Key() {
					t.Error("CallFrom does not find the call")
				}
				prefix := run.Execution.String() + "/"
				for _, k := range []string{run.Key(), run.Key("x:1", "y"), run.ExecuteKey("x:1", "y")} {
					if !strings.HasPrefix(k, prefix) {
						t.Errorf("key %q does not begin with the execution's id", k)
					}
					keys = append(keys, strings.TrimPrefix(k, prefix))
				}
				return err
			}
		}
		n := 0
		r := newRig(t, saga.Config{},
			saga.Step[order]{Name: "a", Retry: quick, Compensate: note(nil), Execute: func(ctx context.Context, run *saga.Run[order]) error {
				if n++; n == 1 {
					return note(errors.New("again"))(ctx, run)
				}
				return note(nil)(ctx, run)
			}},
			saga.Step[order]{Name: "b", Execute: results(saga.Fail(errors.New("no")))})
		r.runOne()
		wantEqual(t, "keys", keys, []string{
			"a/execute", "a/execute:x%3A1:y", "a/execute:x%3A1:y",
			"a/execute", "a/execute:x%3A1:y", "a/execute:x%3A1:y",
			"a/compensate", "a/compensate:x%3A1:y", "a/execute:x%3A1:y",
		})
	})
}

func TestRegisterListsAllFaults(t *testing.T) {
	e, err := saga.New(saga.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = saga.Register(e, saga.Definition[order]{
		Name: "Bad Name", Version: -1, Partition: "a.b",
		Steps: []saga.Step[order]{
			{Name: "a"},
			{Name: "a", Execute: ok, Timeout: -1, InDoubt: saga.InDoubtCompensate},
			{Name: "", Execute: ok, InDoubt: "perhaps", Retry: saga.RetryPolicy{Attempts: -1, Initial: 10, Max: 5}},
		},
		Removed: []saga.Step[order]{{Name: "gone", Was: []string{"a"}}},
	})
	if !errors.Is(err, saga.ErrInvalid) {
		t.Fatalf("Register: %v", err)
	}
	for _, want := range []string{
		`name "Bad Name" must match`, "version -1", `partition "a.b" must match`, `step 1 ("a") has no Execute`,
		`step 2 ("a"): the name "a" is used twice`, "Timeout is negative", "there is no Compensate", `step 3 (""): name is empty`,
		`InDoubt "perhaps"`, "Retry.Attempts is -1", "Retry.Max is smaller than Initial", `removed step 1 ("gone"): the name "a" is used twice`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "gone\") has no Execute") {
		t.Error("a removed step needs no Execute")
	}
	if _, err := saga.Register(e, saga.Definition[order]{Name: "none"}); err == nil || !strings.Contains(err.Error(), "has no steps") {
		t.Errorf("no steps: %v", err)
	}
	good := saga.Definition[order]{Name: "good", Steps: []saga.Step[order]{{Name: "a", Execute: ok}}}
	if err := e.RegisterAll(good); err != nil {
		t.Error(err)
	}
	if err := e.RegisterAll(good); !errors.Is(err, saga.ErrInvalid) {
		t.Errorf("registered twice: %v", err)
	}
}

func TestNewListsAllFaults(t *testing.T) {
	_, err := saga.New(saga.Config{
		Workers: -1, Worker: "a\x00", Lease: 1, StepTimeout: -1, ChainFor: -1, SweepEvery: 1, PickupWithin: -1, Grace: -1,
		MaxResumes: -1, OnStalled: "hope", BacklogThreshold: -1, BacklogPatience: 1, Handover: "throw",
	})
	if !errors.Is(err, saga.ErrInvalid) {
		t.Fatalf("New: %v", err)
	}
	for _, field := range []string{"Store", "Workers", "Worker ", "Lease", "StepTimeout", "ChainFor", "SweepEvery", "PickupWithin", "Grace",
		"MaxResumes", "OnStalled", "BacklogThreshold", "BacklogPatience", "Handover"} {
		if !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("the error does not name %s:\n%v", field, err)
		}
	}
}

func TestOutlines(t *testing.T) {
	e, err := saga.New(saga.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	step := func(name string) saga.Step[order] { return saga.Step[order]{Name: name, Execute: ok, Compensate: ok} }
	if err := e.RegisterAll(
		saga.Definition[order]{Name: "b", Steps: []saga.Step[order]{step("x")}},
		saga.Definition[order]{Name: "a", Version: 2, Partition: "p", Steps: []saga.Step[order]{step("y")}, Removed: []saga.Step[order]{{Name: "z"}}},
		saga.Definition[order]{Name: "a", Steps: []saga.Step[order]{step("x")}},
	); err != nil {
		t.Fatal(err)
	}
	o := e.Outlines()
	if len(o) != 3 || o[0].Saga != "a" || o[0].Version != 1 || o[1].Version != 2 || o[2].Saga != "b" ||
		o[0].Partition != "default" || o[1].Partition != "p" || !o[1].Steps[0].Compensable || o[1].Removed[0].Name != "z" {
		t.Errorf("%+v", o)
	}
}

func TestBadStartsAreRefused(t *testing.T) {
	r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: ok})
	for name, start := range map[string]func() error{
		"partition": func() error {
			_, err := r.s.Start(t.Context(), saga.Resource{}, order{}, &saga.StartOptions{Partition: "a.b"})
			return err
		},
		"resource": func() error {
			_, err := r.s.Start(t.Context(), saga.Resource{Type: "order", ID: "a\x00"}, order{}, nil)
			return err
		},
		"long resource": func() error {
			_, err := r.s.Start(t.Context(), saga.Resource{ID: strings.Repeat("x", 2000)}, order{}, nil)
			return err
		},
	} {
		err := start()
		if !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		} else if !strings.Contains(err.Error(), strings.Fields(name)[len(strings.Fields(name))-1]) {
			t.Errorf("%s: %v does not name the field", name, err)
		}
	}
	if _, err := saga.Declare(r.e, saga.Name[order]("UPPER"), &saga.DeclareOptions{Version: -1, Partition: "a/b"}); !errors.Is(err, saga.ErrInvalid) ||
		strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("Declare: %v, want three faults", err)
	}
}
