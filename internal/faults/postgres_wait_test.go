//go:build linux

package faults

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leveret-go/leveret/internal/faultproxy"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
)

// Writes are committed and their replies lost with the connection: nobody knows.
func commitReplyLost(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	w.work(2, nil)
	w.consumed(2)
	var mu sync.Mutex
	seen, cuts := map[string]int{}, map[string]int{}
	w.postgres.proxy.Inspect(func(_ int, d faultproxy.Direction, b []byte) faultproxy.Verdict {
		kind := written(b)
		if d != faultproxy.ToClient || kind == "" {
			return faultproxy.Pass
		}
		mu.Lock()
		defer mu.Unlock()
		if seen[kind]++; seen[kind]%5 != 0 {
			return faultproxy.Pass
		}
		cuts[kind]++
		return faultproxy.Cut
	})
	w.start(100, 50*time.Millisecond)
	w.until("20 replies of each kind are lost", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return cuts["advance"] >= 20 && cuts["commit"] >= 20 && cuts["create"] >= 5
	})
	w.postgres.proxy.Heal()
	w.note("replies lost: %v", cuts)
	w.lifted()
	w.finishStore()
}

// written tells which write of the store the server says it has committed.
func written(b []byte) string {
	switch {
	case bytes.Contains(b, []byte("COMMIT\x00")):
		return "commit"
	case bytes.Contains(b, []byte("INSERT 0 1\x00")):
		return "create"
	case bytes.Count(b, []byte("SELECT 1\x00")) == 2: // its limits, and what it has written
		return "advance"
	}
	return ""
}

// Somebody else holds all connections of a worker's pool for longer than a lease. It keeps what it has in
// its hands: leases are renewed over other connections.
func poolExhausted(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	pool := w.localOnPool()
	w.consumed(1)
	w.start(60, 40*time.Millisecond)
	w.ended(10)
	var held []*pgxpool.Conn
	for range pool.Config().MaxConns {
		ctx, cancel := context.WithTimeout(w.t.Context(), patience)
		conn, err := pool.Acquire(ctx)
		cancel()
		w.must(err)
		held = append(held, conn)
	}
	w.say("all %d connections are held", len(held))
	waits := pool.Stat().EmptyAcquireCount()
	w.pause(3*w.settings.Lease + time.Second)
	for _, conn := range held {
		conn.Release()
	}
	w.lifted()
	w.finishStore()
	if pool.Stat().EmptyAcquireCount() == waits {
		w.fail("nobody waited for a connection")
	}
	for _, a := range w.attempts() {
		if a.Status == store.AttemptAbandoned {
			w.fail("an attempt lost its lease: %+v", a)
		}
	}
	w.until("no connection is in use", func() bool { return pool.Stat().AcquiredConns() == 0 })
}

// localOnPool starts a worker inside the test process, on a pool that it shares with the test.
func (w *world) localOnPool() *pgxpool.Pool {
	w.t.Helper()
	s := w.settings
	s.Name = "local-on-pool"
	cfg, err := pgxpool.ParseConfig(s.Store)
	w.must(err)
	cfg.MaxConns = int32(s.Workers)
	pool, err := pgxpool.NewWithConfig(w.t.Context(), cfg)
	w.must(err)
	w.t.Cleanup(pool.Close)
	st, err := postgres.New(pool, s.Postgres)
	w.must(err)
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	l := &local{settings: s, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = runWorker(ctx, s, st, slog.New(slog.DiscardHandler))
		if err := st.Close(); l.err == nil {
			l.err = err
		}
	}()
	w.t.Cleanup(func() {
		stop()
		<-l.done
	})
	w.locals = append(w.locals, l)
	return pool
}

// lockTable locks all executions against everybody, as ALTER TABLE and VACUUM FULL do, until unlock.
func (w *world) lockTable() (unlock func()) {
	w.t.Helper()
	tx, err := w.sql().Begin(w.t.Context())
	w.must(err)
	_, err = tx.Exec(w.t.Context(), "LOCK TABLE saga.executions IN ACCESS EXCLUSIVE MODE")
	w.must(err)
	w.say("the table is locked")
	return func() {
		w.must(tx.Rollback(w.t.Context()))
		w.say("the table is free")
	}
}

// Somebody else holds a lock on the table for longer than anybody waits for it.
func tableLocked(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	w.mayReportLate() // who could not renew its lease
	w.work(2, nil)
	w.consumed(2)
	w.start(120, 50*time.Millisecond)
	w.ended(10)
	unlock := w.lockTable()
	w.pause(18 * time.Second)
	unlock()
	w.lifted()
	w.finishStore()
}

// Statements are ended by the server, again and again: they take longer than they may.
func statementTimeout(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true, Postgres: &postgres.Config{
		StatementTimeout: 500 * time.Millisecond, LockTimeout: time.Minute,
	}})
	w.mayReportLate() // who could not renew its lease
	w.work(2, nil)
	w.consumed(2)
	w.start(150, 60*time.Millisecond)
	for i := range 4 {
		w.ended(10 + 10*i)
		unlock := w.lockTable()
		w.pause(1500 * time.Millisecond)
		unlock()
	}
	w.lifted()
	w.finishStore()
	n := w.errors("SQLSTATE 57014")
	if n == 0 {
		w.fail("no worker felt the time-out")
	}
	w.note("%d times the workers were told that a statement took too long", n)
}
