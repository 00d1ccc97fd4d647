package sagatest_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/sagatest"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
	"github.com/leveret-go/leveret/store/sqlite"
)

type state struct {
	Log string `json:"log"`
}

type step = saga.Step[state]

// note is a step's function that writes the step's name into the state.
func note(ctx context.Context, run *saga.Run[state]) error {
	word := run.Step
	if run.Direction == store.DirectionCompensate {
		word = "-" + word
	}
	run.State.Log = strings.TrimSpace(run.State.Log + " " + word)
	return nil
}

func abc() saga.Definition[state] {
	var d saga.Definition[state]
	d.Name = "abc"
	for _, name := range []string{"a", "b", "c"} {
		d.Steps = append(d.Steps, step{Name: name, Execute: note, Compensate: note})
	}
	return d
}

func start(t *testing.T, s *saga.Saga[state]) uuid.UUID {
	t.Helper()
	x, err := s.Start(t.Context(), saga.Resource{}, state{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return x.ID
}

func steps(t *testing.T, h *sagatest.Harness, id uuid.UUID, want ...string) {
	t.Helper()
	if got := h.Steps(id); !slices.Equal(got, want) {
		t.Errorf("steps %q\nwant  %q", got, want)
	}
}

func TestFaults(t *testing.T) {
	plain := errors.New("503")
	for name, row := range map[string]struct {
		plan   func(h *sagatest.Harness)
		steps  string
		status store.Status
		log    string
		took   time.Duration
	}{
		"none":           {func(h *sagatest.Harness) {}, "a,b,c", "completed", "a b c", 0},
		"fail":           {func(h *sagatest.Harness) { h.At("b").Fail(plain) }, "a,b failed,b,c", "completed", "a b c", time.Second},
		"fail twice":     {func(h *sagatest.Harness) { h.At("b").Fail(plain).Fail(plain) }, "a,b failed,b failed,b,c", "completed", "a b c", 3 * time.Second},
		"fail for good":  {func(h *sagatest.Harness) { h.At("b").Fail(saga.Fail(plain)) }, "a,b failed,undo a", "compensated", "a -a", 0},
		"fail in doubt":  {func(h *sagatest.Harness) { h.At("b").Fail(saga.Fail(saga.Unknown(plain))) }, "a,b failed,undo b,undo a", "compensated", "a -b -a", 0},
		"halt":           {func(h *sagatest.Harness) { h.At("b").Fail(saga.Halt("look")) }, "a,b failed", "halted", "a", 0},
		"crash before":   {func(h *sagatest.Harness) { h.At("b").CrashBefore() }, "a,b abandoned,b,c", "completed", "a b c", 32 * time.Second},
		"crash after":    {func(h *sagatest.Harness) { h.At("c").CrashAfter() }, "a,b,c abandoned,c", "completed", "a b c", 32 * time.Second},
		"crash first":    {func(h *sagatest.Harness) { h.At("a").CrashAfter().CrashBefore() }, "a abandoned,a abandoned,a,b,c", "completed", "a b c", 64 * time.Second},
		"time out":       {func(h *sagatest.Harness) { h.At("b").TimeOut() }, "a,b failed,b,c", "completed", "a b c", time.Second},
		"one after one":  {func(h *sagatest.Harness) { h.At("b").CrashBefore().Fail(plain) }, "a,b abandoned,b failed,b,c", "completed", "a b c", 34 * time.Second},
		"undo fails":     {func(h *sagatest.Harness) { h.At("c").Fail(saga.Fail(plain)); h.AtUndo("b").Fail(plain) }, "a,b,c failed,undo b failed,undo b,undo a", "compensated", "a b -b -a", time.Second},
		"undo crashes":   {func(h *sagatest.Harness) { h.At("c").Fail(saga.Fail(plain)); h.AtUndo("b").CrashAfter() }, "a,b,c failed,undo b abandoned,undo b,undo a", "compensated", "a b -b -a", 32 * time.Second},
		"undo is stuck":  {func(h *sagatest.Harness) { h.At("c").Fail(saga.Fail(plain)); h.AtUndo("b").Fail(saga.Fail(plain)) }, "a,b,c failed,undo b failed", "compensation_failed", "a b", 0},
		"one saga's":     {func(h *sagatest.Harness) { h.At("abc/b").Fail(plain) }, "a,b failed,b,c", "completed", "a b c", time.Second},
		"doubt is long":  {func(h *sagatest.Harness) { h.At("b").CrashBefore().CrashBefore().CrashBefore() }, "a,b abandoned,b abandoned,b abandoned,undo b,undo a", "compensated", "a -b -a", 64*time.Second + 5*time.Minute},
		"two of a chain": {func(h *sagatest.Harness) { h.At("a").CrashAfter(); h.At("c").CrashBefore() }, "a abandoned,a,b,c abandoned,c", "completed", "a b c", 64 * time.Second},
	} {
		for _, where := range []string{"memory", "sqlite"} {
			t.Run(name+" on "+where, func(t *testing.T) {
				cfg := &sagatest.Config{Store: memory.New()}
				if where == "sqlite" {
					st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), nil)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { st.Close() })
					cfg.Store = st
				}
				h := sagatest.New(t, cfg)
				s := sagatest.Register(h, abc())
				begun := h.Now()
				row.plan(h)
				id := start(t, s)
				h.Drain()
				steps(t, h, id, strings.Split(row.steps, ",")...)
				if got := h.Execution(id).Status; got != row.status {
					t.Errorf("status %s, want %s", got, row.status)
				}
				if got := sagatest.State(h, s, id).Log; got != row.log {
					t.Errorf("state %q, want %q", got, row.log)
				}
				if got := h.Now().Sub(begun); got != row.took {
					t.Errorf("took %v, want %v", got, row.took)
				}
			})
		}
	}
}

