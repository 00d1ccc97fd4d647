package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var lockCases = []testCase{
	{
		name:    "WithLockWrites",
		promise: "When fn returns nil, the changed execution is written, the revision rises by one, and WithLock returns the execution as written.",
		run: func(e *env) {
			x := e.create()
			for i := range 3 {
				var seen, want *store.Execution
				got := e.update(x.ID, func(x *store.Execution) store.Change {
					seen = x.Clone()
					x.Step, x.Tries, x.State = "ship", i+1, fmt.Appendf(nil, `{"i":%d}`, i)
					x.UpdatedAt = base.Add(time.Duration(i) * time.Second)
					want = x.Clone()
					return store.Change{}
				})
				e.same("what fn was given", seen, x)
				want.Revision++
				e.same("what WithLock returned", got, want)
				e.same("what Get returned", e.get(x.ID), want)
				x = want
			}
		},
	},
	{
		name:    "WithLockLosesNoUpdate",
		promise: "WithLock locks the execution exclusively, loads it, and calls fn with a copy.",
		run: func(e *env) {
			const each = 4
			x := e.create()
			var inside, overlaps atomic.Int32
			for _, err := range race(func(int) error {
				for range each {
					if _, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
						if inside.Add(1) > 1 {
							overlaps.Add(1)
						}
						x.Tries++
						inside.Add(-1)
						return store.Change{}, nil
					}); err != nil {
						return err
					}
				}
				return nil
			}) {
				e.ok(err)
			}
			got := e.get(x.ID)
			if want := writers * each; got.Tries != want || got.Revision != int64(1+want) {
				e.Errorf("after %d increments the value is %d and the revision %d", want, got.Tries, got.Revision)
			}
			if n := overlaps.Load(); n > 0 {
				e.Errorf("fn was entered %d times while another was inside", n)
			}
		},
	},
	{
		name:    "WithLockExcludes",
		promise: "While fn runs no other WithLock on this execution makes progress; a wait for the lock honours ctx.",
		run: func(e *env) {
			x := e.create()
			release := e.hold(x.ID, nil)
			e.waits("WithLock of a locked execution", func(ctx context.Context) error {
				_, err := e.s.WithLock(ctx, x.ID, func(*store.Execution) (store.Change, error) {
					e.Errorf("fn was called while another held the lock")
					return store.Change{}, store.ErrUnchanged
				})
				return err
			})
			release()
			e.free(x.ID)
		},
	},
	{
		name:    "WithLockIsPerExecution",
		promise: "A lock on one execution does not block a lock on another, unless the store has a single writer.",
		run: func(e *env) {
			if e.opts.SingleWriter {
				e.Skipf("Options.SingleWriter: a lock on one execution blocks a lock on another")
			}
			x, y := e.create(), e.create()
			release := e.hold(x.ID, nil)
			e.free(y.ID)
			e.soon("Create while another execution is locked", func(ctx context.Context) error {
				return e.s.Create(ctx, e.execution())
			})
			release()
		},
	},
	{
		name:    "ReadersDoNotWait",
		promise: "Get never waits for a lock held by WithLock; Get and the lists still answer with the old row.",
		run: func(e *env) {
			x := e.create(opened)
			e.record(x.ID, closed(x.ID, "pay", 7))
			was := e.stored(x.ID)
			release := e.hold(x.ID, func(x *store.Execution) (store.Change, error) {
				x.Step, x.Attempt = "ship", nil
				return store.Change{
					Attempts: []store.Attempt{closed(x.ID, "pay", 1)},
					Audit:    []store.AuditEntry{entry(x.ID, "halt")},
				}, nil
			})
			e.soon("reading a locked execution", func(ctx context.Context) error {
				got, err := e.s.Get(ctx, x.ID)
				if err != nil {
					return err
				}
				attempts, err := e.s.Attempts(ctx, x.ID)
				if err != nil {
					return err
				}
				audit, err := e.s.Audit(ctx, x.ID)
				if err != nil {
					return err
				}
				e.same("while it was locked", record{got, attempts, audit}, was)
				list, err := e.s.ForResource(ctx, x.Resource, 10)
				if err != nil {
					return err
				}
				e.same("ForResource while it was locked", list, []*store.Execution{was.Execution})
				_, err = e.s.Stalled(ctx, store.StalledQuery{ProgressBefore: base, Limit: 10})
				return err
			})
			release()
			if got := e.get(x.ID); got.Step != "ship" {
				e.Errorf("after the lock was given back the step is %q", got.Step)
			}
		},
	},
	{
		name:    "WithLockNotFound",
		promise: "WithLock returns ErrNotFound, without calling fn, when there is no such execution.",
		run: func(e *env) {
			_, err := e.s.WithLock(e.Context(), uuid.Must(uuid.NewV7()), func(*store.Execution) (store.Change, error) {
				e.Errorf("fn was called")
				return store.Change{}, store.ErrUnchanged
			})
			e.is(err, store.ErrNotFound)
		},
	},
	{
		name:    "WithLockFnError",
		promise: "Nothing is written when fn returns another error: WithLock returns that error (it can be found with errors.Is and errors.As).",
		run: func(e *env) {
			x := e.create()
			was := e.stored(x.ID)
			y := e.execution()
			cause := errors.New("cause")
			_, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
				x.Step = "ship"
				return store.Change{
					Attempts: []store.Attempt{closed(x.ID, "pay", 1)},
					Audit:    []store.AuditEntry{entry(x.ID, "halt")},
					Create:   []*store.Execution{y},
				}, &fnError{cause}
			})
			e.is(err, cause)
			if _, ok := errors.AsType[*fnError](err); !ok {
				e.Errorf("errors.As does not find fn's error in %v", err)
			}
			e.untouched("WithLock", x.ID, was)
			e.absent(y.ID)
			e.free(x.ID)
		},
	},
	{
		name:    "WithLockFnPanics",
		promise: "Nothing is written when fn panics: the panic goes on to the caller, and the lock is given back.",
		run: func(e *env) {
			x := e.create()
			was := e.stored(x.ID)
			func() {
				defer func() {
					if got := recover(); got != "boom" {
						e.Errorf("recovered %v, want what fn panicked with", got)
					}
				}()
				_, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
					x.Step = "ship"
					panic("boom")
				})
				e.Errorf("WithLock returned error %v, want a panic", err)
			}()
			e.untouched("WithLock", x.ID, was)
			e.free(x.ID)
		},
	},
	{
		name:    "WithLockFnCancels",
		promise: "Nothing is written when ctx is done before the write is committed: WithLock returns ctx's error.",
		run: func(e *env) {
			x := e.create()
			was := e.stored(x.ID)
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			_, err := e.s.WithLock(ctx, x.ID, func(x *store.Execution) (store.Change, error) {
				cancel()
				x.Step = "ship"
				return store.Change{Audit: []store.AuditEntry{entry(x.ID, "halt")}}, nil
			})
			e.is(err, context.Canceled)
			e.untouched("WithLock", x.ID, was)
			e.free(x.ID)
		},
	},
	{
		name:    "WithLockUnchanged",
		promise: "Nothing is written when fn returns ErrUnchanged: WithLock returns the execution as it was loaded, and no error.",
		run: func(e *env) {
			x := e.create()
			was := e.stored(x.ID)
			got, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
				x.Step, x.Ledger[0].Opens, x.State = "ship", 5, []byte(`{"x":1}`)
				return store.Change{Audit: []store.AuditEntry{entry(x.ID, "halt")}}, store.ErrUnchanged
			})
			e.ok(err)
			e.same("what WithLock returned", got, was.Execution)
			e.untouched("WithLock", x.ID, was)
			e.free(x.ID)
		},
	},
	{
		name:    "WithLockNested",
		promise: "A WithLock on the same execution from inside fn waits for itself until its own ctx ends.",
		run: func(e *env) {
			x := e.create()
			was := e.stored(x.ID)
			err := e.finish("the outer WithLock", func() error {
				_, err := e.s.WithLock(e.Context(), x.ID, func(outer *store.Execution) (store.Change, error) {
					ctx, cancel := context.WithTimeout(e.Context(), e.deadline)
					defer cancel()
					_, err := e.s.WithLock(ctx, x.ID, func(inner *store.Execution) (store.Change, error) {
						inner.Tries++
						return store.Change{}, nil
					})
					outer.Step = "ship"
					return store.Change{}, err
				})
				return err
			})
			e.is(err, context.DeadlineExceeded)
			e.untouched("the outer WithLock", x.ID, was)
			e.free(x.ID)
		},
	},
	{
		name:    "WithLockImmutable",
		promise: "fn must not change ID, CreatedAt or Revision: ErrInvalid.",
		run: func(e *env) {
			x := e.create()
			was := e.stored(x.ID)
			for name, change := range map[string]func(*store.Execution){
				"ID":        func(x *store.Execution) { x.ID = uuid.Must(uuid.NewV7()) },
				"CreatedAt": func(x *store.Execution) { x.CreatedAt = x.CreatedAt.Add(time.Second) },
				"Revision":  func(x *store.Execution) { x.Revision++ },
			} {
				_, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
					change(x)
					return store.Change{}, nil
				})
				e.is(err, store.ErrInvalid)
				e.untouched("WithLock that changed "+name, x.ID, was)
			}
		},
	},
	{
		name:    "DoneContext",
		promise: "Every method honours ctx; the ctx's own error is returned where that ended the call.",
		run: func(e *env) {
			x := e.create(opened)
			was := e.stored(x.ID)
			y := e.execution()
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			lease, _ := x.Lease()
			calls := map[string]func() error{
				"Create": func() error { return e.s.Create(ctx, y) },
				"Get":    func() error { _, err := e.s.Get(ctx, x.ID); return err },
				"WithLock": func() error {
					_, err := e.s.WithLock(ctx, x.ID, func(x *store.Execution) (store.Change, error) {
						x.Step = "ship"
						return store.Change{}, nil
					})
					return err
				},
				"Attempts": func() error { _, err := e.s.Attempts(ctx, x.ID); return err },
				"Audit":    func() error { _, err := e.s.Audit(ctx, x.ID); return err },
				"Stalled": func() error {
					_, err := e.s.Stalled(ctx, store.StalledQuery{ProgressBefore: base, Limit: 1})
					return err
				},
				"ForResource": func() error { _, err := e.s.ForResource(ctx, x.Resource, 1); return err },
				"ClaimDue": func() error {
					_, err := e.s.ClaimDue(ctx, store.DueQuery{Now: base, Hold: time.Hour, Limit: 1, Partition: e.tag})
					return err
				},
				"Renew": func() error {
					_, err := e.s.Renew(ctx, []store.Lease{lease}, renewal)
					return err
				},
			}
			if a, ok := store.As[store.Advancer](e.s); ok {
				calls["Advance"] = func() error { return a.Advance(ctx, x.Clone(), store.Change{}) }
			}
			if c, ok := store.As[store.Cells](e.s); ok {
				calls["Cell"] = func() error { _, _, err := c.Cell(ctx, e.tag); return err }
				calls["SetCell"] = func() error { _, err := c.SetCell(ctx, e.tag, []byte(`1`), 0); return err }
				calls["ListCells"] = func() error { _, err := c.ListCells(ctx, e.tag); return err }
			}
			for name, call := range calls {
				if err := call(); !errors.Is(err, context.Canceled) {
					e.Errorf("%s with a ctx that is done: got error %v, want %v", name, err, context.Canceled)
				}
			}
			e.untouched("calls with a ctx that is done", x.ID, was)
			e.absent(y.ID)
		},
	},
}

// An fnError is an error of its own type, around another one.
type fnError struct{ cause error }

func (e *fnError) Error() string { return "fn: " + e.cause.Error() }
func (e *fnError) Unwrap() error { return e.cause }
