package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// Starts: one for a key, in the place of another, after another, in turn, and by
// the clock.

func runStarters(t *testing.T, s store.Store) {
	ctx := t.Context()
	w := newWorld(t, s)
	defer w.close()
	halting := func(context.Context, *saga.Run[trip]) error { return saga.Halt("it keeps its key") }
	w.definition = saga.Definition[trip]{Name: "storetest-keys", Steps: []saga.Step[trip]{{Name: "a", Execute: halting}}}
	ps := []*process{w.process(nil, nil), w.process(nil, nil)}
	for round := range 5 {
		key := fmt.Sprint("key", round)
		var starters sync.WaitGroup
		var mu sync.Mutex
		var started []uuid.UUID
		refused := map[uuid.UUID]int{}
		for n := range writers {
			starters.Go(func() {
				x, err := ps[n%2].s.Start(ctx, saga.Resource{Type: "trip", ID: fmt.Sprint(n)}, trip{}, &saga.StartOptions{Key: key})
				mu.Lock()
				defer mu.Unlock()
				taken, ok := errors.AsType[*store.KeyTakenError](err)
				switch {
				case err == nil:
					started = append(started, x.ID)
				case ok:
					refused[taken.Execution]++
				default:
					t.Errorf("start: %v", err)
				}
			})
		}
		starters.Wait()
		if len(started) != 1 || refused[started[0]] != writers-1 {
			t.Errorf("%d were started, refused by %v", len(started), refused)
			return
		}
		existing, err := ps[0].s.Start(ctx, saga.Resource{Type: "trip", ID: "late"}, trip{}, &saga.StartOptions{Key: key, OnConflict: saga.OnConflictExisting})
		if err != nil || !existing.Existing || !existing.Differs || existing.ID != started[0] {
			t.Errorf("the existing one: %+v, %v", existing, err)
		}
		live, err := ps[1].e.Live(ctx, "storetest-keys", key)
		if err != nil || live.ID != started[0] {
			t.Errorf("Live: %v, %v", live, err)
		}
	}
}

