package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
)

// definite reports whether an error says that nothing was written.
func definite(err error) bool {
	if _, ok := errors.AsType[*store.KeyTakenError](err); ok {
		return true
	}
	for _, e := range []error{
		store.ErrNotFound, store.ErrExists, store.ErrConflict, store.ErrInvalid,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil || definite(err) {
		t.Errorf("got %v, want an error that leaves the outcome open", err)
	}
}

func wantRow(t *testing.T, s *postgres.Store, id uuid.UUID, revision int64, attempts int) {
	t.Helper()
	x, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if x.Revision != revision {
		t.Errorf("revision %d, want %d", x.Revision, revision)
	}
	list, err := s.Attempts(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(list) - 1; got != attempts { // one is open
		t.Errorf("%d closed attempts, want %d", got, attempts)
	}
}

// wantNoConnectionInUse looks until none is: pgxpool destroys a connection that
// was released broken in a goroutine of its own, and counts it until then.
func wantNoConnectionInUse(t *testing.T, s *postgres.Store) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(10 * time.Second); ; <-ticker.C {
		p, c, l := s.Connections()
		if p == 0 && c == 0 && l == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("connections in use: %d of the pool, %d for control, %d for lists", p, c, l)
			return
		}
	}
}

// blocked waits until a backend waits for a lock and returns its pid.
func blocked(t *testing.T, admin *pgxpool.Pool) (pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for pid == 0 {
		err := admin.QueryRow(ctx, `SELECT coalesce(max(pid), 0) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&pid)
		if err != nil {
			t.Fatal(err)
		}
	}
	return pid
}

// lockRow locks a row as a WithLock elsewhere would, until unlock.
func lockRow(t *testing.T, admin *pgxpool.Pool, id uuid.UUID) (unlock func()) {
	t.Helper()
	tx, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM saga.executions WHERE id = $1 FOR NO KEY UPDATE", id.String()); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

func TestBackendKilledUnderTheLock(t *testing.T) {
	dsn := testenv.Postgres(t)
	s, admin := migrated(t, dsn, nil), newPool(t, dsn)
	x := create(t, s)
	_, err := s.WithLock(t.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
		n, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'idle in transaction'`)
		if err != nil || n.RowsAffected() != 1 {
			t.Errorf("killed %v, %v", n, err)
		}
		return step(x), nil
	})
	wantUnknown(t, err)
	wantRow(t, s, x.ID, 1, 0)
	wantNoConnectionInUse(t, s)
	if _, err := s.WithLock(t.Context(), x.ID, func(x *store.Execution) (store.Change, error) { return step(x), nil }); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	wantRow(t, s, x.ID, 2, 1)
}

func TestBackendKilledInAdvance(t *testing.T) {
	dsn := testenv.Postgres(t)
	s, admin := migrated(t, dsn, nil), newPool(t, dsn)
	x := create(t, s)
	unlock := lockRow(t, admin, x.ID)
	defer unlock()
	done := make(chan error)
	go func() { done <- s.Advance(t.Context(), x, step(x.Clone())) }()
	if _, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend($1::int, 5000)", blocked(t, admin)); err != nil {
		t.Fatal(err)
	}
	wantUnknown(t, <-done)
	unlock()
	wantRow(t, s, x.ID, 1, 0)
	wantNoConnectionInUse(t, s)
}

