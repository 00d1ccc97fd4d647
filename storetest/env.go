package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// base is the time around which everything happens.
var base = time.Date(2026, 3, 4, 5, 6, 7, 891234000, time.UTC)

func at(d time.Duration) *time.Time {
	t := base.Add(d)
	return &t
}

// writers is how many goroutines take part in a race.
const writers = 16

// execution returns a plain running execution that is not stored yet.
func (e *env) execution(change ...func(*store.Execution)) *store.Execution {
	x := &store.Execution{
		ID: uuid.Must(uuid.NewV7()), Saga: e.tag + "-saga", Version: 1, Partition: e.tag,
		Resource: store.Resource{Type: "order", ID: e.tag},
		Status:   store.StatusRunning, Direction: store.DirectionExecute, Step: "pay",
		Ledger: []store.LedgerEntry{
			{Name: "pay", Compensable: true, InDoubt: store.InDoubtCompensate, Status: store.StepPending},
			{Name: "ship", InDoubt: store.InDoubtIgnore, Status: store.StepPending},
		},
		State: []byte(`{"total": 12}`), DueAt: at(0),
		CreatedAt: base, UpdatedAt: base, ProgressAt: base,
	}
	for _, f := range change {
		f(x)
	}
	return x
}

// opened gives an execution an open attempt.
func opened(x *store.Execution) {
	x.Attempt = &store.OpenAttempt{Number: 1, Worker: "w1", StartedAt: base, LeaseUntil: *at(30 * time.Second)}
	x.Ledger[0].Opens = 1
}

// create stores a plain running execution.
func (e *env) create(change ...func(*store.Execution)) *store.Execution {
	e.Helper()
	x := e.execution(change...)
	e.ok(e.s.Create(e.Context(), x))
	return x
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("got error %v", err)
	}
}

// is checks an error against the one the contract names.
func (e *env) is(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("got error %v, want %v", err, want)
	}
}

func (e *env) keyTaken(err error, saga, key string, holder uuid.UUID) {
	e.Helper()
	taken, ok := errors.AsType[*store.KeyTakenError](err)
	if !ok {
		e.Errorf("got error %v, want a *KeyTakenError", err)
		return
	}
	if want := (store.KeyTakenError{Saga: saga, Key: key, Execution: holder}); *taken != want {
		e.Errorf("got %+v, want %+v", *taken, want)
	}
}

func (e *env) get(id uuid.UUID) *store.Execution {
	e.Helper()
	x, err := e.s.Get(e.Context(), id)
	e.ok(err)
	if x == nil {
		e.Fatalf("got no execution and no error")
	}
	return x
}

func (e *env) attempts(id uuid.UUID) []store.Attempt {
	e.Helper()
	list, err := e.s.Attempts(e.Context(), id)
	e.ok(err)
	return list
}

func (e *env) audit(id uuid.UUID) []store.AuditEntry {
	e.Helper()
	list, err := e.s.Audit(e.Context(), id)
	e.ok(err)
	return list
}

// update changes an execution under its lock.
func (e *env) update(id uuid.UUID, change func(x *store.Execution) store.Change) *store.Execution {
	e.Helper()
	x, err := e.s.WithLock(e.Context(), id, func(x *store.Execution) (store.Change, error) {
		return change(x), nil
	})
	e.ok(err)
	if x == nil {
		e.Fatalf("WithLock returned no execution and no error")
	}
	return x
}

// record writes attempts.
func (e *env) record(id uuid.UUID, list ...store.Attempt) {
	e.Helper()
	e.update(id, func(*store.Execution) store.Change { return store.Change{Attempts: list} })
}

// closed returns a closed attempt.
func closed(id uuid.UUID, step string, number int) store.Attempt {
	return store.Attempt{
		Execution: id, Step: step, Direction: store.DirectionExecute, Number: number, Worker: "w1",
		Status: store.AttemptSucceeded, StartedAt: base, FinishedAt: at(time.Second), LeaseUntil: *at(time.Minute),
	}
}

