package saga_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// finishedAgo lets an execution have finished so long ago.
func finishedAgo(d time.Duration) func(x *store.Execution) {
	return func(x *store.Execution) { at := bulkNow.Add(-d); x.FinishedAt = &at }
}

// left lists which of the rows 0 to n-1 are left.
func left(t *testing.T, s store.Store, n int) (out []int) {
	t.Helper()
	for i := range n {
		_, err := s.Get(t.Context(), row(i, store.StatusRunning).ID)
		switch {
		case err == nil:
			out = append(out, i)
		case !errors.Is(err, store.ErrNotFound):
			t.Fatal(err)
		}
	}
	return out
}

func TestPurgeDeletesByAgeAndStatus(t *testing.T) {
	s := memory.New()
	e := idleEngine(t, s)
	for i, status := range store.Statuses() {
		create(t, s, row(3*i, status), row(3*i+1, status), row(3*i+2, status))
		if status.Finished() {
			for j, ago := range []time.Duration{time.Hour + time.Second, time.Hour, 0} { // older than an hour, not older, new
				_, err := s.WithLock(t.Context(), row(3*i+j, status).ID, func(x *store.Execution) (store.Change, error) {
					finishedAgo(ago)(x)
					return store.Change{}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	r, err := e.Purge(t.Context(), saga.PurgeOptions{})
	if err != nil || r.Total() != 0 {
		t.Errorf("an empty retention: %+v, %v", r, err)
	}
	some := saga.Retention{Completed: time.Hour, Compensated: time.Hour, Cancelled: 30 * time.Minute}
	want := map[store.Status]int{store.StatusCompleted: 1, store.StatusCompensated: 1, store.StatusCancelled: 2}
	for _, dry := range []bool{true, false} {
		r, err := e.Purge(t.Context(), saga.PurgeOptions{Retention: some, DryRun: dry})
		if err != nil || !reflect.DeepEqual(r, &saga.PurgeReport{DryRun: dry, Deleted: want}) {
			t.Errorf("dry run %v: %+v, %v", dry, r, err)
		}
		if n := len(left(t, s, 27)); dry && n != 27 || !dry && n != 23 {
			t.Errorf("dry run %v: %d are left", dry, n)
		}
	}
	// Those that need a person go only when that is said.
	r, err = e.Purge(t.Context(), saga.PurgeOptions{Retention: saga.Retention{Failed: time.Minute, CompensationFailed: time.Minute}})
	if err != nil || r.Deleted[store.StatusFailed] != 2 || r.Deleted[store.StatusCompensationFailed] != 2 || r.Total() != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	for i := range 12 {
		get(t, s, row(i, store.StatusRunning).ID) // the unfinished are all there
	}
}

func TestPurgeTakesTheOldestFirstInSmallBatches(t *testing.T) {
	s := memory.New()
	sizes := &batches{Store: s}
	e := idleEngine(t, sizes)
	for i := range 200 { // ids and ages are not in the same order
		create(t, s, row(i, store.StatusCompleted, finishedAgo(time.Hour*time.Duration(1+(i*37)%200))))
	}
	o := saga.PurgeOptions{Retention: saga.Retention{Completed: 30*time.Minute + 100*time.Hour}, BatchSize: 3, Limit: 40}
	r, err := e.Purge(t.Context(), o)
	if err != nil || r.Total() != 40 || !r.More || sizes.most != 3 {
		t.Errorf("%+v, %v, batches of %d", r, err, sizes.most)
	}
	// In an order that is right from one span to the next, of 30 each.
	oldest := 0
	for _, x := range sizes.ages {
		if x > 130*time.Hour {
			oldest++
		}
	}
	if oldest < 30 {
		t.Errorf("%d of the 70 oldest are among the first 40", oldest)
	}
	dry := o
	dry.DryRun, dry.Limit = true, 59
	if r, err = e.Purge(t.Context(), dry); err != nil || r.Total() != 59 || !r.More {
		t.Errorf("%+v, %v", r, err)
	}
	o.Limit = 0
	if r, err = e.Purge(t.Context(), o); err != nil || r.Total() != 60 || r.More {
		t.Errorf("%+v, %v", r, err)
	}
	if n := len(left(t, s, 200)); n != 100 {
		t.Errorf("%d are left, want 100", n)
	}
}

// batches is a store that notes what is deleted, and how many batches at once.
type batches struct {
	*memory.Store
	before func(versions []store.Version)
	now    atomic.Int32
	both   atomic.Bool
	mu     sync.Mutex
	most   int
	ages   []time.Duration
}

func (b *batches) Delete(ctx context.Context, versions []store.Version) ([]bool, error) {
	if b.now.Add(1) > 1 {
		b.both.Store(true)
	}
	defer b.now.Add(-1)
	if b.before != nil {
		b.before(versions)
	}
	b.mu.Lock()
	b.most = max(b.most, len(versions))
	for _, v := range versions {
		if x, err := b.Get(ctx, v.ID); err == nil {
			b.ages = append(b.ages, bulkNow.Sub(*x.FinishedAt))
		}
	}
	b.mu.Unlock()
	return b.Store.Delete(ctx, versions)
}

func TestPurgesTakeTurnsInAProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &batches{Store: memory.New(), before: func([]store.Version) { <-time.After(time.Millisecond) }}
		e := idleEngine(t, s)
		for i := range 50 {
			create(t, s, row(i, store.StatusCompleted))
		}
		var all atomic.Int32
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				r, err := e.Purge(t.Context(), saga.PurgeOptions{Retention: saga.Retention{Completed: time.Minute}, BatchSize: 5})
				if err != nil || r.Kept != 0 {
					t.Errorf("%+v, %v", r, err)
				}
				all.Add(int32(r.Total()))
			})
		}
		calls.Wait()
		if all.Load() != 50 || s.both.Load() {
			t.Errorf("%d deleted, two batches at once: %v", all.Load(), s.both.Load())
		}
	})
}

