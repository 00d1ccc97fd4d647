package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// Create inserts an execution; see [store.Store].
func (s *Store) Create(ctx context.Context, x *store.Execution) error {
	if err := x.Validate(); err != nil {
		return err
	}
	err := s.write(ctx, "create execution", func(t *txn) error { return t.insert(x) })
	if err == nil {
		x.Revision = 1
	}
	return err
}

// Get returns an execution as last committed; see [store.Store].
func (s *Store) Get(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
	const operation = "get execution"
	var r rows.Execution
	err := s.get.QueryRowContext(ctx, id.String()).Scan(r.Dest()...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, store.ErrNotFound
	}
	if err != nil {
		return nil, s.fail(ctx, operation, err)
	}
	x, err := r.Store()
	return x, s.fail(ctx, operation, err)
}

// WithLock changes an execution under SQLite's write lock; see [store.Store].
// The lock is that of the file: no other write of any process makes progress
// while fn runs.
func (s *Store) WithLock(ctx context.Context, id uuid.UUID, fn func(x *store.Execution) (store.Change, error)) (*store.Execution, error) {
	l := lockedWrite{id: id, fn: fn}
	return l.end(s.write(ctx, "lock execution", l.run))
}

// A lockedWrite is a WithLock.
type lockedWrite struct {
	id uuid.UUID
	fn func(x *store.Execution) (store.Change, error)

	unchanged, written *store.Execution
	created            []*store.Execution
}

// run does it in t. It returns ErrUnchanged to write nothing.
func (l *lockedWrite) run(t *txn) error {
	r, err := t.load(l.id)
	if err != nil {
		return err
	}
	x, err := r.Store()
	if err != nil {
		return t.fail(err)
	}
	c, err := l.fn(x)
	if errors.Is(err, store.ErrUnchanged) {
		if l.unchanged, err = r.Store(); err != nil {
			return t.fail(err)
		}
		return store.ErrUnchanged
	}
	if err != nil {
		return err
	}
	if c.SameState {
		r.GiveState(x)
	}
	same, checked := r.HasState(x), x
	if same {
		checked = stateless(x)
	}
	old, err := r.Fixed()
	if err != nil {
		return t.fail(err)
	}
	if err := store.ValidateUpdate(old, checked, &c); err != nil {
		return err
	}
	if err := t.update(x, &c, same); err != nil {
		return err
	}
	l.written, l.created = x.Clone(), c.Create
	if c.Erase {
		l.written.Tags = nil
	}
	return nil
}

// end returns what WithLock does, err being what came of run and its transaction.
func (l *lockedWrite) end(err error) (*store.Execution, error) {
	if errors.Is(err, store.ErrUnchanged) && l.unchanged != nil {
		return l.unchanged, nil
	}
	if err != nil {
		return nil, err
	}
	l.written.Revision++
	for _, x := range l.created {
		x.Revision = 1
	}
	return l.written, nil
}

// Advance writes an execution without reading it first; see [store.Advancer].
func (s *Store) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	return advance(x, c, func(f func(t *txn) error) error { return s.write(ctx, "advance execution", f) })
}

func advance(x *store.Execution, c store.Change, write func(f func(t *txn) error) error) error {
	y := x
	if c.SameState {
		y = stateless(x)
	}
	if err := y.Validate(); err != nil {
		return err
	}
	if err := c.Validate(x.ID); err != nil {
		return err
	}
	if err := write(func(t *txn) error { return t.update(y, &c, c.SameState) }); err != nil {
		return err
	}
	x.Revision++
	for _, x := range c.Create {
		x.Revision = 1
	}
	return nil
}

// stateless returns x with a state that is valid for sure, in the place of one
// that is not written and so not looked at.
func stateless(x *store.Execution) *store.Execution {
	y := *x
	y.State, y.Initial = json.RawMessage("{}"), nil
	return &y
}
