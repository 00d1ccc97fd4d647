package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var attemptFaults = map[string]func(f *faulty){
	"AttemptsInOrder": func(f *faulty) {
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			slices.SortStableFunc(list, func(a, b store.Attempt) int { return a.StartedAt.Compare(b.StartedAt) })
			return list, err
		}
	},
	"AttemptsShowTheOpenOne": func(f *faulty) {
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			return slices.DeleteFunc(list, func(a store.Attempt) bool { return a.Status == store.AttemptRunning }), err
		}
	},
	"AttemptsAtOneMoment": func(f *faulty) {
		// The open one is read some time after the history.
		old := map[uuid.UUID][]store.Attempt{}
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			history := old[id]
			old[id] = slices.Clone(list[:len(list)-1])
			return append(history, list[len(list)-1]), err
		}
	},
	"AttemptsOfUnknown": func(f *faulty) {
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			if _, err := f.Store.Get(ctx, id); err != nil {
				return nil, err
			}
			return f.Store.Attempts(ctx, id)
		}
	},
	"AttemptsBelongToOne": func(f *faulty) {
		var all []store.Attempt
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			all = append(all, list...)
			return all, err
		}
	},
	"AttemptIsKept": changes(func(c *store.Change) {
		for i := range c.Attempts {
			if c.Attempts[i].Failure == nil {
				c.Attempts[i].Failure = &store.Failure{}
			}
		}
	}),
	"AttemptIsKnownByItsKey": changes(func(c *store.Change) {
		seen := map[string]bool{}
		c.Attempts = slices.DeleteFunc(c.Attempts, func(a store.Attempt) bool { // the epoch is forgotten
			k := fmt.Sprint(a.Step, a.Direction, a.Number)
			known := seen[k]
			seen[k] = true
			return known
		})
	}),
	"ClosedAttemptIsNotRewritten": func(f *faulty) {
		written := map[string]store.AttemptStatus{}
		key := func(a store.Attempt) string { return fmt.Sprint(a.Execution, a.Step, a.Number) }
		changes(func(c *store.Change) {
			for _, a := range c.Attempts {
				written[key(a)] = a.Status
			}
		})(f)
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			for i := range list {
				list[i].Status = written[key(list[i])]
			}
			return list, err
		}
	},
	"LateResultIsTakenOnce": func(f *faulty) {
		var last store.AttemptStatus
		changes(func(c *store.Change) {
			for _, a := range c.Attempts {
				last = cmp.Or(a.LateStatus, last)
			}
		})(f)
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			for i := range list {
				list[i].LateStatus = last
			}
			return list, err
		}
	},
	"AuditIsKept": changes(func(c *store.Change) {
		for i := range c.Audit {
			c.Audit[i].After = c.Audit[i].Before
		}
	}),
	"AuditInOrder": func(f *faulty) {
		f.audit = func(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
			list, err := f.Store.Audit(ctx, id)
			slices.SortStableFunc(list, func(a, b store.AuditEntry) int { return a.At.Compare(b.At) })
			return list, err
		}
	},
}
