package sqlite

import (
	"context"
	"errors"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// List returns a page of executions; see [store.Querier]. There is an index
// for the unfinished ones, one for those that ended without success, one for
// ranges of Finished and one for resources; else the newest are read first, until
// the page is full, however many that are.
func (s *Store) List(ctx context.Context, f store.Filter, p store.Page) (*store.List, error) {
	list, err := rows.ListExecutions(ctx, s.bun, s.tables, f, p)
	return answered(ctx, s, "list executions", list, err)
}

// Count counts executions; see [store.Querier] and, for the indexes, List.
func (s *Store) Count(ctx context.Context, f store.Filter, by []store.Dimension, most int) (*store.Counts, error) {
	counts, err := rows.CountExecutions(ctx, s.bun, s.tables, f, by, most)
	return answered(ctx, s, "count executions", counts, err)
}

// Longest lists what moved longest ago; see [store.Querier]. It reads all
// unfinished executions that f may select.
func (s *Store) Longest(ctx context.Context, f store.Filter, limit int) ([]*store.Execution, error) {
	list, err := rows.ListLongest(ctx, s.bun, s.tables, f, limit)
	return answered(ctx, s, "list what moved longest ago", list, err)
}

// Sagas names the sagas that have executions; see [store.Querier].
func (s *Store) Sagas(ctx context.Context) ([]string, error) {
	list, err := rows.ListSagas(ctx, s.bun, s.tables)
	return answered(ctx, s, "list sagas", list, err)
}

// Series counts starts and ends over time; see [store.Querier].
func (s *Store) Series(ctx context.Context, q store.SeriesQuery) (*store.Series, error) {
	series, err := rows.CountSeries(ctx, s.bun, s.tables, q)
	return answered(ctx, s, "count starts and ends", series, err)
}

// Latency says how long attempts took; see [store.Querier].
func (s *Store) Latency(ctx context.Context, q store.AttemptQuery) (*store.Latencies, error) {
	latencies, err := rows.MeasureLatency(ctx, s.bun, s.tables, q)
	return answered(ctx, s, "measure latency", latencies, err)
}

// Failures sums up failed attempts; see [store.Querier].
func (s *Store) Failures(ctx context.Context, q store.AttemptQuery) (*store.Failures, error) {
	failures, err := rows.SumFailures(ctx, s.bun, s.tables, q)
	return answered(ctx, s, "sum up failures", failures, err)
}

func answered[T any](ctx context.Context, s *Store, op string, answer T, err error) (none T, _ error) {
	switch {
	case err == nil:
		return answer, nil
	case errors.Is(err, store.ErrInvalid):
		return none, err
	}
	return none, s.fail(ctx, op, err)
}
