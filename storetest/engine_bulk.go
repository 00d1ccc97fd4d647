package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// runBulk lets many halted sagas go on at once.
func runBulk(t *testing.T, s store.Store) {
	if _, ok := store.As[store.Querier](s); !ok {
		t.Skip("the store is no store.Querier")
	}
	w := newWorld(t, s)
	defer w.close()
	p, desk := w.process(nil, nil), w.desk()
	var halted, all []uuid.UUID
	for i := range 12 {
		id := w.start(p, trip{Halts: i%3 != 0})
		all = append(all, id)
		if i%3 == 0 {
			w.check(w.end(id), store.StatusCompleted)
			continue
		}
		halted = append(halted, id)
		w.until(id, func(x *store.Execution) bool { return x.Status == store.StatusHalted })
	}
	by := saga.By{Actor: "storetest", Reason: "to see", Request: "after the storm"}
	want := descending(halted)
	bulk := func(f store.Filter, o saga.BulkOptions) *saga.BulkReport {
		r, err := desk.Bulk(t.Context(), f, saga.ActResume, by, &o)
		if err != nil {
			t.Fatalf("bulk: %v", err)
		}
		return r
	}
	standing := store.Filter{IDs: all, Attention: []store.Attention{store.AttentionHalted}}
	dry := bulk(standing, saga.BulkOptions{DryRun: true})
	if got := acted(dry, saga.BulkDone); !slices.Equal(got, want) {
		t.Errorf("dry run: %+v, want all of %v done", dry, want)
	}
	r := bulk(standing, saga.BulkOptions{Limit: 5})
	if got := acted(r, saga.BulkDone); !slices.Equal(got, want[:5]) || r.Next == nil || *r.Next != want[4] {
		t.Fatalf("the first five: %+v, want all of %v done", r, want[:5])
	}
	r = bulk(standing, saga.BulkOptions{After: *r.Next})
	if got := acted(r, saga.BulkDone); !slices.Equal(got, want[5:]) || r.Next != nil {
		t.Errorf("the others: %+v, want all of %v done", r, want[5:])
	}
	for _, id := range halted {
		w.check(w.end(id), store.StatusCompleted)
	}
	// All have ended: what was done stands, under its request, and nothing can
	// be done about the others.
	r = bulk(store.Filter{IDs: all}, saga.BulkOptions{})
	for _, i := range r.Items {
		reason, result := "finished", saga.BulkSkipped
		if slices.Contains(halted, i.Execution) {
			reason, result = "repeated", saga.BulkDone
		}
		if i.Result != result || i.Reason != reason {
			t.Errorf("again: %+v, want %s %s", i, result, reason)
		}
	}
	if len(r.Items) != len(all) {
		t.Errorf("again: %d items, want %d", len(r.Items), len(all))
	}
	for _, id := range halted {
		if trail, err := s.Audit(t.Context(), id); err != nil || len(trail) != 1 {
			t.Errorf("audit trail %+v, %v; want one entry", trail, err)
		}
	}
}

// runErase erases what has finished, and leaves what has not.
func runErase(t *testing.T, s store.Store) {
	if _, ok := store.As[store.Querier](s); !ok {
		t.Skip("the store is no store.Querier")
	}
	w := newWorld(t, s)
	defer w.close()
	p, desk := w.process(nil, nil), w.desk()
	sunk, halts := w.start(p, trip{Sunk: true}), w.start(p, trip{Halts: true})
	w.check(w.end(sunk), store.StatusCompensated)
	w.until(halts, func(x *store.Execution) bool { return x.Status == store.StatusHalted })
	by := saga.By{Actor: "storetest", Reason: "to see", Request: "forget"}
	for range 2 { // once for its request
		r, err := desk.Erase(t.Context(), store.Filter{IDs: []uuid.UUID{sunk, halts}}, by, nil)
		if err != nil || !slices.Equal(acted(r, saga.BulkDone), []uuid.UUID{sunk}) || !slices.Equal(acted(r, saga.BulkSkipped), []uuid.UUID{halts}) {
			t.Errorf("erase: %+v, %v; want %s done and %s skipped", r, err, sunk, halts)
		}
	}
	x, err := s.Get(t.Context(), sunk)
	if err != nil || x.ErasedAt == nil || string(x.State) != "{}" || x.Initial != nil || x.Resource.ID != "" || x.Cause == nil || x.Cause.Class == "" || x.Cause.Message != "" {
		t.Errorf("erased: %+v, %v", x, err)
	}
	as, err := s.Attempts(t.Context(), sunk)
	if err != nil || len(as) != 6 {
		t.Errorf("attempts %+v, %v; want all six", as, err)
	}
	for _, a := range as {
		if a.Failure != nil && (a.Failure.Class == "" || a.Failure.Message != "") {
			t.Errorf("an erased attempt has the failure %+v", a.Failure)
		}
	}
	if trail, err := s.Audit(t.Context(), sunk); err != nil || len(trail) != 1 || trail[0].Act != string(saga.ActErase) || trail[0].Reason != by.Reason {
		t.Errorf("audit trail %+v, %v; want who erased it, and why", trail, err)
	}
	if _, err := desk.Resume(t.Context(), halts, by, nil); err != nil {
		t.Error(err)
	}
	w.check(w.end(halts), store.StatusCompleted)
}

