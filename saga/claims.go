package saga

import (
	"sync"

	"github.com/leveret-go/leveret/store"
)

// Claims tell which call of this process means to run an attempt. All of them
// open attempts under the process's name, so that the row alone does not tell
// two calls apart that meant to open the same one: the first, whose write was
// lost on its way, would take the second one's attempt for its own.
type claims struct {
	mu sync.Mutex
	m  map[store.Lease]*claim
}

// A claim stands for one call.
type claim struct{ leases []store.Lease }

// take notes that c opens l; a claim that another call has on it ends. It is
// called under the row's lock: the last one that wrote is the one to go by.
func (cs *claims) take(l store.Lease, c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.m == nil {
		cs.m = map[store.Lease]*claim{}
	}
	cs.m[l] = c
	c.leases = append(c.leases, l)
}

// takeFree is take without the lock: it takes nothing from another call.
func (cs *claims) takeFree(l store.Lease, c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.m[l] != nil {
		return
	}
	if cs.m == nil {
		cs.m = map[store.Lease]*claim{}
	}
	cs.m[l] = c
	c.leases = append(c.leases, l)
}

// has reports whether l is c's.
func (cs *claims) has(l store.Lease, c *claim) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.m[l] == c
}

// drop ends all claims of c.
func (cs *claims) drop(c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, l := range c.leases {
		if cs.m[l] == c {
			delete(cs.m, l)
		}
	}
	c.leases = nil
}
