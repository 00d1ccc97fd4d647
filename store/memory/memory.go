// Package memory keeps executions in the memory of one process: for tests, for
// examples, and for services whose sagas need not outlive them. It keeps the
// whole contract of [store.Store], locks and refusals included, so that what
// works here works on a database.
//
//	engine, err := saga.New(saga.Config{Store: memory.New()})
//
// Locks are per execution: a lock on one never blocks another. A store is
// empty when it is made and gone when the last reference to it is. It forgets
// an execution only when it is deleted.
//
// Under testing/synctest the store follows the fake clock, and waiting for a
// lock blocks durably. Take a store of its own into each bubble.
package memory

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// A Store is a [store.Store] in memory, with the abilities [store.Advancer],
// [store.Cells], [store.Querier],
// [store.Deleter], [store.Outbox] and [store.Exclusiver]. Make one with [New].
//
// Two calls of WithLock or Advance that wake each other's executions
// (store.Change.Wake) would wait for each other for ever: the one that closes
// such a circle gets an error at once, and nothing of it is written.
type Store struct {
	id uuid.UUID

	// mu guards everything below, and is held for single reads and writes
	// only: never while a function of the caller runs, nor while a lock of a
	// row is waited for.
	mu        sync.RWMutex
	rows      map[uuid.UUID]*row
	keys      map[startKey]uuid.UUID    // of the executions that hold theirs
	resources map[store.Resource][]*row // oldest id first
	children  map[uuid.UUID][]*row      // by their parent, oldest id first
	due       map[string]*order         // by DueAt, per partition; "" has all
	progress  order                     // by ProgressAt, the unfinished ones
	cells     map[string]store.Cell
	events    map[store.EventID]*heldEvent
	exclusive bool

	waits sync.Mutex // guards transaction.waiting
}

// A startKey is what at most one execution holds.
type startKey struct{ saga, key string }

// A row is an execution with what was recorded of it.
type row struct {
	id   uuid.UUID
	lock lock

	// Guarded by Store.mu. What x points to is never changed, only replaced;
	// nil: deleted.
	x        *store.Execution
	attempts []store.Attempt
	known    map[attemptKey]int // index in attempts
	audit    []store.AuditEntry
}

// An attemptKey names an attempt of an execution.
type attemptKey struct {
	step          string
	direction     store.Direction
	epoch, number int
}

// New returns an empty store.
func New() *Store {
	return &Store{
		id:        uuid.New(),
		rows:      make(map[uuid.UUID]*row),
		keys:      make(map[startKey]uuid.UUID),
		resources: make(map[store.Resource][]*row),
		children:  make(map[uuid.UUID][]*row),
		due:       make(map[string]*order),
		cells:     make(map[string]store.Cell),
		events:    make(map[store.EventID]*heldEvent),
	}
}

// ID returns the identity of the store, which lives and dies with it.
func (s *Store) ID(ctx context.Context) (uuid.UUID, error) { return s.id, ctx.Err() }

// Now returns the clock of the process.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return store.Micros(time.Now()), ctx.Err()
}

// Create inserts an execution; see [store.Store].
func (s *Store) Create(ctx context.Context, x *store.Execution) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := x.Validate(); err != nil {
		return err
	}
	y := x.Clone()
	y.Revision = 1
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(nil, nil, []*store.Execution{y}, nil); err != nil {
		return err
	}
	s.insert(y)
	x.Revision = 1
	return nil
}

// Get returns an execution; see [store.Store].
func (s *Store) Get(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x := s.current(s.row(id))
	if x == nil {
		return nil, store.ErrNotFound
	}
	return x.Clone(), nil
}

// WithLock changes an execution under its lock; see [store.Store].
func (s *Store) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := s.row(id)
	if r == nil {
		return nil, store.ErrNotFound
	}
	t := transaction{store: s}
	defer t.end()
	if err := t.lock(ctx, r); err != nil {
		return nil, err
	}
	old := s.current(r)
	if old == nil { // deleted while its lock was waited for
		return nil, store.ErrNotFound
	}
	x := old.Clone()
	c, err := fn(x)
	if errors.Is(err, store.ErrUnchanged) {
		return old.Clone(), nil
	}
	if err != nil {
		return nil, err
	}
	checked := x
	if c.SameState {
		checked = stateless(x)
	}
	if err := store.ValidateUpdate(old, checked, &c); err != nil {
		return nil, err
	}
	x, err = t.write(ctx, r, x, c)
	if err != nil {
		return nil, err
	}
	return x.Clone(), nil
}

// Advance writes an execution that has not changed since it was read; see
// [store.Advancer].
func (s *Store) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	checked := x
	if c.SameState {
		checked = stateless(x)
	}
	if err := checked.Validate(); err != nil {
		return err
	}
	if err := c.Validate(x.ID); err != nil {
		return err
	}
	r := s.row(x.ID)
	if r == nil {
		return store.ErrConflict
	}
	t := transaction{store: s}
	defer t.end()
	if err := t.lock(ctx, r); err != nil {
		return err
	}
	if old := s.current(r); old == nil || old.Revision != x.Revision {
		return store.ErrConflict
	}
	y, err := t.write(ctx, r, x, c)
	if err != nil {
		return err
	}
	x.Revision = y.Revision
	return nil
}

