package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// RunEngine runs sagas end to end on the stores made by newStore, each of which
// is new and empty: with a process that dies after every single call of the
// store and every publish in turn, with writes whose answer is lost, with
// pointers that are doubled and out of order, and with several processes at
// once. After each run every effect of a completed saga stands exactly once, and
// none of a compensated or failed one. It needs no services of its own and
// passes on any store that passes [Run].
func RunEngine(t *testing.T, newStore func(t *testing.T) store.Store) {
	newStore = oneAtATime(newStore)
	for _, c := range slices.Concat(engineCases, waitingEngineCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the promise: %s", c.promise)
				}
			})
			c.run(t, newStore(t))
		})
	}
}

type engineCase struct {
	name    string
	promise string
	run     func(t *testing.T, s store.Store)
}

var engineCases = []engineCase{
	{"completes", "steps run in order and the saga completes", func(t *testing.T, s store.Store) {
		w := newWorld(t, s)
		defer w.close()
		p := w.process(nil, nil)
		x := w.end(w.start(p, trip{}))
		w.check(x, store.StatusCompleted)
	}},
	{"compensates", "what was done is undone, last first, when a step gives up", func(t *testing.T, s store.Store) {
		w := newWorld(t, s)
		defer w.close()
		p := w.process(nil, nil)
		x := w.end(w.start(p, trip{Sunk: true}))
		w.check(x, store.StatusCompensated)
		as, err := s.Attempts(t.Context(), x.ID)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range as {
			got = append(got, fmt.Sprintf("%s/%s/%d %s", a.Step, a.Direction, a.Number, a.Status))
		}
		want := "hotel/execute/1 succeeded, flight/execute/1 failed, flight/execute/2 succeeded, boat/execute/1 failed, " +
			"flight/compensate/1 succeeded, hotel/compensate/1 succeeded"
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("attempts:\n got %s\nwant %s", s, want)
		}
	}},
	{"operators", "an execution is compensated, retried and resumed by hand, and the audit trail says by whom", runOperators},
	{"plans", "an act leads to what was planned, and is done once for its request", runPlans},
	{"bulk", "an act in bulk is done to each execution once, by its request, wherever it was interrupted", runBulk},
	{"erase", "what has finished is erased but for what happened, and what has not is left alone", runErase},
	{"purge", "what finished too long ago is archived and deleted, and nothing else", runPurge},
	{"crash after every store call", "whichever call of the store a process dies after, the saga ends as it should", func(t *testing.T, s store.Store) {
		runCrashes(t, s, crashAfter)
	}},
	{"crash before every store call", "whichever call of the store a process dies before, the saga ends as it should", func(t *testing.T, s store.Store) {
		runCrashes(t, s, crashBefore)
	}},
	{"answer lost after every write", "a write that was done, but whose answer was lost, is recognised as done", func(t *testing.T, s store.Store) {
		runCrashes(t, s, errorAfter)
	}},
	{"error before every write", "a write that was not done is done again", func(t *testing.T, s store.Store) {
		runCrashes(t, s, errorBefore)
	}},
	{"crash at every publish", "a pointer that was never sent is only late", runPublishCrashes},
	{"pointers doubled and out of order", "a pointer is a hint: doubled, late and out of order it does no harm", runUnruly},
	{"exclusive", "the only process on a store takes over what its dead predecessor left open at once", runExclusive},
	{"many processes", "several processes at work on many sagas do every step once", runMany},
}

// A trip is the state of the saga that is run: three steps, of which the second
// fails the first time, and the last one for good when Sunk.
type trip struct {
	Sunk   bool     `json:"sunk,omitempty"`
	Halts  bool     `json:"halts,omitempty"`
	Booked []string `json:"booked,omitempty"`
}

func definition(p *participant) saga.Definition[trip] {
	policy := saga.RetryPolicy{Attempts: 5, Initial: time.Second, Max: time.Second}
	step := func(name string, fail func(run *saga.Run[trip]) error) saga.Step[trip] {
		return saga.Step[trip]{
			Name: name, Retry: policy, CompensateRetry: policy,
			Execute: func(_ context.Context, run *saga.Run[trip]) error {
				if err := fail(run); err != nil {
					return err
				}
				run.State.Booked = append(run.State.Booked, name)
				return p.book(run.Key())
			},
			Compensate: func(_ context.Context, run *saga.Run[trip]) error {
				p.cancel(run.ExecuteKey())
				return nil
			},
		}
	}
	never := func(*saga.Run[trip]) error { return nil }
	boat := step("boat", func(run *saga.Run[trip]) error {
		switch {
		case run.State.Halts && run.Epoch == 0:
			return saga.Halt("storm")
		case run.State.Sunk:
			return saga.Fail(errors.New("no boat"))
		}
		return nil
	})
	return saga.Definition[trip]{Name: "trip", Steps: []saga.Step[trip]{
		step("hotel", never),
		step("flight", func(run *saga.Run[trip]) error {
			if run.Attempt == 1 && run.Epoch == 0 {
				return errors.New("line is busy")
			}
			return nil
		}),
		boat,
	}}
}

