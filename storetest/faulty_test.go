package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A faulty is a store in memory with the methods that are set replaced.
type faulty struct {
	*memory.Store
	reopen      func() store.Store
	id          func(context.Context) (uuid.UUID, error)
	now         func(context.Context) (time.Time, error)
	create      func(context.Context, *store.Execution) error
	get         func(context.Context, uuid.UUID) (*store.Execution, error)
	withLock    func(context.Context, uuid.UUID, lockFunc) (*store.Execution, error)
	attempts    func(context.Context, uuid.UUID) ([]store.Attempt, error)
	audit       func(context.Context, uuid.UUID) ([]store.AuditEntry, error)
	stalled     func(context.Context, store.StalledQuery) ([]*store.Execution, error)
	forResource func(context.Context, store.Resource, int) ([]*store.Execution, error)
	claimDue    func(context.Context, store.DueQuery) ([]*store.Execution, error)
	renew       func(context.Context, []store.Lease, store.Renewal) ([]store.LeaseState, error)
	advance     func(context.Context, *store.Execution, store.Change) error
	cell        func(context.Context, string) (json.RawMessage, int64, error)
	setCell     func(context.Context, string, json.RawMessage, int64) (int64, error)
	listCells   func(context.Context, string) ([]store.Cell, error)
	exclusive   func(context.Context) (func() error, error)
	claimEvents func(context.Context, store.EventQuery) ([]store.StatusEvent, error)
	oldestEvent func(context.Context) (*time.Time, error)
	delete      func(context.Context, []store.Version) ([]bool, error)
	live        func(context.Context, string, string) (*store.Execution, error)
	children    func(context.Context, store.ChildQuery) ([]*store.Execution, error)
	list        func(context.Context, store.Filter, store.Page) (*store.List, error)
	count       func(context.Context, store.Filter, []store.Dimension, int) (*store.Counts, error)
	longest     func(context.Context, store.Filter, int) ([]*store.Execution, error)
	sagas       func(context.Context) ([]string, error)
	series      func(context.Context, store.SeriesQuery) (*store.Series, error)
	latency     func(context.Context, store.AttemptQuery) (*store.Latencies, error)
	failures    func(context.Context, store.AttemptQuery) (*store.Failures, error)
}

type lockFunc = func(*store.Execution) (store.Change, error)

func (f *faulty) ID(ctx context.Context) (uuid.UUID, error) {
	if f.id != nil {
		return f.id(ctx)
	}
	return f.Store.ID(ctx)
}

func (f *faulty) Now(ctx context.Context) (time.Time, error) {
	if f.now != nil {
		return f.now(ctx)
	}
	return f.Store.Now(ctx)
}

func (f *faulty) Create(ctx context.Context, x *store.Execution) error {
	if f.create != nil {
		return f.create(ctx, x)
	}
	return f.Store.Create(ctx, x)
}

func (f *faulty) Get(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
	if f.get != nil {
		return f.get(ctx, id)
	}
	return f.Store.Get(ctx, id)
}

func (f *faulty) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if f.withLock != nil {
		return f.withLock(ctx, id, fn)
	}
	return f.Store.WithLock(ctx, id, fn)
}

func (f *faulty) Attempts(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
	if f.attempts != nil {
		return f.attempts(ctx, id)
	}
	return f.Store.Attempts(ctx, id)
}

func (f *faulty) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	if f.audit != nil {
		return f.audit(ctx, id)
	}
	return f.Store.Audit(ctx, id)
}

func (f *faulty) Stalled(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
	if f.stalled != nil {
		return f.stalled(ctx, q)
	}
	return f.Store.Stalled(ctx, q)
}

func (f *faulty) ForResource(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
	if f.forResource != nil {
		return f.forResource(ctx, r, limit)
	}
	return f.Store.ForResource(ctx, r, limit)
}

func (f *faulty) Live(ctx context.Context, saga, key string) (*store.Execution, error) {
	if f.live != nil {
		return f.live(ctx, saga, key)
	}
	return f.Store.Live(ctx, saga, key)
}

func (f *faulty) Children(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
	if f.children != nil {
		return f.children(ctx, q)
	}
	return f.Store.Children(ctx, q)
}

func (f *faulty) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	if f.claimDue != nil {
		return f.claimDue(ctx, q)
	}
	return f.Store.ClaimDue(ctx, q)
}

func (f *faulty) Renew(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if f.renew != nil {
		return f.renew(ctx, leases, r)
	}
	return f.Store.Renew(ctx, leases, r)
}

func (f *faulty) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	if f.advance != nil {
		return f.advance(ctx, x, c)
	}
	return f.Store.Advance(ctx, x, c)
}

func (f *faulty) Cell(ctx context.Context, name string) (json.RawMessage, int64, error) {
	if f.cell != nil {
		return f.cell(ctx, name)
	}
	return f.Store.Cell(ctx, name)
}

