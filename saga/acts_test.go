package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// actsRig has an engine that does not run: rows are made as a test wants them.
func actsRig(t *testing.T, st store.Store) *rig {
	t.Helper()
	return newRig(t, saga.Config{Store: st},
		saga.Step[order]{Name: "a", Execute: ok, Compensate: ok, Retry: quick},
		saga.Step[order]{Name: "b", Execute: ok, Compensate: ok, Retry: quick},
		saga.Step[order]{Name: "c", Execute: ok})
}

// row puts an execution into the store that stands at step b, which is in doubt,
// behind a, which is done.
func (r *rig) row(status store.Status, change ...func(x *store.Execution)) uuid.UUID {
	r.t.Helper()
	now := store.Micros(time.Now())
	x := &store.Execution{
		ID: uuid.New(), Saga: "checkout", Version: 1, Partition: "default", Resource: store.Resource{Type: "order", ID: "1"},
		Status: status, Direction: store.DirectionExecute, Step: "b", State: json.RawMessage(`{"reserved":true}`),
		Ledger: []store.LedgerEntry{
			{Name: "a", Compensable: true, InDoubt: store.InDoubtCompensate, Status: store.StepDone},
			{Name: "b", Compensable: true, InDoubt: store.InDoubtCompensate, Status: store.StepInDoubt},
			{Name: "c", InDoubt: store.InDoubtIgnore, Status: store.StepPending},
		},
		CreatedAt: now, UpdatedAt: now, ProgressAt: now,
	}
	switch {
	case status.Finished():
		x.FinishedAt = &now
	case status != store.StatusHalted:
		x.DueAt = &now
	}
	switch status {
	case store.StatusCompensating, store.StatusCompensated, store.StatusCompensationFailed:
		x.Direction = store.DirectionCompensate
	}
	for _, f := range change {
		f(x)
	}
	if err := r.store.Create(r.t.Context(), x); err != nil {
		r.t.Fatal(err)
	}
	return x.ID
}

// running gives a row a live attempt.
func running(x *store.Execution) {
	until := x.CreatedAt.Add(30 * time.Second)
	due := until.Add(2 * time.Second)
	x.Attempt = &store.OpenAttempt{Number: 1, Worker: "other/1", StartedAt: x.CreatedAt, LeaseUntil: until}
	x.DueAt, x.Tries = &due, 1
	x.Entry("b").Opens = 1
}

// A call is one of the engine's acts.
type call struct {
	name string
	do   func(e *saga.Engine, ctx context.Context, id uuid.UUID, by saga.By, o *saga.ActOptions) (*saga.Execution, error)
}

var calls = []call{
	{"retry", (*saga.Engine).Retry},
	{"compensate", (*saga.Engine).Compensate},
	{"cancel", (*saga.Engine).Cancel},
	{"halt", (*saga.Engine).Halt},
	{"resume", (*saga.Engine).Resume},
	{"skip_step", (*saga.Engine).SkipStep},
	{"resolve", func(e *saga.Engine, ctx context.Context, id uuid.UUID, by saga.By, o *saga.ActOptions) (*saga.Execution, error) {
		return e.Resolve(ctx, id, "b", store.StepPending, by, o)
	}},
	{"edit_state", func(e *saga.Engine, ctx context.Context, id uuid.UUID, by saga.By, o *saga.ActOptions) (*saga.Execution, error) {
		return e.EditState(ctx, id, json.RawMessage(`{"charged":true}`), by, o)
	}},
	{"move", func(e *saga.Engine, ctx context.Context, id uuid.UUID, by saga.By, o *saga.ActOptions) (*saga.Execution, error) {
		return e.Move(ctx, id, "other", by, o)
	}},
}

var actErrors = map[string]error{
	".": nil, "F": saga.ErrFinished, "R": saga.ErrNotRetryable, "H": saga.ErrNotHalted, "A": saga.ErrAttemptRunning, "N": saga.ErrNoStep,
	"E": saga.ErrNotEditable, "X": saga.ErrErased, "C": saga.ErrChanged,
}

