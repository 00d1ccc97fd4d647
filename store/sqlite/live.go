package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// Live returns the execution that holds a key; see [store.Store].
func (s *Store) Live(ctx context.Context, saga, key string) (*store.Execution, error) {
	const operation = "get live execution"
	var r rows.Execution
	err := s.live.QueryRowContext(ctx, saga, key).Scan(r.Dest()...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, store.ErrNotFound
	}
	if err != nil {
		return nil, s.fail(ctx, operation, err)
	}
	x, err := r.Store()
	return x, s.fail(ctx, operation, err)
}

// Children returns what an execution has started; see [store.Store].
func (s *Store) Children(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	const operation = "list children"
	found, err := s.children.QueryContext(ctx, q.Parent.String(), q.After.String(), q.Step, q.Limit)
	if err != nil {
		return nil, s.fail(ctx, operation, err)
	}
	list, err := scanAll(found)
	return list, s.fail(ctx, operation, err)
}