func (f *faulty) SetCell(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
	if f.setCell != nil {
		return f.setCell(ctx, name, value, revision)
	}
	return f.Store.SetCell(ctx, name, value, revision)
}

func (f *faulty) ListCells(ctx context.Context, prefix string) ([]store.Cell, error) {
	if f.listCells != nil {
		return f.listCells(ctx, prefix)
	}
	return f.Store.ListCells(ctx, prefix)
}

func (f *faulty) ClaimEvents(ctx context.Context, q store.EventQuery) ([]store.StatusEvent, error) {
	if f.claimEvents != nil {
		return f.claimEvents(ctx, q)
	}
	return f.Store.ClaimEvents(ctx, q)
}

func (f *faulty) OldestEvent(ctx context.Context) (*time.Time, error) {
	if f.oldestEvent != nil {
		return f.oldestEvent(ctx)
	}
	return f.Store.OldestEvent(ctx)
}

func (f *faulty) Exclusive(ctx context.Context) (func() error, error) {
	if f.exclusive != nil {
		return f.exclusive(ctx)
	}
	return f.Store.Exclusive(ctx)
}

func (f *faulty) Delete(ctx context.Context, versions []store.Version) ([]bool, error) {
	if f.delete != nil {
		return f.delete(ctx, versions)
	}
	return f.Store.Delete(ctx, versions)
}

func (f *faulty) List(ctx context.Context, filter store.Filter, p store.Page) (*store.List, error) {
	if f.list != nil {
		return f.list(ctx, filter, p)
	}
	return f.Store.List(ctx, filter, p)
}

func (f *faulty) Count(ctx context.Context, filter store.Filter, by []store.Dimension, most int) (*store.Counts, error) {
	if f.count != nil {
		return f.count(ctx, filter, by, most)
	}
	return f.Store.Count(ctx, filter, by, most)
}

// Faults that more than one case has to find.

// stores makes the store change executions on their way in.
func stores(change func(*store.Execution)) func(*faulty) {
	return func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			y := *x
			change(&y)
			err := f.Store.Create(ctx, &y)
			x.Revision = y.Revision
			return err
		}
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				change(x)
				return c, err
			})
		}
	}
}

// changes makes the store change the Changes it is given.
func changes(change func(*store.Change)) func(*faulty) {
	return func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				c.Attempts, c.Audit, c.Wake = slices.Clone(c.Attempts), slices.Clone(c.Audit), slices.Clone(c.Wake)
				change(&c)
				return c, err
			})
		}
	}
}

// locks makes WithLock do something else than to call fn.
func locks(call func(fn lockFunc, x *store.Execution) (store.Change, error)) func(*faulty) {
	return func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) { return call(fn, x) })
		}
	}
}

// lockless makes WithLock hold no lock while fn runs.
func lockless(f *faulty) {
	f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
		x, err := f.Store.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		was := x.Clone()
		c, err := fn(x)
		if errors.Is(err, store.ErrUnchanged) {
			return was, nil
		}
		if err != nil {
			return nil, err
		}
		return f.Store.WithLock(ctx, id, func(y *store.Execution) (store.Change, error) {
			x.Revision = y.Revision
			*y = *x
			return c, nil
		})
	}
}

// claims makes ClaimDue change what it was asked and what it answers.
func claims(ask func(*store.DueQuery), answer func([]*store.Execution) []*store.Execution) func(*faulty) {
	return func(f *faulty) {
		f.claimDue = func(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
			ask(&q)
			list, err := f.Store.ClaimDue(ctx, q)
			return answer(list), err
		}
	}
}

// fix makes a text one that can be stored.
func fix(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "") }

func (f *faulty) Longest(ctx context.Context, filter store.Filter, limit int) ([]*store.Execution, error) {
	if f.longest != nil {
		return f.longest(ctx, filter, limit)
	}
	return f.Store.Longest(ctx, filter, limit)
}

func (f *faulty) Sagas(ctx context.Context) ([]string, error) {
	if f.sagas != nil {
		return f.sagas(ctx)
	}
	return f.Store.Sagas(ctx)
}

func (f *faulty) Series(ctx context.Context, q store.SeriesQuery) (*store.Series, error) {
	if f.series != nil {
		return f.series(ctx, q)
	}
	return f.Store.Series(ctx, q)
}

func (f *faulty) Latency(ctx context.Context, q store.AttemptQuery) (*store.Latencies, error) {
	if f.latency != nil {
		return f.latency(ctx, q)
	}
	return f.Store.Latency(ctx, q)
}

func (f *faulty) Failures(ctx context.Context, q store.AttemptQuery) (*store.Failures, error) {
	if f.failures != nil {
		return f.failures(ctx, q)
	}
	return f.Store.Failures(ctx, q)
}
