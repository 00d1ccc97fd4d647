package sqlite

import (
	"context"
	"time"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// ClaimEvents takes events to send; see [store.Outbox]. When there is none it
// writes nothing and waits for nobody.
func (s *Store) ClaimEvents(ctx context.Context, q store.EventQuery) ([]store.StatusEvent, error) {
	const operation = "claim events"
	if err := q.Validate(); err != nil {
		return nil, err
	}
	now, until := store.Micros(q.Now).UnixMicro(), store.Micros(q.Now.Add(q.Hold)).UnixMicro()
	var found bool
	err := s.readers.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM `+s.tables.Name(rows.Events)+` WHERE due_at <= ?)`, now).Scan(&found)
	if err != nil {
		return nil, s.fail(ctx, operation, err)
	}
	if !found {
		return nil, nil
	}
	var claimed []store.StatusEvent
	err = s.write(ctx, operation, func(t *txn) error {
		var err error
		if claimed, err = t.dueEvents(now, q.Limit); err != nil {
			return t.fail(err)
		}
		for i := range claimed {
			_, err := t.tx.ExecContext(context.WithoutCancel(ctx), `UPDATE `+s.tables.Name(rows.Events)+`
SET due_at = ?1 WHERE execution = ?2 AND revision = ?3`, until, claimed[i].Execution.String(), claimed[i].Revision)
			if err != nil {
				return t.fail(err)
			}
		}
		return nil
	})
	return claimed, err
}

func (t *txn) dueEvents(now int64, limit int) (list []store.StatusEvent, err error) {
	found, err := t.tx.QueryContext(context.WithoutCancel(t.ctx), `SELECT `+rows.List(rows.EventColumns)+` FROM `+t.s.tables.Name(rows.Events)+`
WHERE due_at <= ?1 ORDER BY at, execution, revision LIMIT ?2`, now, limit)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		var r rows.Event
		if err := found.Scan(r.Dest()...); err != nil {
			return nil, err
		}
		list = append(list, r.Store())
	}
	return list, found.Err()
}

// RemoveEvents removes events that were sent; see [store.Outbox].
func (s *Store) RemoveEvents(ctx context.Context, ids []store.EventID) error {
	if len(ids) == 0 {
		return ctx.Err()
	}
	return s.write(ctx, "remove events", func(t *txn) error {
		for _, id := range ids {
			_, err := t.tx.ExecContext(context.WithoutCancel(ctx), `DELETE FROM `+s.tables.Name(rows.Events)+`
WHERE execution = ?1 AND revision = ?2`, id.Execution.String(), id.Revision)
			if err != nil {
				return t.fail(err)
			}
		}
		return nil
	})
}

// OldestEvent returns since when an event waits to be sent; see [store.Outbox].
func (s *Store) OldestEvent(ctx context.Context) (*time.Time, error) {
	var at *rows.Time
	err := s.readers.QueryRowContext(ctx, `SELECT min(at) FROM `+s.tables.Name(rows.Events)).Scan(&at)
	if err != nil || at == nil {
		return nil, s.fail(ctx, "oldest event", err)
	}
	return &at.Time, nil
}
