package storetest

import (
	"context"
	"errors"

	"github.com/leveret-go/leveret/store"
)

var advanceFaults = map[string]func(f *faulty){
	"AdvanceWrites": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			return f.Store.Advance(ctx, x.Clone(), c)
		}
	},
	"AdvanceConflicts": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			if err := f.Store.Advance(ctx, x, c); !errors.Is(err, store.ErrConflict) {
				return err
			}
			_, err := f.Store.WithLock(ctx, x.ID, func(*store.Execution) (store.Change, error) {
				return store.Change{Audit: c.Audit}, nil
			})
			return errors.Join(store.ErrConflict, err)
		}
	},
	"AdvanceAfterWake": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			stored, err := f.Store.Get(ctx, x.ID)
			if err != nil {
				return err
			}
			x.Revision = stored.Revision
			return f.Store.Advance(ctx, x, c)
		}
	},
	"AdvanceEqualsWithLock": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			c.Wake = nil
			return f.Store.Advance(ctx, x, c)
		}
	},
	"AdvanceOverClaimAndRenewal": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			y := x.Clone()
			if stored, err := f.Store.Get(ctx, x.ID); err == nil && stored.OfferedAt != nil {
				y.OfferedAt = stored.OfferedAt
			}
			err := f.Store.Advance(ctx, y, c)
			x.Revision = y.Revision
			return err
		}
	},
	"AdvanceIsRefused": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			err := f.Store.Advance(ctx, x, c)
			if _, ok := errors.AsType[*store.KeyTakenError](err); ok {
				return store.ErrConflict
			}
			return err
		}
	},
	"AdvanceRace": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			if err := f.Store.Advance(ctx, x, c); !errors.Is(err, store.ErrConflict) {
				return err
			}
			return nil
		}
	},
	"AdvanceWaitsForLock": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			if err := f.Store.Advance(ctx, x, c); !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return store.ErrConflict
		}
	},
	"AdvanceReplaces": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			if stored, err := f.Store.Get(ctx, x.ID); err == nil && x.Cause == nil {
				x.Cause = stored.Cause // never taken away again
				defer func() { x.Cause = nil }()
			}
			return f.Store.Advance(ctx, x, c)
		}
	},
}
