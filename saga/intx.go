package saga

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A Tx is a unit of starts, signals and acts that are part of a transaction of
// the caller's: they are done if and only if that is committed. Make one with
// [Engine.InTx]. It is used by one goroutine at a time, as the transaction is.
type Tx struct {
	e   *Engine
	tx  store.Tx
	mu  sync.Mutex
	err error // of binding the store

	bound   store.Store
	written []written
}

// written is what is to be told when the transaction is committed.
type written struct {
	m *machine
	x *store.Execution
}

// InTx returns a unit of work in a transaction of the caller's:
//
//	tx, err := pool.Begin(ctx)
//	// …
//	unit := engine.InTx(postgres.Tx(tx))
//	_, err = checkout.StartTx(ctx, unit, order, state, nil)
//	// … the caller's own statements …
//	err = tx.Commit(ctx)
//	unit.Publish(ctx)
//
// What was done in it is seen by workers when the transaction is committed, and
// never when it is rolled back. Executions that were signalled or acted on stay locked until
// then: keep it short. An error of Leveret's own, such as a key that is held, does not
// spoil the transaction.
//
// The store has to be a store.Binder, as PostgreSQL and SQLite are: else every call
// returns [ErrNotSupported]; for a transaction of another driver it returns
// store.ErrForeignTx.
func (e *Engine) InTx(tx store.Tx) *Tx {
	t := &Tx{e: e, tx: tx}
	b, ok := store.As[store.Binder](e.store)
	switch {
	case !ok:
		t.err = ErrNotSupported
	case tx == nil:
		t.err = fmt.Errorf("%w: the transaction is nil", ErrInvalid)
	default:
		t.bound, t.err = b.Bind(tx)
	}
	return t
}

func (t *Tx) desk() (desk, error) {
	if t.err != nil {
		return desk{}, fmt.Errorf("saga: in a transaction: %w", t.err)
	}
	return desk{e: t.e, store: t.bound, tx: t}, nil
}

// StartTx is [Saga.Start] in a transaction of the caller's.
func (s *Saga[S]) StartTx(ctx context.Context, tx *Tx, r Resource, state S, opts *StartOptions) (*Started, error) {
	d, err := tx.desk()
	if err != nil {
		return nil, err
	}
	if tx.e != s.engine {
		return nil, fmt.Errorf("%w: saga %q: start: the transaction is of another engine", ErrInvalid, s.name)
	}
	return s.start(ctx, d, r, state, opts)
}

// Signal is [Engine.Signal] in the transaction.
func (t *Tx) Signal(ctx context.Context, id uuid.UUID, name string, payload any, opts *SignalOptions) (SignalResult, error) {
	d, err := t.desk()
	if err != nil {
		return "", err
	}
	return d.signal(ctx, id, name, payload, opts)
}

// SignalKey is [Engine.SignalKey] in the transaction.
func (t *Tx) SignalKey(ctx context.Context, saga, key, name string, payload any, opts *SignalOptions) (SignalResult, error) {
	d, err := t.desk()
	if err != nil {
		return "", err
	}
	return d.signalKey(ctx, saga, key, name, payload, opts)
}

// Act is [Engine.Act] in the transaction.
func (t *Tx) Act(ctx context.Context, id uuid.UUID, act Act, by By, opts *ActOptions) (*Execution, error) {
	d, err := t.desk()
	if err != nil {
		return nil, err
	}
	return d.act(ctx, id, act, by, opts)
}

// Publish tells workers, at once, of what was done. Call it after the commit;
// without it the next sweep finds the work, about a second later. It changes
// nothing in the store, and does nothing for a transaction that was rolled back but look
// for rows that are not there. The error joins those of the transport and the store; nothing is
// lost by it.
func (t *Tx) Publish(ctx context.Context) error {
	t.mu.Lock()
	list := t.written
	t.written = nil
	t.mu.Unlock()
	var errs []error
	seen := map[uuid.UUID]bool{}
	for _, w := range list {
		now, err := t.e.store.Get(ctx, w.x.ID)
		if errors.Is(err, store.ErrNotFound) || err == nil && now.Revision < w.x.Revision {
			continue // it was rolled back
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t.e.committed(ctx, w.m, w.x)
		if !seen[now.ID] && !now.Status.Finished() && now.Attempt == nil && now.DueAt != nil && !now.DueAt.After(t.e.clock.now()) {
			seen[now.ID] = true
			t.e.publish(ctx, now)
		}
	}
	return errors.Join(errs...)
}
