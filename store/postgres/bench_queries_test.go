package postgres_test

import (
	"cmp"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
)

// BenchmarkQueries asks what a console's first page asks, of as many executions
// as LEVERET_ROWS says (100000), each with three attempts, one a minute.
func BenchmarkQueries(b *testing.B) {
	rows := cmp.Or(os.Getenv("LEVERET_ROWS"), "100000")
	dsn := testenv.Postgres(b)
	s := migrated(b, dsn, nil)
	conn, err := pgx.Connect(b.Context(), dsn)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.Context())) })
	text := strings.Replace(fill, "generate_series(1, 100000)", "generate_series(1, "+rows+")", 1)
	text += `;INSERT INTO saga.attempts (execution, step, direction, epoch, number, worker, status, started_at, finished_at, lease_until, stack, reason, late, late_status)
SELECT id, added, 'execute', 0, 1, 'w', 'succeeded', created_at, created_at + interval '1 second', created_at, '', '', false, '' FROM saga.executions, unnest(ARRAY['stock', 'ship']) AS added;
ANALYZE saga.executions, saga.attempts`
	if _, err := conn.Exec(b.Context(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Exec(b.Context(), "VACUUM saga.executions, saga.attempts"); err != nil {
		b.Fatal(err)
	}
	var now time.Time
	if err := conn.QueryRow(b.Context(), "SELECT max(created_at) FROM saga.executions").Scan(&now); err != nil {
		b.Fatal(err)
	}
	week := store.Range{From: now.Add(-7 * 24 * time.Hour), To: now.Add(time.Minute)}
	all := store.Range{From: now.AddDate(-10, 0, 0), To: now.Add(time.Minute)}
	const most = 50_000
	page := func(f store.Filter) func() error {
		return func() error { _, err := s.List(b.Context(), f, store.Page{}); return err }
	}
	count := func(f store.Filter, by ...store.Dimension) func() error {
		return func() error { _, err := s.Count(b.Context(), f, by, most); return err }
	}
	series := func(r store.Range, bucket time.Duration) func() error {
		return func() error {
			_, err := s.Series(b.Context(), store.SeriesQuery{Range: r, Bucket: bucket, Most: most})
			return err
		}
	}
	latency := func(r store.Range) func() error {
		return func() error { _, err := s.Latency(b.Context(), store.AttemptQuery{Finished: r}); return err }
	}
	failures := func(r store.Range) func() error {
		return func() error { _, err := s.Failures(b.Context(), store.AttemptQuery{Finished: r}); return err }
	}
	for _, c := range []struct {
		name string
		ask  func() error
	}{
		{"floor", func() error { _, err := s.Now(b.Context()); return err }},
		{"newest", page(store.Filter{})},
		{"failed", page(store.Filter{Statuses: []store.Status{store.StatusFailed}})},
		{"unfinished by saga, step, status, direction", count(store.Filter{Unfinished: true}, store.BySaga, store.ByStep, store.ByStatus, store.ByDirection)},
		{"stalled by saga and step", count(store.Filter{Attention: []store.Attention{store.AttentionStalled}, At: now, StalledAfter: time.Hour}, store.BySaga, store.ByStep)},
		{"longest", func() error { _, err := s.Longest(b.Context(), store.Filter{}, 1000); return err }},
		{"sagas", func() error { _, err := s.Sagas(b.Context()); return err }},
		{"series of 7 days", series(week, 2*time.Hour)},
		{"series of all", series(all, 4*24*time.Hour)},
		{"latency of 7 days", latency(week)},
		{"latency of all", latency(all)},
		{"failures of 7 days", failures(week)},
		{"failures of all", failures(all)},
		{"a part of a resource in 7 days", page(store.Filter{ResourceLike: "77", Created: store.Range{From: week.From}})},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if err := c.ask(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms/op")
		})
	}
}
