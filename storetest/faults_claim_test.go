package storetest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store"
)

var claimFaults = map[string]func(f *faulty){
	"ClaimDueHolds": claims(func(*store.DueQuery) {}, func(list []*store.Execution) []*store.Execution {
		for _, x := range list {
			x.Revision++
		}
		return list
	}),
	"ClaimDueInOrder": claims(func(*store.DueQuery) {}, func(list []*store.Execution) []*store.Execution {
		slices.SortFunc(list, func(a, b *store.Execution) int { return bytes.Compare(a.ID[:], b.ID[:]) })
		return list
	}),
	"ClaimDueTakesWhatIsDue": claims(func(q *store.DueQuery) { q.Now = q.Now.Add(-time.Microsecond) },
		func(list []*store.Execution) []*store.Execution { return list }),
	"ClaimDueOfAPartition": claims(func(q *store.DueQuery) { q.Partition = "" },
		func(list []*store.Execution) []*store.Execution { return list }),
	"ClaimDueOnce": func(f *faulty) {
		var mu sync.Mutex
		var first []*store.Execution
		f.claimDue = func(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
			mu.Lock()
			defer mu.Unlock()
			list, err := f.Store.ClaimDue(ctx, q)
			if len(first) == 0 {
				first = list
			} else if len(list) > 0 {
				list = append(list[1:], first[0])
			}
			return list, err
		}
	},
	"ClaimDuePassesLocked": lockless,
	"ClaimDueRefuses": claims(func(q *store.DueQuery) { q.Limit = max(q.Limit, 1) },
		func(list []*store.Execution) []*store.Execution { return list }),
	"ClaimDuePassesPaused": func(f *faulty) {
		f.claimDue = func(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
			all := q
			all.NotPartitions, all.NotSagas = nil, nil
			list, err := f.Store.ClaimDue(ctx, all) // and then throws them away
			return slices.DeleteFunc(list, func(x *store.Execution) bool {
				return slices.Contains(q.NotPartitions, x.Partition) || slices.Contains(q.NotSagas, x.Saga)
			}), err
		}
	},
}
