package saga

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store"
)

const (
	clockEvery   = time.Minute // how often the store's clock is asked
	clockTimeout = 10 * time.Second
	clockSlow    = leaseMargin
	suspendGap   = time.Second // between wall and monotonic time
)

// A clock follows the store's: all processes then agree on what is over, and a
// step costs no round trip for it.
type clock struct {
	fixed func() time.Time // Config.Now
	store store.Store

	mu     sync.Mutex
	synced bool
	base   time.Time // the store's time at mark
	mark   time.Time // with its monotonic reading
	asked  time.Time // when the store was last asked
	// suspended: since the leases were last renewed, wall and monotonic time
	// have gone apart; by is for how long this machine seems to have slept.
	suspended bool
	by        time.Duration
}

// now returns the time, in whole microseconds. ready must have succeeded once.
func (c *clock) now() time.Time {
	if c.fixed != nil {
		return store.Micros(c.fixed())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		return store.Micros(time.Now())
	}
	return store.Micros(c.base.Add(time.Since(c.mark)))
}

// ready makes sure that now can be trusted: it asks the store for the first
// time, once a minute, and when this machine seems to have slept.
func (c *clock) ready(ctx context.Context) error {
	if c.fixed != nil {
		return nil
	}
	c.mu.Lock()
	now := time.Now()
	synced, age := c.synced, now.Sub(c.asked)
	slept := c.gapLocked(now) != 0
	c.mu.Unlock()
	if synced && !slept && age < clockEvery {
		return nil
	}
	err := c.sync(ctx)
	if synced && !slept {
		return nil // the old reading is good enough
	}
	return err
}

// slept reports whether wall and monotonic time have gone apart since the leases
// were last renewed, and how much shorter those are than this process thinks:
// while a machine is suspended its monotonic clock stands still.
func (c *clock) slept() (slept bool, by time.Duration) {
	if c.fixed != nil {
		return false, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	gap := c.gapLocked(time.Now())
	return c.suspended || gap != 0, c.by + max(gap, 0)
}

// renewed says that all leases were renewed by a clock that was right.
func (c *clock) renewed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended, c.by = false, 0
}

// gapLocked is how far wall time has run away from monotonic time; 0 for little.
func (c *clock) gapLocked(now time.Time) time.Duration {
	if !c.synced {
		return 0
	}
	gap := now.Round(0).Sub(c.mark.Round(0)) - now.Sub(c.mark)
	if gap > -suspendGap && gap < suspendGap {
		return 0
	}
	return gap
}

func (c *clock) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	asked := time.Now()
	t, err := c.store.Now(ctx)
	told := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = told
	if err != nil {
		return fmt.Errorf("saga: ask the store's clock: %w", err)
	}
	// The answer may be off by half the time that it took. Leases can bear
	// half a margin.
	if took := told.Sub(asked); took > clockSlow {
		return fmt.Errorf("saga: ask the store's clock: the answer took %v, which is too long to go by", took)
	}
	if gap := c.gapLocked(told); gap != 0 {
		c.suspended, c.by = true, c.by+max(gap, 0)
	}
	c.base, c.mark, c.synced = t.Add(told.Sub(asked)/2), told, true
	return nil
}
