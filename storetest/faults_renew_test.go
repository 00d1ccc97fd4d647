package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/leveret-go/leveret/store"
)

var renewFaults = map[string]func(f *faulty){
	"RenewProlongs": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			states, err := f.Store.Renew(ctx, leases, r)
			for _, l := range leases {
				_, _ = f.Store.WithLock(ctx, l.Execution, func(*store.Execution) (store.Change, error) { return store.Change{}, nil })
			}
			return states, err
		}
	},
	"RenewCutsTimes": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			r.Until = r.Until.Round(time.Microsecond)
			return f.Store.Renew(ctx, leases, r)
		}
	},
	"RenewOfALapsedLease": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			r.Now = r.Now.Add(-time.Microsecond)
			return f.Store.Renew(ctx, leases, r)
		}
	},
	"RenewComparesTheWholeToken": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			leases = slices.Clone(leases)
			for i, l := range leases {
				if x, _ := f.Store.Get(ctx, l.Execution); x != nil {
					leases[i].Epoch = x.Epoch
				}
			}
			return f.Store.Renew(ctx, leases, r)
		}
	},
	"RenewInterrupts": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			states, err := f.Store.Renew(ctx, leases, r)
			for i, l := range leases {
				if x, _ := f.Store.Get(ctx, l.Execution); x != nil && x.Request != nil && states[i] == store.LeaseHeld {
					states[i] = store.LeaseInterrupted // for any request
				}
			}
			return states, err
		}
	},
	"RenewPassesLocked": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			states, err := f.Store.Renew(ctx, leases, r)
			for i := range states {
				if states[i] == store.LeaseLocked {
					states[i] = store.LeaseHeld
				}
			}
			return states, err
		}
	},
	"RenewAnswersInOrder": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			seen := map[store.Lease]bool{}
			leases = slices.DeleteFunc(slices.Clone(leases), func(l store.Lease) bool {
				known := seen[l]
				seen[l] = true
				return known
			})
			return f.Store.Renew(ctx, leases, r)
		}
	},
	"RenewNotesProgress": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			r.Progress = slices.Clone(r.Progress)
			for i, p := range r.Progress {
				if p == nil {
					r.Progress[i] = new(store.Progress) // none is no progress
				}
			}
			return f.Store.Renew(ctx, leases, r)
		}
	},
	"RenewOfLostNotesNothing": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			for i, l := range leases {
				if x, _ := f.Store.Get(ctx, l.Execution); x != nil && r.Progress != nil { // by id alone
					x.Attempt.Progress = r.Progress[i]
					if err := f.Store.Advance(ctx, x, store.Change{}); err != nil {
						return nil, err
					}
				}
			}
			return f.Store.Renew(ctx, leases, r)
		}
	},
	"ProgressGoesWithTheAttempt": func(f *faulty) {
		var last *store.Progress
		locks(func(fn lockFunc, x *store.Execution) (store.Change, error) {
			if x.Attempt != nil {
				last = x.Attempt.Progress
			}
			c, err := fn(x)
			if x.Attempt != nil && x.Attempt.Progress == nil {
				x.Attempt.Progress = last
			}
			return c, err
		})(f)
	},
}
