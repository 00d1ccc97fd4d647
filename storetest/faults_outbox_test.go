package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

var outboxFaults = map[string]func(f *faulty){
	"EventsAreRecorded": func(f *faulty) {
		f.claimEvents = func(ctx context.Context, q store.EventQuery) ([]store.StatusEvent, error) {
			list, err := f.Store.ClaimEvents(ctx, q)
			for i := range list {
				list[i].FailureStep = ""
			}
			return list, err
		}
	},
	"EventsAreOfTheTransaction": func(f *faulty) {
		other := memory.New() // another transaction
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			var wanted *store.Execution
			x, err := f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				wanted = x.Clone()
				return c, err
			})
			if err != nil {
				wanted.Events = true
				_ = other.Create(ctx, wanted)
			}
			return x, err
		}
		f.claimEvents = func(ctx context.Context, q store.EventQuery) ([]store.StatusEvent, error) {
			list, err := f.Store.ClaimEvents(ctx, q)
			more, err2 := other.ClaimEvents(ctx, q)
			return append(list, more...), errors.Join(err, err2)
		}
	},
	"ClaimEventsHolds": func(f *faulty) {
		f.claimEvents = func(ctx context.Context, q store.EventQuery) ([]store.StatusEvent, error) {
			if q.Hold > 0 {
				q.Hold += time.Microsecond
			}
			return f.Store.ClaimEvents(ctx, q)
		}
	},
	"ClaimEventsRace": func(f *faulty) {
		f.claimEvents = func(ctx context.Context, q store.EventQuery) ([]store.StatusEvent, error) {
			hold := q.Hold
			q.Hold = 0
			list, err := f.Store.ClaimEvents(ctx, q)
			if err == nil && hold > 0 { // chosen and held in two steps
				q.Hold = hold
				_, err = f.Store.ClaimEvents(ctx, q)
				list = list[:len(list):len(list)]
				if len(list) > 0 {
					list = append(list, list[0])
				}
			}
			return list, err
		}
	},
	"EventsAreRemoved": func(f *faulty) {
		f.oldestEvent = func(ctx context.Context) (*time.Time, error) {
			list, err := f.Store.ClaimEvents(ctx, store.EventQuery{Now: late, Limit: 1}) // those that are held it does not see
			if len(list) == 0 {
				return nil, err
			}
			return &list[0].At, err
		}
	},
	"EventsOutliveTheirExecution": func(f *faulty) {
		f.delete = func(ctx context.Context, versions []store.Version) ([]bool, error) {
			gone, err := f.Store.Delete(ctx, versions)
			for _, v := range versions {
				err = errors.Join(err, f.Store.RemoveEvents(ctx, []store.EventID{{Execution: v.ID, Revision: v.Revision}}))
			}
			return gone, err
		}
	},
}
