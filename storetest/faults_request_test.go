package storetest

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// onError makes WithLock do something when it has failed to write a Change.
func onError(do func(ctx context.Context, f *faulty, id uuid.UUID, c store.Change, err error) error) func(*faulty) {
	return func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			var c store.Change
			x, err := f.Store.WithLock(ctx, id, func(x *store.Execution) (_ store.Change, err error) {
				c, err = fn(x)
				return c, err
			})
			if err != nil {
				err = do(ctx, f, id, c, err)
			}
			return x, err
		}
	}
}

var requestFaults = map[string]func(f *faulty){
	"RequestIsUsedOnce": onError(func(ctx context.Context, f *faulty, id uuid.UUID, c store.Change, err error) error {
		if errors.Is(err, store.ErrRequestUsed) { // those to wake were woken in a transaction of their own
			_, _ = f.Store.WithLock(ctx, id, func(*store.Execution) (store.Change, error) { return store.Change{Wake: c.Wake}, nil })
		}
		return err
	}),
	"RequestsDiffer": changes(func(c *store.Change) {
		for i := range c.Audit {
			c.Audit[i].Request = strings.TrimSpace(c.Audit[i].Request)
		}
	}),
	"RequestRace": onError(func(_ context.Context, _ *faulty, _ uuid.UUID, _ store.Change, err error) error {
		if errors.Is(err, store.ErrRequestUsed) {
			return nil // it has been done
		}
		return err
	}),
	"EraseEmpties": changes(func(c *store.Change) {
		for i := range c.Audit { // the new ones too
			if c.Erase {
				c.Audit[i].Detail = nil
			}
		}
	}),
	"EraseFails": onError(func(ctx context.Context, f *faulty, id uuid.UUID, c store.Change, err error) error {
		if c.Erase {
			_, _ = f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) { return store.Change{Erase: true}, nil })
		}
		return err
	}),
}

var refuseFaults = map[string]func(f *faulty){
	"ValuesAreRefused": stores(func(x *store.Execution) { x.ReasonBy = x.ReasonBy[:min(len(x.ReasonBy), store.MaxText)] }),
	"ValuesOfChangesAreRefused": changes(func(c *store.Change) {
		if len(c.Audit) == 2 && c.Audit[0].Request == c.Audit[1].Request {
			c.Audit = c.Audit[:1]
		}
	}),
	"RenewalsAreRefused": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			if len(r.Progress) > len(leases) {
				r.Progress = r.Progress[:len(leases)]
			}
			return f.Store.Renew(ctx, leases, r)
		}
	},
}
