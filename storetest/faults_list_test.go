package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var listFaults = map[string]func(f *faulty){
	"Stalled": func(f *faulty) {
		f.stalled = func(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
			q.ProgressBefore = q.ProgressBefore.Add(time.Microsecond) // at or before
			return f.Store.Stalled(ctx, q)
		}
	},
	"StalledInPages": func(f *faulty) {
		f.stalled = func(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
			if q.After != nil {
				q.After = &store.StalledCursor{ProgressAt: q.After.ProgressAt, ID: uuid.Max} // by time alone
			}
			return f.Store.Stalled(ctx, q)
		}
	},
	"ForResource": func(f *faulty) {
		f.forResource = func(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
			list, err := f.Store.ForResource(ctx, r, limit)
			r.ID += " " // as in columns that pad
			more, _ := f.Store.ForResource(ctx, r, limit)
			return append(list, more...), err
		}
	},
	"ForResourceNewestFirst": func(f *faulty) {
		f.forResource = func(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
			list, err := f.Store.ForResource(ctx, r, 1000)
			slices.Reverse(list)
			return list[:min(limit, len(list))], err
		}
	},
	"LimitsAreRefused": func(f *faulty) {
		f.forResource = func(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
			return f.Store.ForResource(ctx, r, max(limit, 1))
		}
	},
	"ListsAreWhole": func(f *faulty) {
		f.stalled = func(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
			list, err := f.Store.Stalled(ctx, q)
			for _, x := range list {
				x.Initial = nil
			}
			return list, err
		}
	},
}
