package postgres

import (
	"context"

	"github.com/leveret-go/leveret/store"
)

// Live returns the execution that holds a key; see [store.Store].
func (s *Store) Live(ctx context.Context, saga, key string) (*store.Execution, error) {
	return nil, store.ErrNotSupported
}

// Children returns what an execution has started; see [store.Store].
func (s *Store) Children(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
	return nil, store.ErrNotSupported
}
