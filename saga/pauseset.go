package saga

import (
	"context"
	"strings"
	"sync"

	"github.com/leveret-go/leveret/store"
)

// A pauseSet is what is paused, as this process last read it. It does not
// change after it was made.
type pauseSet struct {
	partitions, sagas map[string]bool
	schedules         map[string]bool
	worker            bool // this one
}

// holds reports whether an execution must not move. A nil set holds nothing.
func (p *pauseSet) holds(x *store.Execution) bool {
	return p != nil && (p.partitions[x.Partition] || p.sagas[x.Saga])
}

// newPauseSet works out what the pauses mean for a worker.
func newPauseSet(pauses []Pause, worker string) *pauseSet {
	s := &pauseSet{partitions: map[string]bool{}, sagas: map[string]bool{}, schedules: map[string]bool{}}
	for _, p := range pauses {
		switch {
		case p.Partition != "":
			s.partitions[p.Partition] = true
		case p.Saga != "":
			s.sagas[p.Saga] = true
		case p.Schedule != "":
			s.schedules[p.Schedule] = true
		case isWorker(worker, p.Worker):
			s.worker = true
		}
	}
	return s
}

// isWorker reports whether a worker is the named one: by its whole name, or by
// that without the part that each start makes anew.
func isWorker(worker, name string) bool {
	if worker == name {
		return true
	}
	i := strings.LastIndexByte(worker, '/')
	return i >= 0 && worker[:i] == name
}

// A gate says whether this worker takes new work.
type gate struct {
	mu      sync.Mutex
	turn    *Slots // one
	set     *pauseSet
	changed chan struct{}
}

// alone lets one at a time read or write the pauses and put what it knows: what
// was read before a write is not put after it.
func (g *gate) alone(ctx context.Context) (release func(), err error) {
	g.mu.Lock()
	if g.turn == nil {
		g.turn = NewSlots(1)
	}
	turn := g.turn
	g.mu.Unlock()
	return turn.Release, turn.Acquire(ctx)
}

// now returns what is paused; nil while nothing was read.
func (g *gate) now() *pauseSet {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.set
}

// taking reports whether the worker takes new work, and returns a channel that
// is closed when that changes.
func (g *gate) taking() (bool, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.set == nil || !g.set.worker, g.changed
}

// put sets what is paused, and reports whether something was let go.
func (g *gate) put(set *pauseSet) (released bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.set
	if old == nil {
		old = &pauseSet{}
	}
	g.set = set
	if old.worker != set.worker && g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
	for p := range old.partitions {
		released = released || !set.partitions[p]
	}
	for s := range old.sagas {
		released = released || !set.sagas[s]
	}
	return released || old.worker && !set.worker
}
