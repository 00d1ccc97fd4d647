//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leveret-go/leveret/saga"
)

// patience bounds the waits for what must happen. Nothing is expected to take
// as long.
const patience = 3 * time.Minute

// A database is the one of the processes, seen from outside, with a connection
// for each look: the server may be away.
type database string

func (d database) query(ctx context.Context, sql string, scan func(pgx.Rows) error, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, string(d))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (d database) count(ctx context.Context, sql string, args ...any) (n int, err error) {
	err = d.query(ctx, sql, func(r pgx.Rows) error { return r.Scan(&n) }, args...)
	return n, err
}

// must is count for a database that must answer.
func (d database) must(t *testing.T, sql string, args ...any) int {
	t.Helper()
	n, err := d.count(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// lock takes a lock that others wait for, until release.
func (d database) lock(t *testing.T, sql string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), string(d))
	if err != nil {
		t.Fatal(err)
	}
	release = func() { conn.Close(context.Background()) } // ends its transaction
	t.Cleanup(release)
	for _, sql := range []string{"BEGIN", sql} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return release
}

const (
	started = `SELECT count(*) FROM saga.executions`
	ended   = `SELECT count(*) FROM saga.executions WHERE finished_at IS NOT NULL`
)

// until waits until a number is at least want, or the test has taken too long.
// It fails when one of the processes ends before. A database without tables, or
// none at all, counts 0.
func (d database) until(t *testing.T, what, sql string, want int, alive ...*process) int {
	t.Helper()
	var n int
	var err error
	wait(t, func() string { return fmt.Sprintf("%s: %d, want %d; %v", what, n, want, err) }, func() bool {
		n, err = d.count(t.Context(), sql)
		for _, p := range alive {
			select {
			case <-p.ended:
				t.Fatalf("%s: %d, want %d; %s has ended: %v", what, n, want, p.name, p.cmd.ProcessState)
			default:
			}
		}
		return err == nil && n >= want
	})
	return n
}

// wait looks, again and again, until ok.
func wait(t *testing.T, what func() string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("after %v: %s", patience, what())
		}
	}
}

// showUnfinished shows, when the test has failed, the rows that have not ended.
func (d database) showUnfinished(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		var b strings.Builder
		err := d.query(context.Background(), `SELECT id::text, status, direction, step, epoch, tries, resumes,
				coalesce(attempt_number::text || ' of ' || attempt_worker || ' until ' || attempt_lease_until, ''),
				due_at, wake_at, offered_at, now(), saga || ' ' || resource_id
			FROM saga.executions WHERE finished_at IS NULL ORDER BY due_at LIMIT 50`, func(r pgx.Rows) error {
			var id, status, direction, step, attempt, what string
			var epoch, tries, resumes int
			var due, wake, offered, now pgtype.Timestamptz
			if err := r.Scan(&id, &status, &direction, &step, &epoch, &tries, &resumes, &attempt, &due, &wake, &offered, &now, &what); err != nil {
				return err
			}
			from := func(ts pgtype.Timestamptz) string {
				if !ts.Valid {
					return "-"
				}
				return ts.Time.Sub(now.Time).Round(time.Millisecond).String()
			}
			fmt.Fprintf(&b, "  %s %s: %s %s/%s epoch %d, tries %d, resumes %d, attempt [%s], due %s, wake %s, offered %s\n",
				what, id, status, step, direction, epoch, tries, resumes, attempt, from(due), from(wake), from(offered))
			return nil
		})
		t.Logf("not finished (times from now; %v):\n%s", err, b.String())
	})
}

// contradictions counts the orders of which something else is left than their
// status says: of a completed one each service's work, of one that was undone
// nothing. It is a second opinion on the report's.
func (d database) contradictions(t *testing.T) int {
	t.Helper()
	return d.must(t, `WITH net AS (
			SELECT "order", service,
				count(*) FILTER (WHERE kind = 'execute') AS done, count(*) FILTER (WHERE kind = 'compensate') AS undone
			FROM demo_effects WHERE state = 'done' GROUP BY "order", service
		)
		SELECT count(*) FROM saga.executions x WHERE CASE x.status
			WHEN 'completed' THEN json_array_length(x.ledger) <>
				(SELECT count(*) FROM net WHERE net."order" = x.resource_id AND done = 1 AND undone = 0)
			WHEN 'compensation_failed' THEN EXISTS
				(SELECT FROM net WHERE net."order" = x.resource_id AND (done > 1 OR undone > done))
			ELSE EXISTS (SELECT FROM net WHERE net."order" = x.resource_id AND done <> undone) END`)
}

// cutShort describes the attempts that somebody else than their step ended; but
// not those whose lease could not be renewed in time, which is the machine's doing.
func (d database) cutShort(t *testing.T) (cut []string) {
	t.Helper()
	if err := d.query(t.Context(), `SELECT format('%s %s/%s attempt %s of %s: %s after %s, lease of %s, %s %s', execution, step, direction,
			number, worker, status, finished_at - started_at, lease_until - started_at, failure_message, reason)
		FROM saga.attempts WHERE status IN ('abandoned', 'interrupted') AND reason <> $1 ORDER BY started_at`, func(r pgx.Rows) error {
		var s string
		err := r.Scan(&s)
		cut = append(cut, s)
		return err
	}, saga.ErrAttemptLost.Error()); err != nil {
		t.Fatal(err)
	}
	return cut
}

// tally describes what the store remembers of the attempts.
func (d database) tally(t *testing.T) string {
	t.Helper()
	var parts []string
	add := func(sql string) {
		if err := d.query(t.Context(), sql, func(r pgx.Rows) error {
			var what string
			var n int
			err := r.Scan(&what, &n)
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	add(`SELECT status, count(*) FROM saga.attempts GROUP BY 1 ORDER BY 1`)
	add(`SELECT 'late ' || late_status, count(*) FROM saga.attempts WHERE late GROUP BY 1 ORDER BY 1`)
	return strings.Join(parts, ", ")
}
