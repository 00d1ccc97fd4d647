package memory

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var errDeadlock = errors.New("memory: deadlock: two writes wake each other's executions; nothing was written")

// A lock is that of a row: a channel, so that a ctx can end the wait.
type lock struct {
	slot   chan struct{}
	holder *atomic.Pointer[transaction]
}

func newLock() lock {
	return lock{slot: make(chan struct{}, 1), holder: new(atomic.Pointer[transaction])}
}

// locked says whether a transaction holds the lock. With Store.mu held a no is
// as good as the lock: who takes it now cannot read the row before.
func (l *lock) locked() bool { return len(l.slot) == cap(l.slot) }

// A transaction is one WithLock or Advance: the locks it holds, the one of the
// written row first.
type transaction struct {
	store   *Store
	held    []*row
	waiting *row // for it, while holding others; guarded by Store.waits
}

// lock takes the lock of r, or returns ctx's error, or errDeadlock.
func (t *transaction) lock(ctx context.Context, r *row) error {
	select {
	case r.lock.slot <- struct{}{}:
		t.took(r)
		return nil
	default:
	}
	// Only who holds a lock can be waited for.
	if len(t.held) > 0 {
		if !t.wait(r) {
			return errDeadlock
		}
	}
	var err error
	select {
	case r.lock.slot <- struct{}{}:
	case <-ctx.Done():
		err = ctx.Err()
	}
	// Before the lock is noted as held: who waits for a row that it holds
	// would be a circle of its own, and never the end of a search for one.
	if len(t.held) > 0 {
		t.waited()
	}
	if err == nil {
		t.took(r)
	}
	return err
}

func (t *transaction) took(r *row) {
	r.lock.holder.Store(t)
	t.held = append(t.held, r)
}

// wait notes that t waits for r, unless that would close a circle. Every other
// member of a circle noted its wait before, and took its locks before that.
func (t *transaction) wait(r *row) bool {
	t.store.waits.Lock()
	defer t.store.waits.Unlock()
	for next := r; next != nil; {
		holder := next.lock.holder.Load()
		if holder == t {
			return false
		}
		if holder == nil {
			break
		}
		next = holder.waiting
	}
	t.waiting = r
	return true
}

func (t *transaction) waited() {
	t.store.waits.Lock()
	t.waiting = nil
	t.store.waits.Unlock()
}

// end gives all locks back.
func (t *transaction) end() {
	for _, r := range t.held {
		// Before the slot is free: the next holder stores itself after it.
		r.lock.holder.Store(nil)
		<-r.lock.slot
	}
}

// write publishes x, as the execution of r, together with c at one moment, and
// returns it as stored. Both have been validated. The lock of r is held.
func (t *transaction) write(ctx context.Context, r *row, x *store.Execution, c store.Change) (*store.Execution, error) {
	s := t.store
	old := s.current(r)
	y := x.Clone()
	y.CreatedAt, y.Parent, y.Continues, y.Deadline, y.Tags = old.CreatedAt, old.Parent, old.Continues, old.Deadline, old.Tags
	if c.Erase {
		y.Tags = nil
	}
	y.Revision++
	if c.SameState {
		y.State, y.Initial = old.State, old.Initial
	}
	created := make([]*store.Execution, len(c.Create))
	for i, x := range c.Create {
		created[i] = x.Clone()
		created[i].Revision = 1
	}
	if err := t.lockWoken(ctx, c.Wake); err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	woken := make([]*store.Execution, 0, len(c.Wake))
	for _, w := range c.Wake {
		if x := t.wake(w); x != nil {
			woken = append(woken, x)
		}
	}
	if err := s.check(old, y, created, woken); err != nil {
		return nil, err
	}
	if r.used(c.Audit) {
		return nil, store.ErrRequestUsed
	}
	s.replace(r, y)
	if c.Erase {
		r.erase()
	}
	for i := range c.Attempts {
		r.record(&c.Attempts[i])
	}
	for i := range c.Audit {
		r.audit = append(r.audit, c.Audit[i].Clone())
	}
	for _, x := range woken {
		s.replace(s.rows[x.ID], x)
	}
	for i, x := range created {
		s.insert(x)
		c.Create[i].Revision = 1
	}
	return y, nil
}

// stateless returns x with a state that is valid for sure, in the place of one
// that is not written and so not looked at.
func stateless(x *store.Execution) *store.Execution {
	y := *x
	y.State, y.Initial = json.RawMessage("{}"), nil
	return &y
}

// lockWoken locks the rows to wake, in the order of their ids.
func (t *transaction) lockWoken(ctx context.Context, wake []store.Wake) error {
	if len(wake) == 0 {
		return nil
	}
	seen := make(map[uuid.UUID]bool, len(wake))
	rows := make([]*row, 0, len(wake))
	for _, w := range wake {
		if r := t.store.row(w.ID); r != nil && !seen[w.ID] {
			seen[w.ID] = true
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, byID)
	for _, r := range rows {
		if err := t.lock(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// wake returns an execution made due, if it is one to look at, and not another
// with the id of one that was deleted since; else nil. s.mu is held.
func (t *transaction) wake(w store.Wake) *store.Execution {
	r := t.store.rows[w.ID]
	if r == nil || !slices.Contains(t.held, r) || r.x.Status.Finished() || r.x.Status == store.StatusHalted && !w.Release {
		return nil
	}
	x := *r.x
	x.Revision++
	if x.Attempt == nil && x.Status != store.StatusHalted {
		if at := store.Micros(w.At); x.DueAt == nil || x.DueAt.After(at) {
			x.DueAt = &at
		}
		x.OfferedAt = nil
	}
	if w.Release {
		x.Follows = nil
	}
	return &x
}

// record adds a closed attempt, or to a known one what came late; s.mu is held.
func (r *row) record(a *store.Attempt) {
	key := attemptKey{a.Step, a.Direction, a.Epoch, a.Number}
	if i, ok := r.known[key]; ok {
		if k := &r.attempts[i]; k.LateStatus == "" {
			k.Late, k.LateStatus = a.Late, a.LateStatus
		}
		return
	}
	if r.known == nil {
		r.known = make(map[attemptKey]int)
	}
	r.known[key] = len(r.attempts)
	r.attempts = append(r.attempts, a.Clone())
}

// used reports whether a request of these entries has been recorded; s.mu is
// held.
func (r *row) used(entries []store.AuditEntry) bool {
	return slices.ContainsFunc(entries, func(e store.AuditEntry) bool {
		return e.Request != "" && slices.ContainsFunc(r.audit, func(o store.AuditEntry) bool { return o.Request == e.Request })
	})
}

// erase empties what was recorded in people's words; s.mu is held.
func (r *row) erase() {
	for i := range r.attempts {
		a := &r.attempts[i]
		a.Stack, a.Reason = "", ""
		if f := a.Failure; f != nil {
			a.Failure = &store.Failure{Class: f.Class, Step: f.Step}
		}
	}
	for i := range r.audit {
		r.audit[i].Reason, r.audit[i].Detail = "", nil
	}
}