// Backends die at any moment: every write is in whole or not at all.
func TestBackendsKilledAtRandom(t *testing.T) {
	dsn := testenv.Postgres(t)
	s, admin := migrated(t, with(dsn, "pool_max_conns", "4"), nil), newPool(t, dsn)
	var ids []uuid.UUID
	var all sync.WaitGroup
	var failures atomic.Int32
	kill := make(chan bool)
	for n := range 4 {
		x := create(t, s)
		ids = append(ids, x.ID)
		all.Go(func() {
			for i := range 100 {
				select {
				case kill <- true:
				default:
				}
				var err error
				if (i+n)%2 == 0 {
					_, err = s.WithLock(t.Context(), x.ID, func(x *store.Execution) (store.Change, error) { return step(x), nil })
				} else if y, e := s.Get(t.Context(), x.ID); e == nil {
					err = s.Advance(t.Context(), y, step(y))
				} else {
					err = e
				}
				if err != nil {
					failures.Add(1)
					if definite(err) {
						t.Errorf("a definite error: %v", err)
					}
				}
			}
		})
	}
	go func() {
		all.Wait()
		close(kill)
	}()
	for range kill {
		_, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%executions%' ORDER BY random() LIMIT 1`)
		if err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d of 400 writes failed", failures.Load())
	for _, id := range ids {
		x, err := retry(func() (*store.Execution, error) { return s.Get(t.Context(), id) })
		if err != nil {
			t.Fatal(err)
		}
		list, err := retry(func() ([]store.Attempt, error) { return s.Attempts(t.Context(), id) })
		if err != nil {
			t.Fatal(err)
		}
		if got, want := int64(len(list)-1), x.Revision-1; got != want {
			t.Errorf("%d closed attempts after %d writes", got, want)
		}
	}
	wantNoConnectionInUse(t, s)
}

// retry is for a pool whose connections are all dead.
func retry[T any](f func() (T, error)) (v T, err error) {
	for range 5 {
		if v, err = f(); err == nil {
			break
		}
	}
	return v, err
}

// A proxy passes bytes on, until it is told to lose the server's: then it
// waits for the next answer, drops it and, unless it shall keep silent, cuts
// the connection.
type proxy struct {
	net.Listener
	target string
	lose   atomic.Bool
	silent bool
	all    sync.WaitGroup
	mu     sync.Mutex
	conns  []net.Conn
}

func newProxy(t *testing.T, dsn string, silent bool) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, target: u.Host, silent: silent}
	p.all.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.all.Wait()
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.all.Go(func() { _, _ = io.Copy(server, client); server.Close() })
		p.all.Go(func() { p.answers(client, server) })
	}
}

func (p *proxy) answers(client, server net.Conn) {
	buf := make([]byte, 64*1024)
	for {
		n, err := server.Read(buf)
		if err == nil && p.lose.Load() {
			if p.silent {
				continue
			}
			break
		}
		if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
			break
		}
	}
	client.Close()
}

