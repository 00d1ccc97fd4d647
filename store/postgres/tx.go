package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/store"
)

// The kinds of transactions; see [store.Tx].
const (
	kindPgx = "pgx"
	kindSQL = "sql"
)

// A callerTx is a transaction of a caller's.
type callerTx struct {
	kind string
	conn txConn
}

func (t *callerTx) TxKind() string { return t.kind }

// Tx wraps a transaction of pgx's, for saga.Engine.InTx: one of the database in
// which the store has its schema, of any pool or connection. A savepoint of
// pgx's (tx.Begin) will do as well. What the store does in it ends with the ctx
// that it is given: as always with pgx, the end of that may cut the connection.
//
// The store changes none of the transaction's settings. At isolation levels above
// read committed it may fail as other statements do, with SQLSTATE 40001: roll
// back then and begin anew.
func Tx(tx pgx.Tx) store.Tx { return &callerTx{kindPgx, pgxConn{tx}} }

// SQLTx is [Tx] for a transaction of database/sql, over any driver for
// PostgreSQL that takes $1 for a parameter, such as pgx/v5/stdlib; also for one
// of bun's, which has it inside:
//
//	engine.InTx(postgres.SQLTx(tx.Tx)) // tx is a bun.Tx
func SQLTx(tx *sql.Tx) store.Tx { return &callerTx{kindSQL, sqlConn{tx}} }

// InTx makes a step's function of one that works in a transaction of pgx's: the
// one in which the engine settles the step. Its writes are there exactly if
// the step has succeeded.
//
//	saga.Step[Order]{Name: "book", ExecuteTx: postgres.InTx(func(ctx context.Context, run *saga.Run[Order], tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, `INSERT INTO bookings …`)
//		return err
//	})}
//
// The function neither commits nor rolls back. It has [Config.StatementTimeout]
// for each statement, and twice that between two; it may choose an isolation
// level by SET TRANSACTION as its first statement. An error with SQLSTATE 40001
// or 40P01 (another transaction was in the way) that it returns makes the engine
// call it again, in a new transaction.
func InTx[R any](fn func(ctx context.Context, run R, tx pgx.Tx) error) store.TxFunc[R] {
	if fn == nil {
		return store.TxFunc[R]{}
	}
	return store.NewTxFunc(kindPgx, func(ctx context.Context, run R, tx store.Tx) error {
		t, ok := tx.(*callerTx)
		if !ok {
			return store.ErrForeignTx
		}
		c, ok := t.conn.(pgxConn)
		if !ok {
			return store.ErrForeignTx
		}
		return conflict(fn(ctx, run, c.Tx))
	})
}

// InSQLTx is [InTx] for a function that wants a transaction of database/sql, and
// for bun, as bun.NewDB(…).NewInsert().Conn(tx).
func InSQLTx[R any](fn func(ctx context.Context, run R, tx *sql.Tx) error) store.TxFunc[R] {
	if fn == nil {
		return store.TxFunc[R]{}
	}
	return store.NewTxFunc(kindSQL, func(ctx context.Context, run R, tx store.Tx) error {
		t, ok := tx.(*callerTx)
		if !ok {
			return store.ErrForeignTx
		}
		c, ok := t.conn.(sqlConn)
		if !ok {
			return store.ErrForeignTx
		}
		return conflict(fn(ctx, run, c.tx))
	})
}

// conflict marks an error that says: the transaction was in the way of another
// one, nothing of it was written.
func conflict(err error) error {
	if code := sqlstate(err); code == codeSerialization || code == codeDeadlock {
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	}
	return err
}
