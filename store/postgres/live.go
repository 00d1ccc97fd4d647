package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// Live returns the execution that holds a key; see [store.Store].
func (s *Store) Live(ctx context.Context, saga, key string) (*store.Execution, error) {
	if key == "" || !plainText(saga) || !plainText(key) { // which the server would refuse
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, store.ErrNotFound
	}
	var x *store.Execution
	err := s.run(ctx, "live", s.pool, reading, func(ctx context.Context, c *pgx.Conn) error {
		var err error
		x, err = scanOne(c.QueryRow(ctx, s.sql.live, saga, key))
		return err
	})
	return x, err
}

// Children returns what an execution has started; see [store.Store].
func (s *Store) Children(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	var list []*store.Execution
	err := s.run(ctx, "children", s.pool, reading, func(ctx context.Context, c *pgx.Conn) error {
		list = nil
		found, err := c.Query(ctx, s.sql.children, q.Parent.String(), q.After.String(), q.Step, int64(q.Limit))
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var r rows.Execution
			if err := found.Scan(r.Dest()...); err != nil {
				return err
			}
			x, err := r.Store()
			if err != nil {
				return err
			}
			list = append(list, x)
		}
		return found.Err()
	})
	return list, err
}