// Drain never jumps over a snooze, Advance does, and what comes due on the way
// is done at its time.
func TestDrainDoesNotJumpOverASnooze(t *testing.T) {
	var times []time.Duration
	h := sagatest.New(t, nil)
	begun := h.Now()
	s := sagatest.Register(h, saga.Definition[state]{Name: "reminder", Steps: []step{{
		Name: "ask",
		Execute: func(ctx context.Context, run *saga.Run[state]) error {
			times = append(times, run.Now().Sub(begun))
			if len(times) == 4 {
				return nil
			}
			return saga.Snooze(time.Hour)
		},
	}}})
	id := start(t, s)
	h.Drain()
	h.Drain()
	if h.Now() != begun || len(times) != 1 {
		t.Errorf("Drain jumped to %v, %d calls", h.Now().Sub(begun), len(times))
	}
	h.Advance(59 * time.Minute)
	if len(times) != 1 {
		t.Errorf("%d calls after 59 minutes, want 1", len(times))
	}
	h.Advance(121 * time.Minute)
	if got, want := h.Now().Sub(begun), 3*time.Hour; got != want {
		t.Errorf("advanced to %v, want %v", got, want)
	}
	if want := []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour}; !slices.Equal(times, want) {
		t.Errorf("called at %v, want %v", times, want)
	}
	steps(t, h, id, "ask snoozed", "ask snoozed", "ask snoozed", "ask")
}

func TestExecutionsAreWorkedInTheOrderTheyWereStarted(t *testing.T) {
	for range 5 {
		var order []string
		h := sagatest.New(t, nil, saga.Definition[state]{Name: "other", Steps: []step{{Name: "x", Execute: note}}})
		s := sagatest.Register(h, saga.Definition[state]{Name: "list", Steps: []step{{
			Name: "x",
			Execute: func(ctx context.Context, run *saga.Run[state]) error {
				order = append(order, run.Resource.ID)
				if run.Resource.ID == "1" && run.Attempt == 1 {
					return errors.New("later")
				}
				return nil
			},
		}}})
		for i := range 4 {
			if _, err := s.Start(t.Context(), saga.Resource{Type: "n", ID: fmt.Sprint(i)}, state{}, nil); err != nil {
				t.Fatal(err)
			}
		}
		h.Drain()
		if want := []string{"0", "1", "2", "3", "1"}; !slices.Equal(order, want) {
			t.Fatalf("order %v, want %v", order, want)
		}
	}
}

func TestDrainGivesUp(t *testing.T) {
	h := sagatest.New(t, &sagatest.Config{MaxDeliveries: 50})
	forever := sagatest.Register(h, saga.Definition[state]{Name: "forever", Steps: []step{{
		Name: "try", Retry: saga.RetryPolicy{Attempts: saga.Unlimited},
		Execute: func(context.Context, *saga.Run[state]) error { return errors.New("never") },
	}}})
	done := start(t, sagatest.Register(h, abc()))
	id := start(t, forever)
	var stalled *sagatest.StalledError
	if err := h.TryDrain(); !errors.As(err, &stalled) {
		t.Fatalf("TryDrain: %v, want a StalledError", err)
	}
	if stalled.Deliveries != 50 || len(stalled.Executions) != 1 {
		t.Fatalf("%+v", stalled)
	}
	got := stalled.Executions[0]
	if got.Execution.ID != id || got.Pointer.Execution != id || got.Pointer.Step != "try" || got.Pointer.Saga != "forever" || got.Result.Reason != "" {
		t.Errorf("stalled %+v", got)
	}
	for _, want := range []string{"after 50 deliveries", "forever " + id.String(), `at step "try"`, `last pointer: execute "try"`} {
		if !strings.Contains(stalled.Error(), want) {
			t.Errorf("error %q does not say %q", stalled, want)
		}
	}
	if got := h.Execution(done).Status; got != store.StatusCompleted {
		t.Errorf("the other execution is %s", got)
	}
}

