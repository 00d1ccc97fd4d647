package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

// A delivery is a message that is being worked on. It is settled once, through
// the channel it came from: a second time would make the broker close the
// channel, together with all that is under way on it.
type delivery struct {
	in      *intake
	d       amqp091.Delivery
	round   int // the consumer it came from; -1: one that is gone
	settled atomic.Bool
	refused bool          // the engine did not look at it
	over    chan struct{} // closed when nobody works on it any more
}

func (d *delivery) ack() error  { return d.d.Ack(false) }
func (d *delivery) drop() error { return d.d.Nack(false, false) }

// settle tells the broker what became of the delivery, unless that was told
// before. When the channel is gone this fails, and the broker delivers the
// message again, which does no harm.
func (d *delivery) settle(how func() error) {
	if d.settled.CompareAndSwap(false, true) {
		_ = how()
	}
}

// begin works on a delivery, on a slot of its own.
func (in *intake) begin(ctx context.Context, w waiting) {
	d := &delivery{in: in, d: w.d, round: w.round, over: make(chan struct{})}
	p := in.p
	p.mu.Lock()
	p.running++
	p.mu.Unlock()
	taken := p.slots.TryAcquire() // here, so that the next look sees it taken
	p.begun.Add(1)
	in.begun.Add(1)
	timer := time.AfterFunc(p.c.ackAfter, func() {
		select {
		case in.early <- d:
		case <-in.over:
		case <-d.over:
		}
	})
	go func() {
		defer p.begun.Done()
		defer in.begun.Done()
		taken := taken || p.slots.Acquire(ctx) == nil
		var how func() error
		if taken {
			how = d.work(ctx)
		}
		timer.Stop()
		close(d.over)
		d.leave(taken, how)
		in.wake()
	}()
}

// leave frees the worker and settles the delivery: in this order, as another
// one may come at once. What the engine did not look at is left to the intake.
func (d *delivery) leave(taken bool, how func() error) {
	in, p := d.in, d.in.p
	first := (how != nil || d.refused) && d.settled.CompareAndSwap(false, true)
	p.mu.Lock()
	p.running--
	if first && d.refused {
		in.back = append(in.back, waiting{d.d, d.round})
		first = false
	}
	if taken {
		p.slots.Release()
	}
	if first && d.round == in.round {
		in.credit++
	}
	p.mu.Unlock()
	if first {
		_ = how()
	}
}

// work hands the pointer to the engine and returns how to settle the delivery,
// or nil to leave it to the broker.
func (d *delivery) work(ctx context.Context) func() error {
	p := d.in.p
	pointer, err := read(&d.d)
	if err != nil {
		p.c.b.tell(p.name, pointer, saga.EventPointerDead, err)
		return d.bury(reasonMalformed, err)
	}
	r, err := p.c.e.Handle(ctx, pointer)
	switch {
	case errors.Is(err, saga.ErrPaused):
		d.refused = true
		return nil
	case errors.Is(err, saga.ErrNotRunning):
		p.stop(fmt.Errorf("amqp: consume: %w", err)) // no more than ctx's end, if that is why
		return nil
	case err != nil:
		p.failed()
		p.trouble.warn("amqp: the partition pauses", err, "execution", pointer.Execution)
		return d.ack
	}
	p.worked()
	if r.Disposition == saga.DeadLetter {
		return d.bury(r.Reason, nil)
	}
	return d.ack
}