// TestActErrors is the table of acts and statuses: what is refused, with which
// error, and that nothing is written then.
func TestActErrors(t *testing.T) {
	pending := func(x *store.Execution) {
		running(x)
		x.Request = &store.Request{Turn: store.TurnCancel, Actor: "bob", Reason: "asked", At: x.CreatedAt}
	}
	lapsed := func(x *store.Execution) {
		pending(x)
		x.Attempt.LeaseUntil = x.CreatedAt.Add(-time.Hour)
		x.DueAt = &x.CreatedAt
	}
	declared := func(x *store.Execution) { x.Step, x.Ledger, x.Version = "", nil, 0 }
	erased := func(x *store.Execution) { x.ErasedAt, x.State = &x.CreatedAt, json.RawMessage("{}") }
	for _, row := range []struct {
		name   string
		status store.Status
		change func(x *store.Execution)
		// retry compensate cancel halt resume skip_step resolve edit_state move
		plain, force string
	}{
		{"running", store.StatusRunning, nil, ". . . . H . . E .", ". . . . H . . E ."},
		{"running, an attempt is open", store.StatusRunning, running, "A . . . H A A E A", ". . . . H . . E ."},
		{"running, a turn is pending", store.StatusRunning, pending, "A . . . H A A E A", ". . . . H C . E ."},
		{"running, a turn is pending, lapsed", store.StatusRunning, lapsed, ". . . . H C . E .", ". . . . H C . E ."},
		{"declared", store.StatusRunning, declared, ". . . . H N N E .", ". . . . H N N E ."},
		{"waiting", store.StatusWaiting, nil, "R . . . H . . E .", "R . . . H . . E ."},
		{"halted", store.StatusHalted, nil, "R . . . . . . . .", "R . . . . . . . ."},
		{"compensating", store.StatusCompensating, nil, ". . . . H . . E .", ". . . . H . . E ."},
		{"compensating, an attempt is open", store.StatusCompensating, running, "A . . . H A A E A", ". . . . H . . E ."},
		{"completed", store.StatusCompleted, nil, "F F F F F F . F F", "F F F F F F . F F"},
		{"compensated", store.StatusCompensated, nil, "F F F F F F . F F", "F F F F F F . F F"},
		{"cancelled", store.StatusCancelled, nil, "F F F F F F . F F", "F F F F F F . F F"},
		{"failed", store.StatusFailed, nil, ". F F F F . . . F", ". F F F F . . . F"},
		{"compensation_failed", store.StatusCompensationFailed, nil, ". F F F F . . . F", ". F F F F . . . F"},
		{"failed, erased", store.StatusFailed, erased, "X F F F F X . X F", "X F F F F X . X F"},
		{"compensated, erased", store.StatusCompensated, erased, "F F F F F F . F F", "F F F F F F . F F"},
	} {
		bubble(t, func(t *testing.T) {
			for force, want := range map[bool]string{false: row.plain, true: row.force} {
				for i, code := range strings.Fields(want) {
					r := actsRig(t, nil)
					change := row.change
					if change == nil {
						change = func(*store.Execution) {}
					}
					id := r.row(row.status, change)
					before := r.get(id)
					c := calls[i]
					x, err := c.do(r.e, t.Context(), id, anna, &saga.ActOptions{Force: force})
					if !errors.Is(err, actErrors[code]) || (err == nil) != (code == ".") {
						t.Errorf("%s, %s, force %v: %v, want %v", row.name, c.name, force, err, actErrors[code])
						continue
					}
					trail, _ := r.store.Audit(t.Context(), id)
					if err != nil {
						if x != nil || !reflect.DeepEqual(before, r.get(id)) || len(trail) > 0 {
							t.Errorf("%s, %s, force %v: refused, and something was written", row.name, c.name, force)
						}
						if !strings.HasPrefix(err.Error(), "saga: "+c.name+" "+id.String()) {
							t.Errorf("%s: %v", c.name, err)
						}
						continue
					}
					own := trail[len(trail)-1]
					if own.Act != c.name || own.Actor != "anna" || own.Reason != "on call" || own.Before != before.Status || own.After != x.Status {
						t.Errorf("%s, %s, force %v: audit %+v", row.name, c.name, force, own)
					}
					if now := r.get(id); !reflect.DeepEqual(now, x) || x.Revision != before.Revision+1 {
						t.Errorf("%s, %s: returned another row than was written", row.name, c.name)
					}
				}
			}
		})
	}
}

func TestActOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := actsRig(t, nil)
		for _, c := range calls {
			if _, err := c.do(r.e, t.Context(), uuid.New(), anna, nil); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if _, err := r.e.Act(t.Context(), r.row(store.StatusRunning), saga.ActMove, anna, nil); !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("an act that Act does not take: %v", err)
		}
	})
}