// runPurge deletes what finished long ago, with an archive.
func runPurge(t *testing.T, s store.Store) {
	_, lists := store.As[store.Querier](s)
	if _, deletes := store.As[store.Deleter](s); !lists || !deletes {
		t.Skip("the store is no store.Querier or no store.Deleter")
	}
	w := newWorld(t, s)
	defer w.close()
	p, desk := w.process(nil, nil), w.desk()
	end := func(n int, state trip, want store.Status) (ids []uuid.UUID) {
		for range n {
			ids = append(ids, w.start(p, state))
		}
		for _, id := range ids {
			w.check(w.end(id), want)
		}
		return ids
	}
	old, undone := end(23, trip{}, store.StatusCompleted), end(2, trip{Sunk: true}, store.StatusCompensated)
	w.moveTo(w.now().Add(24 * time.Hour))
	recent := end(2, trip{}, store.StatusCompleted)
	open := w.start(p, trip{Halts: true})
	w.until(open, func(x *store.Execution) bool { return x.Status == store.StatusHalted })

	var archive bytes.Buffer
	o := saga.PurgeOptions{Retention: saga.Retention{Completed: time.Hour}, BatchSize: 2, DryRun: true}
	r, err := desk.Purge(t.Context(), o)
	if err != nil || r.Total() != len(old) || r.Deleted[store.StatusCompleted] != len(old) {
		t.Errorf("dry run: %+v, %v; want %d completed ones", r, err, len(old))
	}
	o.DryRun, o.Archive = false, &archive
	r, err = desk.Purge(t.Context(), o)
	if err != nil || r.Total() != len(old) || r.Deleted[store.StatusCompleted] != len(old) || r.Kept != 0 || r.More {
		t.Errorf("purge: %+v, %v; want %d completed ones", r, err, len(old))
	}
	var archived []uuid.UUID
	for line := range bytes.Lines(archive.Bytes()) {
		var a saga.Archived
		if err := json.Unmarshal(line, &a); err != nil || len(a.Attempts) != 4 || a.Execution.Status != store.StatusCompleted {
			t.Errorf("archived %s: %v", line, err)
		}
		archived = append(archived, a.Execution.ID)
	}
	if !slices.Equal(descending(archived), descending(old)) {
		t.Errorf("archived %v, want %v", archived, old)
	}
	for _, id := range old {
		as, err := s.Attempts(t.Context(), id)
		if _, gone := s.Get(t.Context(), id); !errors.Is(gone, store.ErrNotFound) || err != nil || len(as) != 0 {
			t.Errorf("%s: %v, %d attempts, %v; want nothing left", id, gone, len(as), err)
		}
	}
	for _, id := range append(append(undone, recent...), open) {
		if _, err := s.Get(t.Context(), id); err != nil {
			t.Errorf("%s: %v, and it was to be kept", id, err)
		}
	}
}

// desk returns an operator's engine, which does not run and knows no saga.
func (w *world) desk() *saga.Engine {
	w.t.Helper()
	e, err := saga.New(saga.Config{Store: w.s, Now: w.now, Logger: quiet})
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// acted lists the executions about which that was done.
func acted(r *saga.BulkReport, result saga.BulkResult) (ids []uuid.UUID) {
	for _, i := range r.Items {
		if i.Result == result {
			ids = append(ids, i.Execution)
		}
	}
	return ids
}

// descending returns ids in the order of a list.
func descending(ids []uuid.UUID) []uuid.UUID {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(b[:], a[:]) })
	return ids
}
