package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

var createFaults = map[string]func(f *faulty){
	"IDIsStable": func(f *faulty) {
		f.id = func(context.Context) (uuid.UUID, error) { return uuid.UUID{1}, nil } // the same for all stores
	},
	"IDSurvivesReopening": func(f *faulty) { f.reopen = func() store.Store { return memory.New() } },
	"ReopenedSeesAll":     func(f *faulty) { f.reopen = func() store.Store { return memory.New() } },
	"Now": func(f *faulty) {
		f.now = func(context.Context) (time.Time, error) {
			return time.Now().UTC().Truncate(time.Microsecond).Add(1), nil
		}
	},

	"CreateSetsRevision": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error { return f.Store.Create(ctx, x.Clone()) }
	},
	"CreateExists": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			err := f.Store.Create(ctx, x)
			if errors.Is(err, store.ErrExists) && x.Step == "ship" { // tells it from a repetition
				return store.ErrConflict
			}
			return err
		}
	},
	"CreateExistsRace": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			if err := f.Store.Create(ctx, x); !errors.Is(err, store.ErrExists) {
				return err
			}
			return nil
		}
	},
	"CreateKeyTaken": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			err := f.Store.Create(ctx, x)
			if taken, ok := errors.AsType[*store.KeyTakenError](err); ok {
				taken.Execution = uuid.Nil
			}
			return err
		}
	},
	"CreateExistsAndKeyTaken": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			err := f.Store.Create(ctx, x)
			if errors.Is(err, store.ErrExists) && x.Key != "" {
				return &store.KeyTakenError{Saga: x.Saga, Key: x.Key, Execution: x.ID}
			}
			return err
		}
	},
	"CreateKeyRace": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			y := x.Clone()
			y.Key += x.ID.String() // never taken
			return f.Store.Create(ctx, y)
		}
	},
	"KeyIsFreed": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			err := f.Store.Create(ctx, x)
			if taken, ok := errors.AsType[*store.KeyTakenError](err); ok {
				if holder, _ := f.Store.Get(ctx, taken.Execution); holder.Status == store.StatusCompensationFailed {
					return nil
				}
			}
			return err
		}
	},
	"KeyIsTakenBack": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			x, err := f.Store.WithLock(ctx, id, fn)
			if _, ok := errors.AsType[*store.KeyTakenError](err); ok {
				return f.Store.Get(ctx, id)
			}
			return x, err
		}
	},
	"GetNotFound": func(f *faulty) {
		f.get = func(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
			x, err := f.Store.Get(ctx, id)
			if errors.Is(err, store.ErrNotFound) {
				err = nil
			}
			return x, err
		}
	},
	"CopiesIn": func(f *faulty) {
		var kept *store.Execution
		f.create = func(ctx context.Context, x *store.Execution) error {
			kept = x
			return f.Store.Create(ctx, x)
		}
		f.get = func(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
			x, err := f.Store.Get(ctx, id)
			x.State = kept.State
			return x, err
		}
	},
	"CopiesOut": func(f *faulty) {
		cached := map[uuid.UUID]*store.Execution{}
		f.get = func(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
			x, err := f.Store.Get(ctx, id)
			if c := cached[id]; c != nil && err == nil && c.Revision == x.Revision {
				return c, nil
			}
			cached[id] = x
			return x, err
		}
	},
}
