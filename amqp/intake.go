package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// regainEvery is how often a consumer that may take more than it was told to is
// set up anew.
const regainEvery = time.Second

var errConsumerEnded = errors.New("amqp: the broker ended the consumer: was its queue deleted?")

// An intake consumes a partition's queue over one channel. Its goroutine alone
// begins and ends consumers on the channel: one with a prefetch of as many as
// there are free workers. A delivery that is acknowledged when its worker
// becomes free lets the next one come, and the sum stays the same. When the two
// part, because a delivery was acknowledged early, or a worker was busy with
// what came another way, the consumer is cancelled and a new one begun with the
// number of workers that are free then; with none, none. While the engine takes
// no work there is none either, and what had not been begun is put back.
type intake struct {
	p      *partition
	s      *session
	ch     *amqp091.Channel
	closes <-chan *amqp091.Error
	ends   <-chan string
	early  chan *delivery // to be acknowledged before their end
	nudge  chan struct{}  // something is free, or has failed
	over   chan struct{}  // closed when the goroutine is gone
	begun  sync.WaitGroup // deliveries of this channel

	deliveries <-chan amqp091.Delivery // nil while there is no consumer
	tag        string
	since      time.Time
	held       []waiting // came when nothing could be begun

	// Guarded by partition.mu.
	round  int       // counts consumers
	credit int       // what the broker may still send to the present one
	back   []waiting // the engine would not take them
}

// A waiting delivery is one that has not been begun.
type waiting struct {
	d     amqp091.Delivery
	round int // the consumer it came from; -1: one that is gone
}

// consume consumes on s until that, the channel or the consumer ends, or ctx;
// then it has waited for what was begun, and acknowledged it.
func (p *partition) consume(ctx context.Context, s *session) error {
	l := p.c.b.layout
	if err := l.ensure(s, append(l.shared(), l.partition(p.name)...)); err != nil {
		return err
	}
	ch, err := s.channel()
	if err != nil {
		return fmt.Errorf("amqp: open a channel: %w", err)
	}
	in := &intake{
		p: p, s: s, ch: ch,
		closes: ch.NotifyClose(make(chan *amqp091.Error, 1)),
		ends:   ch.NotifyCancel(make(chan string, 8)),
		early:  make(chan *delivery),
		nudge:  make(chan struct{}, 1),
		over:   make(chan struct{}),
	}
	defer func() { _ = s.rpc(ch.Close) }() // acknowledgements on their way come first
	defer close(in.over)
	return in.run(ctx)
}

func (in *intake) run(ctx context.Context) error {
	tick := time.NewTicker(regainEvery)
	defer tick.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		taking, pausing := in.p.c.e.Taking()
		broker, changed := in.p.c.b.state.get()
		if broker.connected {
			in.p.leaveStore()
		} else {
			in.p.workStore(ctx)
		}
		wait := in.p.pause()
		if wait > 0 {
			pause.Reset(wait)
		}
		if ctx.Err() == nil {
			if err := in.adjust(ctx, taking && broker.connected && wait <= 0); err != nil {
				return err
			}
			if !taking {
				in.putBack()
			}
		}
		select {
		case d, ok := <-in.deliveries:
			if !ok {
				return in.ended()
			}
			in.receive(ctx, d, true)
		case e := <-in.closes:
			return closedBy(e)
		case <-in.ends:
			return errConsumerEnded
		case <-in.s.dead:
			return fmt.Errorf("amqp: the connection ended: %w", in.s.err)
		case d := <-in.early:
			if err := in.ackEarly(ctx, d); err != nil {
				return err
			}
		case <-in.nudge:
		case <-tick.C:
		case <-pause.C:
		case <-changed:
		case <-pausing:
		case <-ctx.Done():
			return in.drain(ctx)
		}
	}
}

// ended says why the deliveries ended.
func (in *intake) ended() error {
	select {
	case e := <-in.closes:
		return closedBy(e)
	default:
		return errConsumerEnded
	}
}

func closedBy(e *amqp091.Error) error {
	if e == nil {
		return errors.New("amqp: the channel was closed")
	}
	return fmt.Errorf("amqp: consume: %w", e)
}