func TestAnswerToAWriteIsLost(t *testing.T) {
	direct := testenv.Postgres(t)
	observer := migrated(t, direct, nil)
	setup := func(t *testing.T) (*proxy, *postgres.Store, *store.Execution) {
		p, dsn := newProxy(t, direct, false)
		s := open(t, dsn, nil)
		x := create(t, s)
		// Now all that follows is prepared.
		x, err := s.WithLock(t.Context(), x.ID, func(x *store.Execution) (store.Change, error) { return step(x), nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Advance(t.Context(), x, step(x)); err != nil {
			t.Fatal(err)
		}
		return p, s, x
	}
	t.Run("WithLock", func(t *testing.T) {
		p, s, x := setup(t)
		_, err := s.WithLock(t.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
			p.lose.Store(true)
			return step(x), nil
		})
		wantUnknown(t, err)
		wantRow(t, observer, x.ID, 4, 3)
		wantNoConnectionInUse(t, s)
	})
	for _, kind := range observer.TxKinds() {
		t.Run("RunTx of "+kind, func(t *testing.T) {
			p, s, x := setup(t)
			err := s.RunTx(t.Context(), kind, func(_ store.Tx, bound store.Store) error {
				_, err := bound.WithLock(t.Context(), x.ID, func(x *store.Execution) (store.Change, error) { return step(x), nil })
				p.lose.Store(true) // the answer to COMMIT
				return err
			})
			wantUnknown(t, err)
			if errors.Is(err, store.ErrConflict) {
				t.Errorf("%v says that nothing was written", err)
			}
			wantRow(t, observer, x.ID, 4, 3)
			wantNoConnectionInUse(t, s)
		})
		t.Run("in RunTx of "+kind, func(t *testing.T) {
			p, s, x := setup(t)
			err := s.RunTx(t.Context(), kind, func(_ store.Tx, bound store.Store) error {
				p.lose.Store(true)
				_, err := bound.WithLock(t.Context(), x.ID, func(x *store.Execution) (store.Change, error) { return step(x), nil })
				return err
			})
			wantUnknown(t, err)
			wantRow(t, observer, x.ID, 3, 2) // it was rolled back
			wantNoConnectionInUse(t, s)
		})
	}
	t.Run("Advance", func(t *testing.T) {
		p, s, x := setup(t)
		p.lose.Store(true)
		wantUnknown(t, s.Advance(t.Context(), x, step(x)))
		if x.Revision != 3 {
			t.Errorf("the revision became %d", x.Revision)
		}
		wantRow(t, observer, x.ID, 4, 3)
	})
	t.Run("Create", func(t *testing.T) {
		p, s, _ := setup(t)
		x := execution()
		p.lose.Store(true)
		wantUnknown(t, s.Create(t.Context(), x))
		wantRow(t, observer, x.ID, 1, 0)
	})
}

// The network swallows the answer while ctx ends: its error would be a lie.
func TestAnswerNeverCame(t *testing.T) {
	t.Parallel()
	direct := testenv.Postgres(t)
	migrated(t, direct, nil)
	p, dsn := newProxy(t, direct, true)
	s := open(t, dsn, nil)
	x := create(t, s)
	if err := s.Advance(t.Context(), x, step(x)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	p.lose.Store(true)
	wantUnknown(t, s.Advance(ctx, x, step(x)))
	p.lose.Store(false)
	wantRow(t, s, x.ID, 3, 2)
}

// The end of ctx cancels on the server: its error is certain, and even a
// caller's pool, which would cut the connection, keeps it.
func TestCancelledWhileWaitingForALock(t *testing.T) {
	dsn := testenv.Postgres(t)
	admin := newPool(t, dsn)
	pool := newPool(t, with(dsn, "pool_max_conns", "1"))
	s, err := postgres.New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	backend := func() (pid int) {
		if err := pool.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	x := create(t, s)
	before := backend()
	unlock := lockRow(t, admin, x.ID)
	defer unlock()
	for name, write := range map[string]func(ctx context.Context) error{
		"Advance": func(ctx context.Context) error { return s.Advance(ctx, x, step(x.Clone())) },
		"WithLock": func(ctx context.Context) error {
			_, err := s.WithLock(ctx, x.ID, func(x *store.Execution) (store.Change, error) {
				t.Error("fn was called")
				return step(x), nil
			})
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- write(ctx) }()
		blocked(t, admin)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want that of ctx", name, err)
		}
	}
	unlock()
	wantRow(t, s, x.ID, 1, 0)
	if after := backend(); after != before {
		t.Error("the connection was cut")
	}
}

func TestLockTimeout(t *testing.T) {
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			dsn := testenv.Postgres(t)
			s := migrated(t, with(dsn, "default_query_exec_mode", mode), &postgres.Config{LockTimeout: 20 * time.Millisecond})
			admin := newPool(t, dsn)
			x := create(t, s)
			unlock := lockRow(t, admin, x.ID)
			defer unlock()
			_, err := s.WithLock(t.Context(), x.ID, func(*store.Execution) (store.Change, error) {
				t.Error("fn was called")
				return store.Change{}, nil
			})
			for name, err := range map[string]error{"WithLock": err, "Advance": s.Advance(t.Context(), x, step(x.Clone()))} {
				if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "55P03" {
					t.Errorf("%s: got %v, want a lock time-out", name, err)
				}
			}
			wantNoConnectionInUse(t, s)
		})
	}
}

