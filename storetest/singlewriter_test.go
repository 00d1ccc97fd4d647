package storetest

import (
	"context"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A singleWriter has one lock for all rows.
type singleWriter struct {
	*memory.Store
	slot chan struct{}
}

func newSingleWriter() *singleWriter { return newSingleWriterOver(memory.New()) }

func newSingleWriterOver(s *memory.Store) *singleWriter {
	return &singleWriter{s, make(chan struct{}, 1)}
}

func (s *singleWriter) lock(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case s.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *singleWriter) unlock() { <-s.slot }

func (s *singleWriter) Create(ctx context.Context, x *store.Execution) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	return s.Store.Create(ctx, x)
}

func (s *singleWriter) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	return s.Store.WithLock(ctx, id, fn)
}

func (s *singleWriter) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	return s.Store.Advance(ctx, x, c)
}

func (s *singleWriter) Delete(ctx context.Context, versions []store.Version) ([]bool, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	return s.Store.Delete(ctx, versions)
}

func (s *singleWriter) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	return s.Store.ClaimDue(ctx, q)
}

func (s *singleWriter) Renew(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	return s.Store.Renew(ctx, leases, r)
}
