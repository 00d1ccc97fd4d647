package storetest

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var changeFaults = map[string]func(f *faulty){
	"ChangeIsRefused": changes(func(c *store.Change) {
		c.Attempts = slices.DeleteFunc(c.Attempts, func(a store.Attempt) bool { return a.Status == store.AttemptRunning })
	}),
	"ChangeCreates": changes(func(c *store.Change) { c.Create = c.Create[:min(len(c.Create), 1)] }),
	"ChangeCreateFails": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			var wake []store.Wake
			x, err := f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				wake, c.Wake = c.Wake, nil
				return c, err
			})
			if len(wake) > 0 { // in a transaction of its own
				_, _ = f.Store.WithLock(ctx, id, func(*store.Execution) (store.Change, error) { return store.Change{Wake: wake}, nil })
			}
			return x, err
		}
	},
	"ChangeWakes": func(f *faulty) {
		changes(func(c *store.Change) {
			for i, w := range c.Wake { // later ones stay
				if x, _ := f.Store.Get(context.Background(), w.ID); x != nil && x.DueAt != nil && x.Attempt == nil {
					c.Wake[i].At = *x.DueAt
				}
			}
		})(f)
	},
	"ChangeWakesOnlyWhatCanGoOn": func(f *faulty) {
		changes(func(c *store.Change) {
			c.Wake = slices.DeleteFunc(c.Wake, func(w store.Wake) bool {
				x, _ := f.Store.Get(context.Background(), w.ID)
				if x == nil || x.Status != store.StatusHalted {
					return false
				}
				_, _ = f.Store.WithLock(context.Background(), w.ID, func(x *store.Execution) (store.Change, error) {
					x.DueAt = &w.At
					return store.Change{}, nil
				})
				return true
			})
		})(f)
	},
	"WakeWaitsForLock": changes(func(c *store.Change) { c.Wake = nil }),
	"WakesOfEachOther": changes(func(c *store.Change) { c.Wake = nil }),
	"ChangeIsAtomic": func(f *faulty) {
		held := map[uuid.UUID][]store.AuditEntry{} // until the next write
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				c.Audit, held[id] = held[id], c.Audit
				return c, err
			})
		}
	},
	"SameState": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				c.SameState = true
				return c, err
			})
		}
	},
}
