package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// ClaimEvents takes events to send; see [store.Outbox]. It is one round trip.
func (s *Store) ClaimEvents(ctx context.Context, q store.EventQuery) ([]store.StatusEvent, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	var list []store.StatusEvent
	err := s.run(ctx, "claim events", s.control, writing, func(ctx context.Context, c *pgx.Conn) error {
		list = nil
		found, err := c.Query(ctx, s.sql.claimEvents, store.Micros(q.Now), store.Micros(q.Now.Add(q.Hold)), int64(q.Limit))
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var r rows.Event
			if err := found.Scan(r.Dest()...); err != nil {
				return err
			}
			list = append(list, r.Store())
		}
		return found.Err()
	})
	return list, err
}

// RemoveEvents removes events that were sent; see [store.Outbox]. It is one
// statement.
func (s *Store) RemoveEvents(ctx context.Context, ids []store.EventID) error {
	if len(ids) == 0 {
		return ctx.Err()
	}
	executions, revisions := make([]string, len(ids)), make([]int64, len(ids))
	for i, id := range ids {
		executions[i], revisions[i] = id.Execution.String(), id.Revision
	}
	return s.run(ctx, "remove events", s.control, repeating, func(ctx context.Context, c *pgx.Conn) error {
		_, err := s.execLimited(ctx, c, s.sql.removeEvents, []any{executions, revisions})
		return err
	})
}

// OldestEvent returns since when an event waits to be sent; see [store.Outbox].
func (s *Store) OldestEvent(ctx context.Context) (at *time.Time, err error) {
	err = s.run(ctx, "oldest event", s.control, reading, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, s.sql.oldestEvent).Scan(&at)
	})
	if at != nil {
		*at = at.UTC()
	}
	return at, err
}
