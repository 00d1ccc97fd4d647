package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var lockFaults = map[string]func(f *faulty){
	"WithLockWrites": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			x, err := f.Store.WithLock(ctx, id, fn)
			x.Revision--
			return x, err
		}
	},
	"WithLockLosesNoUpdate": func(f *faulty) {
		var mu sync.Mutex
		var stale *store.Execution
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				mu.Lock()
				defer mu.Unlock()
				if stale == nil || x.Revision%2 == 0 {
					stale = x.Clone() // read before somebody else wrote
				}
				x.Tries = stale.Tries
				return fn(x)
			})
		}
	},
	"WithLockExcludes":       lockless,
	"WithLockIsPerExecution": func(f *faulty) { f.withLock = newSingleWriterOver(f.Store).WithLock },
	"ReadersDoNotWait": func(f *faulty) {
		var mu sync.Mutex
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				mu.Lock()
				defer mu.Unlock()
				return fn(x)
			})
		}
		f.audit = func(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
			mu.Lock()
			defer mu.Unlock()
			return f.Store.Audit(ctx, id)
		}
	},
	"WithLockNotFound": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			x, err := f.Store.WithLock(ctx, id, fn)
			if errors.Is(err, store.ErrNotFound) {
				_, _ = fn(&store.Execution{ID: id})
			}
			return x, err
		}
	},
	"WithLockFnError": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			x, err := f.Store.WithLock(ctx, id, fn)
			if err != nil {
				err = fmt.Errorf("rolled back: %v", err)
			}
			return x, err
		}
	},
	"WithLockFnPanics": locks(func(fn lockFunc, x *store.Execution) (c store.Change, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return fn(x)
	}),
	"WithLockFnCancels": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(context.WithoutCancel(ctx), id, fn)
		}
	},
	"WithLockUnchanged": locks(func(fn lockFunc, x *store.Execution) (store.Change, error) {
		c, err := fn(x)
		if errors.Is(err, store.ErrUnchanged) {
			return c, nil
		}
		return c, err
	}),
	"WithLockNested": func(f *faulty) {
		var inside *store.Execution // the lock lets its holder in again
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			if inside != nil {
				_, err := fn(inside)
				return inside.Clone(), err
			}
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				inside = x
				defer func() { inside = nil }()
				return fn(x)
			})
		}
	},
	"WithLockImmutable": locks(func(fn lockFunc, x *store.Execution) (store.Change, error) {
		id, created, revision := x.ID, x.CreatedAt, x.Revision
		c, err := fn(x)
		x.ID, x.CreatedAt, x.Revision = id, created, revision
		return c, err
	}),
	"DoneContext": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			return f.Store.Renew(context.WithoutCancel(ctx), leases, r)
		}
	},
}
