package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// Attempts returns the attempts of an execution; see [store.Store].
func (s *Store) Attempts(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
	return list(ctx, s, "attempts", func(ctx context.Context) ([]store.Attempt, error) {
		return rows.ListAttempts(ctx, s.lists, s.tables, id)
	})
}

// Audit returns what was done to an execution; see [store.Store].
func (s *Store) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	return list(ctx, s, "audit", func(ctx context.Context) ([]store.AuditEntry, error) {
		return rows.ListAudit(ctx, s.lists, s.tables, id)
	})
}

// Stalled returns executions without progress; see [store.Store]. It reads all
// unfinished executions: there is no index on their progress, which would make
// every step dearer.
func (s *Store) Stalled(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
	return list(ctx, s, "stalled", func(ctx context.Context) ([]*store.Execution, error) {
		return rows.ListStalled(ctx, s.lists, s.tables, q)
	})
}

// ForResource returns the executions of a resource; see [store.Store].
func (s *Store) ForResource(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
	return list(ctx, s, "for resource", func(ctx context.Context) ([]*store.Execution, error) {
		return rows.ListForResource(ctx, s.lists, s.tables, r, limit)
	})
}

// list calls read, again when a connection was found dead.
func list[T any](ctx context.Context, s *Store, op string, read func(context.Context) ([]T, error)) ([]T, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("postgres: %s: %w", op, err)
		}
		limited, cancel := context.WithTimeout(ctx, s.listTimeout())
		out, err := read(limited)
		cancel()
		if err == nil {
			return out, nil
		}
		if try == maxTries || named(err) || ctx.Err() != nil || !(rolledBack(err) || lostConnection(err)) {
			return nil, failedRead(ctx, op, err)
		}
	}
}

// listTimeout bounds the wait for a connection, and the statement.
func (s *Store) listTimeout() time.Duration { return acquireTimeout + s.cfg.StatementTimeout }
