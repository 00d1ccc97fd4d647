package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// Live returns the execution that holds a key; see [store.Store].
func (s *Store) Live(ctx context.Context, saga, key string) (*store.Execution, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.rows[s.keys[startKey{saga, key}]]
	if key == "" || r == nil {
		return nil, store.ErrNotFound
	}
	return r.x.Clone(), nil
}

// Children returns what an execution has started; see [store.Store].
func (s *Store) Children(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := q.Validate(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []*store.Execution
	for _, r := range s.children[q.Parent] {
		if len(list) == q.Limit {
			break
		}
		if (q.Step == "" || q.Step == r.x.Parent.Step) && bytes.Compare(r.id[:], q.After[:]) > 0 {
			list = append(list, r.x.Clone())
		}
	}
	return list, nil
}

// Attempts returns the attempts of an execution; see [store.Store].
func (s *Store) Attempts(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.rows[id]
	if r == nil {
		return nil, nil
	}
	list := make([]store.Attempt, 0, len(r.attempts)+1)
	for i := range r.attempts {
		list = append(list, r.attempts[i].Clone())
	}
	if open, ok := r.x.OpenAttempt(); ok {
		list = append(list, open)
	}
	return list, nil
}

// Audit returns what was done to an execution; see [store.Store].
func (s *Store) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.rows[id]
	if r == nil {
		return nil, nil
	}
	list := make([]store.AuditEntry, len(r.audit))
	for i := range r.audit {
		list[i] = r.audit[i].Clone()
	}
	return list, nil
}

// Stalled returns executions without progress; see [store.Store].
func (s *Store) Stalled(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := q.Validate(); err != nil {
		return nil, err
	}
	before := store.Micros(q.ProgressBefore).UnixMicro()
	var after *place
	if q.After != nil {
		p := placeOf(store.Micros(q.After.ProgressAt), q.After.ID)
		after = &p
	}

	var found []*store.Execution
	s.mu.RLock()
	for p, r := range s.progress.from(after) {
		if p.at >= before || len(found) == q.Limit {
			break
		}
		if q.Selects(r.x) {
			found = append(found, r.x)
		}
	}
	s.mu.RUnlock()
	return clones(found), nil
}

// ForResource returns the executions of a resource; see [store.Store].
func (s *Store) ForResource(ctx context.Context, res store.Resource, limit int) ([]*store.Execution, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, fmt.Errorf("%w: limit is below 1", store.ErrInvalid)
	}
	var found []*store.Execution
	s.mu.RLock()
	for _, r := range slices.Backward(s.resources[res]) {
		if len(found) == limit {
			break
		}
		found = append(found, r.x)
	}
	s.mu.RUnlock()
	return clones(found), nil
}

func clones(list []*store.Execution) []*store.Execution {
	for i, x := range list {
		list[i] = x.Clone()
	}
	return list
}
