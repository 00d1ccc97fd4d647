package sqlite

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// Attempts returns the attempts of an execution; see [store.Store].
func (s *Store) Attempts(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
	list, err := rows.ListAttempts(ctx, s.bun, s.tables, id)
	return list, s.fail(ctx, "list attempts", err)
}

// Audit returns the audit trail of an execution; see [store.Store].
func (s *Store) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	list, err := rows.ListAudit(ctx, s.bun, s.tables, id)
	return list, s.fail(ctx, "list audit entries", err)
}

// Stalled returns unfinished executions without progress; see [store.Store].
func (s *Store) Stalled(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
	list, err := rows.ListStalled(ctx, s.bun, s.tables, q)
	if errors.Is(err, store.ErrInvalid) {
		return nil, err
	}
	return list, s.fail(ctx, "list stalled executions", err)
}

// ForResource returns the executions of a resource; see [store.Store].
func (s *Store) ForResource(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
	list, err := rows.ListForResource(ctx, s.bun, s.tables, r, limit)
	if errors.Is(err, store.ErrInvalid) {
		return nil, err
	}
	return list, s.fail(ctx, "list executions of a resource", err)
}
