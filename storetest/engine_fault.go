package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A faultKind is what goes wrong with a call.
type faultKind string

const (
	crashBefore faultKind = "crash before"
	crashAfter  faultKind = "crash after"
	errorBefore faultKind = "error before"
	errorAfter  faultKind = "error after"
)

var (
	errDead = errors.New("storetest: this process is dead")
	errLost = errors.New("storetest: the connection was lost")
)

// A fault strikes at one call.
type fault struct {
	kind faultKind
	at   int

	mu    sync.Mutex
	calls int
}

// struck reports whether the fault has struck.
func (f *fault) struck() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls >= f.at
}

// around makes a call, or does not, as the fault has it.
func (f *fault) around(dead *mortality, call func() error) error {
	if dead.isDead() {
		return errDead
	}
	if f == nil {
		return call()
	}
	f.mu.Lock()
	f.calls++
	strikes := f.calls == f.at
	f.mu.Unlock()
	if !strikes {
		return call()
	}
	switch f.kind {
	case crashBefore:
		dead.die()
		return errDead
	case crashAfter:
		_ = call()
		dead.die()
		return errDead
	case errorAfter:
		_ = call()
	}
	return errLost
}

// faultyFor returns a store on which a fault strikes, and which is out of reach of
// the dead. It has the inner store's Advancer, if there is one.
func faultyFor(s store.Store, f *fault, dead *mortality) store.Store {
	fs := &faultyStore{Store: s, fault: f, dead: dead}
	fs.exclusiver, _ = store.As[store.Exclusiver](s)
	a, ok := store.As[store.Advancer](s)
	if !ok {
		return fs
	}
	fa := &faultyAdvancer{fs, a}
	b, ok := store.As[store.Binder](s)
	tr, okTr := store.As[store.Transactor](s)
	if !ok || !okTr {
		return fa
	}
	return &faultyTransactor{fa, b, tr}
}

// A faultyTransactor has transactions, too. Those of a caller's are not the
// engine's, and no fault is of them.
type faultyTransactor struct {
	*faultyAdvancer
	store.Binder
	inner store.Transactor
}

func (s *faultyTransactor) TxKinds() []string { return s.inner.TxKinds() }

// RunTx is two calls: what is done in the transaction, and all of it.
func (s *faultyTransactor) RunTx(ctx context.Context, kind string, fn func(store.Tx, store.Store) error) error {
	return s.fault.around(s.dead, func() error {
		return s.inner.RunTx(ctx, kind, func(tx store.Tx, bound store.Store) error {
			return s.fault.around(s.dead, func() error { return fn(tx, bound) })
		})
	})
}

// withCells adds the cells, which no fault hits.
type withCells struct {
	store.Store
	store.Cells
}

func (s withCells) Unwrap() store.Store { return s.Store }

type faultyStore struct {
	store.Store
	fault *fault
	dead  *mortality

	exclusiver store.Exclusiver // nil: it has none, and nobody asks for it
}

// Exclusive gives the lock back when the process dies, as the system would.
func (s *faultyStore) Exclusive(ctx context.Context) (func() error, error) {
	release, err := s.exclusiver.Exclusive(ctx)
	if err == nil {
		s.dead.heir = func() { _ = release() }
	}
	return release, err
}

type faultyAdvancer struct {
	*faultyStore
	inner store.Advancer
}

func (s *faultyAdvancer) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	return s.fault.around(s.dead, func() error { return s.inner.Advance(ctx, x, c) })
}

func (s *faultyStore) Create(ctx context.Context, x *store.Execution) error {
	return s.fault.around(s.dead, func() error { return s.Store.Create(ctx, x) })
}

func (s *faultyStore) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (x *store.Execution, err error) {
	err = s.fault.around(s.dead, func() error {
		x, err = s.Store.WithLock(ctx, id, fn)
		return err
	})
	if err != nil {
		x = nil
	}
	return x, err
}

func (s *faultyStore) Get(ctx context.Context, id uuid.UUID) (x *store.Execution, err error) {
	if s.dead.isDead() {
		return nil, errDead
	}
	return s.Store.Get(ctx, id)
}

func (s *faultyStore) Attempts(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
	if s.dead.isDead() {
		return nil, errDead
	}
	return s.Store.Attempts(ctx, id)
}

// ClaimDue counts as a call only when it found something: how often it looks is
// a matter of time.
func (s *faultyStore) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	if s.dead.isDead() {
		return nil, errDead
	}
	xs, err := s.Store.ClaimDue(ctx, q)
	if err != nil || len(xs) == 0 {
		return xs, err
	}
	if err := s.fault.around(s.dead, func() error { return nil }); err != nil {
		return nil, err
	}
	return xs, nil
}

func (s *faultyStore) Renew(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if s.dead.isDead() {
		return nil, errDead
	}
	return s.Store.Renew(ctx, leases, r)
}

func (s *faultyStore) Now(ctx context.Context) (time.Time, error) { return s.Store.Now(ctx) }
