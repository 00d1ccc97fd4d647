package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// Attempts returns the attempts of an execution; see [store.Store].
func (s *Store) Attempts(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
	return list(ctx, s, "attempts", func(ctx context.Context) ([]store.Attempt, error) {
		return rows.ListAttempts(ctx, s.lists, s.tables, id)
	})
}

// Audit returns what was done to an execution; see [store.Store].
func (s *Store) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	return list(ctx, s, "audit", func(ctx context.Context) ([]store.AuditEntry, error) {
		return rows.ListAudit(ctx, s.lists, s.tables, id)
	})
}

// Stalled returns executions without progress; see [store.Store]. It reads all
// unfinished executions: there is no index on their progress, which would make
// every step dearer.
func (s *Store) Stalled(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
	return list(ctx, s, "stalled", func(ctx context.Context) ([]*store.Execution, error) {
		return rows.ListStalled(ctx, s.lists, s.tables, q)
	})
}

// ForResource returns the executions of a resource; see [store.Store].
func (s *Store) ForResource(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
	return list(ctx, s, "for resource", func(ctx context.Context) ([]*store.Execution, error) {
		return rows.ListForResource(ctx, s.lists, s.tables, r, limit)
	})
}

// List returns a page of executions; see [store.Querier]. There is an index for
// the unfinished ones, one for those that ended without success, one for ranges
// of Finished and one for resources; else the newest are read first, until the
// page is full, however many that are, or the statement takes too long.
func (s *Store) List(ctx context.Context, f store.Filter, p store.Page) (*store.List, error) {
	return list(ctx, s, "list", func(ctx context.Context) (*store.List, error) {
		return rows.ListExecutions(ctx, s.lists, s.tables, f, p)
	})
}

// Count counts executions; see [store.Querier] and, for the indexes, List.
func (s *Store) Count(ctx context.Context, f store.Filter, by []store.Dimension, most int) (*store.Counts, error) {
	return list(ctx, s, "count", func(ctx context.Context) (*store.Counts, error) {
		return rows.CountExecutions(ctx, s.lists, s.tables, f, by, most)
	})
}

// Longest lists what moved longest ago; see [store.Querier]. It reads all
// unfinished executions that f may select, as Stalled does.
func (s *Store) Longest(ctx context.Context, f store.Filter, limit int) ([]*store.Execution, error) {
	return list(ctx, s, "longest", func(ctx context.Context) ([]*store.Execution, error) {
		return rows.ListLongest(ctx, s.lists, s.tables, f, limit)
	})
}

// Sagas names the sagas that have executions; see [store.Querier].
func (s *Store) Sagas(ctx context.Context) ([]string, error) {
	return list(ctx, s, "sagas", func(ctx context.Context) ([]string, error) {
		return rows.ListSagas(ctx, s.lists, s.tables)
	})
}

// Series counts starts and ends over time; see [store.Querier].
func (s *Store) Series(ctx context.Context, q store.SeriesQuery) (*store.Series, error) {
	return list(ctx, s, "series", func(ctx context.Context) (*store.Series, error) {
		return rows.CountSeries(ctx, s.lists, s.tables, q)
	})
}

// Latency says how long attempts took; see [store.Querier].
func (s *Store) Latency(ctx context.Context, q store.AttemptQuery) (*store.Latencies, error) {
	return list(ctx, s, "latency", func(ctx context.Context) (*store.Latencies, error) {
		return rows.MeasureLatency(ctx, s.lists, s.tables, q)
	})
}

// Failures sums up failed attempts; see [store.Querier].
func (s *Store) Failures(ctx context.Context, q store.AttemptQuery) (*store.Failures, error) {
	return list(ctx, s, "failures", func(ctx context.Context) (*store.Failures, error) {
		return rows.SumFailures(ctx, s.lists, s.tables, q)
	})
}

// list calls read, again when a connection was found dead.
func list[T any](ctx context.Context, s *Store, op string, read func(context.Context) (T, error)) (none T, err error) {
	if err := s.ready(ctx); err != nil {
		return none, err
	}
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return none, fmt.Errorf("postgres: %s: %w", op, err)
		}
		limited, cancel := context.WithTimeout(ctx, s.listTimeout())
		out, err := read(limited)
		cancel()
		if err == nil {
			return out, nil
		}
		if try == maxTries || named(err) || ctx.Err() != nil || !(rolledBack(err) || lostConnection(err)) {
			return none, failedRead(ctx, op, err)
		}
	}
}

// listTimeout bounds the wait for a connection, and the statement.
func (s *Store) listTimeout() time.Duration { return acquireTimeout + s.cfg.StatementTimeout }
