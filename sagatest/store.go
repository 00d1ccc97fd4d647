package sagatest

import (
	"context"
	"math"
	"sync"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A recorder is the store as the engine sees it. It knows in which order
// executions were started, and it is the line on which a crashed worker dies.
type recorder struct {
	store.Store
	faults *faults

	mu      sync.Mutex
	started map[uuid.UUID]int
	dead    map[store.Lease]bool // attempts whose worker has crashed
}

func newRecorder(s store.Store, f *faults) *recorder {
	return &recorder{Store: s, faults: f, started: map[uuid.UUID]int{}, dead: map[store.Lease]bool{}}
}

// Unwrap lets the abilities of the store be found.
func (r *recorder) Unwrap() store.Store { return r.Store }

func (r *recorder) Create(ctx context.Context, x *store.Execution) error {
	err := r.Store.Create(ctx, x)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.started[x.ID] = len(r.started)
	}
	return err
}

// order returns where in the order of starts an execution is.
func (r *recorder) order(id uuid.UUID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, ok := r.started[id]; ok {
		return n
	}
	return math.MaxInt // not started by this harness
}

func (r *recorder) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	r.mayDie(ctx, id)
	return r.Store.WithLock(ctx, id, fn)
}

// An advancing recorder is one of a store that has Advance.
type advancing struct {
	*recorder
	inner store.Advancer
}

func (a advancing) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	a.mayDie(ctx, x.ID)
	return a.inner.Advance(ctx, x, c)
}

// mayDie panics where a worker has crashed that wants to write a result.
func (r *recorder) mayDie(ctx context.Context, id uuid.UUID) {
	if !r.faults.dies() {
		return
	}
	if x, err := r.Get(ctx, id); err == nil {
		if lease, ok := x.Lease(); ok {
			r.mu.Lock()
			r.dead[lease] = true
			r.mu.Unlock()
		}
	}
	panic(crash{})
}

// Renew does not renew the leases of the dead: the engine, which lives on,
// knows nothing of their crash.
func (r *recorder) Renew(ctx context.Context, leases []store.Lease, to store.Renewal) ([]store.LeaseState, error) {
	states := make([]store.LeaseState, len(leases))
	var living []store.Lease
	var at []int
	r.mu.Lock()
	for i, l := range leases {
		states[i] = store.LeaseLost
		if !r.dead[l] {
			living, at = append(living, l), append(at, i)
		}
	}
	r.mu.Unlock()
	if len(living) == 0 {
		return states, nil
	}
	got, err := r.Store.Renew(ctx, living, to)
	if err != nil {
		return nil, err
	}
	for i, s := range got {
		states[at[i]] = s
	}
	return states, nil
}

// forEngine returns the store to give to an engine.
func (r *recorder) forEngine() store.Store {
	if a, ok := store.As[store.Advancer](r.Store); ok {
		return advancing{r, a}
	}
	return r
}
