package saga

import (
	"context"
	"fmt"
	"time"

	"github.com/leveret-go/leveret/store"
)

// List returns a page of the executions that f selects, newest first; see
// [store.Querier]. What f says of stalled and overdue may be left out: At
// defaults to now, StalledAfter to 15 minutes, and OverdueAfter to ten times
// Config.SweepEvery, or Config.PickupWithin if that is longer. For pages that
// fit together f.At has to be the same for all of them. It returns
// [ErrNotSupported] when the store has no store.Querier, and [ErrInvalid] for a
// bad filter or page.
func (e *Engine) List(ctx context.Context, f store.Filter, p store.Page) (*store.List, error) {
	q, f, err := e.query(ctx, f)
	if err != nil {
		return nil, err
	}
	list, err := q.List(ctx, f, p)
	if err != nil {
		return nil, fmt.Errorf("saga: list executions: %w", err)
	}
	return list, nil
}

// Count counts the executions that f selects in groups, at most most of them;
// see [store.Querier], and [Engine.List] for what f may leave out and for the
// errors.
func (e *Engine) Count(ctx context.Context, f store.Filter, by []store.Dimension, most int) (*store.Counts, error) {
	q, f, err := e.query(ctx, f)
	if err != nil {
		return nil, err
	}
	counts, err := q.Count(ctx, f, by, most)
	if err != nil {
		return nil, fmt.Errorf("saga: count executions: %w", err)
	}
	return counts, nil
}

// stalledAfter is how long ago an execution has moved last that is listed as
// stalled.
const stalledAfter = 15 * time.Minute

// query returns who answers queries, and f with its defaults.
func (e *Engine) query(ctx context.Context, f store.Filter) (store.Querier, store.Filter, error) {
	q, ok := store.As[store.Querier](e.store)
	if !ok {
		return nil, f, fmt.Errorf("saga: list executions: %w: it has no store.Querier", ErrNotSupported)
	}
	if err := e.clock.ready(ctx); err != nil {
		return nil, f, err
	}
	if f.At.IsZero() {
		f.At = e.clock.now()
	}
	setDefault(&f.StalledAfter, stalledAfter)
	setDefault(&f.OverdueAfter, max(10*e.cfg.SweepEvery, e.cfg.PickupWithin))
	return q, f, nil
}

// Longest returns the unfinished executions that f selects and that moved
// longest ago, at most limit of them; see [store.Querier], and [Engine.List] for
// what f may leave out and for the errors.
func (e *Engine) Longest(ctx context.Context, f store.Filter, limit int) ([]*Execution, error) {
	q, f, err := e.query(ctx, f)
	if err != nil {
		return nil, err
	}
	list, err := q.Longest(ctx, f, limit)
	if err != nil {
		return nil, fmt.Errorf("saga: list what moved longest ago: %w", err)
	}
	return list, nil
}

// SagaNames returns the names of the sagas that have executions, in order; see
// [store.Querier]. It returns [ErrNotSupported] when the store has none.
func (e *Engine) SagaNames(ctx context.Context) ([]string, error) {
	q, _, err := e.query(ctx, store.Filter{})
	if err != nil {
		return nil, err
	}
	list, err := q.Sagas(ctx)
	if err != nil {
		return nil, fmt.Errorf("saga: list sagas: %w", err)
	}
	return list, nil
}

// Series counts starts and ends over time; see [store.Querier], and
// [Engine.List] for what q.Filter may leave out and for the errors.
func (e *Engine) Series(ctx context.Context, q store.SeriesQuery) (*store.Series, error) {
	s, f, err := e.query(ctx, q.Filter)
	if err != nil {
		return nil, err
	}
	q.Filter = f
	series, err := s.Series(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("saga: count starts and ends: %w", err)
	}
	return series, nil
}

// Latency says how long attempts took; see [store.Querier], and [Engine.List]
// for what q.Filter may leave out and for the errors.
func (e *Engine) Latency(ctx context.Context, q store.AttemptQuery) (*store.Latencies, error) {
	s, f, err := e.query(ctx, q.Filter)
	if err != nil {
		return nil, err
	}
	q.Filter = f
	latencies, err := s.Latency(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("saga: measure latency: %w", err)
	}
	return latencies, nil
}

// Failures sums up failed attempts; see [store.Querier], and [Engine.List] for
// what q.Filter may leave out and for the errors.
func (e *Engine) Failures(ctx context.Context, q store.AttemptQuery) (*store.Failures, error) {
	s, f, err := e.query(ctx, q.Filter)
	if err != nil {
		return nil, err
	}
	q.Filter = f
	failures, err := s.Failures(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("saga: sum up failures: %w", err)
	}
	return failures, nil
}
