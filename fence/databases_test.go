package fence_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/leveret-go/leveret/fence"
	"github.com/leveret-go/leveret/fence/pgxfence"
	"github.com/leveret-go/leveret/internal/testenv"
)

// A participant is a database with a fence and a table of entries, one for each
// thing that was done: +1 for an effect, -1 for its undo.
type participant interface {
	begin(ctx context.Context) (transaction, error)
	exec(ctx context.Context, query string, args ...any) error
	number(ctx context.Context, query string, args ...any) (int, error)
	migrate(ctx context.Context) error
	prune(ctx context.Context, before time.Time) (int64, error)
}

type transaction interface {
	pass(ctx context.Context, key, executeKey string) (fence.Verdict, error)
	do(ctx context.Context, key, executeKey string, fn func([]byte) ([]byte, error)) (fence.Verdict, []byte, error)
	exec(ctx context.Context, query string, args ...any) error
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
}

const entries = `CREATE TABLE entries (effect TEXT NOT NULL, delta INTEGER NOT NULL)`

// backends are what the fence is tested on.
var backends = []struct {
	name string
	open func(t *testing.T) participant
}{
	{"sqlite", func(t *testing.T) participant { return openSQLite(t, "deferred") }},
	{"sqlite-immediate", func(t *testing.T) participant { return openSQLite(t, "immediate") }},
	{"postgres-sql", func(t *testing.T) participant { return sqlParticipant{db: openSQL(t, "pgx", testenv.Postgres(t))} }},
	{"postgres-pgx", func(t *testing.T) participant { return openPgx(t, testenv.Postgres(t)) }},
}

// onEach runs a test on each backend, with its tables made.
func onEach(t *testing.T, f func(t *testing.T, p participant)) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			p := b.open(t)
			if err := p.migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := p.exec(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
			f(t, p)
		})
	}
}

func openSQLite(t *testing.T, txlock string) sqlParticipant {
	t.Helper()
	file := filepath.ToSlash(filepath.Join(t.TempDir(), "participant.db"))
	return sqlParticipant{sqlite: true, db: openSQL(t, "sqlite", fmt.Sprintf(
		"file:%s?_txlock=%s&_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)", file, txlock))}
}

func openSQL(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	return db
}

func openPgx(t *testing.T, dsn string) pgxParticipant {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn+"&pool_max_conns=8")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pgxParticipant{pool}
}

type sqlParticipant struct {
	db     *sql.DB
	sqlite bool
}

func (p sqlParticipant) begin(ctx context.Context) (transaction, error) {
	tx, err := p.db.BeginTx(ctx, nil)
	return sqlTransaction{tx}, err
}

func (p sqlParticipant) exec(ctx context.Context, query string, args ...any) error {
	_, err := p.db.ExecContext(ctx, query, args...)
	return err
}

func (p sqlParticipant) number(ctx context.Context, query string, args ...any) (n int, err error) {
	return n, p.db.QueryRowContext(ctx, query, args...).Scan(&n)
}

func (p sqlParticipant) migrate(ctx context.Context) error { return fence.Migrate(ctx, p.db) }

func (p sqlParticipant) prune(ctx context.Context, before time.Time) (int64, error) {
	return fence.Prune(ctx, p.db, before)
}

type sqlTransaction struct{ tx *sql.Tx }

func (x sqlTransaction) pass(ctx context.Context, key, executeKey string) (fence.Verdict, error) {
	return fence.Pass(ctx, x.tx, key, executeKey)
}

func (x sqlTransaction) do(ctx context.Context, key, executeKey string, fn func([]byte) ([]byte, error)) (fence.Verdict, []byte, error) {
	return fence.Do(ctx, x.tx, key, executeKey, fn)
}

func (x sqlTransaction) exec(ctx context.Context, query string, args ...any) error {
	_, err := x.tx.ExecContext(ctx, query, args...)
	return err
}

func (x sqlTransaction) commit(context.Context) error   { return x.tx.Commit() }
func (x sqlTransaction) rollback(context.Context) error { return x.tx.Rollback() }

type pgxParticipant struct{ pool *pgxpool.Pool }

func (p pgxParticipant) begin(ctx context.Context) (transaction, error) {
	tx, err := p.pool.Begin(ctx)
	return pgxTransaction{tx}, err
}

func (p pgxParticipant) exec(ctx context.Context, query string, args ...any) error {
	_, err := p.pool.Exec(ctx, query, args...)
	return err
}

func (p pgxParticipant) number(ctx context.Context, query string, args ...any) (n int, err error) {
	return n, p.pool.QueryRow(ctx, query, args...).Scan(&n)
}

func (p pgxParticipant) migrate(ctx context.Context) error { return pgxfence.Migrate(ctx, p.pool) }

func (p pgxParticipant) prune(ctx context.Context, before time.Time) (int64, error) {
	return pgxfence.Prune(ctx, p.pool, before)
}

type pgxTransaction struct{ tx pgx.Tx }

func (x pgxTransaction) pass(ctx context.Context, key, executeKey string) (fence.Verdict, error) {
	return pgxfence.Pass(ctx, x.tx, key, executeKey)
}

func (x pgxTransaction) do(ctx context.Context, key, executeKey string, fn func([]byte) ([]byte, error)) (fence.Verdict, []byte, error) {
	return pgxfence.Do(ctx, x.tx, key, executeKey, fn)
}

func (x pgxTransaction) exec(ctx context.Context, query string, args ...any) error {
	_, err := x.tx.Exec(ctx, query, args...)
	return err
}

func (x pgxTransaction) commit(ctx context.Context) error   { return x.tx.Commit(ctx) }
func (x pgxTransaction) rollback(ctx context.Context) error { return x.tx.Rollback(ctx) }
