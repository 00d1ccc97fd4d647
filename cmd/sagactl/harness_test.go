package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/sqlite"
)

var update = flag.Bool("update", false, "write the golden files anew")

// noon is when the tests are.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// result is what one call of the tool came to.
type result struct {
	code           int
	stdout, stderr string
}

// A tool is sagactl on a store of its own.
type tool struct {
	t     *testing.T
	store string
	term  terminal
	env   map[string]string
}

// populated is a file with the population, made once.
var populated = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "sagactl-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "sagas.db")
	st, err := sqlite.Open(context.Background(), file, nil)
	if err != nil {
		return nil, err
	}
	err = errors.Join(populate(context.Background(), st), st.Close())
	if err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// newTool returns a tool on a file with the population.
func newTool(t *testing.T) *tool {
	t.Helper()
	b, err := populated()
	file := filepath.Join(t.TempDir(), "sagas.db")
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	k := &tool{t: t, store: file, env: map[string]string{"LEVERET_STORE": file}}
	k.term = terminal{actor: "ann@desk", now: func() time.Time { return noon }}
	return k
}

// run runs the tool with words of a command line, split at blanks, and more
// arguments that may have blanks.
func (k *tool) run(line string, more ...string) result { return k.answer("", line, more...) }

// answer is run with something on stdin.
func (k *tool) answer(stdin, line string, more ...string) result {
	k.t.Helper()
	return k.with(k.t.Context(), stdin, line, more...)
}

func (k *tool) with(ctx context.Context, stdin, line string, more ...string) result {
	k.t.Helper()
	var out, err bytes.Buffer
	term := k.term
	term.stdin, term.stdout, term.stderr = strings.NewReader(stdin), &out, &err
	term.getenv = func(name string) string { return k.env[name] }
	code := run(ctx, append(strings.Fields(line), more...), &term)
	return result{code, out.String(), err.String()}
}

// want fails the test unless the exit code is code and stdout and stderr have
// these texts.
func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	if !strings.Contains(r.stdout, stdout) {
		t.Errorf("stdout %q, want %q in it", r.stdout, stdout)
	}
	if !strings.Contains(r.stderr, stderr) || stderr == "" && r.stderr != "" {
		t.Errorf("stderr %q, want %q in it", r.stderr, stderr)
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", r.stdout, r.stderr)
	}
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("not as in %s (go test ./cmd/sagactl -update writes it anew):\n%s", file, got)
	}
}

// The executions of the population.
var (
	completed = id(1)
	atWork    = id(2) // an attempt is running
	halted    = id(3) // in doubt about charge
	failed    = id(4)
	stuckUndo = id(5) // compensation_failed
	nobody    = id(9)
)

func id(n int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("019ca000-0000-7000-8000-%012d", n))
}

