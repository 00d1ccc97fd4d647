package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// A bound is the store in a transaction of a caller's. Its statements do not
// watch ctx, as all of this store's: they are quick, and an interrupted one
// would end the transaction.
type bound struct {
	s     *Store
	tx    *sql.Tx
	known bool // the transaction is one of this store's writer
	begun bool // the file is this store's
}

var (
	_ store.Store    = (*bound)(nil)
	_ store.Advancer = (*bound)(nil)
)

// txn returns the transaction for one call, having made sure, once, that it is
// on this store's file.
func (b *bound) txn(ctx context.Context, operation string) (*txn, error) {
	t := &txn{s: b.s, ctx: ctx, tx: b.tx, operation: operation, caller: !b.known}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.known || b.begun {
		return t, nil
	}
	var id string
	err := b.tx.QueryRowContext(context.WithoutCancel(ctx), `SELECT value FROM `+b.s.tables.Name(rows.Meta)+` WHERE name = 'store_id'`).Scan(&id)
	switch {
	case isMissing(err), errors.Is(err, sql.ErrNoRows), err == nil && id != b.s.id.String():
		return nil, store.ErrForeignTx
	case err != nil:
		return nil, t.fail(err)
	}
	b.begun = true
	return t, nil
}

// within runs f in a savepoint: what it has written is taken back when it returns
// an error, or panics, and the transaction goes on.
func (b *bound) within(ctx context.Context, operation string, f func(t *txn) error) error {
	t, err := b.txn(ctx, operation)
	if err != nil {
		return err
	}
	background := context.WithoutCancel(ctx)
	if _, err := b.tx.ExecContext(background, "SAVEPOINT leveret_call"); err != nil {
		return t.fail(err)
	}
	ok := false
	defer func() {
		if !ok { // where this fails the transaction is gone, as what comes after it finds
			_, _ = b.tx.ExecContext(background, "ROLLBACK TO SAVEPOINT leveret_call")
			_, _ = b.tx.ExecContext(background, "RELEASE SAVEPOINT leveret_call")
		}
	}()
	if err := f(t); err != nil {
		return err
	}
	if _, err := b.tx.ExecContext(background, "RELEASE SAVEPOINT leveret_call"); err != nil {
		return t.fail(err)
	}
	ok = true
	return nil
}

func (b *bound) ID(ctx context.Context) (uuid.UUID, error) { return b.s.ID(ctx) }

func (b *bound) Now(ctx context.Context) (time.Time, error) { return b.s.Now(ctx) }

func (b *bound) Create(ctx context.Context, x *store.Execution) error {
	if err := x.Validate(); err != nil {
		return err
	}
	err := b.within(ctx, "create execution", func(t *txn) error { return t.insert(x) })
	if err == nil {
		x.Revision = 1
	}
	return err
}

func (b *bound) Get(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
	t, err := b.txn(ctx, "get execution")
	if err != nil {
		return nil, err
	}
	r, err := t.load(id)
	if err != nil {
		return nil, err
	}
	x, err := r.Store()
	return x, t.fail(err)
}

func (b *bound) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	l := lockedWrite{id: id, fn: fn}
	return l.end(b.within(ctx, "lock execution", l.run))
}

func (b *bound) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	return advance(x, c, func(f func(t *txn) error) error { return b.within(ctx, "advance execution", f) })
}

func (b *bound) Live(ctx context.Context, saga, key string) (*store.Execution, error) {
	list, err := find(ctx, b, "get live execution", rows.ReadExecutions, b.s.texts[b.s.live], saga, key)
	if err == nil && len(list) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func (b *bound) Children(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	return find(ctx, b, "list children", rows.ReadExecutions, b.s.texts[b.s.children], q.Parent.String(), q.After.String(), q.Step, q.Limit)
}

func (b *bound) Attempts(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
	return find(ctx, b, "list attempts", rows.ReadAttempts, rows.AttemptsText(b.s.bun, b.s.tables, id))
}

func (b *bound) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	return find(ctx, b, "list audit entries", rows.ReadAudit, rows.AuditText(b.s.bun, b.s.tables, id))
}

func find[T any](ctx context.Context, b *bound, operation string, read func(rows.Found) ([]T, error), text string, args ...any) ([]T, error) {
	t, err := b.txn(ctx, operation)
	if err != nil {
		return nil, err
	}
	found, err := b.tx.QueryContext(context.WithoutCancel(ctx), text, args...)
	if err != nil {
		return nil, t.fail(err)
	}
	list, err := read(found)
	return list, t.fail(err)
}

func (b *bound) Stalled(context.Context, store.StalledQuery) ([]*store.Execution, error) {
	return nil, store.ErrNotSupported
}

func (b *bound) ForResource(context.Context, store.Resource, int) ([]*store.Execution, error) {
	return nil, store.ErrNotSupported
}

func (b *bound) ClaimDue(context.Context, store.DueQuery) ([]*store.Execution, error) {
	return nil, store.ErrNotSupported
}

func (b *bound) Renew(context.Context, []store.Lease, store.Renewal) ([]store.LeaseState, error) {
	return nil, store.ErrNotSupported
}
