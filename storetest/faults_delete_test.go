package storetest

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var deleteFaults = map[string]func(f *faulty){
	"DeleteRemoves": func(f *faulty) {
		kept := map[uuid.UUID][]store.AuditEntry{} // the audit trail stays
		f.delete = func(ctx context.Context, versions []store.Version) ([]bool, error) {
			for _, v := range versions {
				kept[v.ID], _ = f.Store.Audit(ctx, v.ID)
			}
			return f.Store.Delete(ctx, versions)
		}
		f.audit = func(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
			list, err := f.Store.Audit(ctx, id)
			return append(kept[id], list...), err
		}
	},
	"DeleteOnlyWhatIsFinished": func(f *faulty) {
		f.delete = func(ctx context.Context, versions []store.Version) ([]bool, error) {
			var now []store.Version // whatever the revision
			for _, v := range versions {
				if x, _ := f.Store.Get(ctx, v.ID); x != nil {
					v.Revision = x.Revision
				}
				now = append(now, v)
			}
			return f.Store.Delete(ctx, now)
		}
	},
	"DeleteTwice": func(f *faulty) {
		f.delete = func(ctx context.Context, versions []store.Version) ([]bool, error) {
			removed, err := f.Store.Delete(ctx, versions)
			gone := map[store.Version]bool{} // one answer per version
			for i, v := range versions[:len(removed)] {
				gone[v] = gone[v] || removed[i]
				removed[i] = gone[v]
			}
			return removed, err
		}
	},
	"DeleteMany": func(f *faulty) {
		f.delete = func(ctx context.Context, versions []store.Version) ([]bool, error) {
			removed, err := f.Store.Delete(ctx, versions[:min(len(versions), 999)])
			return append(removed, make([]bool, len(versions)-len(removed))...), err
		}
	},
	"DeletePassesLocked": func(f *faulty) {
		f.delete = func(ctx context.Context, versions []store.Version) ([]bool, error) {
			for _, v := range versions { // waits
				if _, err := f.Store.WithLock(ctx, v.ID, func(*store.Execution) (store.Change, error) {
					return store.Change{}, store.ErrUnchanged
				}); err != nil {
					return nil, err
				}
			}
			return f.Store.Delete(ctx, versions)
		}
	},
	"DeleteRace": func(f *faulty) {
		f.delete = func(ctx context.Context, versions []store.Version) ([]bool, error) {
			removed, err := f.Store.Delete(ctx, versions)
			for i := range removed {
				removed[i] = true // as nothing is left
			}
			return removed, err
		}
	},
	"DeleteOrWrite": func(f *faulty) {
		f.delete = func(ctx context.Context, versions []store.Version) ([]bool, error) {
			_, err := f.Store.Delete(ctx, versions)
			return []bool{true}, err
		}
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			x, err := f.Store.WithLock(ctx, id, fn)
			if errors.Is(err, store.ErrNotFound) {
				err = nil // it was there when it was looked for
			}
			return x, err
		}
	},
	"DeleteEnds": func(f *faulty) {
		f.delete = func(ctx context.Context, versions []store.Version) ([]bool, error) {
			return f.Store.Delete(context.WithoutCancel(ctx), versions)
		}
	},
}
