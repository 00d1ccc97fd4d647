// Package pgxfence is package fence for transactions of pgx. See there for what
// the verdicts mean and when to call.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		verdict, err := pgxfence.Pass(ctx, tx, key, executeKey)
//		if err != nil || verdict != fence.First {
//			return err // nil commits, which Noop needs
//		}
//		return charge(ctx, tx)
//	})
package pgxfence

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leveret-go/leveret/fence"
	"github.com/leveret-go/leveret/fence/internal/core"
)

// Pass is [fence.Pass].
func Pass(ctx context.Context, tx pgx.Tx, key, executeKey string) (fence.Verdict, error) {
	v, err := core.Pass(ctx, query(tx), key, executeKey)
	return fence.Verdict(v), err
}

// Do is [fence.Do].
func Do(ctx context.Context, tx pgx.Tx, key, executeKey string, fn func(effect []byte) ([]byte, error)) (fence.Verdict, []byte, error) {
	v, result, err := core.Do(ctx, query(tx), key, executeKey, fn)
	return fence.Verdict(v), result, err
}

// An Execer executes statements: a *pgxpool.Pool or a *pgx.Conn.
type Execer interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
}

// Migrate is [fence.Migrate].
func Migrate(ctx context.Context, db Execer) error { return core.Migrate(ctx, exec(db)) }

// Prune is [fence.Prune].
func Prune(ctx context.Context, db Execer, before time.Time) (int64, error) {
	return core.Prune(ctx, exec(db), before)
}

func query(tx pgx.Tx) core.Query {
	return func(ctx context.Context, query string, args ...any) core.Row {
		return tx.QueryRow(ctx, query, args...)
	}
}

func exec(db Execer) core.Exec {
	return func(ctx context.Context, query string, args ...any) (int64, error) {
		tag, err := db.Exec(ctx, query, args...)
		return tag.RowsAffected(), err
	}
}
