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
	synced, age := c.synced, now.Sub(c.mark)
	slept := c.sleptLocked(now)
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

// slept reports whether wall and monotonic time have gone apart: while a machine
// is suspended its monotonic clock stands still.
func (c *clock) slept() bool {
	if c.fixed != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sleptLocked(time.Now())
}

func (c *clock) sleptLocked(now time.Time) bool {
	if !c.synced {
		return false
	}
	gap := now.Round(0).Sub(c.mark.Round(0)) - now.Sub(c.mark)
	return gap > suspendGap || gap < -suspendGap
}

func (c *clock) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	asked := time.Now()
	t, err := c.store.Now(ctx)
	if err != nil {
		return fmt.Errorf("saga: ask the store's clock: %w", err)
	}
	told := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.mark, c.synced = t.Add(told.Sub(asked)/2), told, true
	return nil
}
