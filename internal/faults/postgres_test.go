//go:build linux

package faults

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/internal/testenv"
)

var postgresFaults = []fault{
	{name: "database-restarted-under-load", group: "postgres", core: true, run: databaseRestarted},
	{name: "backends-terminated-every-second", group: "postgres", core: true, run: backendsTerminated},
	{name: "commit-reply-lost", group: "postgres", core: true, run: commitReplyLost},
	{name: "pool-exhausted", group: "postgres", run: poolExhausted},
	{name: "database-takes-no-more-connections", group: "postgres", run: noMoreConnections},
	{name: "table-locked-by-somebody-else", group: "postgres", run: tableLocked},
	{name: "statement-timeout", group: "postgres", run: statementTimeout},
	{name: "database-disk-full", group: "postgres", run: databaseDiskFull},
}

// upPrivate is up with a PostgreSQL of its own, and the broker of all tests.
func (w *world) upPrivate(s setup, prepare func(conn *pgx.Conn)) {
	w.t.Helper()
	s.Store, s.Rabbit = onPostgres, true
	w.set, w.settings = s, s.Worker.filled()
	w.postgres = w.serve(testenv.NewPostgres(w.t))
	if prepare != nil {
		conn := w.sql()
		prepare(conn)
		w.must(conn.Close(w.t.Context()))
	}
	w.rabbit = w.front(testenv.AMQP(w.t))
	w.settings.Store, w.settings.Postgres = w.postgres.url, s.Postgres
	w.settings.AMQP, w.settings.Prefix = w.rabbit.url, testenv.Prefix(w.t)
	w.t.Cleanup(w.removeQueues)
	w.begin()
}

// sql opens a connection to the database, past the proxy.
func (w *world) sql() *pgx.Conn {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.postgres.direct)
	w.must(err)
	w.t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// bites starts a few more, and waits until the fault is felt: so many tries have failed.
func (w *world) bites(n int) {
	w.t.Helper()
	before := w.starter.failures()
	w.start(10, 10*time.Millisecond)
	w.until("starts fail", func() bool { return w.starter.failures() >= before+n })
}

// failures returns how often a try to start has failed.
func (s *starter) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retries
}

// errors counts the lines in the logs of the workers that hold a text.
func (w *world) errors(text string) (n int) {
	for _, c := range w.children {
		n += strings.Count(c.log(), text)
	}
	return n
}

// finishStore is finish, for faults of the store: it must be seen to work for new executions, too.
func (w *world) finishStore() {
	w.t.Helper()
	w.recover()
	recovery := w.result.Recovery
	w.lifted()
	w.start(20, 20*time.Millisecond)
	w.finish()
	w.result.Recovery = recovery
	w.note("%d tries to start failed, attempts %s", w.starter.failures(), tally(w.attempts()))
}
