package postgres_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
	"github.com/leveret-go/leveret/storetest"
)

// with returns the DSN with one more parameter.
func with(dsn, key, value string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	q.Set(key, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func open(t testing.TB, dsn string, cfg *postgres.Config) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func migrated(t testing.TB, dsn string, cfg *postgres.Config) *postgres.Store {
	t.Helper()
	s := open(t, dsn, cfg)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func newPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func at(d time.Duration) *time.Time { t := start.Add(d); return &t }

func execution() *store.Execution {
	return &store.Execution{
		ID: uuid.Must(uuid.NewV7()), Saga: "order", Version: 1, Partition: "default",
		Resource: store.Resource{Type: "order", ID: "4711"},
		Status:   store.StatusRunning, Direction: store.DirectionExecute, Step: "pay",
		Ledger: []store.LedgerEntry{{Name: "pay", InDoubt: store.InDoubtHalt, Status: store.StepPending, Opens: 1}},
		State:  []byte(`{"a":1}`), DueAt: at(time.Minute),
		Attempt:   &store.OpenAttempt{Number: 1, Worker: "w", StartedAt: start, LeaseUntil: *at(time.Minute)},
		CreatedAt: start, UpdatedAt: start, ProgressAt: start,
	}
}

func create(t testing.TB, s *postgres.Store) *store.Execution {
	t.Helper()
	x := execution()
	if err := s.Create(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	return x
}

// step closes the open attempt of x and opens the next, within its lease.
func step(x *store.Execution) store.Change {
	a, _ := x.OpenAttempt()
	a.Status = store.AttemptSucceeded
	a.FinishedAt = at(time.Second)
	x.Attempt.Number++
	x.UpdatedAt = x.UpdatedAt.Add(time.Second)
	x.ProgressAt = x.UpdatedAt
	return store.Change{Attempts: []store.Attempt{a}, SameState: true}
}

const mode = "default_query_exec_mode"

var abilities = []string{"Advancer", "Cells", "Deleter", "Querier", "Outbox"}

func TestConformance(t *testing.T) {
	for name, newDSN := range map[string]func(t *testing.T) string{
		"cache_statement": func(t *testing.T) string { return testenv.Postgres(t) },
		"exec":            func(t *testing.T) string { return with(testenv.Postgres(t), mode, "exec") },
		"simple_protocol": func(t *testing.T) string { return with(testenv.Postgres(t), mode, "simple_protocol") },
		"pgbouncer":       func(t *testing.T) string { return with(testenv.PgBouncer(t, testenv.Postgres(t)), mode, "exec") },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := with(newDSN(t), "pool_max_conns", "12")
			n := 0
			schemas := map[store.Store]string{}
			storetest.Run(t, func(t *testing.T) store.Store {
				n++
				schema := fmt.Sprintf("saga%d", n)
				s := migrated(t, dsn, &postgres.Config{Schema: schema})
				schemas[s] = schema
				return s
			}, &storetest.Options{Require: abilities, Reopen: func(t *testing.T, s store.Store) store.Store {
				return open(t, dsn, &postgres.Config{Schema: schemas[s]})
			}})
		})
	}
}

func TestQueries(t *testing.T) {
	for name, newDSN := range map[string]func(t *testing.T) string{
		"cache_statement": func(t *testing.T) string { return testenv.Postgres(t) },
		"pgbouncer":       func(t *testing.T) string { return with(testenv.PgBouncer(t, testenv.Postgres(t)), mode, "exec") },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := with(newDSN(t), "pool_max_conns", "12")
			n := 0
			storetest.RunQueries(t, func(t *testing.T) store.Store {
				n++
				return migrated(t, dsn, &postgres.Config{Schema: fmt.Sprintf("saga%d", n)})
			}, &storetest.Options{Require: abilities})
		})
	}
}

// A caller's pool cuts connections when a ctx ends, unlike those of Open.
func TestConformanceOnACallersPool(t *testing.T) {
	pool := newPool(t, with(testenv.Postgres(t), "pool_max_conns", "12"))
	n := 0
	storetest.Run(t, func(t *testing.T) store.Store {
		n++
		s, err := postgres.New(pool, &postgres.Config{Schema: fmt.Sprintf("saga%d", n)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}, nil)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
