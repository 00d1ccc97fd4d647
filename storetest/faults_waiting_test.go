package storetest

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var waitingFaults = map[string]func(f *faulty){
	"LiveFindsTheHolder": func(f *faulty) { // it forgets those that wait for a person
		f.live = func(ctx context.Context, saga, key string) (*store.Execution, error) {
			x, err := f.Store.Live(ctx, saga, key)
			if err == nil && x.Status == store.StatusCompensationFailed {
				return nil, store.ErrNotFound
			}
			return x, err
		}
	},
	"ChildrenInPages": func(f *faulty) {
		f.children = func(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
			list, err := f.Store.Children(ctx, q)
			return slices.DeleteFunc(list, func(x *store.Execution) bool { return x.Status.Finished() }), err
		}
	},
	"WakeReleases": changes(func(c *store.Change) {
		for i := range c.Wake {
			c.Wake[i].Release = false
		}
	}),
	"ReleaseOfATakenKey": func(f *faulty) { // it takes the key away from who has it
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				c.Wake = slices.DeleteFunc(slices.Clone(c.Wake), func(w store.Wake) bool { return w.Release })
				return c, err
			})
		}
	},
	"KeyChangesHands": func(f *faulty) { // it looks before it writes
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				was := x.Clone()
				c, err := fn(x)
				for _, y := range c.Create {
					if y.HoldsKey() && was.HoldsKey() && y.Saga == was.Saga && y.Key == was.Key {
						return c, &store.KeyTakenError{Saga: y.Saga, Key: y.Key, Execution: was.ID}
					}
				}
				return c, err
			})
		}
	},
	"FixedFields": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				deadline := x.Deadline
				c, err := fn(x)
				x.Deadline = deadline // silently
				return c, err
			})
		}
	},
	"EraseEmptiesTags": func(f *faulty) {
		f.list = func(ctx context.Context, filter store.Filter, p store.Page) (*store.List, error) {
			tags := filter.Tags
			filter.Tags = nil
			l, err := f.Store.List(ctx, filter, p)
			if err == nil && len(tags) > 0 {
				l.Executions = slices.DeleteFunc(l.Executions, func(x *store.Execution) bool { return len(x.Tags) == 1 })
			}
			return l, err
		}
	},
	"ClaimDueOfSagas": claims(func(q *store.DueQuery) {
		if len(q.Sagas) == 0 {
			q.Sagas = nil
		}
	}, func(list []*store.Execution) []*store.Execution { return list }),
	"StalledAtAGate": func(f *faulty) {
		f.stalled = func(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
			kind := q.Gate
			if kind == "" {
				return f.Store.Stalled(ctx, q)
			}
			q.Gate, q.Limit = "", 1000
			list, err := f.Store.Stalled(ctx, q)
			return slices.DeleteFunc(list, func(x *store.Execution) bool { return x.Gate == nil || x.Gate.Kind != kind }), err
		}
	},
}
