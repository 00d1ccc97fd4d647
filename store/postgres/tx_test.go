package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
	"github.com/leveret-go/leveret/storetest"
)

type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) Tx() store.Tx                     { return postgres.Tx(t.tx) }
func (t pgxTx) Commit(ctx context.Context) error { return t.tx.Commit(ctx) }
func (t pgxTx) Rollback(ctx context.Context) error {
	if err := t.tx.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return nil
}

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Tx() store.Tx                 { return postgres.SQLTx(t.tx) }
func (t sqlTx) Commit(context.Context) error { return t.tx.Commit() }
func (t sqlTx) Rollback(context.Context) error {
	if err := t.tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// kinds are the ways in which users have transactions on the database of a pool.
func kinds(t *testing.T, pool *pgxpool.Pool) []storetest.TxKind {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "CREATE TABLE notes (text text)"); err != nil {
		t.Fatal(err)
	}
	const insert = "INSERT INTO notes VALUES ($1)"
	notes := func(ctx context.Context, _ store.Store) ([]string, error) {
		found, err := pool.Query(ctx, "SELECT text FROM notes")
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(found, pgx.RowTo[string])
	}
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	b := bun.NewDB(db, pgdialect.New())
	noteSQL := func(ctx context.Context, tx store.Tx, text string) error {
		return postgres.InSQLTx(func(ctx context.Context, text string, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, insert, text)
			return err
		}).Call(ctx, text, tx)
	}
	return []storetest.TxKind{
		{
			Kind: "pgx", Notes: notes,
			Begin: func(ctx context.Context, _ store.Store) (storetest.UserTx, error) {
				tx, err := pool.Begin(ctx)
				return pgxTx{tx}, err
			},
			Note: func(ctx context.Context, tx store.Tx, text string) error {
				return postgres.InTx(func(ctx context.Context, text string, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, insert, text)
					return err
				}).Call(ctx, text, tx)
			},
		},
		{
			Kind: "sql", Notes: notes, Note: noteSQL,
			Begin: func(ctx context.Context, _ store.Store) (storetest.UserTx, error) {
				tx, err := b.BeginTx(ctx, nil) // of bun
				return sqlTx{tx.Tx}, err
			},
		},
	}
}

func TestTransactions(t *testing.T) {
	for name, newDSN := range map[string]func(t *testing.T) string{
		"cache_statement": func(t *testing.T) string { return testenv.Postgres(t) },
		"exec":            func(t *testing.T) string { return with(testenv.Postgres(t), mode, "exec") },
		"simple_protocol": func(t *testing.T) string { return with(testenv.Postgres(t), mode, "simple_protocol") },
		"pgbouncer":       func(t *testing.T) string { return with(testenv.PgBouncer(t, testenv.Postgres(t)), mode, "exec") },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := with(newDSN(t), "pool_max_conns", "20")
			n := 0
			storetest.RunTx(t, func(t *testing.T) store.Store {
				n++
				return migrated(t, dsn, &postgres.Config{Schema: fmt.Sprintf("saga%d", n)})
			}, kinds(t, newPool(t, dsn)), &storetest.Options{Require: append(abilities, "Binder", "Transactor")})
		})
	}
}

// A step's transaction happens once, whatever dies or gets lost.
func TestExecuteTxExactlyOnce(t *testing.T) {
	dsn := with(testenv.Postgres(t), "pool_max_conns", "20")
	n := 0
	storetest.RunEngineTx(t, func(t *testing.T) store.Store {
		n++
		return migrated(t, dsn, &postgres.Config{Schema: fmt.Sprintf("saga%d", n)})
	}, kinds(t, newPool(t, dsn)), nil)
}

// A transaction of another database, and of another store's schema in this one.
func TestForeignTransactionIsTold(t *testing.T) {
	s := migrated(t, testenv.Postgres(t), nil)
	elsewhere := newPool(t, testenv.Postgres(t)) // without a schema
	for _, make := range []bool{false, true} {
		if make {
			other, err := postgres.New(elsewhere, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if err := other.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		tx, err := elsewhere.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bound, err := s.Bind(postgres.Tx(tx))
		if err != nil {
			t.Fatal(err)
		}
		if err := bound.Create(t.Context(), execution()); !errors.Is(err, store.ErrForeignTx) {
			t.Errorf("with a schema: %v: got error %v, want %v", make, err, store.ErrForeignTx)
		}
		if _, err := tx.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Errorf("the transaction does not go on: %v", err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A function may choose its isolation level, and a serialization failure is told
// as the conflict that it is.
func TestRunTxConflicts(t *testing.T) {
	dsn := testenv.Postgres(t)
	s, pool := migrated(t, dsn, nil), newPool(t, dsn)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	count := postgres.InTx(func(ctx context.Context, between func(), tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRow(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
			return err
		}
		between()
		_, err := tx.Exec(ctx, "UPDATE counter SET n = $1", n+1)
		return err
	})
	run := func(between func()) error {
		return s.RunTx(t.Context(), "pgx", func(tx store.Tx, _ store.Store) error { return count.Call(t.Context(), between, tx) })
	}
	err := run(func() {
		if _, err := pool.Exec(t.Context(), "UPDATE counter SET n = n + 10"); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, store.ErrConflict) {
		t.Errorf("got error %v, want %v", err, store.ErrConflict)
	}
	if err := run(func() {}); err != nil {
		t.Error(err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil || n != 11 {
		t.Errorf("n is %d, %v, want 11", n, err)
	}
}

// A connection that died in the pool is no reason to fail.
func TestRunTxOnADeadConnection(t *testing.T) {
	dsn := testenv.Postgres(t)
	s := migrated(t, with(dsn, "pool_max_conns", "1"), nil)
	for _, kind := range s.TxKinds() {
		if err := s.Create(t.Context(), execution()); err != nil { // opens it
			t.Fatal(err)
		}
		_, err := newPool(t, dsn).Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		if err != nil {
			t.Fatal(err)
		}
		called := 0
		err = s.RunTx(t.Context(), kind, func(_ store.Tx, s store.Store) error {
			called++
			return s.Create(t.Context(), execution())
		})
		if err != nil || called != 1 {
			t.Errorf("%s: called %d times, error %v", kind, called, err)
		}
	}
}
