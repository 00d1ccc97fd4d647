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

func deleter(e *env) store.Deleter {
	e.Helper()
	return ability[store.Deleter](e, "Deleter")
}

// version says which execution to delete.
func version(x *store.Execution) store.Version { return store.Version{ID: x.ID, Revision: x.Revision} }

// remove deletes executions and checks the answers.
func (e *env) remove(d store.Deleter, what string, versions []store.Version, want ...bool) {
	e.Helper()
	got, err := d.Delete(e.Context(), versions)
	e.ok(err)
	e.same(what, got, want)
}

// finished ends an execution.
func finished(x *store.Execution) {
	x.Status, x.DueAt, x.FinishedAt = store.StatusCompleted, nil, at(0)
}

// gone checks that nothing is left of an execution.
func (e *env) gone(x *store.Execution) {
	e.Helper()
	if _, err := e.s.Get(e.Context(), x.ID); !errors.Is(err, store.ErrNotFound) {
		e.Errorf("Get of a deleted execution: got error %v, want %v", err, store.ErrNotFound)
	}
	_, err := e.s.WithLock(e.Context(), x.ID, func(*store.Execution) (store.Change, error) {
		e.Errorf("WithLock of a deleted execution called fn")
		return store.Change{}, store.ErrUnchanged
	})
	e.is(err, store.ErrNotFound)
	if a, ok := store.As[store.Advancer](e.s); ok {
		e.is(a.Advance(e.Context(), x.Clone(), store.Change{}), store.ErrConflict)
	}
	if a, b := len(e.attempts(x.ID)), len(e.audit(x.ID)); a+b > 0 {
		e.Errorf("%d attempts and %d audit entries of a deleted execution are left", a, b)
	}
	list, err := e.s.ForResource(e.Context(), x.Resource, 1000)
	e.ok(err)
	for _, y := range list {
		if y.ID == x.ID {
			e.Errorf("ForResource returns a deleted execution")
		}
	}
	if q, ok := store.As[store.Querier](e.s); ok {
		if n := len(e.list(q, store.Filter{IDs: []uuid.UUID{x.ID}}, store.Page{}).Executions); n > 0 {
			e.Errorf("List returns a deleted execution")
		}
	}
}

