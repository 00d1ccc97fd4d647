package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// ClaimDue takes due executions; see [store.Store]. When none is due it writes
// nothing and waits for nobody.
func (s *Store) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	const operation = "claim due executions"
	if err := q.Validate(); err != nil {
		return nil, err
	}
	now := store.Micros(q.Now)
	until := store.Micros(q.Now.Add(q.Hold))
	anyDue, due, args := s.anyDue, s.due, []any{now.UnixMicro()}
	switch {
	case len(q.NotPartitions)+len(q.NotSagas) > 0 || q.Sagas != nil:
		lists := make([]any, 3)
		for i, names := range [][]string{q.NotPartitions, q.NotSagas, q.Sagas} {
			list, err := json.Marshal(append([]string{}, names...)) // never null, which would exclude all
			if err != nil {
				return nil, s.fail(ctx, operation, err)
			}
			lists[i] = string(list)
		}
		if q.Sagas == nil {
			lists[2] = ""
		}
		anyDue, due, args = s.anyDueExcept, s.dueExcept, append(append(args, q.Partition), lists...)
	case q.Partition != "":
		anyDue, due, args = s.anyDueIn, s.dueIn, append(args, q.Partition)
	}
	// Idle engines ask all the time: let them not take the write lock for it.
	var found bool
	if err := anyDue.QueryRowContext(ctx, args...).Scan(&found); err != nil {
		return nil, s.fail(ctx, operation, err)
	}
	if !found {
		return nil, nil
	}

	var claimed []*store.Execution
	err := s.write(ctx, operation, func(t *txn) error {
		var err error
		if claimed, err = t.list(due, append(args, q.Limit)...); err != nil {
			return t.fail(err)
		}
		for _, x := range claimed {
			x.DueAt = &until
			if x.OfferedAt == nil {
				x.OfferedAt = &now
			}
			if _, err := t.exec(s.claim, x.ID.String(), until.UnixMicro(), x.OfferedAt.UnixMicro()); err != nil {
				return t.fail(err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, x := range claimed {
		claimed[i] = x.Clone() // now and until are shared
	}
	return claimed, nil
}

// list reads all rows of a query.
func (t *txn) list(stmt *sql.Stmt, args ...any) ([]*store.Execution, error) {
	found, err := t.rows(stmt, args...)
	if err != nil {
		return nil, err
	}
	return scanAll(found)
}

func scanAll(found *sql.Rows) ([]*store.Execution, error) {
	defer found.Close()
	var list []*store.Execution
	for found.Next() {
		var r rows.Execution
		if err := found.Scan(r.Dest()...); err != nil {
			return nil, err
		}
		x, err := r.Store()
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return list, found.Err()
}

// Renew prolongs leases; see [store.Store]. It waits for the write lock and
// never answers [store.LeaseLocked].
func (s *Store) Renew(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if err := r.Validate(len(leases)); err != nil {
		return nil, err
	}
	if len(leases) == 0 {
		return nil, ctx.Err()
	}
	states := make([]store.LeaseState, len(leases))
	until, due, now := rows.NewTime(r.Until).UnixMicro(), rows.NewTime(r.DueAt).UnixMicro(), rows.NewTime(r.Now).UnixMicro()
	err := s.write(ctx, "renew leases", func(t *txn) error {
		for i, l := range leases {
			var progress any
			if r.Progress != nil && r.Progress[i] != nil {
				text, err := rows.EncodeProgress(r.Progress[i])
				if err != nil {
					return t.fail(err)
				}
				progress = *text
			}
			var request *string
			err := t.row(s.statements.renew, until, due, now,
				l.Execution.String(), l.Step, string(l.Direction), l.Epoch, l.Number, l.Worker, progress).Scan(&request)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				states[i] = store.LeaseLost
			case err != nil:
				return t.fail(err)
			default:
				states[i] = store.LeaseHeld
				if request == nil {
					continue
				}
				var q store.Request
				if err := json.Unmarshal([]byte(*request), &q); err != nil {
					return t.fail(err)
				}
				if q.Turn != store.TurnNone {
					states[i] = store.LeaseInterrupted
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}
