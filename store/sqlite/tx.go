package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/leveret-go/leveret/store"
)

// kind is that of transactions; see [store.Tx].
const kind = "sqlite"

// A callerTx is a transaction of a caller's.
type callerTx struct{ tx *sql.Tx }

func (callerTx) TxKind() string { return kind }

// Tx wraps a transaction on the store's file, for saga.Engine.InTx. It is one
// of [Store.DB], or of another sql.DB of this driver; of bun's it is what is
// inside: sqlite.Tx(tx.Tx).
//
// SQLite has one writer. A transaction that has begun IMMEDIATE, as those of
// [Store.DB] do, is it, and all other writes wait. One that has begun otherwise
// becomes it with its first write, and that fails with SQLITE_BUSY when somebody else has
// written since it began to read: roll back and begin anew.
func Tx(tx *sql.Tx) store.Tx { return callerTx{tx} }

// InTx makes a step's function of one that works in the transaction in which the
// engine settles the step. Its writes are there exactly if the step has
// succeeded.
//
//	saga.Step[Order]{Name: "book", ExecuteTx: sqlite.InTx(func(ctx context.Context, run *saga.Run[Order], tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, `INSERT INTO bookings …`)
//		return err
//	})}
//
// The function neither commits nor rolls back, and calls nothing that writes to
// this store otherwise: that would wait for it. All other writes to the file wait while
// it runs, of all processes: keep it to some milliseconds.
func InTx[R any](fn func(ctx context.Context, run R, tx *sql.Tx) error) store.TxFunc[R] {
	if fn == nil {
		return store.TxFunc[R]{}
	}
	return store.NewTxFunc(kind, func(ctx context.Context, run R, tx store.Tx) error {
		t, ok := tx.(callerTx)
		if !ok {
			return store.ErrForeignTx
		}
		return fn(ctx, run, t.tx)
	})
}

// TxKinds lists the kind of [Tx]; see [store.Transactor].
func (s *Store) TxKinds() []string { return []string{kind} }

// RunTx calls fn in a transaction of the writer's, and commits; see
// [store.Transactor].
func (s *Store) RunTx(ctx context.Context, k string, fn func(tx store.Tx, s store.Store) error) error {
	if k != kind {
		return fmt.Errorf("%w: transactions of kind %q", store.ErrNotSupported, k)
	}
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(ctx, "begin", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	t := callerTx{tx}
	if err := fn(t, &bound{s: s, tx: tx, known: true}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		if isBusy(err) {
			err = fmt.Errorf("%w: %w", store.ErrConflict, err)
		}
		return s.fail(ctx, "commit", err)
	}
	return nil
}

// Bind returns a store whose calls are part of a transaction of the caller's;
// see [store.Binder] and [Tx]. A transaction of a file that does not have this
// store is found at the first call: ErrForeignTx.
func (s *Store) Bind(tx store.Tx) (store.Store, error) {
	t, ok := tx.(callerTx)
	if !ok || t.tx == nil {
		return nil, store.ErrForeignTx
	}
	return &bound{s: s, tx: t.tx}, nil
}

// isMissing reports whether a statement is about a table that is not there.
func isMissing(err error) bool {
	return err != nil && !errors.Is(err, sql.ErrNoRows) && code(err)&0xff == 1 // SQLITE_ERROR: all that is wrong with the text
}