func populate(ctx context.Context, st *sqlite.Store) error {
	for _, w := range []saga.WorkerInfo{
		{
			ID: "web-2:78/cd34", Name: "web-2:78", Host: "web-2", PID: 78, StartedAt: noon.Add(-2 * time.Hour), SeenAt: noon.Add(-2 * time.Second),
			SweptAt: noon.Add(-time.Second), Every: 5 * time.Second, Partitions: map[string]int{"shop": 4, "default": 1}, Running: 1,
			Sagas:    []saga.WorkerSaga{{Saga: "shop.order", Version: 2, Steps: []string{"reserve", "charge", "ship"}}},
			Attempts: []saga.WorkerAttempt{{Execution: atWork, Saga: "shop.order", Step: "charge", Direction: store.DirectionExecute, Attempt: 1}},
		},
		{
			ID: "web-1:77/ab12", Name: "web-1:77", Host: "web-1", PID: 77, StartedAt: noon.Add(-9 * time.Hour), SeenAt: noon.Add(-time.Hour),
			Every: 5 * time.Second, Partitions: map[string]int{"": 2}, Sagas: []saga.WorkerSaga{},
		},
	} {
		b, err := json.Marshal(w)
		if err == nil {
			_, err = st.SetCell(ctx, "worker/"+w.ID, b, 0)
		}
		if err != nil {
			return err
		}
	}
	outline, err := json.Marshal(saga.Outline{Saga: "shop.order", Version: 2, Partition: "shop", Redact: []string{"/email"}, Steps: []saga.OutlineStep{
		{Name: "reserve", Compensable: true, InDoubt: store.InDoubtCompensate}, {Name: "charge", Compensable: true, InDoubt: store.InDoubtHalt},
		{Name: "ship", InDoubt: store.InDoubtIgnore},
	}})
	if err != nil {
		return err
	}
	if _, err := st.SetCell(ctx, "outline/shop.order/2", outline, 0); err != nil {
		return err
	}
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	at := func(d time.Duration) *time.Time { u := ago(d); return &u }
	plan := func(reserve, charge, ship store.StepStatus) []store.LedgerEntry {
		return []store.LedgerEntry{
			{Name: "reserve", Compensable: true, InDoubt: store.InDoubtCompensate, Status: reserve, Opens: 1},
			{Name: "charge", Compensable: true, InDoubt: store.InDoubtHalt, Status: charge, Opens: 1},
			{Name: "ship", InDoubt: store.InDoubtIgnore, Status: ship},
		}
	}
	order := func(id uuid.UUID, status store.Status, step string, started time.Duration) *store.Execution {
		return &store.Execution{
			ID: id, Saga: "shop.order", Version: 2, Partition: "shop", Resource: store.Resource{Type: "order", ID: id.String()[34:]},
			Status: status, Direction: store.DirectionExecute, Step: step, State: json.RawMessage(`{"order":"4711","email":"ann@example.org"}`),
			CreatedAt: ago(started), UpdatedAt: ago(started), ProgressAt: ago(started),
		}
	}
	try := func(x *store.Execution, step string, d store.Direction, n int, from, to time.Duration, s store.AttemptStatus, f *store.Failure) store.Attempt {
		return store.Attempt{
			Execution: x.ID, Step: step, Direction: d, Number: n, Worker: "web-1:77/ab12", Status: s,
			StartedAt: ago(from), FinishedAt: at(to), LeaseUntil: ago(from - 30*time.Second), Failure: f,
		}
	}
	const hour = time.Hour
	declined := &store.Failure{Class: "declined", Message: "card declined: \x1b[2Jinsufficient funds", Step: "charge"}
	lost := &store.Failure{Class: "timeout", Message: "no answer from the bank", Step: "charge"}
	refund := &store.Failure{Class: "gateway", Message: "refund refused", Step: "charge"}

	done := order(completed, store.StatusCompleted, "ship", 48*hour)
	done.Ledger, done.FinishedAt = plan(store.StepDone, store.StepDone, store.StepDone), at(48*hour-2*time.Second)
	works := order(atWork, store.StatusRunning, "charge", 90*time.Second)
	works.Ledger, works.DueAt = plan(store.StepDone, store.StepPending, store.StepPending), at(-25*time.Second)
	works.Attempt = &store.OpenAttempt{
		Number: 1, Worker: "web-2:78/cd34", StartedAt: ago(80 * time.Second), LeaseUntil: ago(-25 * time.Second),
		Progress: &store.Progress{Done: 3, Total: 10, Note: "asking the bank", At: ago(5 * time.Second)},
	}
	parked := order(halted, store.StatusHalted, "charge", 3*hour)
	parked.Ledger, parked.Failure = plan(store.StepDone, store.StepInDoubt, store.StepPending), lost
	parked.Direction, parked.Cause, parked.Reason = store.DirectionCompensate, lost, "charge is in doubt"
	bad := order(failed, store.StatusFailed, "charge", 5*hour)
	bad.Ledger, bad.Failure, bad.Cause, bad.FinishedAt, bad.Epoch = plan(store.StepPending, store.StepPending, store.StepPending), declined, declined, at(4*hour), 1
	undo := order(stuckUndo, store.StatusCompensationFailed, "charge", 26*hour)
	undo.Saga, undo.Partition, undo.Resource.Type, undo.Key = "hotel.booking", "hotel", "booking", "room-7"
	undo.Direction, undo.Failure, undo.Cause, undo.FinishedAt = store.DirectionCompensate, refund, lost, at(25*hour)
	undo.Ledger = plan(store.StepDone, store.StepDone, store.StepPending)

	for _, row := range []struct {
		x *store.Execution
		c store.Change
	}{
		{done, store.Change{Attempts: []store.Attempt{
			try(done, "reserve", store.DirectionExecute, 1, 48*hour, 48*hour-time.Second, store.AttemptSucceeded, nil),
			try(done, "charge", store.DirectionExecute, 1, 48*hour-time.Second, 48*hour-2*time.Second, store.AttemptSucceeded, nil),
		}}},
		{works, store.Change{Attempts: []store.Attempt{
			try(works, "reserve", store.DirectionExecute, 1, 90*time.Second, 80*time.Second, store.AttemptSucceeded, nil),
		}}},
		{parked, store.Change{Attempts: []store.Attempt{
			try(parked, "charge", store.DirectionExecute, 1, 3*hour, 3*hour-time.Minute, store.AttemptFailed, lost),
		}}},
		{bad, store.Change{
			Attempts: []store.Attempt{try(bad, "charge", store.DirectionExecute, 1, 5*hour, 5*hour-1500*time.Millisecond, store.AttemptFailed, declined)},
			Audit: []store.AuditEntry{
				{Execution: failed, At: ago(4*hour + 30*time.Minute), Act: "halt", Actor: "bob", Reason: "the bank is down", Before: store.StatusRunning, After: store.StatusHalted},
				{Execution: failed, At: ago(4 * hour), Act: "resume", Actor: "bob", Reason: "and up again", Before: store.StatusHalted, After: store.StatusRunning},
			},
		}},
		{undo, store.Change{Attempts: []store.Attempt{
			try(undo, "charge", store.DirectionCompensate, 1, 26*hour, 25*hour, store.AttemptFailed, refund),
		}}},
	} {
		err := st.Create(ctx, row.x)
		if err == nil {
			_, err = st.WithLock(ctx, row.x.ID, func(*store.Execution) (store.Change, error) { return row.c, nil })
		}
		if err != nil {
			return err
		}
	}
	return nil
}
