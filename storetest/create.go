package storetest

import (
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var identityCases = []testCase{
	{
		name:    "IDIsStable",
		promise: "ID returns the identity of this store: a random UUID made when the store was created.",
		run: func(e *env) {
			first, err := e.s.ID(e.Context())
			e.ok(err)
			if first == uuid.Nil {
				e.Errorf("the ID is the nil UUID")
			}
			again, err := e.s.ID(e.Context())
			e.ok(err)
			if first != again {
				e.Errorf("the ID was %s, then %s", first, again)
			}
			other, err := e.newStore().ID(e.Context())
			e.ok(err)
			if first == other {
				e.Errorf("two stores have the same ID %s", first)
			}
		},
	},
	{
		name:    "IDSurvivesReopening",
		promise: "The ID is the same for every process that opens the store and for its whole life.",
		run: func(e *env) {
			if e.reopen == nil {
				e.Skipf("Options.Reopen is nil")
			}
			first, err := e.s.ID(e.Context())
			e.ok(err)
			again, err := e.reopen().ID(e.Context())
			e.ok(err)
			if first != again {
				e.Errorf("the ID was %s, and %s after opening the store again", first, again)
			}
		},
	},
	{
		name:    "ReopenedSeesAll",
		promise: "A store is where the truth lives: another process that opens it finds what was written.",
		run: func(e *env) {
			if e.reopen == nil {
				e.Skipf("Options.Reopen is nil")
			}
			x := e.create(opened)
			e.record(x.ID, closed(x.ID, "pay", 1))
			want := e.stored(x.ID)
			e.s = e.reopen()
			e.same("after opening the store again", e.stored(x.ID), want)
		},
	},
	{
		name:    "Now",
		promise: "Now returns the store's clock, in UTC, cut to microseconds.",
		run: func(e *env) {
			var last time.Time
			for range 20 {
				now, err := e.s.Now(e.Context())
				e.ok(err)
				if now.Location() != time.UTC {
					e.Errorf("got a time in %v", now.Location())
				}
				if !now.Equal(now.Truncate(time.Microsecond)) {
					e.Errorf("got %v, which is finer than a microsecond", now)
				}
				if d := time.Since(now).Abs(); d > 5*time.Minute {
					e.Errorf("got %v, which is %v away from this process's clock", now, d)
				}
				if now.Before(last.Add(-time.Second)) {
					e.Errorf("the clock went back from %v to %v", last, now)
				}
				last = now
			}
		},
	},
}

var createCases = []testCase{
	{
		name:    "CreateSetsRevision",
		promise: "Create inserts x with revision 1 and sets x.Revision to 1.",
		run: func(e *env) {
			x := e.create(func(x *store.Execution) { x.Revision = 7 })
			if x.Revision != 1 {
				e.Errorf("x.Revision is %d after Create, want 1", x.Revision)
			}
			e.same("Get", e.get(x.ID), x)
		},
	},
	{
		name:    "CreateExists",
		promise: "Create returns ErrExists when an execution with this id exists, whatever its content.",
		run: func(e *env) {
			x := e.create()
			was := e.stored(x.ID)
			e.is(e.s.Create(e.Context(), was.Execution), store.ErrExists)
			e.is(e.s.Create(e.Context(), e.execution(func(y *store.Execution) { y.ID, y.Step = x.ID, "ship" })), store.ErrExists)
			e.untouched("Create of an existing id", x.ID, was)
		},
	},
	{
		name:    "CreateExistsRace",
		promise: "Of any number of simultaneous Creates of one id one succeeds, and the others return ErrExists.",
		run: func(e *env) {
			x := e.execution()
			e.one(race(func(int) error { return e.s.Create(e.Context(), x.Clone()) }), func(err error) bool { return errors.Is(err, store.ErrExists) })
		},
	},
	{
		name:    "CreateKeyTaken",
		promise: "Create returns *KeyTakenError when x.Key is not empty and another execution of the same saga holds that key.",
		run: func(e *env) {
			x := e.create(func(x *store.Execution) { x.Key = "k" })
			y := e.execution(func(x *store.Execution) { x.Key = "k" })
			e.keyTaken(e.s.Create(e.Context(), y), x.Saga, "k", x.ID)
			e.absent(y.ID)
			e.create(func(x *store.Execution) { x.Key = "K" })
			e.create(func(x *store.Execution) { x.Key = "k"; x.Saga = e.tag + "-other" })
			e.create()
			e.create() // no key is no key
		},
	},
	{
		name:    "CreateExistsAndKeyTaken",
		promise: "When both are true, ErrExists.",
		run: func(e *env) {
			x := e.create(func(x *store.Execution) { x.Key = "k" })
			e.is(e.s.Create(e.Context(), x), store.ErrExists)
			y := e.create(func(x *store.Execution) { x.Key = "other" })
			y.Key = "k"
			e.is(e.s.Create(e.Context(), y), store.ErrExists)
		},
	},
	{
		name:    "CreateKeyRace",
		promise: "A start key is held by one execution: of simultaneous Creates with one key exactly one succeeds.",
		run: func(e *env) {
			var list []*store.Execution
			for range writers {
				list = append(list, e.execution(func(x *store.Execution) { x.Key = "k" }))
			}
			errs := race(func(i int) error { return e.s.Create(e.Context(), list[i]) })
			e.one(errs, func(err error) bool { _, ok := errors.AsType[*store.KeyTakenError](err); return ok })
			for i, err := range errs {
				if err == nil {
					e.get(list[i].ID)
				} else {
					e.absent(list[i].ID)
				}
			}
		},
	},
	{
		name:    "KeyIsFreed",
		promise: "Unfinished executions keep their start key from being used by another one of their saga, and compensation_failed ones; the others do not.",
		run: func(e *env) {
			for _, status := range store.Statuses() {
				key := "k-" + string(status)
				x := e.create(func(x *store.Execution) { x.Key = key })
				e.update(x.ID, func(x *store.Execution) store.Change {
					x.Status = status
					return store.Change{}
				})
				err := e.s.Create(e.Context(), e.execution(func(x *store.Execution) { x.Key = key }))
				if status.HoldsKey() {
					e.keyTaken(err, x.Saga, key, x.ID)
				} else if err != nil {
					e.Errorf("Create with the key of a %s execution: got error %v", status, err)
				}
			}
		},
	},
	{
		name:    "KeyIsTakenBack",
		promise: "Nothing is written when the changed execution is refused: one that would hold its key again, which another holds, with *KeyTakenError.",
		run: func(e *env) {
			x := e.create(func(x *store.Execution) { x.Key = "k"; x.Status = store.StatusFailed })
			y := e.create(func(x *store.Execution) { x.Key = "k" })
			was := e.stored(x.ID)
			retry := func(x *store.Execution) (store.Change, error) {
				x.Status = store.StatusRunning
				return store.Change{Audit: []store.AuditEntry{entry(x.ID, "retry")}}, nil
			}
			_, err := e.s.WithLock(e.Context(), x.ID, retry)
			e.keyTaken(err, x.Saga, "k", y.ID)
			e.untouched("WithLock", x.ID, was)

			e.update(y.ID, func(y *store.Execution) store.Change {
				y.Status = store.StatusCompleted
				return store.Change{}
			})
			_, err = e.s.WithLock(e.Context(), x.ID, retry)
			e.ok(err)
			e.keyTaken(e.s.Create(e.Context(), e.execution(func(x *store.Execution) { x.Key = "k" })), x.Saga, "k", x.ID)
		},
	},
	{
		name:    "GetNotFound",
		promise: "Get returns the execution as last committed, or ErrNotFound.",
		run: func(e *env) {
			_, err := e.s.Get(e.Context(), uuid.Must(uuid.NewV7()))
			e.is(err, store.ErrNotFound)
		},
	},
}

// one checks that one of many succeeded and the others failed as they should.
func (e *env) one(errs []error, expected func(error) bool) {
	e.Helper()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !expected(err) {
			e.Errorf("one that lost got error %v", err)
		}
	}
	if won != 1 {
		e.Errorf("%d of %d succeeded, want 1", won, len(errs))
	}
}
