package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
)

// Of 20,000 executions every 40th is unfinished, of these every second due.
const fill = `INSERT INTO saga.executions
SELECT (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, 'order', 1, 'default',
	'order', (n / 2)::text, n::text,
	CASE WHEN n % 40 = 0 THEN 'running' ELSE 'completed' END, 'execute', 'pay', 0, '[]',
	NULL, NULL, NULL, NULL, NULL,
	CASE WHEN n % 40 = 0 THEN timestamptz '2026-01-01' + n * interval '1 hour' / 10 END, NULL, NULL, 0, 0,
	NULL, NULL, NULL, '', NULL, '',
	'2026-01-01', '2026-01-01', '2026-01-01', NULL, 1, '{}'
FROM generate_series(1, 20000) AS n`

func TestPlansUseTheIndexes(t *testing.T) {
	dsn := testenv.Postgres(t)
	s := migrated(t, dsn, nil)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	columns := "id, saga, version, partition, resource_type, resource_id, key, status, direction, step, epoch, ledger, " +
		"attempt_number, attempt_worker, attempt_started_at, attempt_lease_until, attempt_timeout_at, due_at, wake_at, offered_at, " +
		"tries, resumes, failure_class, failure_message, failure_step, reason, request, trace_parent, created_at, updated_at, " +
		"progress_at, finished_at, revision, state"
	for _, sql := range []string{strings.Replace(fill, "saga.executions", "saga.executions ("+columns+")", 1), "ANALYZE saga.executions"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	id := execution().ID.String()
	for _, c := range []struct {
		name, sql, index string
		args             []any
	}{
		{"ClaimDue", s.ClaimSQL(100, false), "executions_due", []any{now, now}},
		{"ClaimDue of a partition", s.ClaimSQL(100, true), "executions_due", []any{now, now, "default"}},
		{"holder of a key", s.HolderSQL(), "executions_key", []any{"order", "40", id}},
		{"what is in the way", s.ConflictSQL(), "executions_key", []any{id, "order", "40"}},
		{"Stalled", s.StalledSQL(store.StalledQuery{ProgressBefore: now, Limit: 100}), "executions_unfinished", nil},
		{"ForResource", s.ForResourceSQL(store.Resource{Type: "order", ID: "77"}, 10), "executions_resource", nil},
	} {
		// A generic plan, because pgx prepares: it must not need the values.
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			if _, err := conn.Exec(t.Context(), "SET plan_cache_mode = "+mode); err != nil {
				t.Fatal(err)
			}
			plan := explain(t, conn, c.sql, c.args)
			if !strings.Contains(plan, c.index) || strings.Contains(plan, "Seq Scan") {
				t.Errorf("%s (%s): want %s and no Seq Scan\n%s", c.name, mode, c.index, plan)
			}
		}
	}
}

func explain(t *testing.T, conn *pgx.Conn, sql string, args []any) string {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "DEALLOCATE ALL"); err != nil {
		t.Fatal(err)
	}
	if err := conn.DeallocateAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "PREPARE looked_at AS "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	var list []string
	for _, a := range args {
		if at, ok := a.(time.Time); ok {
			a = at.Format(time.RFC3339)
		}
		list = append(list, fmt.Sprintf("'%v'", a))
	}
	execute := "EXPLAIN EXECUTE looked_at"
	if len(list) > 0 {
		execute += "(" + strings.Join(list, ", ") + ")"
	}
	lines, err := conn.Query(t.Context(), execute, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(lines, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

// A chain that keeps its lease's due time touches no indexed column.
func TestChainedAdvanceIsHOT(t *testing.T) {
	dsn := testenv.Postgres(t)
	const steps = 50
	func() {
		s := migrated(t, dsn, nil)
		x := create(t, s)
		for range steps {
			if err := s.Advance(t.Context(), x, step(x)); err != nil {
				t.Fatal(err)
			}
		}
		s.Close() // a backend reports its statistics at its end
	}()
	pool := newPool(t, dsn)
	var updated, hot int
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for updated < steps { // the backend ends a moment after its connection
		err := pool.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'saga' AND relname = 'executions'`).Scan(&updated, &hot)
		if err != nil {
			t.Fatal(err)
		}
	}
	if hot < updated*9/10 { // a full page makes one that is not
		t.Errorf("%d of %d updates were HOT", hot, updated)
	}
}