func entry(id uuid.UUID, act string) store.AuditEntry {
	return store.AuditEntry{Execution: id, At: base, Act: act, Actor: "ann", Reason: "because",
		Before: store.StatusRunning, After: store.StatusHalted}
}

// same checks that two executions, attempts, or lists are equal.
func (e *env) same(what string, got, want any) {
	e.Helper()
	if d := diff(got, want); d != "" {
		e.Errorf("%s: %s", what, d)
	}
}

// A record is all that is stored of an execution.
type record struct {
	Execution *store.Execution
	Attempts  []store.Attempt
	Audit     []store.AuditEntry
}

func (e *env) stored(id uuid.UUID) record {
	e.Helper()
	r := record{e.get(id).Clone(), nil, slices.Clone(e.audit(id))} // in case the store gives out its own
	for _, a := range e.attempts(id) {
		r.Attempts = append(r.Attempts, a.Clone())
	}
	return r
}

// untouched checks that an execution is as it was.
func (e *env) untouched(what string, id uuid.UUID, was record) {
	e.Helper()
	e.same(what+": nothing was to be written", e.stored(id), was)
}

// absent checks that an execution is not there.
func (e *env) absent(id uuid.UUID) {
	e.Helper()
	if _, err := e.s.Get(e.Context(), id); !errors.Is(err, store.ErrNotFound) {
		e.Errorf("Get of an execution that was not to be created: got error %v, want %v", err, store.ErrNotFound)
	}
}

// free checks that the lock of an execution can be taken.
func (e *env) free(id uuid.UUID) {
	e.Helper()
	e.soon("taking the lock that was to be free", func(ctx context.Context) error {
		_, err := e.s.WithLock(ctx, id, func(*store.Execution) (store.Change, error) {
			return store.Change{}, store.ErrUnchanged
		})
		return err
	})
}

// soon runs what must not have to wait.
func (e *env) soon(what string, f func(ctx context.Context) error) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.patience)
	defer cancel()
	if err := e.finish(what, func() error { return f(ctx) }); err != nil {
		e.Errorf("%s: got error %v", what, err)
	}
}

// finish runs what may wait, but not for ever, and returns its error.
func (e *env) finish(what string, f func() error) error {
	e.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	timer := time.NewTimer(e.patience + e.patience/10)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		e.Fatalf("%s: did not end", what)
		return nil
	}
}

// waits checks that a call waits, as for a lock that is held, until its ctx
// ends, and then returns the error of that.
func (e *env) waits(what string, f func(ctx context.Context) error) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.deadline)
	defer cancel()
	if err := e.finish(what, func() error { return f(ctx) }); !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("%s: got error %v, want %v", what, err, context.DeadlineExceeded)
	}
}

// hold takes the lock of an execution and returns when it has it. release runs
// change, gives the lock back and waits until that is done.
func (e *env) hold(id uuid.UUID, change func(x *store.Execution) (store.Change, error)) (release func()) {
	e.Helper()
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ctx := context.WithoutCancel(e.Context())
	go func() {
		_, err := e.s.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
			close(entered)
			<-leave
			if change == nil {
				return store.Change{}, store.ErrUnchanged
			}
			return change(x)
		})
		done <- err
	}()
	release = sync.OnceFunc(func() {
		close(leave)
		if err := <-done; err != nil {
			e.Errorf("the holder of the lock: got error %v", err)
		}
	})
	select {
	case <-entered:
	case err := <-done:
		e.Fatalf("WithLock returned error %v without calling fn", err)
	}
	e.Cleanup(release)
	return release
}

// race runs f in many goroutines at once and returns their errors.
func race(f func(i int) error) []error {
	errs := make([]error, writers)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range errs {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			errs[i] = f(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	return errs
}

// ability returns an optional ability of the store, or skips the case.
func ability[T any](e *env, name string) T {
	e.Helper()
	a, ok := store.As[T](e.s)
	if !ok && slices.Contains(e.opts.Require, name) {
		e.Fatalf("the store is no store.%s, which Options.Require asks for", name)
	}
	if !ok {
		e.Skipf("NOT TESTED: the store is no store.%s", name)
	}
	return a
}