// A paper is an archive that notes what was in it when it was made safe.
type paper struct {
	bytes.Buffer
	safe  int
	fails string
}

func (p *paper) Sync() error {
	if p.fails == "sync" {
		return errors.New("disk is full")
	}
	p.safe = p.Len()
	return nil
}

func (p *paper) Write(b []byte) (int, error) {
	if p.fails == "write" {
		return 0, errors.New("disk is full")
	}
	return p.Buffer.Write(b)
}

func TestPurgeArchivesBeforeItDeletes(t *testing.T) {
	s := &batches{Store: memory.New()}
	e := idleEngine(t, s)
	for i := range 7 {
		create(t, s, row(i, store.StatusCompleted, func(x *store.Execution) { x.State = []byte("{\n \"n\": \"<&>\" }") }))
	}
	archive := &paper{}
	safe := func() map[uuid.UUID]int64 {
		out := map[uuid.UUID]int64{}
		for line := range bytes.Lines(archive.Bytes()[:archive.safe]) {
			var a saga.Archived
			if err := json.Unmarshal(line, &a); err != nil || string(a.Execution.State) != `{"n":"<&>"}` {
				t.Errorf("%v in %s", err, line)
			}
			out[a.Execution.ID] = a.Execution.Revision
		}
		return out
	}
	changed := row(3, store.StatusCompleted).ID
	s.before = func(versions []store.Version) {
		lines := safe()
		for _, v := range versions {
			if lines[v.ID] != v.Revision {
				t.Errorf("%v is deleted before its line is safe", v)
			}
			if v.ID == changed && v.Revision == 1 { // somebody writes to it in between
				if _, err := s.WithLock(t.Context(), v.ID, func(x *store.Execution) (store.Change, error) {
					x.UpdatedAt = bulkNow
					return store.Change{}, nil
				}); err != nil {
					t.Error(err)
				}
			}
		}
	}
	o := saga.PurgeOptions{Retention: saga.Retention{Completed: time.Minute}, BatchSize: 2, Archive: archive}
	for _, archive.fails = range []string{"write", "sync"} {
		if r, err := e.Purge(t.Context(), o); err == nil || !strings.Contains(err.Error(), "disk is full") || r.Total() != 0 {
			t.Errorf("%s: %+v, %v", archive.fails, r, err)
		}
	}
	archive.fails = ""
	r, err := e.Purge(t.Context(), o)
	if err != nil || r.Total() != 6 || r.Kept != 1 || !slices.Equal(left(t, s, 7), []int{3}) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = e.Purge(t.Context(), o); err != nil || r.Total() != 1 { // its line is written again
		t.Errorf("%+v, %v", r, err)
	}
	if lines := safe(); len(lines) != 7 || lines[changed] != 2 {
		t.Errorf("%v", lines)
	}
}

