package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

var bulkNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// idleEngine makes an engine that does not run, on a store, at bulkNow.
func idleEngine(t *testing.T, s store.Store) *saga.Engine {
	t.Helper()
	e, err := saga.New(saga.Config{Store: s, Logger: quiet, Now: func() time.Time { return bulkNow }})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// row makes an execution that stands at the second of three steps. n orders
// them by id.
func row(n int, status store.Status, change ...func(x *store.Execution)) *store.Execution {
	begun := bulkNow.Add(-time.Hour)
	x := &store.Execution{
		ID: uuid.MustParse(fmt.Sprintf("0195524a-0000-7000-8000-%012d", n)), Saga: "checkout", Version: 1, Partition: "default",
		Resource: store.Resource{Type: "order", ID: strconv.Itoa(n)},
		Status:   status, Direction: store.DirectionExecute, Step: "b", State: json.RawMessage(`{"n":1}`),
		Ledger: []store.LedgerEntry{
			{Name: "a", Compensable: true, InDoubt: store.InDoubtCompensate, Status: store.StepDone},
			{Name: "b", Compensable: true, InDoubt: store.InDoubtCompensate, Status: store.StepPending},
			{Name: "c", InDoubt: store.InDoubtHalt, Status: store.StepPending},
		},
		CreatedAt: begun, UpdatedAt: begun, ProgressAt: begun, Revision: 1,
	}
	switch {
	case status.Finished():
		x.FinishedAt = &begun
	case status != store.StatusHalted:
		x.DueAt = &begun
	}
	switch status {
	case store.StatusCompensating, store.StatusCompensated, store.StatusCompensationFailed:
		x.Direction, x.Step = store.DirectionCompensate, "a"
	}
	for _, f := range change {
		f(x)
	}
	return x
}

// working gives an execution an attempt whose lease ends so much from now.
func working(left time.Duration) func(x *store.Execution) {
	return func(x *store.Execution) {
		until := bulkNow.Add(left)
		due := until.Add(2 * time.Second)
		x.Entry(x.Step).Opens, x.Tries = 1, 1
		x.Attempt = &store.OpenAttempt{Number: 1, Worker: "w", StartedAt: bulkNow.Add(-time.Minute), LeaseUntil: until}
		x.DueAt = &due
	}
}

func erased(x *store.Execution) { at := bulkNow; x.ErasedAt, x.State = &at, json.RawMessage("{}") }

func create(t *testing.T, s store.Store, xs ...*store.Execution) {
	t.Helper()
	for _, x := range xs {
		if err := s.Create(t.Context(), x.Clone()); err != nil {
			t.Fatal(err)
		}
	}
}

func get(t *testing.T, s store.Store, id uuid.UUID) *store.Execution {
	t.Helper()
	x, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func audit(t *testing.T, s store.Store, id uuid.UUID) []store.AuditEntry {
	t.Helper()
	as, err := s.Audit(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return as
}

// shows lists the results of a report, newest first.
func shows(r *saga.BulkReport) (out []string) {
	for _, i := range r.Items {
		s := string(i.Result)
		if i.Reason != "" {
			s += " " + i.Reason
		}
		out = append(out, s)
	}
	return out
}

func TestBulkSaysWhatItDidAboutEach(t *testing.T) {
	s := memory.New()
	e := idleEngine(t, s)
	create(t, s,
		row(9, store.StatusFailed),
		row(8, store.StatusFailed, erased),
		row(7, store.StatusRunning, working(time.Minute)),
		row(6, store.StatusRunning, working(-time.Minute)),
		row(5, store.StatusHalted),
		row(4, store.StatusCompleted),
		row(3, store.StatusCompensationFailed),
		row(2, store.StatusFailed, func(x *store.Execution) { x.Key = "k" }),
		row(1, store.StatusRunning, func(x *store.Execution) { x.Key = "k" }),
	)
	dry, err := e.Bulk(t.Context(), store.Filter{}, saga.ActRetry, anna, &saga.BulkOptions{DryRun: true})
	if err != nil || !dry.DryRun || dry.Items[0].EndsAs != store.StatusCompleted || get(t, s, dry.Items[0].Execution).Revision != 1 {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	want := []string{"done", "skipped erased", "skipped attempt_running", "done", "skipped not_retryable", "skipped finished", "done", "skipped key_taken", "done"}
	foreseen := slices.Clone(want)
	foreseen[7] = "done" // only the store knows
	if got := shows(dry); !slices.Equal(got, foreseen) {
		t.Errorf("dry run:\n got %q\nwant %q", got, foreseen)
	}
	r, err := e.Bulk(t.Context(), store.Filter{}, saga.ActRetry, anna, nil)
	if got := shows(r); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v:\n got %q\nwant %q", err, got, want)
	}
	if r.Next != nil || r.Counts[saga.BulkDone] != 4 || r.Counts[saga.BulkSkipped] != 5 || r.Act != saga.ActRetry {
		t.Errorf("%+v", r)
	}
	r, err = e.Bulk(t.Context(), store.Filter{IDs: []uuid.UUID{row(7, store.StatusRunning).ID}}, saga.ActHalt, anna, nil)
	if err != nil || !slices.Equal(shows(r), []string{"requested"}) {
		t.Errorf("%v, %q", err, shows(r))
	}
}

// A wedge is a store in which something happens right before an execution is
// locked.
type wedge struct {
	store.Store
	before func(id uuid.UUID) error
}

func (w *wedge) Unwrap() store.Store { return w.Store }

func (w *wedge) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if err := w.before(id); err != nil {
		return nil, err
	}
	return w.Store.WithLock(ctx, id, fn)
}

func TestBulkRechecksUnderLock(t *testing.T) {
	s := memory.New()
	moved := row(2, store.StatusFailed)
	create(t, s, row(3, store.StatusFailed), moved, row(1, store.StatusFailed))
	e := idleEngine(t, &wedge{s, func(id uuid.UUID) error {
		if id != moved.ID {
			return nil
		}
		_, err := s.WithLock(t.Context(), id, func(x *store.Execution) (store.Change, error) { // it still can be retried
			x.Partition, x.UpdatedAt = "elsewhere", bulkNow
			return store.Change{}, nil
		})
		return err
	}})
	r, err := e.Bulk(t.Context(), store.Filter{Partitions: []string{"default"}}, saga.ActRetry, anna, nil)
	if got, want := shows(r), []string{"done", "skipped changed", "done"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: got %q, want %q", err, got, want)
	}
	if x := get(t, s, moved.ID); x.Status != store.StatusFailed || x.Revision != 2 || len(audit(t, s, x.ID)) != 0 {
		t.Errorf("it was acted on: %+v", x)
	}
}

func TestBulkIsRepeatedByItsRequest(t *testing.T) {
	s := memory.New()
	var down bool
	n := 0
	e := idleEngine(t, &wedge{s, func(uuid.UUID) error {
		if n++; down && n == 2 {
			return errors.New("no connection")
		}
		return nil
	}})
	create(t, s, row(3, store.StatusRunning), row(2, store.StatusRunning), row(1, store.StatusRunning))
	by := anna
	by.Request = "batch 1"
	down = true
	r, err := e.Bulk(t.Context(), store.Filter{}, saga.ActHalt, by, nil)
	if got, want := shows(r), []string{"done", "failed saga: halt 0195524a-0000-7000-8000-000000000002: no connection", "done"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: got %q, want %q", err, got, want)
	}
	for _, dry := range []bool{true, false} {
		r, err = e.Bulk(t.Context(), store.Filter{}, saga.ActHalt, by, &saga.BulkOptions{DryRun: dry})
		if got, want := shows(r), []string{"done repeated", "done", "done repeated"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("again, dry run %v, %v: got %q, want %q", dry, err, got, want)
		}
	}
	for i := range 3 {
		if as := audit(t, s, row(i+1, store.StatusRunning).ID); len(as) != 1 || as[0].Request != by.Request {
			t.Errorf("audit trail %+v", as)
		}
	}
	// It is the same act as one without a bulk, and another content is refused.
	if _, err := e.Halt(t.Context(), row(1, store.StatusRunning).ID, by, nil); err != nil {
		t.Error(err)
	}
	r, err = e.Bulk(t.Context(), store.Filter{}, saga.ActCancel, by, nil)
	if got, want := shows(r), []string{"skipped request_used", "skipped request_used", "skipped request_used"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: got %q, want %q", err, got, want)
	}
}

func TestBulkGoesOnWhereItsLimitEndedIt(t *testing.T) {
	s := memory.New()
	e := idleEngine(t, s)
	for i := range 5 {
		create(t, s, row(i, store.StatusRunning))
	}
	var after uuid.UUID
	var sizes []int
	for {
		r, err := e.Bulk(t.Context(), store.Filter{}, saga.ActHalt, anna, &saga.BulkOptions{Limit: 2, After: after})
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, r.Counts[saga.BulkDone])
		if r.Next == nil {
			break
		}
		after = *r.Next
	}
	if !slices.Equal(sizes, []int{2, 2, 1}) {
		t.Errorf("%v", sizes)
	}
}

func TestBulkEndsWhenTooManyActsFail(t *testing.T) {
	s := memory.New()
	n := 0
	e := idleEngine(t, &wedge{s, func(uuid.UUID) error {
		if n++; n > 25 && n%2 == 0 {
			return errors.New("no connection")
		}
		return nil
	}})
	for i := range 60 {
		create(t, s, row(i, store.StatusRunning))
	}
	r, err := e.Bulk(t.Context(), store.Filter{}, saga.ActHalt, anna, &saga.BulkOptions{StopAtErrors: 0.3})
	if !errors.Is(err, saga.ErrTooManyErrors) || r.Counts[saga.BulkFailed] != 6 || r.Next == nil || *r.Next != r.Items[len(r.Items)-1].Execution {
		t.Errorf("%v, %v", r.Counts, err)
	}
}

func TestBulkKeepsItsRateAndEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.New()
		e := idleEngine(t, s)
		for i := range 10 {
			create(t, s, row(i, store.StatusRunning))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2900*time.Millisecond)
		defer cancel()
		begun := time.Now()
		r, err := e.Bulk(ctx, store.Filter{}, saga.ActHalt, anna, &saga.BulkOptions{Rate: 2})
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || len(r.Items) != 6 || took != 2900*time.Millisecond {
			t.Errorf("%d in %v, %v", len(r.Items), took, err)
		}
		if r.Next == nil || *r.Next != r.Items[5].Execution {
			t.Errorf("next %v", r.Next)
		}
	})
}