func runReplaces(t *testing.T, s store.Store) {
	ctx := t.Context()
	w := newWorld(t, s)
	defer w.close()
	stuck := true
	w.definition = saga.Definition[trip]{Name: "storetest-replaces", Steps: []saga.Step[trip]{
		{
			Name: "a", CompensateRetry: saga.RetryPolicy{Attempts: 1},
			Execute: func(_ context.Context, run *saga.Run[trip]) error { return w.parts.book(run.Key()) },
			Compensate: func(_ context.Context, run *saga.Run[trip]) error {
				if stuck {
					return errors.New("stuck")
				}
				w.parts.cancel(run.ExecuteKey())
				return nil
			},
		},
		{Name: "b", If: func(s trip) bool { return s.Halts }, Await: &saga.Await[trip]{Signal: paid}, Execute: nothing},
	}}
	p := w.process(nil, nil)
	start := func(waits bool) *saga.Started {
		t.Helper()
		x, err := p.s.Start(ctx, saga.Resource{Type: "trip", ID: "1"}, trip{Halts: waits}, &saga.StartOptions{Key: "place", OnConflict: saga.OnConflictReplace})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	first := start(true)
	w.still(first.ID, func(x *store.Execution) bool { return x.Status == store.StatusWaiting })
	second := start(false)
	third := start(false) // the newest one goes on
	w.status(w.end(first.ID), store.StatusCompensationFailed)
	w.status(w.end(second.ID), store.StatusCancelled)
	x := w.settled(third.ID)
	d, err := p.e.Diagnose(ctx, third.ID)
	if err != nil || x.Gate == nil || x.Gate.Kind != store.GatePredecessor || d.Behind == nil || *d.Behind != first.ID {
		t.Errorf("the third one waits at %+v, behind %+v, %v", x.Gate, d, err)
	}
	stuck = false
	if _, err := p.e.Retry(ctx, first.ID, saga.By{Actor: "ann", Reason: "repaired"}, nil); err != nil {
		t.Fatal(err)
	}
	w.status(w.end(first.ID), store.StatusCompensated)
	w.status(w.end(third.ID), store.StatusCompleted)
	if n := w.parts.stands(first.ID.String() + "/a/execute"); n != 0 {
		t.Error("the first one's effect is still there")
	}
}

func runContinues(t *testing.T, s store.Store) {
	ctx := t.Context()
	w := newWorld(t, s)
	defer w.close()
	w.definition = saga.Definition[trip]{Name: "storetest-continues", Steps: []saga.Step[trip]{{
		Name: "a", Execute: func(_ context.Context, run *saga.Run[trip]) error {
			if run.State.Booked = append(run.State.Booked, "x"); len(run.State.Booked) < 4 {
				return saga.ContinueAsNew("more")
			}
			return nil
		},
	}}}
	p := w.process(nil, nil)
	x, err := p.s.Start(ctx, saga.Resource{Type: "trip", ID: "1"}, trip{}, &saga.StartOptions{Key: "for ever", Tags: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	id, n := x.ID, 1
	for {
		x := w.end(id)
		w.status(x, store.StatusCompleted)
		if x.ContinuedAs == nil {
			if n != 4 || x.Tags["a"] != "b" || x.Key != "for ever" || x.Resource.ID != "1" {
				t.Errorf("after %d: %+v", n, x)
			}
			return
		}
		id = *x.ContinuedAs
		n++
	}
}

func runLimits(t *testing.T, s store.Store) {
	if _, ok := store.As[store.Cells](s); !ok {
		t.Skip("there are no limits without store.Cells")
	}
	w := newWorld(t, s)
	w.cells = true
	defer w.close()
	var mu sync.Mutex
	active, most, ran := map[string]int{}, map[string]int{}, 0
	w.definition = saga.Definition[trip]{
		Name: "storetest-limits", MaxActive: 3, MaxActivePerGroup: 2, Group: func(r saga.Resource, _ trip) string { return r.Type },
		Steps: []saga.Step[trip]{{Name: "a", Execute: func(_ context.Context, run *saga.Run[trip]) error {
			group := run.Resource.Type
			mu.Lock()
			for _, g := range []string{group, ""} {
				active[g]++
				most[g] = max(most[g], active[g])
			}
			ran++
			mu.Unlock()
			timer := time.NewTimer(time.Millisecond)
			<-timer.C
			mu.Lock()
			active[group]--
			active[""]--
			mu.Unlock()
			return nil
		}}},
	}
	ps := []*process{w.process(nil, nil), w.process(nil, nil)}
	var all []uuid.UUID
	for n := range 20 {
		x, err := ps[n%2].s.Start(t.Context(), saga.Resource{Type: []string{"north", "south"}[n/2%2], ID: fmt.Sprint(n)}, trip{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x.ID)
	}
	for _, id := range all {
		w.status(w.end(id), store.StatusCompleted)
	}
	if ran != 20 || most[""] > 3 || most["north"] > 2 || most["south"] > 2 {
		t.Errorf("%d ran, at most %v at a time", ran, most)
	}
}

func runSchedules(t *testing.T, s store.Store) {
	if _, ok := store.As[store.Cells](s); !ok {
		t.Skip("there are no schedules without store.Cells")
	}
	ctx := t.Context()
	w := newWorld(t, s)
	w.cells = true
	defer w.close()
	var mu sync.Mutex
	ran := map[string]int{}
	w.definition = saga.Definition[trip]{Name: "storetest-schedules", Steps: []saga.Step[trip]{{
		Name: "a", Execute: func(_ context.Context, run *saga.Run[trip]) error {
			mu.Lock()
			defer mu.Unlock()
			ran[run.Resource.ID]++
			return nil
		},
	}}}
	w.schedules = func(s *saga.Saga[trip]) []saga.AnySchedule {
		return []saga.AnySchedule{s.Schedule(saga.Schedule[trip]{
			Name: "q", Every: 15 * time.Minute, CatchUp: saga.CatchUpAll,
			Input: func(at time.Time) (saga.Resource, trip) {
				return saga.Resource{Type: "report", ID: at.Format(time.RFC3339)}, trip{}
			},
		})}
	}
	ps := []*process{w.process(nil, nil), w.process(nil, nil), w.process(nil, nil)}
	list := func() saga.ScheduleInfo {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for time.Now().Before(deadline) {
			all, err := ps[0].e.ScheduleList(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, info := range all {
				if info.Next.After(w.now()) {
					return info
				}
			}
		}
		t.Fatal("the occurrences are not dealt with")
		return saga.ScheduleInfo{}
	}
	first := list().Next
	w.moveTo(first.Add(3*15*time.Minute + time.Second)) // four at once
	info := list()
	if info.LastID == nil || info.LastResult != "started" {
		t.Fatalf("%+v", info)
	}
	w.status(w.end(*info.LastID), store.StatusCompleted)
	for n := range 4 {
		at := first.Add(time.Duration(n) * 15 * time.Minute).Format(time.RFC3339)
		w.still(w.of(at), func(x *store.Execution) bool { return x.Status == store.StatusCompleted })
		if ran[at] != 1 {
			t.Errorf("the occurrence of %s ran %d times", at, ran[at])
		}
	}
}

// of returns the execution about a report.
func (w *world) of(id string) uuid.UUID {
	w.t.Helper()
	list, err := w.s.ForResource(w.t.Context(), store.Resource{Type: "report", ID: id}, 2)
	if err != nil || len(list) != 1 {
		w.t.Fatalf("%s: %d executions of %s, %v", w.label, len(list), id, err)
	}
	return list[0].ID
}
