package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// filled returns a store with executions, of which every 20th is unfinished, and
// of the others every 20th failed.
func filled(t *testing.T, base time.Time) *Store {
	t.Helper()
	s := openT(t, filepath.Join(t.TempDir(), "sagas.db"))
	err := s.write(t.Context(), "fill", func(tx *txn) error {
		for i := range 4000 {
			at := base.Add(time.Duration(i) * time.Second)
			x := &store.Execution{
				ID: uuid.Must(uuid.NewV7()), Saga: fmt.Sprintf("saga%d", i%5), Partition: fmt.Sprintf("p%d", i%3),
				Resource: store.Resource{Type: "order", ID: fmt.Sprint(i % 1000)},
				Status:   store.StatusCompleted, Direction: store.DirectionExecute, State: []byte(`{"pad":"` + strings.Repeat("x", 200) + `"}`),
				CreatedAt: at, UpdatedAt: at, ProgressAt: at,
			}
			if i%2 == 0 {
				x.Key = fmt.Sprint("k", i)
			}
			switch i % 20 {
			case 0:
				x.Status, x.DueAt = store.StatusRunning, &at
			case 1:
				x.Status = store.StatusFailed
				fallthrough
			default:
				x.FinishedAt = &at
			}
			if err := tx.insert(x); err != nil {
				return err
			}
			a := store.Attempt{Execution: x.ID, Status: store.AttemptSucceeded, StartedAt: at, LeaseUntil: at}
			e := store.AuditEntry{Execution: x.ID, At: at}
			if err := tx.change(x.ID, &store.Change{Attempts: []store.Attempt{a}, Audit: []store.AuditEntry{e}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bothWays runs check without the statistics of ANALYZE and with them.
func bothWays(t *testing.T, s *Store, check func(*testing.T)) {
	t.Run("without statistics", check)
	if _, err := s.writer.ExecContext(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	t.Run("with statistics", check)
}

// TestQueriesUseIndexes asks SQLite itself.
func TestQueriesUseIndexes(t *testing.T) {
	ctx, base := t.Context(), time.Now()
	s := filled(t, base)
	x := s.tables.Name(rows.Executions)
	id := uuid.New()
	stalled := rows.StalledQuery(s.bun.NewSelect().Model(new([]rows.Execution)), s.tables,
		store.StalledQuery{ProgressBefore: base, After: &store.StalledCursor{ProgressAt: base, ID: id}, Limit: 10})
	turn := rows.StalledQuery(s.bun.NewSelect().Model(new([]rows.Execution)), s.tables,
		store.StalledQuery{ProgressBefore: base, Limit: 10, Saga: "saga1", Gate: store.GateTurn, After: &store.StalledCursor{ProgressAt: base, ID: id}})
	resource := rows.ForResourceQuery(s.bun.NewSelect().Model(new([]rows.Execution)), s.tables, store.Resource{Type: "order", ID: "1"}, 10)
	check := func(t *testing.T) {
		for _, q := range []struct {
			name, text string
			args       []any
			want       string
			sorted     bool // by the index, not by a sort
		}{
			{"due", `SELECT * FROM ` + x + ` WHERE ` + whereDue + ` ORDER BY due_at, id LIMIT ?2`, []any{1, 2}, "saga_executions_due", true},
			{"due in a partition", `SELECT * FROM ` + x + ` WHERE ` + whereDueIn + ` ORDER BY due_at, id LIMIT ?3`, []any{1, "p", 2}, "saga_executions_due", true},
			{"any due", `SELECT EXISTS (SELECT 1 FROM ` + x + ` WHERE ` + whereDueIn + `)`, []any{1, "p"}, "COVERING INDEX saga_executions_due", true},
			{"due but paused", `SELECT * FROM ` + x + ` WHERE ` + whereDueExcept + ` ORDER BY due_at, id LIMIT ?6`, []any{1, "", "[]", "[]", "", 2}, "saga_executions_due", true},
			{"any due but paused", `SELECT EXISTS (SELECT 1 FROM ` + x + ` WHERE ` + whereDueExcept + `)`, []any{1, "", "[]", "[]", ""}, "saga_executions_due", true},
			{"due of some sagas", `SELECT * FROM ` + x + ` WHERE ` + whereDueExcept + ` ORDER BY due_at, id LIMIT ?6`, []any{1, "", "[]", "[]", `["a"]`, 2}, "saga_executions_due", true},
			{"children", `SELECT * FROM ` + x + ` WHERE ` + whereChild + ` ORDER BY id LIMIT ?4`, []any{id.String(), "", "", 2}, "saga_executions_children", true},
			{"waiting at a gate", turn.String(), nil, "saga_executions_waiting", true},
			{"key", `SELECT id FROM ` + x + ` WHERE ` + whereHolder, []any{"s", "k"}, "saga_executions_holder", true},
			{"id", `SELECT * FROM ` + x + ` WHERE id = ?1`, []any{id.String()}, "sqlite_autoindex_saga_executions_1", true},
			{"update", updateSQL(x, false, nil), make([]any, len(rows.UpdateColumns)+len(rows.RareColumns)+2), "sqlite_autoindex_saga_executions_1", true},
			{"update of a step", updateSQL(x, true, indexed), make([]any, len(rows.UpdateColumns)+len(rows.RareColumns)+4), "sqlite_autoindex_saga_executions_1", true},
			{"stalled", stalled.String(), nil, "saga_executions_live", false},
			{"resource", resource.String(), nil, "saga_executions_resource", true},
			{"attempts", `SELECT * FROM saga_attempts WHERE execution = ?1 ORDER BY seq`, []any{id.String()}, "sqlite_autoindex_saga_attempts_1", false},
			{"audit", `SELECT * FROM saga_audit WHERE execution = ?1 ORDER BY seq`, []any{id.String()}, "saga_audit_execution", true},
		} {
			plan := explain(t, ctx, s, q.text, q.args...)
			if !strings.Contains(plan, q.want) || strings.Contains(plan, "SCAN saga_attempts") {
				t.Errorf("%s: the plan is %q, want %s", q.name, plan, q.want)
			}
			if q.sorted && strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("%s: the plan is %q, want no sort", q.name, plan)
			}
		}
	}
	bothWays(t, s, check)
}

// TestListsAndCountsUseIndexes: what can be found by an index is not looked for
// in the whole table.
func TestListsAndCountsUseIndexes(t *testing.T) {
	base := time.Now()
	s := filled(t, base)
	finished := store.Range{From: base.Add(time.Hour), To: base.Add(time.Hour + 5*time.Minute)}
	for _, q := range []struct {
		name   string
		filter store.Filter
		want   []string // in the plan, one for each part
		walk   bool     // by the primary key, newest first
	}{
		{name: "unfinished", filter: store.Filter{Unfinished: true}, want: []string{"saga_executions_live"}},
		{name: "running", filter: store.Filter{Statuses: []store.Status{store.StatusRunning}}, want: []string{"saga_executions_live"}},
		{name: "failed", filter: store.Filter{Statuses: []store.Status{store.StatusFailed}}, want: []string{"saga_executions_unsuccessful"}},
		{name: "failed of a saga", filter: store.Filter{Statuses: []store.Status{store.StatusFailed}, Sagas: []string{"saga1"}}, want: []string{"saga_executions_unsuccessful"}},
		{
			name:   "in need of attention",
			filter: store.Filter{Attention: []store.Attention{store.AttentionHalted, store.AttentionFailed, store.AttentionStalled, store.AttentionOverdue}, At: base},
			want:   []string{"saga_executions_live", "saga_executions_unsuccessful"},
		},
		{name: "finished in a range", filter: store.Filter{Finished: finished}, want: []string{"saga_executions_finished (status=? AND finished_at>? AND finished_at<?)"}},
		{
			name:   "completed in a range",
			filter: store.Filter{Finished: finished, Statuses: []store.Status{store.StatusCompleted}},
			want:   []string{"saga_executions_finished (status=? AND finished_at>? AND finished_at<?)"},
		},
		{name: "of a resource", filter: store.Filter{Resource: store.Resource{Type: "order", ID: "7"}}, want: []string{"saga_executions_resource"}},
		{name: "of a key", filter: store.Filter{Keys: []string{"k4"}}, want: []string{"saga_executions_start_key"}},
		{name: "of a parent", filter: store.Filter{Parents: []uuid.UUID{uuid.New()}, Unfinished: true}, want: []string{"saga_executions_children"}},
		{name: "of a tag", filter: store.Filter{Tags: map[string]string{"customer": "7"}}, want: []string{"saga_tags"}},
		{name: "ids", filter: store.Filter{IDs: []uuid.UUID{uuid.New(), uuid.New()}}, want: []string{"sqlite_autoindex_saga_executions_1 (id=?)"}},
		{name: "all", walk: true},
		{name: "of a saga", filter: store.Filter{Sagas: []string{"saga1"}}, walk: true},
		{name: "completed", filter: store.Filter{Statuses: []store.Status{store.StatusCompleted}}, walk: true},
	} {
		bothWays(t, s, func(t *testing.T) {
			for _, after := range []uuid.UUID{uuid.Nil, uuid.Max} {
				list := explain(t, t.Context(), s, rows.ListQuery(s.bun, s.tables, &q.filter, store.Page{Limit: 50, After: after}).String())
				if walks := strings.Count(list, "sqlite_autoindex_saga_executions_1") == 2; q.walk && !walks {
					t.Errorf("%s: the plan of the list is %q, want a walk by id", q.name, list)
				}
				if sorts := strings.Contains(list, "TEMP B-TREE"); sorts && q.filter.Finished == (store.Range{}) {
					t.Errorf("%s: the plan of the list is %q, want no sort", q.name, list)
				}
				for _, w := range q.want {
					if !strings.Contains(list, w) {
						t.Errorf("%s: the plan of the list is %q, want %s", q.name, list, w)
					}
				}
			}
			count := explain(t, t.Context(), s, rows.CountQuery(s.bun, s.tables, &q.filter, []store.Dimension{store.BySaga, store.ByStatus}, 100).String())
			if strings.Contains(count, "MATERIALIZE") {
				t.Errorf("%s: the plan of the count is %q, which its limit does not end", q.name, count)
			}
			for _, w := range q.want {
				if !strings.Contains(count, w) {
					t.Errorf("%s: the plan of the count is %q, want %s", q.name, count, w)
				}
			}
		})
	}
}

func explain(t *testing.T, ctx context.Context, s *Store, query string, args ...any) string {
	t.Helper()
	found, err := s.writer.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer found.Close()
	var plan []string
	for found.Next() {
		var id, parent, unused int
		var detail string
		if err := found.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
	}
	return strings.Join(plan, "; ")
}