// TestActBy checks the limits of By, for every act before anything is read.
func TestActBy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := actsRig(t, nil)
		long := func(n int) string { return strings.Repeat("é", n) }
		for _, row := range []struct {
			by   saga.By
			want string // of the error, "" for none
		}{
			{saga.By{Actor: "", Reason: "r"}, "By.Actor is empty"},
			{saga.By{Actor: " \t", Reason: "r"}, "By.Actor is empty"},
			{saga.By{Actor: "a", Reason: "\n"}, "By.Reason is empty"},
			{saga.By{Actor: long(201), Reason: "r"}, "By.Actor is longer than 200 characters"},
			{saga.By{Actor: "a", Reason: long(2001)}, "By.Reason is longer than 2000 characters"},
			{saga.By{Actor: "a", Reason: "r", Request: long(201)}, "By.Request is longer than 200 characters"},
			{saga.By{Actor: "a\x00", Reason: "r"}, "By.Actor is not valid UTF-8 without NUL"},
			{saga.By{Actor: "a", Reason: "\xff"}, "By.Reason is not valid UTF-8 without NUL"},
			{saga.By{Actor: "a", Reason: "r", Request: "\xff"}, "By.Request is not valid UTF-8 without NUL"},
			{saga.By{}, "By.Reason is empty"},
			{saga.By{Actor: long(200), Reason: long(2000), Request: long(200)}, ""},
			{saga.By{Actor: "a", Reason: "r"}, ""},
		} {
			for _, c := range calls {
				id := r.row(store.StatusHalted)
				if c.name == "retry" {
					id = r.row(store.StatusRunning)
				}
				_, err := c.do(r.e, t.Context(), id, row.by, nil)
				switch {
				case row.want == "" && err != nil:
					t.Errorf("%s: %v", c.name, err)
				case row.want != "" && (!errors.Is(err, saga.ErrInvalid) || !strings.Contains(err.Error(), row.want)):
					t.Errorf("%s: %v, want %q", c.name, err, row.want)
				}
			}
		}
	})
}

// TestActBadInput checks what acts take besides By.
func TestActBadInput(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := actsRig(t, nil)
		id := r.row(store.StatusHalted)
		before := r.get(id)
		edit := func(state string) error {
			_, err := r.e.EditState(t.Context(), id, json.RawMessage(state), anna, nil)
			return err
		}
		_, resolve := r.e.Resolve(t.Context(), id, "b", store.StepUndone, anna, nil)
		_, move := r.e.Move(t.Context(), id, "no.dots", anna, nil)
		_, empty := r.e.Move(t.Context(), id, "", anna, nil)
		for what, err := range map[string]error{
			"resolve as undone": resolve, "a partition with a dot": move, "no partition": empty,
			"not JSON": edit(`{"secret"`), "not an object": edit(`["secret"]`), "nothing": edit(""), "not UTF-8": edit("{\"a\":\"secret\xff\"}"),
			"another type": edit(`{"reserved":"secret"}`), "too much": edit(`{"a":"` + strings.Repeat("secret", 200_000) + `"}`),
		} {
			if !errors.Is(err, saga.ErrInvalid) || strings.Contains(err.Error(), "secret") || len(err.Error()) > 300 {
				t.Errorf("%s: %v", what, err)
			}
		}
		if !reflect.DeepEqual(before, r.get(id)) {
			t.Error("something was written")
		}
		other := r.row(store.StatusHalted, func(x *store.Execution) { x.Saga = "of-others" })
		if _, err := r.e.EditState(t.Context(), other, json.RawMessage(`{"any":1}`), anna, nil); !errors.Is(err, saga.ErrUnknownSaga) {
			t.Errorf("a saga that is not known here: %v", err)
		}
		x, err := r.e.EditState(t.Context(), other, json.RawMessage(`{"any":1}`), anna, &saga.ActOptions{Force: true})
		if err != nil || string(x.State) != `{"any":1}` {
			t.Errorf("by force: %v", err)
		}
		trail, _ := r.store.Audit(t.Context(), other)
		if want := `{"diff":[{"path":"/any","to":1},{"path":"/reserved","from":true}]}`; len(trail) != 1 || string(trail[0].Detail) != want {
			t.Errorf("audit %s, want %s", trail[0].Detail, want)
		}
	})
}