var deleteCases = []testCase{
	{
		name:    "DeleteRemoves",
		promise: "Delete removes each of these executions, with its attempts and audit entries.",
		run: func(e *env) {
			d := deleter(e)
			recorded := func(x *store.Execution) *store.Execution {
				return e.update(x.ID, func(x *store.Execution) store.Change {
					return store.Change{Attempts: []store.Attempt{closed(x.ID, "pay", 1)}, Audit: []store.AuditEntry{requested(x.ID, "r")}}
				})
			}
			x := recorded(e.create(finished, func(x *store.Execution) { x.Status, x.Key = store.StatusCompensationFailed, "k" }))
			full := e.full()
			full.Status, full.Resource = store.StatusFailed, x.Resource
			e.ok(e.s.Create(e.Context(), full))
			full = recorded(full)
			other := recorded(e.create(finished))
			was := e.stored(other.ID)
			e.remove(d, "answers", []store.Version{version(full), version(x)}, true, true)
			e.gone(x)
			e.gone(full)
			e.untouched("Delete of others", other.ID, was)
			e.create(func(y *store.Execution) { y.Key = "k" }) // the key is free

			// The id is free too, and what was recorded under it forgotten.
			again := e.create(finished, func(y *store.Execution) { y.ID = x.ID })
			e.same("after its id was used again", e.stored(x.ID), record{Execution: again})
			e.ok(e.ways()["WithLock"](x.ID, store.Change{Audit: []store.AuditEntry{requested(x.ID, "r")}}))
		},
	},
	{
		name:    "DeleteOnlyWhatIsFinished",
		promise: "Delete removes an execution if it is finished and its revision is still the given one. It answers for each, in the order given, whether it was removed.",
		run: func(e *env) {
			d := deleter(e)
			var versions []store.Version
			var want []bool
			var list []*store.Execution
			add := func(x *store.Execution, v store.Version, removed bool) {
				versions, want, list = append(versions, v), append(want, removed), append(list, x)
			}
			for _, status := range store.Statuses() {
				x := e.create(func(x *store.Execution) { x.Status = status })
				add(x, version(x), status.Finished())
				add(nil, store.Version{ID: uuid.Must(uuid.NewV7()), Revision: 1}, false)
			}
			for _, revision := range []int64{0, 1, 3} {
				x := e.create(finished)
				x = e.update(x.ID, func(*store.Execution) store.Change { return store.Change{} })
				add(x, store.Version{ID: x.ID, Revision: revision}, false)
			}
			e.remove(d, "answers", versions, want...)
			for i, x := range list {
				switch {
				case x == nil:
				case want[i]:
					e.gone(x)
				default:
					e.same("what was not to be removed", e.get(x.ID), x)
				}
			}
			e.remove(d, "of nothing", nil)
		},
	},
	{
		name:    "DeleteTwice",
		promise: "A version given twice is removed once, and the second answer is false.",
		run: func(e *env) {
			d := deleter(e)
			x, y := e.create(finished), e.create(finished)
			got, err := d.Delete(e.Context(), []store.Version{version(x), {ID: y.ID, Revision: 7}, version(x), version(y)})
			e.ok(err)
			if want := []bool{true, false, false, true}; !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			e.gone(x)
			e.gone(y)
			e.remove(d, "of what is gone", []store.Version{version(x), version(y)}, false, false)
		},
	},
	{
		name:    "DeleteMany",
		promise: "Delete removes any number of executions, all in one transaction.",
		run: func(e *env) {
			d := deleter(e)
			var versions []store.Version
			var want []bool
			var list []*store.Execution
			for i := range 3000 {
				if i%150 == 7 {
					x := e.create(finished)
					list = append(list, x)
					versions, want = append(versions, version(x)), append(want, true)
				} else {
					versions, want = append(versions, store.Version{ID: uuid.New(), Revision: 1}), append(want, false)
				}
			}
			e.remove(d, "answers", versions, want...)
			for _, x := range list {
				e.gone(x)
			}
		},
	},
	{
		name:    "DeletePassesLocked",
		promise: "Delete does not wait for rows that are locked: these are not removed. A store with a single writer may wait.",
		run: func(e *env) {
			d := deleter(e)
			locked, free := e.create(finished), e.create(finished)
			versions := []store.Version{version(locked), version(free)}
			release := e.hold(locked.ID, nil)
			ctx, cancel := context.WithTimeout(e.Context(), e.patience)
			if e.opts.SingleWriter {
				ctx, cancel = context.WithTimeout(e.Context(), e.deadline)
			}
			defer cancel()
			var got []bool
			err := e.finish("Delete", func() (err error) { got, err = d.Delete(ctx, versions); return err })
			release()
			if e.opts.SingleWriter && errors.Is(err, context.DeadlineExceeded) { // it waited
				e.remove(d, "after the lock", versions, true, true)
				return
			}
			e.ok(err)
			e.same("while the first was locked", got, []bool{false, true})
			e.same("the locked one", e.get(locked.ID), locked)
			e.gone(free)
			e.remove(d, "after the lock", versions, true, false)
			e.gone(locked)
		},
	},
	{
		name:    "DeleteRace",
		promise: "Of simultaneous Deletes of one version exactly one removes it.",
		run: func(e *env) {
			d := deleter(e)
			for range 5 {
				x := e.create(finished)
				lost := errors.New("not removed")
				e.one(race(func(int) error {
					got, err := d.Delete(e.Context(), []store.Version{version(x)})
					if err == nil && (len(got) != 1 || !got[0]) {
						err = lost
					}
					return err
				}), func(err error) bool { return errors.Is(err, lost) })
				e.gone(x)
			}
		},
	},
	{
		name:    "DeleteOrWrite",
		promise: "Delete removes an execution only if its revision is still the given one: of a Delete and a write at once one succeeds.",
		run: func(e *env) {
			d := deleter(e)
			for range 30 {
				x := e.create(finished)
				var removed bool
				var written error
				var both sync.WaitGroup
				start := make(chan struct{})
				both.Go(func() {
					<-start
					got, err := d.Delete(e.Context(), []store.Version{version(x)})
					removed = err == nil && len(got) == 1 && got[0]
					if err != nil {
						e.Errorf("Delete returned error %v", err)
					}
				})
				both.Go(func() {
					<-start
					_, written = e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
						x.UpdatedAt = x.UpdatedAt.Add(time.Second)
						return store.Change{Audit: []store.AuditEntry{entry(x.ID, "act")}}, nil
					})
				})
				close(start)
				both.Wait()
				switch {
				case removed:
					e.is(written, store.ErrNotFound)
					e.gone(x)
				default:
					e.ok(written)
					if got := e.get(x.ID); got.Revision != 2 {
						e.Errorf("after the write the revision is %d", got.Revision)
					}
				}
			}
		},
	},
	{
		name:    "DeleteEnds",
		promise: "Every method honours ctx; the ctx's own error is returned where that ended the call: from Delete too, and nothing is removed.",
		run: func(e *env) {
			d := deleter(e)
			x := e.create(finished)
			was := e.stored(x.ID)
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			_, err := d.Delete(ctx, []store.Version{version(x)})
			e.is(err, context.Canceled)
			e.untouched("Delete", x.ID, was)
		},
	},
}