// One connection is enough for everything, as nothing asks for a second one
// while it holds one, and renewal and sweep do not need it.
func TestPoolOfOne(t *testing.T) {
	s := migrated(t, with(testenv.Postgres(t), "pool_max_conns", "1"), nil)
	if got := s.PoolSize(); got != 1 {
		t.Errorf("PoolSize is %d", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	x, y := create(t, s), create(t, s)
	lease, _ := y.Lease()
	_, err := s.WithLock(ctx, x.ID, func(x *store.Execution) (store.Change, error) {
		states, err := s.Renew(ctx, []store.Lease{lease}, store.Renewal{Now: start, Until: *at(2 * time.Minute), DueAt: *at(3 * time.Minute)})
		if err != nil || states[0] != store.LeaseHeld {
			t.Errorf("Renew: %v, %v", states, err)
		}
		if due, err := s.ClaimDue(ctx, store.DueQuery{Now: *at(time.Hour), Limit: 9}); err != nil || len(due) != 1 {
			t.Errorf("ClaimDue: %d, %v", len(due), err)
		}
		if _, err := s.Now(ctx); err != nil {
			t.Errorf("Now: %v", err)
		}
		if list, err := s.Attempts(ctx, y.ID); err != nil || len(list) != 1 {
			t.Errorf("Attempts: %d, %v", len(list), err)
		}
		return step(x), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(ctx, y.Clone()); !errors.Is(err, store.ErrExists) {
		t.Errorf("Create: %v", err)
	}
	child := execution()
	child.Key = "k"
	c := step(y)
	c.Create, c.Wake = []*store.Execution{child}, []store.Wake{{ID: x.ID, At: start}}
	if err := s.Advance(ctx, y, c); err != nil {
		t.Errorf("Advance: %v", err)
	}
	y.Key = "k"
	want := &store.KeyTakenError{Saga: "order", Key: "k", Execution: child.ID}
	if got, ok := errors.AsType[*store.KeyTakenError](s.Advance(ctx, y, store.Change{})); !ok || *got != *want {
		t.Errorf("Advance to a taken key: %v", got)
	}
	_, err = s.WithLock(ctx, y.ID, func(y *store.Execution) (store.Change, error) {
		y.Key = "k"
		return store.Change{}, nil
	})
	if got, ok := errors.AsType[*store.KeyTakenError](err); !ok || *got != *want {
		t.Errorf("WithLock to a taken key: %v", err)
	}
	wantNoConnectionInUse(t, s)
}

// What Go takes for JSON the server takes too, down to the depth at which Go
// stops.
func TestDeepState(t *testing.T) {
	s := migrated(t, testenv.Postgres(t), nil)
	for _, state := range []string{
		strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000),
		`{"a":` + strings.Repeat(`[`, 9_999) + strings.Repeat("]", 9_999) + "}",
	} {
		x := execution()
		x.State = json.RawMessage(state)
		if err := s.Create(t.Context(), x); err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(t.Context(), x.ID)
		if err != nil || string(got.State) != state {
			t.Errorf("it came back otherwise: %v", err)
		}
	}
}

// Two writers that take each other's row are told apart by the server: one of
// them is tried again and both are in.
func TestDeadlockIsTriedAgain(t *testing.T) {
	s := migrated(t, testenv.Postgres(t), nil)
	a, b := create(t, s), create(t, s)
	var all sync.WaitGroup
	for range 20 {
		for _, p := range [][2]uuid.UUID{{a.ID, b.ID}, {b.ID, a.ID}} {
			all.Go(func() {
				for {
					x, err := s.Get(t.Context(), p[0])
					if err == nil {
						err = s.Advance(t.Context(), x, store.Change{Wake: []store.Wake{{ID: p[1], At: start}}})
					}
					if err == nil {
						return
					}
					if !errors.Is(err, store.ErrConflict) {
						t.Errorf("Advance: %v", err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	x, err := s.Get(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(41); x.Revision != want {
		t.Errorf("revision %d, want %d", x.Revision, want)
	}
}
