package amqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leveret-go/leveret/saga"
)

const (
	maxWorkers  = 10_000
	maxAckAfter = 24 * time.Hour
	maxCommands = 1000
)

// A ConsumerConfig says what a [Consumer] works on.
type ConsumerConfig struct {
	// Workers says, for each partition to consume, how many executions are
	// worked on at once: 1 to 10000. At least one partition, unless Commands are
	// taken.
	Workers map[string]int

	// Commands, if not 0, is how many commands are carried out at once: they are
	// taken from the queue <prefix>.commands, handed to [saga.Engine.Command], and
	// answered where they say so. At most 1000. A few are enough: they only write
	// to the store.
	Commands int

	// AckAfter is how long a delivery is held while its execution is worked
	// on; then it is acknowledged, and the attempt's lease in the store alone
	// says that somebody works on it. It has to be well below the broker's
	// consumer_timeout (30 minutes by default). Defaults to 5 minutes.
	AckAfter time.Duration
}

// A Consumer takes pointers from the queues of partitions and hands them to an
// engine. It is a [saga.Runner], to be passed to [saga.Engine.Run]; make one
// with [NewConsumer]. One consumer serves several partitions over one
// connection, each with workers of its own.
type Consumer struct {
	b        *Broker
	e        *saga.Engine
	workers  map[string]int
	commands int
	ackAfter time.Duration
	running  atomic.Bool
	session  watched[*session] // nil: none
}

var _ saga.Runner = (*Consumer)(nil)

// NewConsumer checks cfg, with all faults in one error that wraps
// [saga.ErrInvalid], and returns a consumer. e should publish to b.
func NewConsumer(b *Broker, e *saga.Engine, cfg ConsumerConfig) (*Consumer, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: amqp: "+format, append([]any{saga.ErrInvalid}, args...)...))
	}
	if b == nil {
		bad("broker is nil")
	}
	if e == nil {
		bad("engine is nil")
	}
	if cfg.Commands < 0 || cfg.Commands > maxCommands {
		bad("ConsumerConfig.Commands is %d, want 0 to %d", cfg.Commands, maxCommands)
	}
	if len(cfg.Workers) == 0 && cfg.Commands == 0 {
		bad("ConsumerConfig.Workers names no partition")
	}
	for _, partition := range slices.Sorted(maps.Keys(cfg.Workers)) {
		if !partitionRule.MatchString(partition) {
			bad("ConsumerConfig.Workers: partition %q must match %s", partition, partitionRule)
		}
		if n := cfg.Workers[partition]; n < 1 || n > maxWorkers {
			bad("ConsumerConfig.Workers[%q] is %d, want 1 to %d", partition, n, maxWorkers)
		}
	}
	if d := cfg.AckAfter; d != 0 && (d < time.Millisecond || d > maxAckAfter) {
		bad("ConsumerConfig.AckAfter is %v, want 1ms to %v", d, maxAckAfter)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	setDefault(&cfg.AckAfter, 5*time.Minute)
	return &Consumer{b: b, e: e, workers: maps.Clone(cfg.Workers), commands: cfg.Commands, ackAfter: cfg.AckAfter}, nil
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

// Run consumes until ctx is done. Then it takes no more pointers, waits for
// those that are being worked on, acknowledges them, and returns nil; what was
// not begun goes back to its queue.
//
// While the broker is away or blocked by an alarm, the same workers work the
// store ([saga.Engine.WorkStore]). Whatever ends a connection, a channel or a
// consumer, the deletion of a queue included, makes Run build it anew. When the
// store fails, the pointer at hand is acknowledged, as its execution comes due
// again, and the partition pauses, longer each time, instead of draining its
// queue.
//
// While the engine's worker is paused ([saga.Engine.Taking]) Run consumes from
// no queue, so that the broker gives the pointers to others and [Broker.Depth]
// does not count it; what it had not begun goes back to its queue, once, and
// what runs goes on to its end. It consumes again when the pause is over.
//
// At no time does it hold more deliveries that have not been begun than it has
// free workers. While all of its workers are busy with deliveries that were
// acknowledged early, it does not consume from the queue at all.
//
// Run outside [saga.Engine.Run] returns an error that wraps
// [saga.ErrNotRunning] at the first pointer; a second Run at the same time, one
// that wraps [saga.ErrRunning].
func (c *Consumer) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return fmt.Errorf("amqp: run a consumer twice: %w", saga.ErrRunning)
	}
	defer c.running.Store(false)

	// The connection lives until the last acknowledgement is sent.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	var link sync.WaitGroup
	defer link.Wait()
	defer disconnect()
	link.Go(func() {
		newLink(&c.b.cfg, &c.b.answers, "consume", c.consumeOn, func(error) {}).run(connected)
	})

	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var partitions sync.WaitGroup
	for name, n := range c.workers {
		p := &partition{
			c: c, name: name, slots: saga.NewSlots(n), stop: stop,
			trouble: trouble{log: c.b.cfg.Logger.With("partition", name)},
		}
		partitions.Go(func() { p.run(work) })
	}
	if c.commands > 0 {
		k := &commands{c: c, n: c.commands, trouble: trouble{log: c.b.cfg.Logger.With("queue", c.b.layout.commands())}}
		partitions.Go(func() { k.run(work) })
	}
	partitions.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(work)
}

// consumeOn lets the partitions use a session until it ends, or ctx.
func (c *Consumer) consumeOn(ctx context.Context, l *link, s *session) error {
	if err := c.b.layout.ensure(s, c.b.layout.shared()); err != nil {
		return err
	}
	l.up(s)
	c.session.set(s)
	defer c.session.set(nil)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.dead:
		return fmt.Errorf("amqp: the connection ended: %w", s.err)
	}
}
