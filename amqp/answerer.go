package amqp

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

// errUnanswerable: there is nobody to answer to, or the broker does not take it.
var errUnanswerable = errors.New("amqp: the answer is not taken")

// An answerer sends answers over the connection that publishes: one that the broker
// blocks could not acknowledge any more. It has a channel of its own, because what
// the broker refuses ends the channel.
type answerer struct {
	b *Broker

	mu      sync.Mutex
	s       *session
	ch      *amqp091.Channel // nil: to be opened
	returns <-chan amqp091.Return
	closes  <-chan *amqp091.Error
}

// send publishes an answer to the queue that a command names, and waits until the
// broker has it.
func (w *answerer) send(d *amqp091.Delivery, a *saga.CommandAnswer) error {
	body, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnanswerable, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.open(); err != nil {
		return err
	}
	correlation := d.CorrelationId
	if correlation == "" {
		correlation = d.MessageId
	}
	confirm, err := w.ch.PublishWithDeferredConfirm("", d.ReplyTo, true, false, amqp091.Publishing{
		ContentType:   "application/json",
		Type:          answerType,
		CorrelationId: correlation,
		Timestamp:     time.Now(),
		AppId:         w.b.cfg.Name,
		DeliveryMode:  d.DeliveryMode,
		Body:          body,
	})
	if err != nil {
		w.shut()
		return fmt.Errorf("amqp: publish: %w", err)
	}
	t := time.NewTimer(w.b.cfg.Timeout)
	defer t.Stop()
	select {
	case <-confirm.Done():
	case e := <-w.closes:
		return refused(closedBy(e))
	case <-w.s.dead:
		return fmt.Errorf("%w: %w", errUnconfirmed, w.s.err)
	case <-t.C:
		w.shut() // its answer would be taken for the next one's
		return fmt.Errorf("amqp: no confirmation within %v", w.b.cfg.Timeout)
	}
	select {
	case r := <-w.returns: // came before the confirmation
		return fmt.Errorf("%w: no queue %q: %d %s", errUnanswerable, cut(d.ReplyTo, maxShortText), r.ReplyCode, r.ReplyText)
	default:
	}
	switch {
	case confirm.Acked():
		return nil
	case w.ch.IsClosed():
		return refused(closedBy(<-w.closes))
	}
	return fmt.Errorf("%w: %w", errUnanswerable, errNacked)
}

// open opens a channel, unless there is one.
func (w *answerer) open() error {
	out, err := w.b.session()
	if err != nil {
		return err
	}
	if w.ch != nil && w.s == out.s && !w.ch.IsClosed() {
		return nil
	}
	w.s = out.s
	if w.ch, err = w.s.channel(); err != nil {
		return fmt.Errorf("amqp: open a channel: %w", err)
	}
	// Once for each channel: amqp091 waits for who does not read.
	w.returns, w.closes = w.ch.NotifyReturn(make(chan amqp091.Return, 1)), w.ch.NotifyClose(make(chan *amqp091.Error, 1))
	if err := w.s.rpc(func() error { return w.ch.Confirm(false) }); err != nil {
		return fmt.Errorf("amqp: ask for confirmations: %w", err)
	}
	return nil
}

func (w *answerer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut()
}

func (w *answerer) shut() {
	if w.ch != nil {
		_ = w.s.rpc(w.ch.Close)
		w.ch = nil
	}
}
