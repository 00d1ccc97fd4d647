package inproc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leveret-go/leveret/saga"
)

// The pause of a worker after an error of the store: it doubles with each one
// in a row.
const (
	pauseFirst = 100 * time.Millisecond
	pauseMost  = 5 * time.Second
	maxWorkers = 10_000
)

var partitionRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// A ConsumerConfig says what a [Consumer] works on.
type ConsumerConfig struct {
	// Workers says, for each partition to consume, how many executions are
	// worked on at once: 1 to 10000. At least one partition.
	Workers map[string]int
}

// A Consumer takes pointers from the queues of a broker and hands them to an
// engine. It is a [saga.Runner], to be passed to [saga.Engine.Run]; make one
// with [NewConsumer].
type Consumer struct {
	broker  *Broker
	engine  *saga.Engine
	workers map[string]int
	running atomic.Bool
}

var _ saga.Runner = (*Consumer)(nil)

// NewConsumer checks cfg, with all faults in one error that wraps
// [saga.ErrInvalid], and returns a consumer. e should publish to b.
func NewConsumer(b *Broker, e *saga.Engine, cfg ConsumerConfig) (*Consumer, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: inproc: "+format, append([]any{saga.ErrInvalid}, args...)...))
	}
	if b == nil {
		bad("broker is nil")
	}
	if e == nil {
		bad("engine is nil")
	}
	if len(cfg.Workers) == 0 {
		bad("ConsumerConfig.Workers names no partition")
	}
	c := &Consumer{broker: b, engine: e, workers: map[string]int{}}
	for _, partition := range sortedKeys(cfg.Workers) {
		n := cfg.Workers[partition]
		if !partitionRule.MatchString(partition) {
			bad("ConsumerConfig.Workers: partition %q must match %s", partition, partitionRule)
		}
		if n < 1 || n > maxWorkers {
			bad("ConsumerConfig.Workers[%q] is %d, want 1 to %d", partition, n, maxWorkers)
		}
		c.workers[partition] = n
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Workers returns the number of workers of all partitions.
func (c *Consumer) Workers() int {
	n := 0
	for _, w := range c.workers {
		n += w
	}
	return n
}

// Partitions returns the number of workers of each partition that is consumed:
// what the registry of workers shows.
func (c *Consumer) Partitions() map[string]int { return maps.Clone(c.workers) }

// Run consumes until ctx is done; then it takes no more pointers, waits for
// what its workers have begun, and returns nil. What is still queued stays so.
//
// While the engine's worker is paused ([saga.Engine.Taking]) Run takes nothing
// from its queues, and [Broker.Depth] does not count it; what runs goes on to
// its end. It takes pointers again when the pause is over.
//
// An error of the store makes a worker put its pointer back and pause, longer
// each time, so that an outage does not drain the queues. Run outside
// [saga.Engine.Run] returns an error that wraps [saga.ErrNotRunning]; a second
// Run at the same time, one that wraps [saga.ErrRunning].
func (c *Consumer) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return fmt.Errorf("inproc: run a consumer twice: %w", saga.ErrRunning)
	}
	defer c.running.Store(false)
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var workers sync.WaitGroup
	for partition, n := range c.workers {
		q := c.broker.queue(partition)
		workers.Go(func() { c.attend(work, q) })
		for range n {
			workers.Go(func() { c.work(work, q, stop) })
		}
	}
	workers.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(work)
}

// attend counts the consumer at a queue while it takes from it.
func (c *Consumer) attend(ctx context.Context, q *queue) {
	for ctx.Err() == nil {
		taking, changed := c.engine.Taking()
		leave := func() {}
		if taking {
			leave = q.attend()
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		leave()
	}
}

// work is one worker: a slot that is free when it waits here.
func (c *Consumer) work(ctx context.Context, q *queue, stop context.CancelCauseFunc) {
	pause := pauseFirst
	for ctx.Err() == nil {
		taking, changed := c.engine.Taking()
		ready := q.ready
		if !taking {
			ready = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case p := <-ready:
			_, err := c.engine.Handle(ctx, p)
			switch {
			case err == nil:
				pause = pauseFirst
				continue
			case errors.Is(err, saga.ErrPaused): // since this worker looked
				q.put(p)
				continue
			case errors.Is(err, saga.ErrNotRunning):
				q.put(p)
				stop(fmt.Errorf("inproc: consume: %w", err))
				return
			}
			q.put(p)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, pauseMost)
		}
	}
}
