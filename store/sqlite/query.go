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
	if errors.Is(err, store.ErrInvalid) {
		return nil, err
	}
	return list, s.fail(ctx, "list executions", err)
}

// Count counts executions; see [store.Querier] and, for the indexes, List.
func (s *Store) Count(ctx context.Context, f store.Filter, by []store.Dimension, most int) (*store.Counts, error) {
	counts, err := rows.CountExecutions(ctx, s.bun, s.tables, f, by, most)
	if errors.Is(err, store.ErrInvalid) {
		return nil, err
	}
	return counts, s.fail(ctx, "count executions", err)
}
