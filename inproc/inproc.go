// Package inproc carries pointers inside one process: the embedded transport,
// for services that need no broker. It has the shape of package amqp, so that a
// service can grow from the one to the other by a line.
//
//	broker := inproc.New(nil)
//	engine, err := saga.New(saga.Config{Store: st, Publisher: broker})
//	…
//	consumer, err := inproc.NewConsumer(broker, engine, inproc.ConsumerConfig{
//		Workers: map[string]int{"default": 10, "mail": 2},
//	})
//	…
//	err = engine.Run(ctx, consumer)
//
// An engine without any Publisher needs no transport at all: its Run works the
// store itself, whatever the partition. Take this package for what a transport
// adds: a number of workers for each partition, and steps that are handed over
// at once rather than by the next sweep.
//
// The queues live in memory and are bounded. Nothing is lost by that but time:
// what a full queue refuses, and what is queued when the process ends, comes
// due again in the store.
package inproc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leveret-go/leveret/saga"
)

// ErrFull is wrapped by what Publish returns when a partition's queue is full.
var ErrFull = errors.New("queue is full")

// errRefused is why a depth is not known.
var errRefused = errors.New("inproc: depth: pointers were refused since it was last asked for")

// A Config sets up a [Broker]. Its zero value is right for most services.
type Config struct {
	// Queue is how many pointers may wait in each partition. Defaults to 1000.
	Queue int
}

// A Broker holds one queue of pointers for each partition. It is a
// [saga.Publisher] and a [saga.DepthProber]. Make one with [New]; it needs no
// closing. Safe for concurrent use, by several engines on one store too.
type Broker struct {
	limit int

	mu     sync.Mutex
	queues map[string]*queue
}

var _ interface {
	saga.Publisher
	saga.DepthProber
} = (*Broker)(nil)

// A queue is what waits for one partition.
type queue struct {
	ready chan saga.Pointer

	mu        sync.Mutex
	consumers int
	refused   bool // since the depth was last asked for
}

// New returns a broker with empty queues. A nil cfg is the zero Config; a Queue
// below 1 counts as the default.
func New(cfg *Config) *Broker {
	b := &Broker{limit: 1000, queues: map[string]*queue{}}
	if cfg != nil && cfg.Queue > 0 {
		b.limit = cfg.Queue
	}
	return b
}

func (b *Broker) queue(partition string) *queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[partition]
	if q == nil {
		q = &queue{ready: make(chan saga.Pointer, b.limit)}
		b.queues[partition] = q
	}
	return q
}

// Publish puts a pointer into the queue of a partition, whether anybody consumes
// it or not, and never waits. A full queue is an error that wraps [ErrFull]: the
// execution then comes due again by itself.
func (b *Broker) Publish(_ context.Context, partition string, p saga.Pointer) error {
	if !b.queue(partition).put(p) {
		return fmt.Errorf("inproc: publish to partition %q: %w", partition, ErrFull)
	}
	return nil
}

// Depth returns how many pointers wait in a partition and how many running
// consumers it has. It is not known, an error, when the queue has refused a
// pointer since Depth was last called: an empty queue then does not mean that
// what was offered has been seen by anybody, and nothing must be given up for it.
func (b *Broker) Depth(_ context.Context, partition string) (ready, consumers int, err error) {
	q := b.queue(partition)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refused {
		q.refused = false
		return 0, 0, errRefused
	}
	return len(q.ready), q.consumers, nil
}

// put reports whether there was room.
func (q *queue) put(p saga.Pointer) bool {
	select {
	case q.ready <- p:
		return true
	default:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused = true
	return false
}

// attend counts a consumer until the returned function is called.
func (q *queue) attend() (leave func()) {
	add := func(n int) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.consumers += n
	}
	add(1)
	return func() { add(-1) }
}
