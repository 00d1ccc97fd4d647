package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

func openT(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestNewFileIsOpenedByManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sagas.db")
	stores := make([]*Store, 8)
	var wait sync.WaitGroup
	for i := range stores {
		wait.Go(func() {
			var err error
			if stores[i], err = Open(t.Context(), path, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, s := range stores {
		if s == nil {
			continue
		}
		if s.id != stores[0].id {
			t.Error("the stores have different ids")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSchemaVersions(t *testing.T) {
	embedded, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	n := len(embedded)
	with := func(m migration) []migration {
		m.version, m.name = n+1, "next"
		return append(slices.Clone(embedded), m)
	}
	const add = `ALTER TABLE {{cells}} ADD COLUMN extra TEXT`
	ctx := t.Context()

	t.Run("an older schema is migrated", func(t *testing.T) {
		s := openT(t, filepath.Join(t.TempDir(), "sagas.db"))
		id, err := migrate(ctx, s.writer, s.tables, with(migration{floor: 1, text: add}))
		if err != nil || id != s.id {
			t.Fatalf("got id %s, %v; want %s", id, err, s.id)
		}
		if _, err := s.writer.ExecContext(ctx, `SELECT extra FROM saga_cells`); err != nil {
			t.Error(err)
		}
	})
	t.Run("a newer schema that supports this library is used", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "sagas.db")
		s := openT(t, path)
		if _, err := migrate(ctx, s.writer, s.tables, with(migration{floor: n, text: add})); err != nil {
			t.Fatal(err)
		}
		s2 := openT(t, path)
		if _, err := s2.SetCell(ctx, "c", []byte("1"), 0); err != nil {
			t.Error(err)
		}
	})
	t.Run("a newer schema that does not is refused", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "sagas.db")
		s := openT(t, path)
		if _, err := migrate(ctx, s.writer, s.tables, with(migration{floor: n + 1, text: add})); err != nil {
			t.Fatal(err)
		}
		_, err := Open(ctx, path, nil)
		e, ok := errors.AsType[*store.SchemaError](err)
		if want := (store.SchemaError{Code: store.SchemaTooNew, Have: n + 1, Want: n + 1}); !ok || *e != want {
			t.Errorf("got %v, want %v", err, &want)
		}
	})
	t.Run("a migration that fails leaves the schema as it was", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "sagas.db")
		s := openT(t, path)
		if _, err := migrate(ctx, s.writer, s.tables, with(migration{floor: 1, text: add + `; nonsense`})); err == nil {
			t.Fatal("no error")
		}
		if _, err := s.writer.ExecContext(ctx, `SELECT extra FROM saga_cells`); err == nil {
			t.Error("half of the migration is there")
		}
		openT(t, path)
	})
}

// TestQueriesUseIndexes asks SQLite itself, with and without statistics.
func TestQueriesUseIndexes(t *testing.T) {
	s := openT(t, filepath.Join(t.TempDir(), "sagas.db"))
	ctx := t.Context()
	base := time.Now()
	err := s.write(ctx, "fill", func(tx *txn) error {
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
			if i%20 == 0 {
				x.Status, x.DueAt = store.StatusRunning, &at
			} else {
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

	x := s.tables.Name(rows.Executions)
	id := uuid.New()
	stalled := rows.StalledQuery(s.bun.NewSelect().Model(new([]rows.Execution)), s.tables,
		store.StalledQuery{ProgressBefore: base, After: &store.StalledCursor{ProgressAt: base, ID: id}, Limit: 10})
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
			{"key", `SELECT id FROM ` + x + ` WHERE ` + whereHolder, []any{"s", "k"}, "saga_executions_key", true},
			{"id", `SELECT * FROM ` + x + ` WHERE id = ?1`, []any{id.String()}, "sqlite_autoindex_saga_executions_1", true},
			{"update", updateSQL(x, false, nil), make([]any, len(rows.UpdateColumns)+2), "sqlite_autoindex_saga_executions_1", true},
			{"update of a step", updateSQL(x, true, indexed), make([]any, len(rows.UpdateColumns)+4), "sqlite_autoindex_saga_executions_1", true},
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
	t.Run("without statistics", check)
	if _, err := s.writer.ExecContext(ctx, "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	t.Run("with statistics", check)
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

func TestGrownWALIsEmptied(t *testing.T) {
	s := openT(t, filepath.Join(t.TempDir(), "sagas.db"))
	s.walLimit = 100 << 10
	wal := func() int64 {
		info, err := os.Stat(s.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	write := func(n int) {
		for i := range n {
			if _, err := s.SetCell(t.Context(), "c", fmt.Appendf(nil, `"%d %s"`, i, strings.Repeat("x", 2000)), int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.SetCell(t.Context(), "c", nil, int64(n)); err != nil {
			t.Fatal(err)
		}
	}
	// A reader's snapshot keeps it from being emptied, and the writer from
	// nothing else.
	tx, err := s.readers.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM saga_cells").Scan(&n); err != nil {
		t.Fatal(err)
	}
	write(2 * checkEvery)
	held := wal()
	if held <= s.walLimit {
		t.Fatalf("the wal has only %d bytes", held)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	write(checkEvery)
	if got := wal(); got >= held {
		t.Errorf("the wal still has %d bytes, had %d", got, held)
	}
	var busy int
	if err := s.writer.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&busy); err != nil || time.Duration(busy)*time.Millisecond != s.busy {
		t.Errorf("the busy timeout is %d ms afterwards, %v", busy, err)
	}
}

func TestTextIsStoredAsText(t *testing.T) {
	s := openT(t, filepath.Join(t.TempDir(), "sagas.db"))
	now := time.Now()
	x := &store.Execution{
		ID: uuid.New(), Saga: "s", Partition: "p", Status: store.StatusRunning, Direction: store.DirectionExecute,
		State: []byte("{}"), CreatedAt: now, UpdatedAt: now, ProgressAt: now,
	}
	if err := s.Create(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	var id, state, ledger, at string
	err := s.writer.QueryRowContext(t.Context(), `SELECT typeof(id), typeof(state), ledger, typeof(created_at) FROM saga_executions`).
		Scan(&id, &state, &ledger, &at)
	if err != nil || id != "text" || state != "text" || ledger != "[]" || at != "integer" {
		t.Errorf("id is %s, state %s, ledger %s, created_at %s; %v", id, state, ledger, at, err)
	}
}

// TestIndexedNamesTheColumnsOfAllIndexes: a column that lacks there would be
// written right, and with it an index at every step.
func TestIndexedNamesTheColumnsOfAllIndexes(t *testing.T) {
	s := openT(t, filepath.Join(t.TempDir(), "sagas.db"))
	found, err := s.writer.QueryContext(t.Context(), `SELECT DISTINCT c.name, COALESCE(l.sql, '')
FROM pragma_index_list('saga_executions') AS i, pragma_index_info(i.name) AS c, sqlite_schema AS l WHERE l.name = i.name`)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var column, text string
		if err := found.Scan(&column, &text); err != nil {
			t.Fatal(err)
		}
		if column != "id" && !slices.Contains(indexed, column) {
			t.Errorf("%s is in an index", column)
		}
		if _, where, ok := strings.Cut(text, "WHERE"); ok {
			for _, c := range rows.Columns {
				if strings.Contains(" "+where, " "+c+" ") && !slices.Contains(indexed, c) {
					t.Errorf("%s is in the predicate of an index", c)
				}
			}
		}
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
}
