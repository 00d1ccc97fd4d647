package postgres

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// ClaimDue takes due executions; see [store.Store]. It is one round trip, on a
// connection of its own. What is passed over is read, from the index that finds
// what is due, each time, at some microseconds for each.
func (s *Store) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	text, args := s.sql.claimDue(&q)
	type claimed struct {
		x   *store.Execution
		was time.Time
	}
	var list []claimed
	err := s.run(ctx, "claim due", s.control, writing, func(ctx context.Context, c *pgx.Conn) error {
		list = nil
		found, err := c.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var r rows.Execution
			var was time.Time
			if err := found.Scan(append(r.Dest(), &was)...); err != nil {
				return err
			}
			x, err := r.Store()
			if err != nil {
				return err
			}
			list = append(list, claimed{x, was})
		}
		return found.Err()
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b claimed) int {
		if n := a.was.Compare(b.was); n != 0 {
			return n
		}
		return bytes.Compare(a.x.ID[:], b.x.ID[:])
	})
	out := make([]*store.Execution, len(list))
	for i := range list {
		out[i] = list[i].x
	}
	return out, nil
}

// claimDue returns the text and values for a query. For all the planner knows,
// coalesce leaves half of the rows: it must not learn from statistics that few
// are left by <> ALL or = ANY, and look for these another way than in the order
// of the index, which is the right one as soon as what is passed over is not most
// of them.
func (s *statements) claimDue(q *store.DueQuery) (string, []any) {
	args := []any{store.Micros(q.Now), store.Micros(q.Now.Add(q.Hold))}
	where := ""
	and := func(condition string, value any) {
		args = append(args, value)
		where += fmt.Sprintf(" AND "+condition, len(args))
	}
	if q.Partition != "" {
		and("partition = $%d::text", q.Partition)
	}
	if len(q.NotPartitions) > 0 {
		and("coalesce(partition <> ALL ($%d::text[]), true)", q.NotPartitions)
	}
	if len(q.NotSagas) > 0 {
		and("coalesce(saga <> ALL ($%d::text[]), true)", q.NotSagas)
	}
	if q.Sagas != nil {
		and("coalesce(saga = ANY ($%d::text[]), false)", q.Sagas)
	}
	return fmt.Sprintf(s.claim, where, q.Limit), args
}

// Renew prolongs leases; see [store.Store]. It is one round trip, on a
// connection of its own.
func (s *Store) Renew(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if err := r.Validate(len(leases)); err != nil {
		return nil, err
	}
	if len(leases) == 0 {
		return nil, ctx.Err()
	}
	n := len(leases)
	ids, steps, directions, workers := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	epochs, numbers := make([]int32, n), make([]int32, n)
	for i, l := range leases {
		ids[i], steps[i], directions[i], workers[i] = l.Execution.String(), l.Step, string(l.Direction), l.Worker
		epochs[i], numbers[i] = int32(l.Epoch), int32(l.Number)
		if !storable(l) {
			ids[i], steps[i], directions[i], workers[i] = "00000000-0000-0000-0000-000000000000", "", "", ""
			epochs[i], numbers[i] = -1, -1 // a lease that nobody holds
		}
	}
	progress := make([]*string, len(r.Progress))
	for i, p := range r.Progress {
		var err error
		if progress[i], err = rows.EncodeProgress(p); err != nil {
			return nil, opaque("renew", err)
		}
	}
	var states []store.LeaseState
	err := s.run(ctx, "renew", s.control, repeating, func(ctx context.Context, c *pgx.Conn) error {
		states = make([]store.LeaseState, n)
		answers, err := c.Query(ctx, s.sql.renew, ids, steps, directions, epochs, numbers, workers,
			store.Micros(r.Now), store.Micros(r.Until), store.Micros(r.DueAt), progress)
		if err != nil {
			return err
		}
		defer answers.Close()
		for answers.Next() {
			var ord int64
			var state string
			if err := answers.Scan(&ord, &state); err != nil {
				return err
			}
			states[ord-1] = store.LeaseState(state)
		}
		return answers.Err()
	})
	if err != nil {
		return nil, err
	}
	if i := slices.Index(states, ""); i >= 0 {
		return nil, fmt.Errorf("postgres: renew: no answer for lease %d of %d", i+1, n)
	}
	return states, nil
}

// storable reports whether a row could hold a lease: else it is not asked for,
// as the server would refuse the text.
func storable(l store.Lease) bool {
	return plainText(l.Step) && plainText(string(l.Direction)) && plainText(l.Worker) &&
		l.Epoch >= 0 && l.Epoch <= math.MaxInt32 && l.Number >= 0 && l.Number <= math.MaxInt32
}

func plainText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