// adjust begins and ends consumers so that the broker may send as many more
// deliveries as can be begun; none, unless open.
func (in *intake) adjust(ctx context.Context, open bool) error {
	in.takeBack()
	if !open {
		return in.cancel(ctx)
	}
	for len(in.held) > 0 {
		if room, _ := in.look(); room == 0 {
			break
		}
		w := in.held[0]
		in.held = in.held[1:]
		in.begin(ctx, w)
	}
	room, credit := in.look()
	room -= len(in.held)
	switch {
	case in.deliveries == nil && room <= 0, in.deliveries != nil && room == credit:
		return nil
	case in.deliveries != nil && room > credit && credit > 0 && time.Since(in.since) < regainEvery:
		return nil // it need not be at once
	}
	if err := in.cancel(ctx); err != nil {
		return err
	}
	// What came meanwhile has taken its room.
	if room, _ = in.look(); room > len(in.held) {
		return in.start(room - len(in.held))
	}
	return nil
}

// look returns how many deliveries may be begun, and how many may still come.
func (in *intake) look() (room, credit int) {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	return in.p.room(), in.credit
}

// start begins a consumer that gets n deliveries at first.
func (in *intake) start(n int) error {
	tag := fmt.Sprintf("%s.%s.%s", in.p.c.b.cfg.Prefix, in.p.name, uuid.New())
	in.p.mu.Lock()
	in.round++
	in.credit = n
	in.p.mu.Unlock()
	err := in.s.rpc(func() error {
		if err := in.ch.Qos(n, 0, false); err != nil {
			return err
		}
		deliveries, err := in.ch.Consume(in.p.c.b.layout.queue(in.p.name), tag, false, false, false, false, nil)
		in.deliveries = deliveries
		return err
	})
	if err != nil {
		return refused(fmt.Errorf("amqp: consume: %w", err))
	}
	in.tag, in.since = tag, time.Now()
	return nil
}

// cancel ends the consumer, if there is one, and takes what was sent to it.
func (in *intake) cancel(ctx context.Context) error {
	if in.deliveries == nil {
		return nil
	}
	in.p.mu.Lock()
	in.round++
	in.credit = 0
	in.p.mu.Unlock()
	if err := in.s.rpc(func() error { return in.ch.Cancel(in.tag, false) }); err != nil {
		return fmt.Errorf("amqp: cancel a consumer: %w", err)
	}
	for d := range in.deliveries {
		in.receive(ctx, d, false)
	}
	in.deliveries = nil
	return nil
}

// receive begins a delivery, or holds it when nothing may be begun now.
func (in *intake) receive(ctx context.Context, d amqp091.Delivery, live bool) {
	round := -1
	if live {
		in.p.mu.Lock()
		in.credit--
		round = in.round
		in.p.mu.Unlock()
	}
	broker, _ := in.p.c.b.state.get()
	taking, _ := in.p.c.e.Taking()
	if ctx.Err() != nil || !taking || !broker.connected || in.p.pause() > 0 {
		in.held = append(in.held, waiting{d, round})
		return
	}
	in.begin(ctx, waiting{d, round})
}

// takeBack holds what the engine would not take.
func (in *intake) takeBack() {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	in.held = append(in.held, in.back...)
	in.back = nil
}

// putBack returns what is held to the queue. There is no consumer on the channel
// now, so that the broker gives it to another one, or keeps it, and does not
// send it here again.
func (in *intake) putBack() {
	in.takeBack()
	for _, w := range in.held {
		_ = w.d.Nack(false, true) // fails when the channel is gone: then it is back already
	}
	in.held = nil
}

// ackEarly acknowledges a delivery whose worker stays busy. The consumer is
// cancelled before, as the broker would send another one in its place.
func (in *intake) ackEarly(ctx context.Context, d *delivery) error {
	in.p.mu.Lock()
	current := d.round == in.round
	in.p.mu.Unlock()
	if current {
		if err := in.cancel(ctx); err != nil {
			return err
		}
	}
	d.settle(d.ack)
	return nil
}

// drain takes no more, waits for what was begun, and leaves the rest to the
// broker.
func (in *intake) drain(ctx context.Context) error {
	if err := in.cancel(ctx); err != nil {
		return err
	}
	idle := make(chan struct{})
	go func() {
		in.begun.Wait()
		close(idle)
	}()
	for {
		select {
		case <-idle:
			return nil
		case d := <-in.early:
			d.settle(d.ack)
		case e := <-in.closes:
			return closedBy(e)
		case <-in.s.dead:
			return fmt.Errorf("amqp: the connection ended: %w", in.s.err)
		}
	}
}

// wake makes the goroutine look again.
func (in *intake) wake() {
	select {
	case in.nudge <- struct{}{}:
	default:
	}
}