// row returns the row of an execution, or nil.
func (s *Store) row(id uuid.UUID) *row {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rows[id]
}

// current returns what is stored: to be cloned, never changed.
func (s *Store) current(r *row) *store.Execution {
	if r == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return r.x
}

// byID orders rows by the bytes of their ids.
func byID(a, b *row) int { return bytes.Compare(a.id[:], b.id[:]) }

// check returns why y cannot replace old, or the created ones not be
// inserted, or the released ones not hold their keys. It writes nothing; s.mu
// is held.
func (s *Store) check(old, y *store.Execution, created, released []*store.Execution) error {
	keys := make(map[startKey]uuid.UUID, 1+len(created)) // as this transaction leaves them; Nil: free
	take := func(x *store.Execution) error {
		if !x.HoldsKey() {
			return nil
		}
		k := startKey{x.Saga, x.Key}
		holder, changed := keys[k]
		if !changed {
			holder = s.keys[k]
		}
		if holder != uuid.Nil && holder != x.ID {
			return &store.KeyTakenError{Saga: x.Saga, Key: x.Key, Execution: holder}
		}
		keys[k] = x.ID
		return nil
	}
	if old != nil {
		if old.HoldsKey() {
			keys[startKey{old.Saga, old.Key}] = uuid.Nil
		}
		if err := take(y); err != nil {
			return err
		}
	}
	for i, x := range created {
		if s.rows[x.ID] != nil || slices.ContainsFunc(created[:i], func(o *store.Execution) bool { return o.ID == x.ID }) {
			return store.ErrExists
		}
		if err := take(x); err != nil {
			return err
		}
	}
	for _, x := range released {
		if err := take(x); err != nil {
			return err
		}
	}
	return nil
}

// insert adds an execution that check has passed; s.mu is held.
func (s *Store) insert(x *store.Execution) {
	r := &row{id: x.ID, lock: newLock()}
	s.rows[x.ID] = r
	if p := x.Parent; p != nil {
		rows := s.children[p.Execution]
		i, _ := slices.BinarySearchFunc(rows, r, byID)
		s.children[p.Execution] = slices.Insert(rows, i, r)
	}
	s.replace(r, x)
}

// replace publishes y, which nobody changes any more, as the execution of r
// and keeps the indexes; s.mu is held.
func (s *Store) replace(r *row, y *store.Execution) {
	x := r.x
	r.x = y
	s.record(x, y)
	if x == nil {
		x = &store.Execution{Status: store.StatusCompleted}
	}

	if x.Key != y.Key || x.Saga != y.Saga || x.HoldsKey() != y.HoldsKey() {
		if k := (startKey{x.Saga, x.Key}); x.HoldsKey() && s.keys[k] == r.id {
			delete(s.keys, k)
		}
		if y.HoldsKey() {
			s.keys[startKey{y.Saga, y.Key}] = r.id
		}
	}

	if x.Resource != y.Resource || x.ID == uuid.Nil {
		if x.ID != uuid.Nil {
			s.leaveResource(r, x.Resource)
		}
		rows := s.resources[y.Resource]
		i, _ := slices.BinarySearchFunc(rows, r, byID)
		s.resources[y.Resource] = slices.Insert(rows, i, r)
	}

	if x.DueAt == nil || y.DueAt == nil || !x.DueAt.Equal(*y.DueAt) || x.Partition != y.Partition {
		if x.DueAt != nil {
			s.leaveDue(x)
		}
		if y.DueAt != nil {
			for _, p := range []string{"", y.Partition} {
				if s.due[p] == nil {
					s.due[p] = new(order)
				}
				s.due[p].insert(placeOf(*y.DueAt, r.id), r)
			}
		}
	}

	was, is := !x.Status.Finished(), !y.Status.Finished()
	if was != is || !x.ProgressAt.Equal(y.ProgressAt) {
		if was {
			s.progress.remove(placeOf(x.ProgressAt, r.id))
		}
		if is {
			s.progress.insert(placeOf(y.ProgressAt, r.id), r)
		}
	}
}

// remove takes the row of a finished execution away; s.mu is held.
func (s *Store) remove(r *row) {
	x := r.x
	r.x = nil
	delete(s.rows, r.id)
	if k := (startKey{x.Saga, x.Key}); s.keys[k] == r.id {
		delete(s.keys, k)
	}
	s.leaveResource(r, x.Resource)
	if p := x.Parent; p != nil {
		rows := s.children[p.Execution]
		i, _ := slices.BinarySearchFunc(rows, r, byID)
		if rows = slices.Delete(rows, i, i+1); len(rows) > 0 {
			s.children[p.Execution] = rows
		} else {
			delete(s.children, p.Execution)
		}
	}
	if x.DueAt != nil {
		s.leaveDue(x)
	}
}

func (s *Store) leaveResource(r *row, res store.Resource) {
	rows := s.resources[res]
	i, _ := slices.BinarySearchFunc(rows, r, byID)
	if rows = slices.Delete(rows, i, i+1); len(rows) > 0 {
		s.resources[res] = rows
	} else {
		delete(s.resources, res)
	}
}

func (s *Store) leaveDue(x *store.Execution) {
	s.due[""].remove(placeOf(*x.DueAt, x.ID))
	s.due[x.Partition].remove(placeOf(*x.DueAt, x.ID))
}
