package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
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

// TestDatabaseOfVersion1IsMigrated: with what it holds, which reads as if the
// new fields had been left empty.
func TestDatabaseOfVersion1IsMigrated(t *testing.T) {
	ctx := t.Context()
	embedded, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sagas.db")
	old, err := sql.Open("sqlite", path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	tables := rows.Tables{Prefix: "saga_"}
	storeID, err := migrate(ctx, old, tables, embedded[:1])
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.MustParse("01940000-0000-7000-8000-00000000000a")
	for _, text := range []string{
		`INSERT INTO saga_executions VALUES ('` + id.String() + `', 'order', 1, 'p', '', '', 'k', 'running', 'execute', 'pay', 0, '[]',
	1, 'w', 1, 2, NULL, 3, NULL, NULL, 1, 0, NULL, NULL, NULL, '', NULL, '', 4, 5, 6, NULL, 7, '{"a":1}')`,
		`INSERT INTO saga_audit VALUES (1, '` + id.String() + `', 8, 'retry', 'ann', 'why', 'halted', 'running')`,
		`INSERT INTO saga_audit VALUES (2, '` + id.String() + `', 9, 'retry', 'ann', 'why', 'halted', 'running')`,
	} {
		if _, err := old.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}

	s := openT(t, path)
	if s.id != storeID {
		t.Errorf("the store's id is %s, was %s", s.id, storeID)
	}
	got, err := s.Get(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	at := func(us int64) time.Time { return time.UnixMicro(us).UTC() }
	due := at(3)
	want := &store.Execution{
		ID: id, Saga: "order", Version: 1, Partition: "p", Key: "k", Status: store.StatusRunning, Direction: store.DirectionExecute,
		Step: "pay", State: []byte(`{"a":1}`), Attempt: &store.OpenAttempt{Number: 1, Worker: "w", StartedAt: at(1), LeaseUntil: at(2)},
		DueAt: &due, Tries: 1, CreatedAt: at(4), UpdatedAt: at(5), ProgressAt: at(6), Revision: 7,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	entries, err := s.Audit(ctx, id)
	if err != nil || len(entries) != 2 || entries[1].Request != "" || entries[1].Detail != nil {
		t.Errorf("got the audit entries %+v, %v", entries, err)
	}

	got.State, got.Initial, got.Checkpoint, got.Turn = []byte(`{"a":2}`), got.State, []byte(`3`), store.TurnCancel
	entry := store.AuditEntry{Execution: id, At: at(10), Act: "cancel", Before: got.Status, After: got.Status, Request: "r"}
	if err := s.Advance(ctx, got, store.Change{Audit: []store.AuditEntry{entry}}); err != nil {
		t.Fatal(err)
	}
	if written, err := s.Get(ctx, id); err != nil || !reflect.DeepEqual(written, got) {
		t.Errorf("got %+v, want %+v; %v", written, got, err)
	}
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

// TestIndexedNamesTheColumnsOfAllIndexes that an update sets: a column that lacks
// there would be written right, and with it an index at every step.
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
		if !slices.Contains(rows.FixedColumns, column) && !slices.Contains(indexed, column) {
			t.Errorf("%s is in an index", column)
		}
		if _, where, ok := strings.Cut(text, "WHERE"); ok {
			for _, c := range rows.Columns {
				if strings.Contains(" "+where, " "+c+" ") && !slices.Contains(rows.FixedColumns, c) && !slices.Contains(indexed, c) {
					t.Errorf("%s is in the predicate of an index", c)
				}
			}
		}
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
}
