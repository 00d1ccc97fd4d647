package memory

import (
	"context"
	"slices"

	"github.com/leveret-go/leveret/store"
)

// ClaimDue takes due executions, passing over locked ones; see [store.Store].
func (s *Store) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := q.Validate(); err != nil {
		return nil, err
	}
	now := store.Micros(q.Now)
	until := store.Micros(now.Add(q.Hold))

	s.mu.Lock()
	var rows []*row
	for p, r := range s.due[q.Partition].from(nil) {
		if p.at > now.UnixMicro() || len(rows) == q.Limit {
			break
		}
		passed := slices.Contains(q.NotPartitions, r.x.Partition) || slices.Contains(q.NotSagas, r.x.Saga) ||
			q.Sagas != nil && !slices.Contains(q.Sagas, r.x.Saga)
		if !passed && !r.lock.locked() {
			rows = append(rows, r)
		}
	}
	claimed := make([]*store.Execution, len(rows))
	for i, r := range rows {
		x := *r.x
		x.DueAt = &until
		if x.OfferedAt == nil {
			x.OfferedAt = &now
		}
		s.replace(r, &x)
		claimed[i] = &x
	}
	s.mu.Unlock()

	for i, x := range claimed {
		claimed[i] = x.Clone()
	}
	return claimed, nil
}

// Renew prolongs leases, never waiting for a lock; see [store.Store].
func (s *Store) Renew(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.Validate(len(leases)); err != nil {
		return nil, err
	}
	states := make([]store.LeaseState, len(leases))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range leases {
		var p *store.Progress
		if r.Progress != nil {
			p = r.Progress[i]
		}
		states[i] = s.renew(l, r, p)
	}
	return states, nil
}

func (s *Store) renew(l store.Lease, n store.Renewal, p *store.Progress) store.LeaseState {
	r := s.rows[l.Execution]
	if r == nil {
		return store.LeaseLost
	}
	if r.lock.locked() {
		return store.LeaseLocked
	}
	if have, ok := r.x.Lease(); !ok || have != l {
		return store.LeaseLost
	}
	x, a := *r.x, *r.x.Attempt
	due := store.Micros(n.DueAt)
	x.Attempt, x.DueAt = &a, &due
	if !a.LeaseUntil.After(store.Micros(n.Now)) {
		x.OfferedAt = nil
	}
	a.LeaseUntil = store.Micros(n.Until)
	if p != nil {
		a.Progress = p.Clone()
	}
	s.replace(r, &x)
	if x.Request != nil && x.Request.Turn != store.TurnNone {
		return store.LeaseInterrupted
	}
	return store.LeaseHeld
}