func runOperators(t *testing.T, s store.Store) {
	by := saga.By{Actor: "storetest", Reason: "to see"}
	w := newWorld(t, s)
	defer w.close()
	p := w.process(nil, nil)

	id := w.start(p, trip{Halts: true})
	w.until(id, func(x *store.Execution) bool { return x.Status == store.StatusHalted })
	if _, err := p.e.Resume(t.Context(), id, by, nil); err != nil {
		t.Fatal(err)
	}
	w.check(w.end(id), store.StatusCompleted)

	id = w.start(p, trip{Halts: true})
	w.until(id, func(x *store.Execution) bool { return x.Status == store.StatusHalted })
	if _, err := p.e.Compensate(t.Context(), id, by, nil); err != nil {
		t.Fatal(err)
	}
	w.check(w.end(id), store.StatusCompensated)
	audit, err := s.Audit(t.Context(), id)
	if err != nil || len(audit) != 1 || audit[0].Act != string(saga.ActCompensate) || audit[0].Actor != by.Actor || audit[0].Reason != by.Reason {
		t.Errorf("audit trail %+v, %v", audit, err)
	}
	if _, err := p.e.Retry(t.Context(), id, by, nil); !errors.Is(err, saga.ErrFinished) {
		t.Errorf("Retry of a compensated one: %v", err)
	}
	if _, err := p.e.Retry(t.Context(), uuid.New(), by, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Retry of an unknown one: %v", err)
	}
}

// runCrashes runs the saga again and again, both ways, with the fault at the
// first call, the second, and so on until there is no such call.
func runCrashes(t *testing.T, s store.Store, kind faultKind) {
	for _, state := range []trip{{}, {Sunk: true}} {
		want := store.StatusCompleted
		if state.Sunk {
			want = store.StatusCompensated
		}
		for at := 1; ; at++ {
			if at > 200 {
				t.Fatal("200 calls of the store for one saga")
			}
			w := newWorld(t, s)
			w.label = fmt.Sprintf("sunk %v, fault at call %d", state.Sunk, at)
			f := &fault{kind: kind, at: at}
			p := w.process(f, nil)
			id := uuid.New()
			err := w.tryStart(p, id, state)
			struck := f.struck()
			if err != nil && !struck {
				t.Fatalf("%s: start: %v", w.label, err)
			}
			if _, getErr := s.Get(t.Context(), id); errors.Is(getErr, store.ErrNotFound) {
				w.close()
				if err == nil {
					t.Fatalf("%s: started, but it is not there", w.label)
				}
				continue // it never was
			}
			x := w.end(id)
			w.check(x, want)
			w.close()
			if t.Failed() {
				return
			}
			if !f.struck() {
				break
			}
		}
	}
}

func runPublishCrashes(t *testing.T, s store.Store) {
	for _, kind := range []faultKind{crashBefore, crashAfter, errorBefore} {
		for at := 1; ; at++ {
			if at > 100 {
				t.Fatal("100 publishes for one saga")
			}
			w := newWorld(t, s)
			w.label = fmt.Sprintf("%v at publish %d", kind, at)
			wire := newWire(nil)
			f := &fault{kind: kind, at: at}
			p := w.process(nil, &wireEnd{wire: wire, fault: f})
			id := uuid.New()
			if err := w.tryStart(p, id, trip{Sunk: true}); err != nil {
				t.Fatalf("%s: start: %v", w.label, err)
			}
			x := w.end(id)
			w.check(x, store.StatusCompensated)
			w.close()
			if t.Failed() {
				return
			}
			if !f.struck() {
				break
			}
		}
	}
}

func runUnruly(t *testing.T, s store.Store) {
	for seed := range uint64(10) {
		w := newWorld(t, s)
		w.label = fmt.Sprintf("seed %d", seed)
		wire := newWire(&seed)
		p := w.process(nil, &wireEnd{wire: wire})
		w.process(nil, &wireEnd{wire: wire})
		var ids []uuid.UUID
		for i := range 6 {
			ids = append(ids, w.start(p, trip{Sunk: i%2 == 0}))
		}
		for i, id := range ids {
			want := store.StatusCompleted
			if i%2 == 0 {
				want = store.StatusCompensated
			}
			x := w.end(id)
			w.check(x, want)
			w.checkOnce(x)
		}
		w.close()
	}
}

func runExclusive(t *testing.T, s store.Store) {
	if _, ok := store.As[store.Exclusiver](s); !ok {
		t.Skip("the store is no store.Exclusiver")
	}
	w := newWorld(t, s)
	defer w.close()
	w.exclusive = true
	// It dies with an attempt open: before the first step is settled.
	p := w.process(&fault{kind: crashBefore, at: 4}, nil)
	id := uuid.New()
	if err := w.tryStart(p, id, trip{}); err != nil {
		t.Fatal(err)
	}
	<-p.dead.dead
	p.wait(w)
	if x, err := s.Get(t.Context(), id); err != nil || x.Attempt == nil {
		t.Fatalf("no attempt was left open: %+v, %v", x, err)
	}
	w.lossy = false // no due time helps from here on
	w.check(w.end(id), store.StatusCompleted)
	as, err := s.Attempts(t.Context(), id)
	if err != nil || len(as) != 5 || as[0].Status != store.AttemptAbandoned {
		t.Errorf("attempts %+v, %v; want the first abandoned, and four more", as, err)
	}
}

func runMany(t *testing.T, s store.Store) {
	w := newWorld(t, s)
	defer w.close()
	var ps []*process
	for range 3 {
		ps = append(ps, w.process(nil, nil))
	}
	var ids []uuid.UUID
	for i := range 60 {
		ids = append(ids, w.start(ps[i%3], trip{Sunk: i%3 == 0}))
	}
	for i, id := range ids {
		want := store.StatusCompleted
		if i%3 == 0 {
			want = store.StatusCompensated
		}
		x := w.end(id)
		w.check(x, want)
		w.checkOnce(x)
	}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
