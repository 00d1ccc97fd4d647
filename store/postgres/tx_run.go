package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leveret-go/leveret/store"
)

// TxKinds lists the kinds of [Tx] and [SQLTx]; see [store.Transactor].
func (s *Store) TxKinds() []string { return []string{kindPgx, kindSQL} }

// RunTx calls fn with a transaction on a connection of the pool, and commits;
// see [store.Transactor]. The server ends the transaction when this process is
// silent in it for twice the statement time-out.
func (s *Store) RunTx(ctx context.Context, kind string, fn func(tx store.Tx, s store.Store) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	switch kind {
	case kindPgx:
		return s.runPgx(ctx, fn)
	case kindSQL:
		return s.runSQL(ctx, fn)
	}
	return fmt.Errorf("%w: transactions of kind %q", store.ErrNotSupported, kind)
}

func (s *Store) runPgx(ctx context.Context, fn func(tx store.Tx, s store.Store) error) error {
	c, tx, err := s.beginPgx(ctx)
	if err != nil {
		return failed(ctx, "begin", &unsentError{err})
	}
	defer s.rollback(ctx, c) // after a commit it only releases
	t := &callerTx{kindPgx, pgxConn{tx}}
	if err := fn(t, s.own(t)); err != nil {
		return err
	}
	err = s.call(ctx, c.Conn(), false, func(ctx context.Context) error { return tx.Commit(ctx) })
	return s.endTx(err)
}

// beginPgx begins a transaction, on another connection when one was found dead.
func (s *Store) beginPgx(ctx context.Context) (*pgxpool.Conn, pgx.Tx, error) {
	for try := 1; ; try++ {
		c, err := acquire(ctx, s.pool)
		if err != nil {
			return nil, nil, err
		}
		var tx pgx.Tx
		err = s.call(ctx, c.Conn(), true, func(ctx context.Context) (err error) {
			if tx, err = c.Conn().Begin(ctx); err == nil {
				_, err = tx.Exec(ctx, s.sql.setLimits)
			}
			return err
		})
		if err == nil {
			return c, tx, nil
		}
		dead := c.Conn().IsClosed()
		s.rollback(ctx, c)
		if try == maxTries || !dead || ctx.Err() != nil {
			return nil, nil, err
		}
	}
}

func (s *Store) runSQL(ctx context.Context, fn func(tx store.Tx, s store.Store) error) error {
	tx, err := s.beginSQL(ctx)
	if err != nil {
		return failed(ctx, "begin", &unsentError{err})
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	t := &callerTx{kindSQL, sqlConn{tx}}
	if err := fn(t, s.own(t)); err != nil {
		return err
	}
	return s.endTx(tx.Commit())
}

// beginSQL begins a transaction, on another connection when one was found dead.
func (s *Store) beginSQL(ctx context.Context) (*sql.Tx, error) {
	for try := 1; ; try++ {
		// The end of ctx must not roll back behind our back.
		tx, err := s.database().BeginTx(context.WithoutCancel(ctx), nil)
		if err == nil {
			if _, err = tx.ExecContext(ctx, s.sql.setLimits); err == nil {
				return tx, nil
			}
			_ = tx.Rollback()
		}
		if try == maxTries || !lostConnection(err) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// database is the pool for those who want database/sql.
func (s *Store) database() *sql.DB {
	s.dbOnce.Do(func() { s.db = stdlib.OpenDBFromPool(s.pool) })
	return s.db
}

// endTx translates the error of a commit.
func (s *Store) endTx(err error) error {
	switch {
	case err == nil:
		return nil
	case conflict(err) != err:
		return fmt.Errorf("postgres: commit: %w", conflict(err))
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return fmt.Errorf("postgres: commit: a statement before has failed: %w", err)
	}
	return opaque("commit", err)
}
