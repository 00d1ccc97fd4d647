package postgres_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
)

// version1 makes a schema of version 1, with an execution and an audit entry.
func version1(t *testing.T) (*postgres.Store, *pgxpool.Pool, *store.Execution) {
	t.Helper()
	dsn := testenv.Postgres(t)
	s, pool := open(t, dsn, nil), newPool(t, dsn)
	simple(t, pool, s.Version1SQL())
	x := &store.Execution{
		ID: uuid.MustParse("01940000-0000-7000-8000-00000000000a"), Saga: "order", Version: 1, Partition: "p",
		Status: store.StatusHalted, Direction: store.DirectionExecute, Step: "pay", State: []byte(`{"a":1}`),
		CreatedAt: start, UpdatedAt: start, ProgressAt: start, Revision: 7,
	}
	insert := `INSERT INTO saga.executions (id, saga, version, partition, resource_type, resource_id, key, status, direction, step, epoch,
	ledger, tries, resumes, reason, trace_parent, created_at, updated_at, progress_at, revision, state)
VALUES ($1, 'order', 1, 'p', '', '', '', 'halted', 'execute', 'pay', 0, '[]', 0, 0, '', '', $2, $2, $2, 7, '{"a":1}')`
	if _, err := pool.Exec(t.Context(), insert, x.ID, start); err != nil {
		t.Fatal(err)
	}
	audit := `INSERT INTO saga.audit (execution, at, act, actor, reason, status_before, status_after)
VALUES ($1, $2, 'retry', 'ann', 'why', 'halted', 'running')`
	for range 2 { // both without a request
		if _, err := pool.Exec(t.Context(), audit, x.ID, start); err != nil {
			t.Fatal(err)
		}
	}
	return s, pool, x
}

func simple(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	c, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if _, err := c.Conn().PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// What a schema of version 1 holds reads as if the new fields had been left
// empty.
func TestSchemaOfVersion1IsMigrated(t *testing.T) {
	s, pool, x := version1(t)
	wantSchemaError(t, s.CheckSchema(t.Context()), store.SchemaError{Code: store.SchemaTooOld, Have: 1, Want: postgres.Newest})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), x.ID)
	if err != nil || !reflect.DeepEqual(got, x) {
		t.Errorf("got %+v, %v; want %+v", got, err, x)
	}
	want := store.AuditEntry{
		Execution: x.ID, At: start, Act: "retry", Actor: "ann", Reason: "why",
		Before: store.StatusHalted, After: store.StatusRunning,
	}
	audit, err := s.Audit(t.Context(), x.ID)
	if err != nil || !reflect.DeepEqual(audit, []store.AuditEntry{want, want}) {
		t.Errorf("got %+v, %v; want %+v twice", audit, err, want)
	}
	list, err := s.List(t.Context(), store.Filter{Attention: []store.Attention{store.AttentionHalted}}, store.Page{})
	if err != nil || len(list.Executions) != 1 {
		t.Errorf("List: %+v, %v", list, err)
	}
	var floor int
	if err := pool.QueryRow(t.Context(), "SELECT floor FROM saga.migrations WHERE version = 2").Scan(&floor); err != nil || floor != 2 {
		t.Errorf("floor %d, %v", floor, err)
	}
}

// While somebody reads the table for long, as a dump does, Migrate waits, but
// others do not wait behind it for longer than a few seconds.
func TestMigrateLetsOthersPass(t *testing.T) {
	s, pool, x := version1(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reader, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback(ctx)
	if _, err := reader.Exec(ctx, "SELECT FROM saga.executions"); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	go func() { migrated <- s.Migrate(ctx) }()
	for waits := false; !waits; {
		err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks
WHERE NOT granted AND mode = 'AccessExclusiveLock' AND relation = 'saga.executions'::regclass)`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(ctx, "UPDATE saga.executions SET revision = 8 WHERE id = $1", x.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-migrated:
		t.Fatalf("Migrate ended before the reader: %v", err)
	default:
	}
	if err := reader.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(ctx, x.ID); err != nil || got.Revision != 8 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMigrateEndsWithItsContext(t *testing.T) {
	s, pool, _ := version1(t)
	reader, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback(context.WithoutCancel(t.Context()))
	if _, err := reader.Exec(t.Context(), "SELECT FROM saga.executions"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Migrate(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("Migrate: %v", err)
	}
	wantSchemaError(t, s.CheckSchema(t.Context()), store.SchemaError{Code: store.SchemaTooOld, Have: 1, Want: postgres.Newest})
}

// A CREATE INDEX CONCURRENTLY that fails leaves an index that is never used.
func TestMigrateRefusesAnIndexThatIsNotValid(t *testing.T) {
	s, pool, x := version1(t)
	copied := `INSERT INTO saga.executions SELECT (r).* FROM (SELECT jsonb_populate_record(x, '{"id":"` + uuid.NewString() + `"}') AS r
FROM saga.executions AS x WHERE id = $1) AS copied`
	if _, err := pool.Exec(t.Context(), copied, x.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "CREATE UNIQUE INDEX CONCURRENTLY executions_finished ON saga.executions (version)"); err == nil {
		t.Fatal("the index is unique")
	}
	err := s.Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "executions_finished is not valid") {
		t.Errorf("Migrate: %v", err)
	}
	wantSchemaError(t, s.CheckSchema(t.Context()), store.SchemaError{Code: store.SchemaTooOld, Have: 1, Want: postgres.Newest})
	if _, err := pool.Exec(t.Context(), "DROP INDEX saga.executions_finished"); err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}
