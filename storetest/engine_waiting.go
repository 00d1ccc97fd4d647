package storetest

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
)

// waitingEngineCases are of sagas that wait, listen, are unique, and start others.
var waitingEngineCases = []engineCase{
	{"waits and signals", "steps wait for a time that may be moved, and for signals that may come early, twice, or not at all", runWaits},
	{"crashes of who waits", "whichever call of the store a process dies after, a saga that waits, listens and has a child ends as it should", func(t *testing.T, s store.Store) {
		runWaitingCrashes(t, s, crashAfter)
	}},
	{"answers lost of who waits", "a write that was done, but whose answer was lost, is recognised as done by a saga that waits, listens and has a child", func(t *testing.T, s store.Store) {
		runWaitingCrashes(t, s, errorAfter)
	}},
	{"one key, many starters", "of any number of processes that start one key at once exactly one does", runStarters},
	{"replaces", "the newest start takes the place of the execution that has its key, when that has been undone", runReplaces},
	{"continues as new", "one write ends an execution and starts its successor, with its key", runContinues},
	{"pivots", "before its pivot a saga is undone, after it it goes on or waits for a person", runPivots},
	{"limits", "no more executions are active than may be, and each has its turn", runLimits},
	{"schedules", "each occurrence of a schedule starts one execution, whatever process is there", runSchedules},
	{"deadline", "a saga that has not ended by its deadline is undone", runDeadline},
}

// settled waits for an execution that is parked or has ended, without moving the
// clock.
func (w *world) settled(id uuid.UUID) *store.Execution {
	w.t.Helper()
	return w.still(id, func(x *store.Execution) bool {
		return x.Attempt == nil && (x.Status.Finished() || x.Status == store.StatusWaiting || x.Status == store.StatusHalted) &&
			(x.DueAt == nil || x.DueAt.After(w.now()))
	})
}

// still waits for something to become true, without moving the clock.
func (w *world) still(id uuid.UUID, done func(x *store.Execution) bool) *store.Execution {
	w.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		x, err := w.s.Get(w.t.Context(), id)
		if err != nil {
			w.t.Fatalf("%s: %v", w.label, err)
		}
		if done(x) {
			return x
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: after two minutes still %s at %s, due %v, now %v, gate %+v", w.label, x.Status, x.Step, x.DueAt, w.now(), x.Gate)
		}
		timer := time.NewTimer(time.Millisecond)
		<-timer.C
	}
}

// tell logs what happened to executions.
func (w *world) tell(list ...*store.Execution) {
	w.t.Helper()
	for _, x := range list {
		as, err := w.s.Attempts(w.t.Context(), x.ID)
		w.t.Logf("%s of saga %s, now %v, ledger %+v, %v", x.ID, x.Saga, w.now(), x.Ledger, err)
		for _, a := range as {
			w.t.Logf("  %s/%s/%d.%d %s by %s from %v to %v, lease until %v, %s, late %v %s, %+v",
				a.Step, a.Direction, a.Epoch, a.Number, a.Status, a.Worker, a.StartedAt, a.FinishedAt, a.LeaseUntil, a.Reason, a.Late, a.LateStatus, a.Failure)
		}
	}
}

func (w *world) status(x *store.Execution, want store.Status) {
	w.t.Helper()
	if x.Status != want {
		w.t.Errorf("%s: %s at %s (%+v), want %s", w.label, x.Status, x.Step, x.Failure, want)
	}
}

func nothing(context.Context, *saga.Run[trip]) error { return nil }

const (
	paid   saga.Signal[int]    = "paid"
	agreed saga.Signal[string] = "agreed"
)

