package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

var (
	errUnroutable  = errors.New("amqp: no queue takes the pointer")
	errNacked      = errors.New("amqp: the broker refused the message")
	errUnconfirmed = errors.New("amqp: the connection ended before the broker confirmed the message")
)

const (
	patience     = 3               // Timeouts without a confirmation end a session
	redeclareFor = 5 * time.Second // a queue is not declared again within this time
)

// An outlet publishes on one session. One goroutine owns its channel; whoever
// publishes leaves messages in its queue.
type outlet struct {
	b     *Broker
	s     *session
	ch    *amqp091.Channel
	flush chan struct{} // closed by Close: end when all is confirmed
	over  chan struct{} // closed when it has ended
	left  int           // what was given up while closing; read after over

	mu    sync.RWMutex
	ended bool
	queue chan *outgoing

	returns  <-chan amqp091.Return
	pending  []*outgoing // in the order of publishing
	byID     map[string]*outgoing
	declared map[string]time.Time
	trouble  trouble
	resumed  time.Time // when an alarm was over, else zero
}

// take leaves a message in the queue, if there is room.
func (out *outlet) take(o *outgoing) error {
	out.mu.RLock()
	defer out.mu.RUnlock()
	if out.ended {
		return ErrAway
	}
	select {
	case out.queue <- o:
		return nil
	default:
		return ErrBusy
	}
}

// publishOn publishes on a session until it ends, or ctx.
func (b *Broker) publishOn(ctx context.Context, l *link, s *session) error {
	if err := b.layout.ensure(s, b.layout.shared()); err != nil {
		return err
	}
	ch, err := s.channel()
	if err != nil {
		return fmt.Errorf("amqp: open a channel: %w", err)
	}
	if err := s.rpc(func() error { return ch.Confirm(false) }); err != nil {
		return fmt.Errorf("amqp: ask for confirmations: %w", err)
	}
	out := &outlet{
		b: b, s: s, ch: ch, flush: make(chan struct{}), over: make(chan struct{}),
		queue: make(chan *outgoing, b.cfg.Window),
		// Room for all that can come while nobody reads.
		returns: ch.NotifyReturn(make(chan amqp091.Return, b.cfg.Window+1)),
		byID:    map[string]*outgoing{}, declared: map[string]time.Time{},
		trouble: trouble{log: b.cfg.Logger},
	}
	closes := ch.NotifyClose(make(chan *amqp091.Error, 1))
	update := out.update
	s.changed.Store(&update)
	b.live.Store(out)
	out.update()
	l.up(s)

	err = out.run(ctx, closes)

	b.live.Store(nil)
	out.shut(err)
	out.end()
	return err
}

// update makes the state that of the session: connected, or blocked.
func (out *outlet) update() {
	out.mu.Lock()
	defer out.mu.Unlock()
	switch {
	case out.ended:
	case out.s.blocked.Load():
		out.b.state.set(state{err: ErrBlocked})
	default:
		out.b.state.set(state{connected: true})
	}
}

// shut lets nothing more in.
func (out *outlet) shut(err error) {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.ended = true
	out.b.state.set(state{err: err})
}

