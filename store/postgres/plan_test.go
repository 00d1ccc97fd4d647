package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
)

// Of 100,000 executions every 40th is unfinished and every 50th failed; of the
// unfinished ones half are due. Each has an attempt, an audit entry and a tag,
// and every tenth a parent.
const fill = `ALTER TABLE saga.executions SET (autovacuum_enabled = false);
INSERT INTO saga.executions (id, saga, version, partition, resource_type, resource_id, key, status, direction, step, epoch, ledger,
	due_at, tries, resumes, failure_class, reason, trace_parent, created_at, updated_at, progress_at, finished_at, revision, state,
	tags, parent, parent_step, parent_key, waits_at, waits_since)
SELECT (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, 'order', 1, 'default', 'order', (n / 2)::text, n::text,
	status, 'execute', 'pay', 0, '[]', CASE WHEN status = 'running' THEN at END, 0, 0,
	CASE WHEN status = 'failed' THEN 'declined' END, '', '', at, at, at, CASE WHEN status <> 'running' THEN at END, 1, '{}',
	json_build_object('customer', (n / 10)::text), CASE WHEN n % 10 = 1 THEN (lpad(to_hex(n - 1), 8, '0') || '-0000-7000-8000-000000000000')::uuid END, 's', n::text,
	CASE WHEN status = 'running' AND n % 400 = 0 THEN 'turn' END, CASE WHEN status = 'running' AND n % 400 = 0 THEN at END
FROM (SELECT n, CASE WHEN n % 40 = 0 THEN 'running' WHEN n % 50 = 1 THEN 'failed' ELSE 'completed' END AS status,
	timestamptz '2026-01-01' + n * interval '1 minute' AS at FROM generate_series(1, 100000) AS n) AS r;
INSERT INTO saga.attempts (execution, step, direction, epoch, number, worker, status, started_at, finished_at, lease_until, stack, reason, late, late_status, failure_class)
SELECT id, 'pay', 'execute', 0, 1, 'w', CASE status WHEN 'failed' THEN 'failed' ELSE 'succeeded' END, created_at, created_at, created_at, '', '', false, '',
	CASE status WHEN 'failed' THEN 'declined' END FROM saga.executions;
INSERT INTO saga.audit (execution, at, act, actor, reason, status_before, status_after)
SELECT id, created_at, 'retry', 'ann', '', 'running', 'running' FROM saga.executions;
INSERT INTO saga.tags SELECT 'customer', tags ->> 'customer', id FROM saga.executions`

var afterHalf = time.Date(2026, 1, 1, 0, 50000, 0, 0, time.UTC)

// filled returns a store with these rows, and a connection to look at plans.
func filled(t *testing.T) (*postgres.Store, *pgx.Conn) {
	t.Helper()
	dsn := testenv.Postgres(t)
	s := migrated(t, dsn, nil)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), fill, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	return s, conn
}

// A planned is a statement whose plan must have an index.
type planned struct {
	name, sql, index string
	args             []any
}