func TestOperatorsActsAndDeclaredStarts(t *testing.T) {
	h := sagatest.New(t, nil, abc())
	s, err := saga.Declare(h.Engine, saga.Name[state]("abc"), nil)
	if err != nil {
		t.Fatal(err)
	}
	id := start(t, s)
	h.At("b").Fail(saga.Halt("look at it"))
	h.Drain()
	if _, err := h.Engine.Compensate(t.Context(), id, saga.By{Actor: "me", Reason: "not wanted"}, nil); err != nil {
		t.Fatal(err)
	}
	h.Drain()
	steps(t, h, id, "a", "b failed", "undo b", "undo a")
}

// fakeT is a test that may fail.
type fakeT struct {
	testing.TB
	cleanups []func()
	errors   []string
	fatal    bool
}

type fatal struct{}

func (f *fakeT) Helper()           {}
func (f *fakeT) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *fakeT) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeT) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	f.fatal = true
	panic(fatal{})
}

func (f *fakeT) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

// outcome runs a test and returns what it said.
func outcome(t *testing.T, test func(t testing.TB)) (said string, ended bool) {
	f := &fakeT{TB: t}
	func() {
		defer func() {
			if v := recover(); v != nil && v != any(fatal{}) {
				panic(v)
			}
		}()
		test(f)
	}()
	for _, fn := range slices.Backward(f.cleanups) {
		fn()
	}
	return strings.Join(f.errors, "\n"), f.fatal
}

func TestMisuseFailsTheTest(t *testing.T) {
	for name, row := range map[string]struct {
		test  func(t testing.TB)
		said  string
		ended bool
	}{
		"a fault that is not met": {func(t testing.TB) { sagatest.New(t, nil, abc()).AtUndo("b").CrashAfter() }, `the fault at the undo of "b" was never reached`, false},
		"no such step":            {func(t testing.TB) { sagatest.New(t, nil, abc()).At("d") }, `no saga that is registered has a step "d"`, true},
		"no such saga":            {func(t testing.TB) { sagatest.New(t, nil, abc()).At("x/a") }, `has a step "x/a"`, true},
		"a bad definition":        {func(t testing.TB) { sagatest.New(t, nil, saga.Definition[state]{Name: "x"}) }, "no Steps", true},
		"an unknown execution":    {func(t testing.TB) { sagatest.New(t, nil).Execution(uuid.New()) }, "not found", true},
		"a bad config": {func(t testing.TB) {
			sagatest.New(t, &sagatest.Config{Engine: func(c *saga.Config) { c.Lease = time.Millisecond }})
		}, "Config.Lease", true},
		"a drain without end": {func(t testing.TB) {
			h := sagatest.New(t, &sagatest.Config{MaxDeliveries: 3})
			s := sagatest.Register(h, saga.Definition[state]{Name: "spin", Steps: []step{{Name: "x", Execute: func(context.Context, *saga.Run[state]) error { return saga.Snooze(0) }}}})
			if _, err := s.Start(t.Context(), saga.Resource{}, state{}, nil); err != nil {
				t.Fatal(err)
			}
			h.Drain()
		}, "after 3 deliveries", true},
	} {
		t.Run(name, func(t *testing.T) {
			said, ended := outcome(t, row.test)
			if !strings.Contains(strings.ToLower(said), strings.ToLower(row.said)) || ended != row.ended {
				t.Errorf("said %q, ended %v; want %q, %v", said, ended, row.said, row.ended)
			}
		})
	}
}

func TestNewRunWorksWithoutAnEngine(t *testing.T) {
	run := sagatest.NewRun(state{Log: "x"}, nil)
	if run.State.Log != "x" || run.Execution == uuid.Nil || run.Attempt != 1 || run.Direction != store.DirectionExecute {
		t.Errorf("run %+v", run)
	}
	if got, want := run.Key(), run.Execution.String()+"/step/execute"; got != want {
		t.Errorf("key %q, want %q", got, want)
	}
	if got, want := run.Key("card", "a b"), run.ExecuteKey()+":card:a+b"; got != want {
		t.Errorf("key %q, want %q", got, want)
	}
	if since := time.Since(run.Now()); since < 0 || since > time.Minute {
		t.Errorf("now is %v ago", since)
	}
	run.Logger().Debug("a step without an engine")
	undo := sagatest.NewRun(state{}, &sagatest.RunConfig{Call: saga.Call{Execution: run.Execution, Direction: store.DirectionCompensate}})
	if undo.ExecuteKey() != run.Key() || undo.Key() == run.Key() {
		t.Errorf("keys of the undo: %q, %q", undo.Key(), undo.ExecuteKey())
	}
}
