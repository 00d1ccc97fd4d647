package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// Bind returns a store whose calls are part of a transaction of the caller's;
// see [store.Binder], [Tx] and [SQLTx]. A transaction of a database that
// does not have this store is found at the first call: ErrForeignTx.
func (s *Store) Bind(tx store.Tx) (store.Store, error) {
	t, ok := tx.(*callerTx)
	if !ok {
		return nil, store.ErrForeignTx
	}
	return &bound{s: s, c: t.conn}, nil
}

// own is Bind for a transaction that this store has begun.
func (s *Store) own(t *callerTx) *bound { return &bound{s: s, c: t.conn, known: true} }

// A bound is the store in a transaction of a caller's. The end of a ctx is left
// to the driver; nothing needs to be known of a write then, as the transaction
// can only be rolled back.
type bound struct {
	s     *Store
	c     txConn
	known bool // the transaction is one of this store's database
}

var (
	_ store.Store    = (*bound)(nil)
	_ store.Advancer = (*bound)(nil)
)

// begun makes sure, once, that the transaction has this very store.
func (b *bound) begun(ctx context.Context) error {
	if b.known {
		return nil
	}
	id, err := b.s.ID(ctx)
	if err != nil {
		return err
	}
	var here uuid.UUID
	err = b.within(ctx, "bind", func() error {
		err := b.c.QueryRow(ctx, b.s.sql.id).Scan(&here)
		switch code := sqlstate(err); {
		case code == codeUndefinedTable, code == codeUndefinedSchema, errors.Is(err, sql.ErrNoRows):
			return store.ErrForeignTx
		}
		return err
	})
	if err == nil && here != id {
		err = store.ErrForeignTx
	}
	b.known = err == nil
	return err
}

// An fnError is what a function of the caller's returned.
type fnError struct{ error }

// within runs f in a savepoint: what it has written is taken back when it returns
// an error, or panics, and the transaction goes on.
func (b *bound) within(ctx context.Context, op string, f func() error) (err error) {
	if _, err := b.c.Exec(ctx, "SAVEPOINT leveret_call"); err != nil {
		return b.fail(ctx, op, err)
	}
	ok := false
	defer func() {
		if !ok {
			if _, back := b.c.Exec(ctx, "ROLLBACK TO SAVEPOINT leveret_call; RELEASE SAVEPOINT leveret_call"); back != nil && err != nil && (b.ours(err)) {
				err = b.fail(ctx, op, back) // the transaction is lost
			}
		}
		if e, is := errors.AsType[fnError](err); is {
			err = e.error
		}
	}()
	if err := f(); err != nil {
		return b.fail(ctx, op, err)
	}
	if _, err := b.c.Exec(ctx, "RELEASE SAVEPOINT leveret_call"); err != nil {
		return b.fail(ctx, op, err)
	}
	ok = true
	return nil
}

// ours reports whether the transaction is to go on after err.
func (b *bound) ours(err error) bool {
	_, fn := errors.AsType[fnError](err)
	return fn || named(err)
}

func (b *bound) fail(ctx context.Context, op string, err error) error {
	if err == nil || b.ours(err) {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("postgres: %s: %w", op, ctx.Err())
	}
	return opaque(op, conflict(err))
}

func (b *bound) ID(ctx context.Context) (uuid.UUID, error) { return b.s.ID(ctx) }

func (b *bound) Now(ctx context.Context) (now time.Time, err error) {
	if err := b.begun(ctx); err != nil {
		return now, err
	}
	err = b.c.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	return store.Micros(now), b.fail(ctx, "now", err)
}

func (b *bound) Create(ctx context.Context, x *store.Execution) error {
	if err := x.Validate(); err != nil {
		return err
	}
	if err := b.begun(ctx); err != nil {
		return err
	}
	text, values, err := b.s.insertion(x)
	if err != nil {
		return opaque("create", err)
	}
	err = func() error {
		for range maxVanished {
			tag, err := b.c.Exec(ctx, text, values...)
			if err != nil || tag.RowsAffected() == 1 {
				return err
			}
			if err := b.s.inTheWay(ctx, b.c, x); err != nil {
				return err
			}
		}
		return errVanished
	}()
	if err == nil {
		x.Revision = 1
	}
	return b.fail(ctx, "create", err)
}

func (b *bound) Get(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
	return b.one(ctx, "get", b.s.sql.get, id.String())
}

func (b *bound) Live(ctx context.Context, saga, key string) (*store.Execution, error) {
	if key == "" || !plainText(saga) || !plainText(key) {
		return nil, store.ErrNotFound
	}
	return b.one(ctx, "live", b.s.sql.live, saga, key)
}

func (b *bound) one(ctx context.Context, op, text string, args ...any) (*store.Execution, error) {
	if err := b.begun(ctx); err != nil {
		return nil, err
	}
	x, err := scanOne(b.c.QueryRow(ctx, text, args...))
	return x, b.fail(ctx, op, err)
}

func (b *bound) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (written *store.Execution, err error) {
	if err := b.begun(ctx); err != nil {
		return nil, err
	}
	err = b.within(ctx, "lock", func() error {
		old, err := scanOne(b.c.QueryRow(ctx, b.s.sql.lock, id.String()))
		if err != nil {
			return err
		}
		x := old.Clone()
		change, err := fn(x)
		if errors.Is(err, store.ErrUnchanged) {
			written = old
			return nil
		}
		if err != nil {
			return fnError{err}
		}
		w, err := newUpdate(old, x, &change)
		if err != nil {
			return err
		}
		if err := b.write(ctx, w); err != nil {
			return err
		}
		created(&change)
		written = x.Clone()
		written.Revision++
		if change.Erase {
			written.Tags = nil
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return written, nil
}

func (b *bound) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	w, err := newAdvance(x, &c)
	if err != nil {
		return err
	}
	if err := b.begun(ctx); err != nil {
		return err
	}
	if err := b.within(ctx, "advance", func() error { return b.write(ctx, w) }); err != nil {
		return err
	}
	x.Revision++
	created(&c)
	return nil
}

// write executes w, and drops the savepoint that this leaves.
func (b *bound) write(ctx context.Context, w *write) error {
	if err := b.s.execute(ctx, b.c, w); err != nil {
		return err
	}
	_, err := b.c.Exec(ctx, "RELEASE SAVEPOINT leveret")
	return err
}

func (b *bound) Children(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	return find(ctx, b, "children", rows.ReadExecutions, b.s.sql.children, q.Parent.String(), q.After.String(), q.Step, int64(q.Limit))
}

func (b *bound) Attempts(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
	return find(ctx, b, "attempts", rows.ReadAttempts, rows.AttemptsText(b.s.lists, b.s.tables, id))
}

func (b *bound) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	return find(ctx, b, "audit", rows.ReadAudit, rows.AuditText(b.s.lists, b.s.tables, id))
}

func find[T any](ctx context.Context, b *bound, op string, read func(rows.Found) ([]T, error), text string, args ...any) ([]T, error) {
	if err := b.begun(ctx); err != nil {
		return nil, err
	}
	found, err := b.c.find(ctx, text, args...)
	if err != nil {
		return nil, b.fail(ctx, op, err)
	}
	list, err := read(found)
	return list, b.fail(ctx, op, err)
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