// explained checks plans with the values and without: a generic plan, because
// pgx prepares.
func explained(t *testing.T, conn *pgx.Conn, list []planned) {
	t.Helper()
	for _, c := range list {
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

func analyze(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "ANALYZE saga.executions, saga.attempts, saga.audit, saga.tags"); err != nil {
		t.Fatal(err)
	}
}

func TestPlansUseTheIndexes(t *testing.T) {
	s, conn := filled(t)
	id := execution().ID.String()
	var ids, texts, numbers []string
	for n := range 500 {
		ids = append(ids, fmt.Sprintf("%08x-0000-7000-8000-000000000000", 3*n+1))
		texts, numbers = append(texts, "w"), append(numbers, "1")
	}
	list := []planned{
		{"holder of a key", s.HolderSQL(), "executions_holder", []any{"order", "40", id}},
		{"what is in the way", s.ConflictSQL(), "executions_holder", []any{id, "order", "40"}},
		{"Renew", s.RenewSQL(), "executions_pkey", []any{ids, texts, texts, numbers, numbers, texts, afterHalf, afterHalf, afterHalf, []string{}}},
		{"Delete of executions", s.DeleteSQL(), "executions_pkey", []any{ids, numbers}},
		{"Delete of attempts", s.DeleteSQL(), "attempts_pkey", []any{ids, numbers}},
		{"Delete of audit entries", s.DeleteSQL(), "audit_pkey", []any{ids, numbers}},
		{"Delete of tags", s.DeleteSQL(), "tags_pkey", []any{ids, numbers}},
		{"Live", s.LiveSQL(), "executions_holder", []any{"order", "40"}},
		{"Children", s.ChildrenSQL(), "executions_children", []any{id, uuid.Nil, "", "10"}},
		{"those who wait for their turn", s.StalledSQL(store.StalledQuery{
			ProgressBefore: afterHalf, Limit: 100, Saga: "order", Gate: store.GateTurn, After: &store.StalledCursor{ProgressAt: afterHalf, ID: uuid.Nil},
		}), "executions_waiting", nil},
		{"Stalled", s.StalledSQL(store.StalledQuery{ProgressBefore: afterHalf, Limit: 100}), "executions_unfinished", nil},
		{"ForResource", s.ForResourceSQL(store.Resource{Type: "order", ID: "77"}, 10), "executions_resource", nil},
	}
	for name, q := range map[string]store.DueQuery{
		"ClaimDue":                        {},
		"ClaimDue of a partition":         {Partition: "default"},
		"ClaimDue but of all partitions":  {NotPartitions: []string{"default"}}, // all rows are passed over
		"ClaimDue but of some partitions": {NotPartitions: []string{"a", "b", "c"}},
		"ClaimDue of some sagas":          {Sagas: []string{"a", "b"}}, // all rows are passed over
		"ClaimDue but of a saga":          {Partition: "default", NotSagas: []string{"order", "refund"}},
	} {
		q.Now, q.Limit = afterHalf, 100
		sql, args := s.ClaimSQL(q)
		list = append(list, planned{name, sql, "executions_due", args})
	}
	t.Run("without statistics", func(t *testing.T) { explained(t, conn, list) })
	analyze(t, conn)
	t.Run("with statistics", func(t *testing.T) { explained(t, conn, list) })
}

// What can be found by an index is not looked for in the whole table.
func TestListsAndCountsUseTheIndexes(t *testing.T) {
	s, conn := filled(t)
	analyze(t, conn)
	old := store.Range{To: afterHalf.Add(-700 * time.Hour)} // what is purged is the smaller part
	failed := []store.Status{store.StatusFailed}
	completed := []store.Status{store.StatusCompleted}
	var list []planned
	for _, c := range []struct {
		name   string
		filter store.Filter
		index  []string // one for each part
		walk   bool     // of a list, by the primary key, newest first; a count reads on until it has enough
	}{
		{name: "unfinished", filter: store.Filter{Unfinished: true}, index: []string{"executions_unfinished"}},
		{name: "running", filter: store.Filter{Statuses: []store.Status{store.StatusRunning}}, index: []string{"executions_unfinished"}},
		{name: "failed", filter: store.Filter{Statuses: failed}, index: []string{"executions_unsuccessful"}},
		{name: "failed of a saga", filter: store.Filter{Statuses: failed, Sagas: []string{"order"}}, index: []string{"executions_unsuccessful"}},
		{
			name:   "halted, failed, stalled or overdue",
			filter: store.Filter{Attention: []store.Attention{store.AttentionHalted, store.AttentionFailed, store.AttentionStalled, store.AttentionOverdue}, At: afterHalf},
			index:  []string{"executions_unfinished", "executions_unsuccessful"},
		},
		{name: "completed long ago", filter: store.Filter{Statuses: completed, Finished: old}, index: []string{"executions_finished"}},
		{name: "finished long ago", filter: store.Filter{Finished: old}, index: []string{"executions_finished"}},
		{name: "of a resource", filter: store.Filter{Resource: store.Resource{Type: "order", ID: "77"}}, index: []string{"executions_resource"}},
		{name: "of a key", filter: store.Filter{Keys: []string{"77"}}, index: []string{"executions_start_key"}},
		{name: "of a parent", filter: store.Filter{Parents: []uuid.UUID{uuid.New()}, Unfinished: true}, index: []string{"executions_children"}},
		{name: "of a tag", filter: store.Filter{Tags: map[string]string{"customer": "77"}}, index: []string{"tags_pkey"}},
		{name: "ids", filter: store.Filter{IDs: []uuid.UUID{uuid.New(), uuid.New()}}, index: []string{"executions_pkey"}},
		{name: "all", walk: true},
		{name: "of a saga", filter: store.Filter{Sagas: []string{"order"}}, walk: true},
		{name: "completed", filter: store.Filter{Statuses: completed}, walk: true},
	} {
		for _, after := range []uuid.UUID{uuid.Nil, uuid.MustParse("00010000-0000-7000-8000-000000000000")} {
			sql := s.ListSQL(c.filter, store.Page{Limit: 50, After: after})
			if c.walk {
				list = append(list, planned{"list: " + c.name, sql, "Backward using executions_pkey", nil})
			}
			for _, index := range c.index {
				list = append(list, planned{"list: " + c.name, sql, index, nil})
			}
		}
		for _, index := range c.index {
			sql := s.CountSQL(c.filter, []store.Dimension{store.BySaga, store.ByStatus}, store.DefaultCount)
			list = append(list, planned{"count: " + c.name, sql, index, nil})
		}
	}
	explained(t, conn, list)
}

// Statistics of a day out of seventy read that day, and no table as a whole.
func TestStatisticsUseTheIndexes(t *testing.T) {
	s, conn := filled(t)
	analyze(t, conn)
	day := store.Range{From: afterHalf, To: afterHalf.Add(24 * time.Hour)}
	series := store.SeriesQuery{Range: day, Bucket: time.Hour, Most: 50_000}
	attempts := store.AttemptQuery{Finished: day, Most: 20_000}
	var list []planned
	for name, sql := range s.StatisticsSQL(store.Filter{}, series, attempts) {
		index := map[string]string{
			"sagas": "executions_created", "longest": "executions_unfinished", "starts": "executions_created", "ends": "executions_finished",
			"latency": "attempts_finished", "failures": "attempts_failed",
		}[name]
		list = append(list, planned{name, sql, index, nil})
	}
	some := s.StatisticsSQL(store.Filter{Sagas: []string{"order"}}, series, attempts)
	list = append(list,
		planned{"starts of a saga", some["starts"], "executions_created", nil}, planned{"ends of a saga", some["ends"], "executions_finished", nil},
		planned{"latency of a saga", some["latency"], "attempts_finished", nil}, planned{"failures of a saga", some["failures"], "attempts_failed", nil},
		planned{
			"a part of a resource", s.ListSQL(store.Filter{ResourceLike: "77", Created: day}, store.Page{Limit: 50}), "executions_created", nil,
		},
		planned{
			"failed in a way", s.ListSQL(store.Filter{Failed: &store.FailedAttempt{Class: "declined", Finished: day}}, store.Page{Limit: 50}), "attempts_failed", nil,
		})
	explained(t, conn, list)
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
		switch v := a.(type) {
		case time.Time:
			a = v.Format(time.RFC3339)
		case []string:
			a = "{" + strings.Join(v, ",") + "}"
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