// TestActRequest: an act with a name is done once.
func TestActRequest(t *testing.T) {
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := actsRig(t, nil)
				status := store.StatusHalted
				if c.name == "retry" {
					status = store.StatusFailed
				}
				id := r.row(status)
				by := saga.By{Actor: "anna", Reason: "on call", Request: "r-1"}
				opts := &saga.ActOptions{IfRevision: r.get(id).Revision}
				first, err := c.do(r.e, t.Context(), id, by, opts)
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					again, err := c.do(r.e, t.Context(), id, by, opts)
					if err != nil || !reflect.DeepEqual(first, again) {
						t.Errorf("again: %v, %v", again, err)
					}
				}
				for what, other := range map[string]saga.By{
					"another reason": {Actor: "anna", Reason: "other", Request: "r-1"},
					"another actor":  {Actor: "bob", Reason: "on call", Request: "r-1"},
				} {
					if _, err := c.do(r.e, t.Context(), id, other, nil); !errors.Is(err, saga.ErrRequestUsed) {
						t.Errorf("%s: %v", what, err)
					}
				}
				if _, err := c.do(r.e, t.Context(), id, by, &saga.ActOptions{Force: true}); !errors.Is(err, saga.ErrRequestUsed) {
					t.Errorf("now by force: %v", err)
				}
				for _, other := range calls {
					if other.name != c.name {
						if _, err := other.do(r.e, t.Context(), id, by, nil); !errors.Is(err, saga.ErrRequestUsed) {
							t.Errorf("%s under its name: %v", other.name, err)
						}
					}
				}
				if trail, _ := r.store.Audit(t.Context(), id); len(trail) != 1 || trail[0].Request != "r-1" || r.get(id).Revision != first.Revision {
					t.Errorf("done more than once: %+v", trail)
				}
				// The name is the execution's own.
				if _, err := c.do(r.e, t.Context(), r.row(status), by, nil); err != nil {
					t.Errorf("of another execution: %v", err)
				}
			})
		})
	}
}

// meetingStore lets all that ask for the trail first get it before any of them
// goes on: they all find that the request was not used.
type meetingStore struct {
	store.Store
	mu   sync.Mutex
	wait int
	met  chan struct{}
}

func (s *meetingStore) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	trail, err := s.Store.Audit(ctx, id)
	s.mu.Lock()
	s.wait--
	last, early := s.wait == 0, s.wait > 0
	s.mu.Unlock()
	if last {
		close(s.met)
	}
	if early {
		<-s.met
	}
	return trail, err
}

// TestActRequestConcurrently: of many calls at once one does the act, and all
// return its outcome; also those that come to a row which the act has made one
// that refuses it.
func TestActRequestConcurrently(t *testing.T) {
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const n = 8
				st := &meetingStore{Store: newMemory(), wait: n, met: make(chan struct{})}
				r := actsRig(t, st)
				status := store.StatusHalted
				if c.name == "retry" {
					status = store.StatusFailed
				}
				id := r.row(status)
				revision := r.get(id).Revision
				by := saga.By{Actor: "anna", Reason: "on call", Request: "r-1"}
				errs := make(chan error, n)
				for i := range n {
					opts := &saga.ActOptions{}
					if i%2 == 0 {
						opts.IfRevision = revision
					}
					go func() {
						x, err := c.do(r.e, t.Context(), id, by, opts)
						if err == nil && x.Revision != revision+1 {
							err = fmt.Errorf("revision %d", x.Revision)
						}
						errs <- err
					}()
				}
				for range n {
					if err := <-errs; err != nil {
						t.Error(err)
					}
				}
				if trail, _ := r.store.Audit(t.Context(), id); len(trail) != 1 {
					t.Errorf("%d entries", len(trail))
				}
			})
		})
	}
}

// TestActRequestConcurrentlyOtherContent: of two acts under one name at once one
// is done, and the other is told so.
func TestActRequestConcurrentlyOtherContent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &meetingStore{Store: newMemory(), wait: 2, met: make(chan struct{})}
		r := actsRig(t, st)
		id := r.row(store.StatusHalted)
		errs := make(chan error, 2)
		for _, do := range []func(context.Context, uuid.UUID, saga.By, *saga.ActOptions) (*saga.Execution, error){r.e.Resume, r.e.Cancel} {
			go func() {
				_, err := do(t.Context(), id, saga.By{Actor: "anna", Reason: "on call", Request: "r-1"}, nil)
				errs <- err
			}()
		}
		a, b := <-errs, <-errs
		if (a == nil) == (b == nil) || !errors.Is(errors.Join(a, b), saga.ErrRequestUsed) {
			t.Errorf("%v and %v", a, b)
		}
		if trail, _ := r.store.Audit(t.Context(), id); len(trail) != 1 {
			t.Errorf("%d entries", len(trail))
		}
	})
}
