package fence_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leveret-go/leveret/fence"
	"github.com/leveret-go/leveret/internal/testenv"
)

// Of two calls at once the second waits for the first, and gets what the end of
// the first makes of it: for every pair, every past, and both ends.
func TestOfTwoAtOnceOneWaitsForTheOther(t *testing.T) {
	onEach(t, func(t *testing.T, p participant) {
		for _, before := range [][]kind{{}, {effect}, {effect, undo}, {undo}} {
			for _, first := range kinds {
				for _, second := range kinds {
					for _, commit := range []bool{true, false} {
						pair(t, p, before, first, second, commit)
					}
				}
			}
		}
	})
}

func pair(t *testing.T, p participant, before []kind, first, second kind, commit bool) {
	t.Helper()
	ctx := t.Context()
	story := fmt.Sprintf("%s, then %s (commits: %v) and %s at once", join(before), first, commit, second)
	execution := newExecution()
	was := nothing
	for _, k := range before {
		_, was = was.after(k)
		whole(t, p, k, execution)
	}

	tx1, err := p.begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want1, then := was.after(first)
	got1, err := call(ctx, tx1, first, execution)
	if err != nil {
		t.Fatalf("%s: %v", story, err)
	}
	if got1 != want1 {
		t.Errorf("%s: the first got %s, want %s", story, got1, want1)
	}

	type answer struct {
		verdict fence.Verdict
		err     error
	}
	calls, answered := make(chan struct{}), make(chan answer, 1)
	go func() {
		close(calls)
		tx2, err := p.begin(ctx)
		if err != nil {
			answered <- answer{err: err}
			return
		}
		v, err := call(ctx, tx2, second, execution)
		if err != nil {
			_ = tx2.rollback(ctx)
			answered <- answer{v, err}
			return
		}
		answered <- answer{v, tx2.commit(ctx)}
	}()
	<-calls
	blocked(t, p)
	select {
	case a := <-answered:
		t.Fatalf("%s: the second did not wait: %s, %v", story, a.verdict, a.err)
	default:
	}
	if commit {
		err, was = tx1.commit(ctx), then
	} else {
		err = tx1.rollback(ctx)
	}
	if err != nil {
		t.Fatalf("%s: %v", story, err)
	}

	a := <-answered
	if a.err != nil {
		t.Fatalf("%s: %v", story, a.err)
	}
	want2, then := was.after(second)
	if a.verdict != want2 {
		t.Errorf("%s: the second got %s, want %s", story, a.verdict, want2)
	}
	if got, want := inForce(t, p, execution), (map[past]int{done: 1}[then]); got != want {
		t.Errorf("%s: in force %d times, want %d", story, got, want)
	}
}

// blocked returns when somebody waits for a lock of PostgreSQL. Whether somebody
// waits for SQLite cannot be seen from outside.
func blocked(t *testing.T, p participant) {
	t.Helper()
	if s, ok := p.(sqlParticipant); ok && s.sqlite {
		return
	}
	for n := 0; n == 0; {
		var err error
		n, err = p.number(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Calls of many effects, each in a transaction of its own, do not get in each
// other's way: one that hangs keeps up no other.
func TestOtherEffectsDoNotWait(t *testing.T) {
	for _, b := range backends[2:] { // SQLite has one writer
		t.Run(b.name, func(t *testing.T) {
			p := b.open(t)
			if err := errors.Join(p.migrate(t.Context()), p.exec(t.Context(), entries)); err != nil {
				t.Fatal(err)
			}
			tx, err := p.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.rollback(t.Context()) }()
			if _, err := call(t.Context(), tx, effect, newExecution()); err != nil {
				t.Fatal(err)
			}
			for _, k := range kinds {
				whole(t, p, k, newExecution())
			}
		})
	}
}

// Above READ COMMITTED a transaction cannot see what came after its beginning:
// the call fails, so that it is repeated.
func TestSnapshotThatIsTooOldFails(t *testing.T) {
	p := sqlParticipant{db: openSQL(t, "pgx", testenv.Postgres(t))}
	if err := errors.Join(p.migrate(t.Context()), p.exec(t.Context(), entries)); err != nil {
		t.Fatal(err)
	}
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, before := range [][]kind{{}, {effect}, {undo}} {
			for _, between := range kinds {
				for _, k := range kinds {
					execution := newExecution()
					for _, k := range before {
						whole(t, p, k, execution)
					}
					tx, err := p.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
					if err != nil {
						t.Fatal(err)
					}
					if _, err := tx.ExecContext(t.Context(), "SELECT count(*) FROM entries"); err != nil {
						t.Fatal(err)
					}
					whole(t, p, between, execution)
					v, err := call(t.Context(), sqlTransaction{tx}, k, execution)
					var pg *pgconn.PgError
					if !errors.As(err, &pg) || pg.Code != "40001" {
						t.Errorf("%s: %s after %s, of which it knows nothing: got %q, %v, want 40001", level, k, between, v, err)
					}
					if err := tx.Rollback(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}
