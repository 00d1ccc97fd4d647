package saga

import (
	"context"
	"runtime"
	"sync"
	"time"
)

const (
	observeWithin = 100 * time.Millisecond // how long an emitter waits for the observer
	observeQueue  = 1024                   // what waits for a slow one, at most
	observeWarn   = time.Minute            // between two complaints about it
)

// deliveries hands events to the observer, in order, from one goroutine that
// lives only while there are some.
type deliveries struct {
	observe func(ctx context.Context, e Event) // nil: there is none
	warn    func(msg string, args ...any)

	mu      sync.Mutex
	queue   []delivery
	head    int
	busy    bool // the goroutine lives
	slow    bool // nobody waits until the queue is empty
	dropped int64
	warned  time.Time
}

type delivery struct {
	ctx  context.Context
	ev   Event
	done chan struct{} // nil: nobody waits
}

// An observerCtx is the ctx of an observer: it has the values of the emitter's
// and marks what is called with it.
type observerCtx struct{ context.Context }

type observerKey struct{}

func (c observerCtx) Value(key any) any {
	if key == (observerKey{}) {
		return true
	}
	return c.Context.Value(key)
}

// deliver hands over an event, and waits for the observer if that may be.
func (d *deliveries) deliver(ctx context.Context, ev Event) {
	if d.observe == nil {
		return
	}
	item := delivery{ctx: observerCtx{context.WithoutCancel(ctx)}, ev: ev}
	mayWait := ctx.Value(observerKey{}) == nil
	d.mu.Lock()
	if len(d.queue)-d.head >= observeQueue {
		d.dropped++
		d.mu.Unlock()
		return
	}
	if mayWait && !d.slow {
		item.done = make(chan struct{})
	}
	d.push(item)
	if !d.busy {
		d.busy = true
		go d.run()
	}
	d.mu.Unlock()
	if item.done == nil {
		return
	}
	runtime.Gosched() // most observers are done by then, and there is no need of a timer
	select {
	case <-item.done:
		return
	default:
	}
	timer := time.NewTimer(observeWithin)
	defer timer.Stop()
	select {
	case <-item.done:
	case <-timer.C:
		d.tooSlow()
	}
}

// tooSlow lets nobody wait until the observer has caught up.
func (d *deliveries) tooSlow() {
	d.mu.Lock()
	d.slow = d.busy
	now := time.Now()
	warn := d.warned.IsZero() || now.Sub(d.warned) >= observeWarn
	if warn {
		d.warned = now
	}
	dropped := d.dropped
	d.mu.Unlock()
	if warn {
		d.warn("saga: the observer is slow; events wait for it, and those that are too many are dropped", "dropped", dropped)
	}
}

// run delivers what there is.
func (d *deliveries) run() {
	ended := true // by runtime.Goexit in the observer
	defer func() {
		if ended {
			go d.run()
		}
	}()
	for {
		item, ok := d.pop()
		if !ok {
			ended = false
			return
		}
		d.call(item)
	}
}

func (d *deliveries) call(item delivery) {
	defer func() {
		_ = recover()
		if item.done != nil {
			close(item.done)
		}
	}()
	d.observe(item.ctx, item.ev)
}

func (d *deliveries) push(item delivery) {
	if d.head > 0 && len(d.queue) == cap(d.queue) {
		n := copy(d.queue, d.queue[d.head:])
		clear(d.queue[n:])
		d.queue, d.head = d.queue[:n], 0
	}
	d.queue = append(d.queue, item)
}

// pop returns the next event; none: the goroutine is not busy any more.
func (d *deliveries) pop() (item delivery, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.head == len(d.queue) {
		d.queue, d.head = d.queue[:0], 0
		if cap(d.queue) > 64 {
			d.queue = nil
		}
		d.busy, d.slow = false, false
		return delivery{}, false
	}
	item = d.queue[d.head]
	d.queue[d.head] = delivery{}
	d.head++
	return item, true
}

func (d *deliveries) stats() (queued int, dropped int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queue) - d.head, d.dropped
}