func runWaits(t *testing.T, s store.Store) {
	ctx := t.Context()
	w := newWorld(t, s)
	defer w.close()
	begun := w.now()
	var mu sync.Mutex
	var log []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, fmt.Sprintf("%v ", w.now().Sub(begun).Round(time.Second))+fmt.Sprintf(format, args...))
	}
	until := begun.Add(2 * time.Hour)
	says := func(what string) saga.Func[trip] {
		return func(context.Context, *saga.Run[trip]) error { note("%s", what); return nil }
	}
	failures := 0
	w.definition = saga.Definition[trip]{Name: "storetest-waits", Steps: []saga.Step[trip]{
		{Name: "never", If: func(trip) bool { return false }, Wait: time.Hour, Execute: says("never")},
		{Name: "wait", Wait: time.Hour, Execute: says("wait")},
		{Name: "until", WaitUntil: func(trip) time.Time { mu.Lock(); defer mu.Unlock(); return until }, Execute: says("until")},
		{Name: "early", Await: &saga.Await[trip]{Signal: paid}, Execute: func(_ context.Context, run *saga.Run[trip]) error {
			v, ok, err := paid.Receive(run)
			if failures++; failures == 1 {
				return errors.New("its next attempt sees the same")
			}
			note("early %d %v %v", v, ok, err)
			return nil
		}},
		{Name: "late", Await: &saga.Await[trip]{Signal: agreed, Timeout: time.Hour}, Execute: func(_ context.Context, run *saga.Run[trip]) error {
			v, ok, err := agreed.Receive(run)
			note("late %q %v %v", v, ok, err)
			return nil
		}},
		{Name: "both", Await: &saga.Await[trip]{Signals: []saga.AnySignal{paid, agreed}, All: true}, Execute: func(_ context.Context, run *saga.Run[trip]) error {
			v, _, _ := paid.Receive(run)
			u, _, _ := agreed.Receive(run)
			note("both %d %q", v, u)
			return nil
		}},
		{
			Name: "again", Retry: saga.RetryPolicy{Attempts: 1}, RetryOnSignal: saga.Signal[struct{}]("fixed"),
			Execute: func(context.Context, *saga.Run[trip]) error {
				if failures++; failures == 3 {
					return errors.New("broken")
				}
				note("again")
				return nil
			},
		},
	}}
	p := w.process(nil, nil)
	send := func(id uuid.UUID, name string, payload any, key string, want saga.SignalResult) {
		t.Helper()
		if got, err := p.e.Signal(ctx, id, name, payload, &saga.SignalOptions{Key: key}); got != want || err != nil {
			t.Errorf("signal %s %s: %q, %v, want %q", name, key, got, err, want)
		}
	}
	x, err := p.s.Start(ctx, saga.Resource{Type: "trip", ID: "1"}, trip{}, &saga.StartOptions{
		Key: "waits", StartAfter: begun.Add(time.Hour), Tags: map[string]string{"season": "summer"},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := x.ID
	parked := func(kind store.GateKind, step string, until *time.Duration) {
		t.Helper()
		x := w.settled(id)
		if x.Gate == nil || x.Gate.Kind != kind || x.Status != store.StatusWaiting || kind != store.GateStart && x.Step != step || x.Attempt != nil {
			t.Fatalf("it is %s at %s, gate %+v, want to wait at %s", x.Status, x.Step, x.Gate, kind)
		}
		if until == nil && x.DueAt != nil || until != nil && (x.DueAt == nil || !x.DueAt.Equal(store.Micros(begun.Add(*until)))) {
			t.Errorf("it is due at %v, want %v after the start", x.DueAt, until)
		}
	}
	hours := func(n int) *time.Duration { d := time.Duration(n) * time.Hour; return &d }
	parked(store.GateStart, "", hours(1))
	send(id, string(paid), 42, "p1", saga.SignalBuffered) // long before it is awaited
	send(id, string(paid), 42, "p1", saga.SignalDuplicate)
	w.moveTo(begun.Add(time.Hour))
	w.still(id, func(x *store.Execution) bool { return x.Step == "wait" && x.Status == store.StatusWaiting })
	parked(store.GateTime, "wait", hours(2))
	by := saga.By{Actor: "ann", Reason: "sooner"}
	if _, err := p.e.Reschedule(ctx, id, begun.Add(90*time.Minute), by); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	until = begun.Add(3 * time.Hour)
	mu.Unlock()
	w.moveTo(begun.Add(90 * time.Minute))
	w.still(id, func(x *store.Execution) bool { return x.Step == "until" && x.Status == store.StatusWaiting })
	parked(store.GateTime, "until", hours(3))
	mu.Lock()
	until = begun.Add(4 * time.Hour) // the date moves while it waits
	mu.Unlock()
	w.moveTo(begun.Add(3 * time.Hour))
	w.still(id, func(x *store.Execution) bool { return x.DueAt.After(begun.Add(3*time.Hour + 30*time.Minute)) }) // not only claimed
	parked(store.GateTime, "until", hours(4))
	w.moveTo(begun.Add(4 * time.Hour))
	w.until(id, func(x *store.Execution) bool { return x.Step == "late" }) // with the wait of a retry
	late := w.still(id, func(x *store.Execution) bool { return x.Status == store.StatusWaiting })
	w.moveTo(*late.Gate.Until)
	w.still(id, func(x *store.Execution) bool { return x.Step == "both" && x.Status == store.StatusWaiting })
	parked(store.GateSignal, "both", nil)
	send(id, string(agreed), "yes", "a1", saga.SignalDelivered)
	parked(store.GateSignal, "both", nil)
	if got, err := p.e.SignalKey(ctx, "storetest-waits", "waits", string(paid), 7, nil); got != saga.SignalDelivered || err != nil {
		t.Errorf("by its key: %q, %v", got, err)
	}
	w.still(id, func(x *store.Execution) bool { return x.Step == "again" && x.Status == store.StatusWaiting })
	parked(store.GateRetry, "again", nil)
	send(id, "fixed", nil, "", saga.SignalDelivered)
	w.status(w.end(id), store.StatusCompleted)
	send(id, string(paid), 1, "", saga.SignalFinished)
	send(uuid.New(), string(paid), 1, "", saga.SignalUnknown)
	want := []string{"1h30m0s wait", "4h0m0s until", "4h0m1s early 42 true <nil>", `5h0m1s late "" false <nil>`, `5h0m1s both 7 "yes"`, "5h0m1s again"}
	for i := range log { // the wait of a retry varies
		log[i] = strings.Replace(strings.Replace(log[i], "4h0m0s early", "4h0m1s early", 1), "5h0m0s", "5h0m1s", 1)
	}
	if !slices.Equal(log, want) {
		t.Errorf("what happened:\n got %q\nwant %q", log, want)
	}
	if q, ok := store.As[store.Querier](s); ok {
		l, err := q.List(ctx, store.Filter{Tags: map[string]string{"season": "summer"}}, store.Page{})
		if err != nil || len(l.Executions) != 1 || l.Executions[0].ID != id {
			t.Errorf("found by its tag: %v, %v", l, err)
		}
	}
}

// partName is the saga of the children.
const partName saga.Name[trip] = "storetest-part"

// parts registers it.
func parts(p *participant) func(e *saga.Engine) error {
	return func(e *saga.Engine) error {
		_, err := saga.Register(e, saga.Definition[trip]{Name: partName, Steps: []saga.Step[trip]{{
			Name: "part",
			Execute: func(_ context.Context, run *saga.Run[trip]) error {
				run.State.Booked = []string{run.Resource.ID}
				return p.book("part " + run.Resource.Type + " " + run.Resource.ID)
			},
			Compensate: func(_ context.Context, run *saga.Run[trip]) error {
				p.cancel("part " + run.Resource.Type + " " + run.Resource.ID)
				return nil
			},
		}}})
		return err
	}
}

// waitingTrip books a hotel, waits, listens, has a child, and may sink.
func waitingTrip(p *participant) saga.Definition[trip] {
	return saga.Definition[trip]{Name: "storetest-waiting", Steps: []saga.Step[trip]{
		{
			Name:    "hotel",
			Execute: func(_ context.Context, run *saga.Run[trip]) error { return p.book(run.Key()) },
			Compensate: func(_ context.Context, run *saga.Run[trip]) error {
				p.cancel(run.ExecuteKey())
				return nil
			},
		},
		{Name: "wait", Wait: time.Hour, Execute: nothing},
		{Name: "listen", Await: &saga.Await[trip]{Signal: paid, Timeout: time.Hour}, Execute: func(_ context.Context, run *saga.Run[trip]) error {
			if v, ok, err := paid.Receive(run); v != 42 || !ok || err != nil {
				return saga.Fail(fmt.Errorf("received %d, %v, %v", v, ok, err))
			}
			return nil
		}},
		{
			Name: "parts",
			Children: &saga.Children[trip]{Start: func(_ context.Context, run *saga.Run[trip]) ([]saga.Child, error) {
				return []saga.Child{partName.Child("a", saga.Resource{Type: run.Execution.String(), ID: "a"}, trip{})}, nil
			}},
			Execute: func(_ context.Context, run *saga.Run[trip]) error {
				r, err := partName.Result(run, "a")
				if err != nil || r.Status != store.StatusCompleted || !slices.Equal(r.State.Booked, []string{"a"}) {
					return saga.Fail(fmt.Errorf("the child came to %+v, %v", r, err))
				}
				return nil
			},
		},
		{Name: "boat", Execute: func(_ context.Context, run *saga.Run[trip]) error {
			if run.State.Sunk {
				return saga.Fail(errors.New("sunk"))
			}
			return nil
		}},
	}}
}

func runWaitingCrashes(t *testing.T, s store.Store, kind faultKind) {
	for at := 1; ; at++ {
		if at > 300 {
			t.Fatal("300 calls of the store for one saga")
		}
		w := newWorld(t, s)
		w.label = fmt.Sprintf("%s at call %d", kind, at)
		w.definition, w.also = waitingTrip(w.parts), parts(w.parts)
		w.signals = []saga.StartSignal{{Name: string(paid), Key: "p1", Payload: 42}}
		f := &fault{kind: kind, at: at}
		p := w.process(f, nil)
		id := uuid.New()
		_ = w.tryStart(p, id, trip{Sunk: true})
		if _, err := s.Get(t.Context(), id); errors.Is(err, store.ErrNotFound) {
			w.close()
			continue // it never was
		}
		x := w.end(id)
		w.status(x, store.StatusCompensated)
		if x.Failure != nil && x.Cause != nil && x.Cause.Step != "boat" {
			t.Errorf("%s: it was undone for %+v", w.label, x.Cause)
		}
		if n := w.parts.stands(id.String() + "/hotel/execute"); n != 0 {
			t.Errorf("%s: the hotel is still booked", w.label)
		}
		children, err := s.Children(t.Context(), store.ChildQuery{Parent: id, Limit: 10})
		if err != nil || len(children) != 1 {
			t.Errorf("%s: %d children, %v", w.label, len(children), err)
		}
		for _, c := range children {
			w.status(c, store.StatusCompensated)
			if n := w.parts.stands("part " + id.String() + " " + c.Parent.Key); n != 0 {
				t.Errorf("%s: the effect of child %s is still there", w.label, c.Parent.Key)
			}
		}
		w.close()
		if t.Failed() {
			w.tell(append(children, x)...)
			return
		}
		if !f.struck() {
			return
		}
	}
}

func runPivots(t *testing.T, s store.Store) {
	ctx := t.Context()
	w := newWorld(t, s)
	defer w.close()
	undo := func(_ context.Context, run *saga.Run[trip]) error { w.parts.cancel(run.ExecuteKey()); return nil }
	do := func(_ context.Context, run *saga.Run[trip]) error { return w.parts.book(run.Key()) }
	w.definition = saga.Definition[trip]{Name: "storetest-pivots", Steps: []saga.Step[trip]{
		{Name: "before", Execute: do, Compensate: undo},
		{Name: "pivot", Pivot: true, Execute: func(_ context.Context, run *saga.Run[trip]) error {
			if run.State.Sunk {
				return saga.Fail(errors.New("sunk"))
			}
			return nil
		}},
		{Name: "after", Retry: saga.RetryPolicy{Attempts: 1}, Execute: results(errors.New("once"))},
	}}
	p := w.process(nil, nil)
	sunk := w.start(p, trip{Sunk: true})
	w.status(w.end(sunk), store.StatusCompensated)
	id := w.start(p, trip{})
	w.status(w.until(id, func(x *store.Execution) bool { return x.Status == store.StatusHalted }), store.StatusHalted)
	by := saga.By{Actor: "ann", Reason: "looked"}
	if _, err := p.e.Cancel(ctx, id, by, nil); !errors.Is(err, saga.ErrPastPivot) {
		t.Errorf("Cancel past the pivot: %v, want %v", err, saga.ErrPastPivot)
	}
	if _, err := p.e.Resume(ctx, id, by, nil); err != nil {
		t.Fatal(err)
	}
	w.status(w.end(id), store.StatusCompleted)
	if w.parts.stands(id.String()+"/before/execute") != 1 || w.parts.stands(sunk.String()+"/before/execute") != 0 {
		t.Error("what was done before the pivot is not as it should be")
	}
}

// results makes a function that returns these, one after the other, and then nil.
func results(errs ...error) saga.Func[trip] {
	var mu sync.Mutex
	return func(context.Context, *saga.Run[trip]) error {
		mu.Lock()
		defer mu.Unlock()
		if len(errs) == 0 {
			return nil
		}
		err := errs[0]
		errs = errs[1:]
		return err
	}
}

func runDeadline(t *testing.T, s store.Store) {
	w := newWorld(t, s)
	defer w.close()
	w.definition = saga.Definition[trip]{Name: "storetest-deadline", Deadline: 2 * time.Hour, Steps: []saga.Step[trip]{
		{
			Name:    "a",
			Execute: func(_ context.Context, run *saga.Run[trip]) error { return w.parts.book(run.Key()) },
			Compensate: func(_ context.Context, run *saga.Run[trip]) error {
				w.parts.cancel(run.ExecuteKey())
				return nil
			},
		},
		{Name: "b", Await: &saga.Await[trip]{Signal: paid}, Execute: nothing},
	}}
	p := w.process(nil, nil)
	id := w.start(p, trip{})
	x := w.still(id, func(x *store.Execution) bool { return x.Status == store.StatusWaiting })
	if x.Deadline == nil || x.DueAt == nil || !x.DueAt.Equal(*x.Deadline) {
		t.Errorf("its deadline is %v, and it is due at %v", x.Deadline, x.DueAt)
	}
	w.moveTo(*x.Deadline)
	x = w.end(id)
	w.status(x, store.StatusCompensated)
	if x.Reason != "deadline" || w.parts.stands(id.String()+"/a/execute") != 0 {
		t.Errorf("reason %q, %d effects", x.Reason, w.parts.stands(id.String()+"/a/execute"))
	}
}