func TestPurgeFlushesItsArchive(t *testing.T) {
	s := &batches{Store: memory.New()}
	var file bytes.Buffer
	s.before = func([]store.Version) {
		if file.Len() == 0 {
			t.Error("deleted before the archive was flushed")
		}
	}
	create(t, s, row(1, store.StatusCompleted))
	r, err := idleEngine(t, s).Purge(t.Context(), saga.PurgeOptions{Retention: saga.Retention{Completed: time.Minute}, Archive: bufio.NewWriter(&file)})
	if err != nil || r.Total() != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// What an archive leaves out: what a finished execution does not have, and the
// execution's id, which its line has once.
var notArchived = []string{"Execution.Attempt", "Execution.DueAt", "Execution.WakeAt", "Execution.OfferedAt", "Execution.Tries",
	"Execution.Resumes", "Execution.Request", "Attempt.Execution", "AuditEntry.Execution"}

func TestArchiveHasEveryField(t *testing.T) {
	for _, p := range [][2]any{
		{store.Execution{}, saga.ArchivedExecution{}}, {store.Attempt{}, saga.ArchivedAttempt{}}, {store.AuditEntry{}, saga.ArchivedAuditEntry{}},
	} {
		stored, archived := reflect.TypeOf(p[0]), reflect.TypeOf(p[1])
		for _, f := range reflect.VisibleFields(stored) {
			if _, ok := archived.FieldByName(f.Name); ok == slices.Contains(notArchived, stored.Name()+"."+f.Name) {
				t.Errorf("%s.%s: archived %v", stored.Name(), f.Name, ok)
			}
		}
	}
	// And every value arrives.
	s := memory.New()
	x := row(1, store.StatusFailed, personal, erased, func(x *store.Execution) {
		other := uuid.New()
		x.Checkpoint, x.Turn, x.ReasonBy, x.RerunOf, x.RerunAs = []byte("7"), store.TurnCancel, "bo", &other, &other
		x.TraceParent, x.Epoch, x.Events = "00-1", 3, true
		x.State = []byte(`{"n":2}`)
		x.Tags, x.Deadline, x.Parent = map[string]string{"a": "b"}, &bulkNow, &store.Parent{Execution: other, Step: "s", Key: "k"}
		x.Follows, x.ReplacedBy, x.Continues, x.ContinuedAs = &other, &other, &other, &other
		x.Gate = &store.Gate{Kind: store.GateTime, Since: bulkNow, Open: true}
		x.Inbox = []store.Message{{Name: "paid", At: bulkNow, Payload: []byte("1")}}
	})
	create(t, s, x)
	_, err := s.WithLock(t.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
		return store.Change{
			Attempts: []store.Attempt{{
				Execution: x.ID, Step: "b", Direction: store.DirectionExecute, Epoch: 1, Number: 1, Worker: "w", Status: store.AttemptFailed,
				StartedAt: bulkNow, FinishedAt: &bulkNow, LeaseUntil: bulkNow,
				Failure: &store.Failure{Class: "declined", Message: "no", Step: "b"}, Stack: "main", Reason: "r",
				Late: true, LateStatus: store.AttemptSucceeded,
			}},
			Audit: []store.AuditEntry{{Execution: x.ID, At: bulkNow, Act: "move", Actor: "bo", Reason: "r", Before: store.StatusFailed,
				After: store.StatusFailed, Request: "q", Digest: "d", Detail: []byte(`{"to":"x"}`)}},
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	o := saga.PurgeOptions{Retention: saga.Retention{Failed: time.Minute}, Archive: &b}
	if r, err := idleEngine(t, s).Purge(t.Context(), o); err != nil || r.Total() != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	var a saga.Archived
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{a.Execution, a.Attempts[0], a.Audit[0]} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if reflect.ValueOf(v).FieldByIndex(f.Index).IsZero() {
				t.Errorf("%T.%s is empty", v, f.Name)
			}
		}
	}
	if len(a.Attempts) != 1 || len(a.Audit) != 1 || a.Execution.ID != x.ID || a.Execution.Revision != 2 {
		t.Errorf("%+v", a)
	}
}

func TestPurgeRefusesWhatMakesNoSense(t *testing.T) {
	s := memory.New()
	e := idleEngine(t, s)
	for _, o := range []saga.PurgeOptions{
		{Retention: saga.Retention{Failed: -1}}, {Limit: -1}, {BatchSize: -1}, {BatchSize: 1001},
	} {
		if r, err := e.Purge(t.Context(), o); !errors.Is(err, saga.ErrInvalid) || r == nil {
			t.Errorf("%+v: %v, %v", o, r, err)
		}
	}
	bare := struct{ store.Store }{s}
	if _, err := idleEngine(t, bare).Purge(t.Context(), saga.PurgeOptions{}); !errors.Is(err, saga.ErrNotSupported) {
		t.Error(err)
	}
	if _, err := saga.New(saga.Config{Store: bare, Retention: &saga.Retention{}}); !errors.Is(err, saga.ErrInvalid) || !errors.Is(err, saga.ErrNotSupported) {
		t.Error(err)
	}
	_, err := saga.New(saga.Config{Store: s, Retention: &saga.Retention{Cancelled: -1}})
	if !errors.Is(err, saga.ErrInvalid) || !strings.Contains(err.Error(), "Config.Retention.Cancelled") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Purge(ctx, saga.PurgeOptions{Retention: saga.Retention{Completed: time.Hour}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// An ailing store's lists fail while it is ill.
type ailing struct {
	*memory.Store
	ill atomic.Bool
}

func (a *ailing) Count(ctx context.Context, f store.Filter, by []store.Dimension, most int) (*store.Counts, error) {
	if a.ill.Load() {
		return nil, errors.New("no connection")
	}
	return a.Store.Count(ctx, f, by, most)
}

func TestRunDeletesWhatIsOverItsRetention(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &ailing{Store: memory.New()}
		retention := &saga.Retention{Completed: 10 * time.Minute}
		r := newRig(t, saga.Config{Store: s, Retention: retention}, saga.Step[order]{Name: "a", Execute: ok},
			saga.Step[order]{Name: "b", Execute: func(_ context.Context, run *saga.Run[order]) error {
				if run.State.Charged {
					return saga.Fail(fmt.Errorf("too dear"))
				}
				return nil
			}})
		retention.Completed = time.Nanosecond // the engine has its own
		runEngine(t, r.e, func(ctx context.Context) {
			done := r.start(ctx)
			r.wait(ctx, done)
			x, err := r.s.Start(ctx, saga.Resource{}, order{Charged: true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.wait(ctx, x.ID)
			s.ill.Store(true)
			pass(9 * time.Minute)
			r.get(done)
			s.ill.Store(false)
			pass(3 * time.Minute)
			if _, err := s.Get(ctx, done); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("it is still there: %v", err)
			}
			pass(time.Hour)
			if y := r.get(x.ID); y.Status != store.StatusFailed {
				t.Errorf("%s", y.Status)
			}
		})
	})
}
