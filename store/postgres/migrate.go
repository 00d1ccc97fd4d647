package postgres

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

//go:embed migrations/001_executions.sql
var migration001 string

//go:embed migrations/002_operators.sql
var migration002 string

//go:embed migrations/003_waiting.sql
var migration003 string

//go:embed migrations/004_events.sql
var migration004 string

//go:embed migrations/005_statistics.sql
var migration005 string

// A migration takes a schema from the version before to its own. Within a
// major version of the library it only adds.
type migration struct {
	name string
	// floor is the oldest schema version whose library still works after it.
	floor int
	sql   string // with {{schema}}
}

// migrations are in order; the version of the first is 1.
var migrations = []migration{
	{name: "executions", floor: 1, sql: migration001},
	// A library of schema 1 would leave checkpoint and initial as they are when
	// it moves the cursor and changes the state.
	{name: "operators", floor: 2, sql: migration002},
	// One of schema 2 would open attempts whatever an execution waits for.
	{name: "waiting", floor: 3, sql: migration003},
	// One of schema 3 leaves events as they are.
	{name: "events", floor: 3, sql: migration004},
	{name: "statistics", floor: 3, sql: migration005},
}

// Migrate brings the schema to the version of this library: it makes what is
// missing and never takes anything away. Any number of processes may call it
// at once; one does the work and the others wait. Each migration is one
// transaction, so that a crash leaves a schema of some version, from which the
// next call goes on. When a table is in use it waits in short turns, so that the
// service goes on meanwhile, until ctx ends. It returns a [*store.SchemaError] with code too_new, and
// changes nothing, when the schema no longer supports this library.
//
// The user must be allowed to create the schema, or own it.
func (s *Store) Migrate(ctx context.Context) error {
	c, err := acquire(ctx, s.pool)
	if err != nil {
		return failedRead(ctx, "migrate", err)
	}
	defer s.rollback(ctx, c)
	for {
		done, err := s.migrateOnce(ctx, c)
		if code := sqlstate(err); code == codeLockTimeout || code == codeDeadlock {
			err = rest(ctx, lockPause)
		}
		if err != nil {
			return failedRead(ctx, "migrate", err)
		}
		if done {
			s.checked.Store(true)
			return nil
		}
	}
}

// lockPause is how long others have the tables to themselves before Migrate
// asks for their locks again.
const lockPause = 2 * time.Second

// rest waits, and returns ctx's error when that ends it.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// migrateOnce applies the next migration, and reports whether there was none.
func (s *Store) migrateOnce(ctx context.Context, c *pgxpool.Conn) (done bool, err error) {
	conn := c.Conn()
	if _, err := conn.Exec(ctx, begin); err != nil {
		return false, err
	}
	defer func() {
		if err == nil {
			return
		}
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerGrace)
		defer cancel()
		_, _ = conn.Exec(short, "ROLLBACK")
	}()
	// A role's time-outs are not for the wait for another process, nor for a
	// migration of a big table.
	err = simple(ctx, conn, fmt.Sprintf(`SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0;
SELECT pg_advisory_xact_lock(%d)`, s.lockKey()))
	if err != nil {
		return false, err
	}
	have, floor, err := s.prepareSchema(ctx, conn)
	if err != nil {
		return false, err
	}
	if have >= len(migrations) {
		if err := fits(have, floor, len(migrations)); err != nil {
			return false, err
		}
		done = true
	} else if err := simple(ctx, conn, s.render(have+1)); err != nil {
		return false, fmt.Errorf("to version %d: %w", have+1, err)
	}
	_, err = conn.Exec(ctx, "COMMIT")
	return done, err
}

// prepareSchema makes the schema and the table of migrations where they are
// missing, and returns what is applied. It looks first, because IF NOT EXISTS
// asks for the right to create even where there is nothing to create.
func (s *Store) prepareSchema(ctx context.Context, c *pgx.Conn) (have, floor int, err error) {
	var encoding string
	var schema, table bool
	err = c.QueryRow(ctx, `SELECT current_setting('server_encoding'),
	EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text),
	EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1::text AND tablename = $2::text)`,
		s.cfg.Schema, rows.Migrations).Scan(&encoding, &schema, &table)
	if err != nil {
		return 0, 0, err
	}
	if encoding != "UTF8" {
		return 0, 0, fmt.Errorf("the database is encoded in %s, not in UTF8", encoding)
	}
	if !schema {
		if err := simple(ctx, c, s.schemaSQL()); err != nil {
			return 0, 0, err
		}
	}
	if !table {
		if err := simple(ctx, c, s.tableSQL()); err != nil {
			return 0, 0, err
		}
	}
	return s.version(ctx, c)
}