func (out *outlet) run(ctx context.Context, closes <-chan *amqp091.Error) error {
	tick := time.NewTicker(out.b.cfg.Timeout)
	defer tick.Stop()
	flush, flushing := out.flush, false
	for {
		var head <-chan struct{}
		if len(out.pending) > 0 {
			head = out.pending[0].confirm.Done()
		}
		var queue <-chan *outgoing
		if len(out.pending) < out.b.cfg.Window {
			queue = out.queue
		}
		if flushing && (len(out.pending) == 0 && len(out.queue) == 0 || out.s.blocked.Load()) {
			return ErrClosed
		}
		select {
		case o := <-queue:
			if err := out.publish(o); err != nil {
				return err
			}
		case <-head:
			out.settle()
		case r, ok := <-out.returns:
			if !ok {
				out.returns = nil
				continue
			}
			out.noteReturn(r)
		case e := <-closes:
			if e == nil {
				return fmt.Errorf("amqp: the channel was closed")
			}
			return fmt.Errorf("amqp: publish: %w", e)
		case <-out.s.dead:
			return fmt.Errorf("amqp: the connection ended: %w", out.s.err)
		case <-flush:
			flush, flushing, out.left = nil, true, 0
		case <-tick.C:
			if out.overdue() {
				return fmt.Errorf("amqp: no confirmation within %v", patience*out.b.cfg.Timeout)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// publish writes a message, after its queue was declared if need be.
func (out *outlet) publish(o *outgoing) error {
	if out.s.blocked.Load() {
		out.left++
		o.done(saga.EventPointerUnpublished, ErrBlocked)
		return nil
	}
	if o.partition != "" && out.b.layout.mode == Declare {
		if _, ok := out.declared[o.partition]; !ok {
			out.declared[o.partition] = time.Now()
			if err := out.b.layout.ensure(out.s, out.b.layout.partition(o.partition)); err != nil {
				out.trouble.warn("amqp: the queue of a partition", err, "partition", o.partition)
			}
		}
	}
	confirm, err := out.ch.PublishWithDeferredConfirm(o.exchange, o.key, !o.unheard, false, o.message)
	if err != nil {
		out.left++
		o.done(saga.EventPointerUnpublished, fmt.Errorf("amqp: publish: %w", err))
		if out.ch.IsClosed() || out.s.conn.IsClosed() {
			return fmt.Errorf("amqp: publish: %w", err)
		}
		return nil // of this message alone
	}
	o.confirm, o.at = confirm, time.Now()
	out.pending = append(out.pending, o)
	out.byID[o.message.MessageId] = o
	return nil
}

// settle deals with the oldest message, which is confirmed or never will be. A
// message that came back did so before its confirmation.
func (out *outlet) settle() {
	for more := true; more; {
		select {
		case r, ok := <-out.returns:
			if more = ok; ok {
				out.noteReturn(r)
			}
		default:
			more = false
		}
	}
	o := out.pending[0]
	out.pending[0] = nil
	out.pending = out.pending[1:]
	delete(out.byID, o.message.MessageId)
	switch {
	case o.returned != nil:
		if at, ok := out.declared[o.partition]; ok && time.Since(at) > redeclareFor {
			delete(out.declared, o.partition) // somebody deleted the queue
		}
		o.done(saga.EventPointerUnroutable, o.returned)
	case o.confirm.Acked():
		o.done("", nil)
	case out.ch.IsClosed():
		out.left++
		o.done(saga.EventPointerUnpublished, errUnconfirmed)
	default:
		o.done(saga.EventPointerUnpublished, errNacked)
	}
}

func (out *outlet) noteReturn(r amqp091.Return) {
	if o := out.byID[r.MessageId]; o != nil {
		o.returned = fmt.Errorf("%w: exchange %q, key %q: %d %s", errUnroutable, o.exchange, o.key, r.ReplyCode, r.ReplyText)
	}
}

// overdue reports whether the oldest message should long have been confirmed.
// While an alarm blocks the broker, nothing is.
func (out *outlet) overdue() bool {
	if out.s.blocked.Load() {
		out.resumed = time.Now()
	}
	if len(out.pending) == 0 {
		return false
	}
	since := out.pending[0].at
	if out.resumed.After(since) {
		since = out.resumed
	}
	return time.Since(since) > patience*out.b.cfg.Timeout
}

// end tells of all that is left.
func (out *outlet) end() {
	for len(out.queue) > 0 {
		o := <-out.queue
		out.left++
		o.done(saga.EventPointerUnpublished, ErrAway)
	}
	for len(out.pending) > 0 {
		o := out.pending[0]
		select {
		case <-o.confirm.Done(): // a last word may have come
			out.settle()
			continue
		default:
		}
		out.pending = out.pending[1:]
		out.left++
		o.done(saga.EventPointerUnpublished, errUnconfirmed)
	}
	close(out.over)
}