func TestBulkRefusesWhatMakesNoSense(t *testing.T) {
	s := memory.New()
	e := idleEngine(t, s)
	for name, call := range map[string]func() (*saga.BulkReport, error){
		"act": func() (*saga.BulkReport, error) { return e.Bulk(t.Context(), store.Filter{}, saga.ActErase, anna, nil) },
		"by": func() (*saga.BulkReport, error) {
			return e.Bulk(t.Context(), store.Filter{}, saga.ActHalt, saga.By{}, nil)
		},
		"limit": func() (*saga.BulkReport, error) {
			return e.Bulk(t.Context(), store.Filter{}, saga.ActHalt, anna, &saga.BulkOptions{Limit: -1})
		},
		"rate": func() (*saga.BulkReport, error) {
			return e.Bulk(t.Context(), store.Filter{}, saga.ActHalt, anna, &saga.BulkOptions{Rate: -1})
		},
		"share": func() (*saga.BulkReport, error) {
			return e.Bulk(t.Context(), store.Filter{}, saga.ActHalt, anna, &saga.BulkOptions{StopAtErrors: 1.1})
		},
		"filter": func() (*saga.BulkReport, error) {
			return e.Bulk(t.Context(), store.Filter{Statuses: []store.Status{"lost"}}, saga.ActHalt, anna, nil)
		},
	} {
		if r, err := call(); !errors.Is(err, saga.ErrInvalid) || r == nil {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	e = idleEngine(t, struct{ store.Store }{s})
	if _, err := e.Bulk(t.Context(), store.Filter{}, saga.ActHalt, anna, nil); !errors.Is(err, saga.ErrNotSupported) {
		t.Error(err)
	}
	if _, err := e.List(t.Context(), store.Filter{}, store.Page{}); !errors.Is(err, saga.ErrNotSupported) {
		t.Error(err)
	}
	if _, err := e.Count(t.Context(), store.Filter{}, nil, 0); !errors.Is(err, saga.ErrNotSupported) {
		t.Error(err)
	}
}

func TestListFillsTheAgesOfItsFilter(t *testing.T) {
	s := memory.New()
	e := idleEngine(t, s)
	at := func(ago time.Duration) func(x *store.Execution) {
		return func(x *store.Execution) { at := bulkNow.Add(-ago); x.ProgressAt, x.DueAt = at, &at }
	}
	create(t, s, row(3, store.StatusRunning, at(16*time.Minute)), row(2, store.StatusRunning, at(14*time.Minute)), row(1, store.StatusRunning, at(29*time.Second)))
	for a, want := range map[store.Attention]int{store.AttentionStalled: 1, store.AttentionOverdue: 2} { // PickupWithin is 30 s
		f := store.Filter{Attention: []store.Attention{a}}
		list, err := e.List(t.Context(), f, store.Page{})
		if err != nil || len(list.Executions) != want {
			t.Errorf("%s: %v, %v; want %d", a, list, err, want)
		}
		counts, err := e.Count(t.Context(), f, nil, 0)
		if err != nil || counts.Groups[0].N != int64(want) {
			t.Errorf("%s: %v, %v; want %d", a, counts, err, want)
		}
	}
}

// TestBulkDoesWhatActDoes acts on a random population twice: in bulk, and one by
// one. LEVERET_SEED replays one.
func TestBulkDoesWhatActDoes(t *testing.T) {
	first, n := rand.Uint64(), uint64(100)
	if s := os.Getenv("LEVERET_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, n = seed, 1
	}
	results := map[string]int{}
	for i := range n {
		if compareBulk(t, rand.New(rand.NewPCG(first+i, 3)), results); t.Failed() {
			t.Fatalf("LEVERET_SEED=%d replays this", first+i)
		}
	}
	t.Log(results)
}

func compareBulk(t *testing.T, r *rand.Rand, results map[string]int) {
	bulk, single := memory.New(), memory.New()
	var before []*store.Execution
	for i := range 1 + r.IntN(25) {
		x := row(i, store.Statuses()[r.IntN(len(store.Statuses()))])
		if !x.Status.Finished() && x.Status != store.StatusHalted && x.Status != store.StatusWaiting && r.IntN(2) == 0 {
			working(time.Duration(r.IntN(120)-60) * time.Second)(x)
			if r.IntN(3) == 0 {
				x.Request = &store.Request{Halt: true, Actor: "bo", Reason: "look", At: bulkNow}
			}
		}
		if x.Status.Finished() && r.IntN(4) == 0 {
			erased(x)
		}
		x.Partition = []string{"default", "other"}[r.IntN(2)]
		create(t, bulk, x)
		create(t, single, x)
		before = append(before, get(t, bulk, x.ID))
	}
	act := saga.Acts()[r.IntN(len(saga.Acts()))]
	f := store.Filter{}
	if r.IntN(2) == 0 {
		f.Partitions = []string{"other"}
	}
	if r.IntN(2) == 0 {
		f.Statuses = []store.Status{store.StatusFailed, store.StatusRunning, store.StatusHalted}
	}
	by := anna
	if r.IntN(2) == 0 {
		by.Request = "r"
	}
	e := idleEngine(t, bulk)
	dry, err := e.Bulk(t.Context(), f, act, by, &saga.BulkOptions{DryRun: true})
	if err != nil {
		t.Error(err)
	}
	for _, x := range before {
		if now := get(t, bulk, x.ID); now.Revision != x.Revision || len(audit(t, bulk, x.ID)) != 0 {
			t.Errorf("a dry run wrote %s", x.ID)
		}
	}
	report, err := e.Bulk(t.Context(), f, act, by, nil)
	if err != nil {
		t.Error(err)
	}
	e = idleEngine(t, single)
	slices.Reverse(before) // newest first
	n := 0
	for _, x := range before {
		if !f.Matches(x) {
			if now := get(t, bulk, x.ID); now.Revision != x.Revision {
				t.Errorf("%s is outside of the filter, and was written", x.ID)
			}
			continue
		}
		if n >= len(report.Items) || n >= len(dry.Items) {
			t.Errorf("no item for %s", x.ID)
			return
		}
		item, foreseen := report.Items[n], dry.Items[n]
		n++
		y, err := e.Act(t.Context(), x.ID, act, by, nil)
		switch ok := item.Result == saga.BulkDone || item.Result == saga.BulkRequested; {
		case item.Execution != x.ID || item.Result == saga.BulkFailed:
			t.Errorf("%+v for %s", item, x.ID)
		case ok != (err == nil):
			t.Errorf("%s of a %s one: %+v, and Act says %v", act, x.Status, item, err)
		case item.Result == saga.BulkRequested && y.Request == nil:
			t.Errorf("%s of a %s one: %+v, and nothing is requested", act, x.Status, item)
		}
		if foreseen.Result != item.Result || foreseen.Reason != item.Reason {
			t.Errorf("%s of a %s one: foreseen %+v, was %+v", act, x.Status, foreseen, item)
		}
		results[fmt.Sprintf("%s %s", item.Result, item.Reason)]++
		if a, b := text(t, get(t, bulk, x.ID)), text(t, get(t, single, x.ID)); a != b {
			t.Errorf("%s of a %s one:\n in bulk %s\n by Act %s", act, x.Status, a, b)
		}
		if a, b := text(t, audit(t, bulk, x.ID)), text(t, audit(t, single, x.ID)); a != b {
			t.Errorf("%s of a %s one, audit:\n in bulk %s\n by Act %s", act, x.Status, a, b)
		}
	}
	if n != len(report.Items) || n != len(dry.Items) {
		t.Errorf("%d items, %d in the dry run, want %d", len(report.Items), len(dry.Items), n)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