// simple executes several statements, in whatever exec mode the pool is.
func simple(ctx context.Context, c *pgx.Conn, sql string) error {
	_, err := c.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// MigrationSQL returns the SQL that takes a schema from a version (0: there is
// none) to that of this library, for operators who run it themselves, and ""
// when there is nothing to do. Run it with psql -v ON_ERROR_STOP=1: each
// migration is a transaction with its row in the table of migrations, and
// fails, changing nothing, where it is applied already, or where a table was
// in use for 5 seconds: then run it again.
func (s *Store) MigrationSQL(from int) string {
	from = max(from, 0)
	var b strings.Builder
	for version := from + 1; version <= len(migrations); version++ {
		b.WriteString("BEGIN;\n")
		if version == 1 {
			b.WriteString(s.schemaSQL() + ";\n" + s.tableSQL() + ";\n\n")
		}
		b.WriteString(s.render(version))
		b.WriteString("\nCOMMIT;\n")
	}
	return b.String()
}

func (s *Store) schemaSQL() string { return `CREATE SCHEMA IF NOT EXISTS "` + s.cfg.Schema + `"` }

func (s *Store) tableSQL() string {
	return `CREATE TABLE IF NOT EXISTS ` + s.tables.Name(rows.Migrations) + ` (
	version    integer PRIMARY KEY,
	name       text NOT NULL,
	floor      integer NOT NULL, -- the oldest schema version whose library still works
	applied_at timestamptz NOT NULL
)`
}

// render returns a migration with its row.
func (s *Store) render(version int) string {
	m := migrations[version-1]
	return strings.ReplaceAll(m.sql, "{{schema}}", `"`+s.cfg.Schema+`"`) + fmt.Sprintf(
		"\nINSERT INTO %s (version, name, floor, applied_at) VALUES (%d, '%s', %d, now());\n",
		s.tables.Name(rows.Migrations), version, m.name, m.floor)
}

// lockKey is the advisory lock of whoever migrates this schema.
func (s *Store) lockKey() int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("leveret:migrate:" + s.cfg.Schema))
	return int64(h.Sum64())
}

// CheckSchema returns a [*store.SchemaError] when the schema does not fit this
// library: missing, too_old (migrate first), or too_new, which a newer schema
// is only when one of its migrations says that libraries this old no longer
// work. Every method checks by itself when the store is first used; call this
// to know at once.
func (s *Store) CheckSchema(ctx context.Context) error {
	c, err := acquire(ctx, s.pool)
	if err != nil {
		return failedRead(ctx, "check schema", err)
	}
	defer c.Release()
	err = s.call(ctx, c.Conn(), true, func(ctx context.Context) error {
		have, floor, err := s.version(ctx, c.Conn())
		if err != nil {
			return err
		}
		return fits(have, floor, len(migrations))
	})
	if err != nil {
		return failedRead(ctx, "check schema", err)
	}
	s.checked.Store(true)
	return nil
}

// ready is CheckSchema until it was well once.
func (s *Store) ready(ctx context.Context) error {
	if s.checked.Load() {
		return nil
	}
	return s.CheckSchema(ctx)
}

// version returns the newest migration applied, 0 for none.
func (s *Store) version(ctx context.Context, c conn) (have, floor int, err error) {
	err = c.QueryRow(ctx, `SELECT version, floor FROM `+s.tables.Name(rows.Migrations)+` ORDER BY version DESC LIMIT 1`).Scan(&have, &floor)
	if code := sqlstate(err); errors.Is(err, sql.ErrNoRows) || code == codeUndefinedTable || code == codeUndefinedSchema {
		return 0, 0, nil
	}
	return have, floor, err
}

// fits compares a schema with the version a library was built for.
func fits(have, floor, want int) error {
	switch {
	case have == 0:
		return &store.SchemaError{Code: store.SchemaMissing, Want: want}
	case have < want:
		return &store.SchemaError{Code: store.SchemaTooOld, Have: have, Want: want}
	case want < floor:
		return &store.SchemaError{Code: store.SchemaTooNew, Have: have, Want: floor}
	}
	return nil
}
