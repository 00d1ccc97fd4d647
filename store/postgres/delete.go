package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/store"
)

// Delete removes finished executions; see [store.Deleter]. It is one statement,
// on a connection that no step waits for. Give it some hundreds at once: all of
// them are locked until the last is gone.
func (s *Store) Delete(ctx context.Context, versions []store.Version) ([]bool, error) {
	if len(versions) == 0 {
		return nil, ctx.Err()
	}
	ids, revisions := make([]string, len(versions)), make([]int64, len(versions))
	for i, v := range versions {
		ids[i], revisions[i] = v.ID.String(), v.Revision
	}
	removed := make(map[store.Version]bool, len(versions))
	err := s.run(ctx, "delete", s.listing, writing, func(ctx context.Context, c *pgx.Conn) error {
		found, err := c.Query(ctx, s.sql.delete, ids, revisions)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var v store.Version
			if err := found.Scan(&v.ID, &v.Revision); err != nil {
				return err
			}
			removed[v] = true
		}
		return found.Err()
	})
	if err != nil {
		return nil, err
	}
	answers := make([]bool, len(versions))
	for i, v := range versions {
		answers[i] = removed[v]
		delete(removed, v) // once
	}
	return answers, nil
}
