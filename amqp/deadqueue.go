package amqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

// freshAfter is how often a dead letter may have been returned to its queue
// before it is put there anew. A quorum queue counts, and RabbitMQ 4 drops at 20.
const freshAfter = 5

// A DeadReport says what came of a [DeadQuery].
type DeadReport struct {
	// Letters were listed, replayed or purged.
	Letters []DeadLetter `json:"letters"`
	// Kept were selected, but not to be replayed.
	Kept []KeptLetter `json:"kept,omitempty"`
	// Seen messages were looked at, and Unseen more are in the queue.
	Seen   int `json:"seen"`
	Unseen int `json:"unseen"`
}

// A KeptLetter stays in the queue.
type KeptLetter struct {
	DeadLetter
	Why string `json:"why"`
}

// Dead lists dead letters, from the head of the queue on. All of them stay
// there. To see one, it has to be taken and given back: while that lasts nobody
// else sees it. When the connection is lost meanwhile the broker puts them back
// by itself. In a quorum queue, where that is counted, one that was given back 5
// times is replaced by a copy at the end of the queue, so that none is dropped
// for having been looked at; a crash just then leaves both.
//
// The error is for a broker that cannot be asked and for a ctx that ended; what
// was seen until then is reported with it.
func (a *Admin) Dead(ctx context.Context, q DeadQuery) (*DeadReport, error) {
	if err := q.check(false); err != nil {
		return nil, err
	}
	r := &DeadReport{}
	return r, a.scan(ctx, &q, r, func(_ *deadQueue, x *letter) (bool, error) {
		r.Letters = append(r.Letters, x.DeadLetter)
		return false, nil
	})
}

// Replay publishes the pointers of dead letters once more, to the partitions
// they came from, and refused commands to their queue, and removes each letter when
// the broker has its message. What is neither a pointer of a version that this build
// knows nor a command that is whole is kept, and so is one that no queue takes. What made a pointer a dead letter should be mended before: else it
// becomes one again, though not within the same call. A crash in the middle
// loses nothing: at the worst a pointer is there twice, which does no harm.
//
// It needs the permissions to read the dead letters' queue and to write to the
// exchange. The error is as that of [Admin.Dead]; what was replayed until then
// is reported with it.
func (a *Admin) Replay(ctx context.Context, q DeadQuery) (*DeadReport, error) {
	if err := q.check(true); err != nil {
		return nil, err
	}
	r := &DeadReport{}
	return r, a.scan(ctx, &q, r, func(dq *deadQueue, x *letter) (bool, error) {
		if x.refusal != "" {
			r.Kept = append(r.Kept, KeptLetter{x.DeadLetter, x.refusal})
			return false, nil
		}
		m, key, err := a.again(x)
		if err != nil {
			return false, err
		}
		err = dq.send(ctx, a.layout.exchange(), key, m)
		switch {
		case errors.Is(err, errUnroutable), errors.Is(err, errNacked), errors.Is(err, saga.ErrInvalid):
			r.Kept = append(r.Kept, KeptLetter{x.DeadLetter, printable(err.Error(), maxDeadError)})
			return false, nil
		case err != nil:
			return false, err
		}
		r.Letters = append(r.Letters, x.DeadLetter)
		return true, nil
	})
}

// again makes the message that a letter was, and its key.
func (a *Admin) again(x *letter) (m amqp091.Publishing, key string, err error) {
	if x.Command != "" {
		return commandAgain(x), commandKey, nil
	}
	p, err := read(&x.d)
	if err != nil {
		return m, "", err
	}
	m, err = message(a.cfg.Name, p)
	return m, a.layout.key(x.Partition, p.Saga), err
}

// commandAgain makes the message that a refused command was.
func commandAgain(x *letter) amqp091.Publishing {
	replyTo, _ := x.d.Headers["saga-reply-to"].(string)
	if replyTo == "" {
		replyTo = x.d.ReplyTo // the broker put it aside
	}
	id, _ := x.d.Headers["saga-message"].(string)
	headers := amqp091.Table{}
	if trace, ok := x.d.Headers["traceparent"].(string); ok {
		headers["traceparent"] = trace
	}
	return amqp091.Publishing{
		ContentType:   x.d.ContentType,
		DeliveryMode:  amqp091.Persistent,
		Type:          commandType,
		MessageId:     first(id, x.d.MessageId),
		CorrelationId: x.d.CorrelationId,
		ReplyTo:       replyTo,
		Timestamp:     time.Now(),
		AppId:         x.d.AppId,
		Headers:       headers,
		Body:          x.d.Body,
	}
}

// Purge removes dead letters for good. When it returns without an error the
// letters it reports are gone; with one, some of them may be back.
func (a *Admin) Purge(ctx context.Context, q DeadQuery) (*DeadReport, error) {
	if err := q.check(true); err != nil {
		return nil, err
	}
	r := &DeadReport{}
	return r, a.scan(ctx, &q, r, func(_ *deadQueue, x *letter) (bool, error) {
		r.Letters = append(r.Letters, x.DeadLetter)
		return true, nil
	})
}

// A deadQueue is the queue of dead letters, over one channel that holds what was
// taken from it.
type deadQueue struct {
	a       *Admin
	ch      *amqp091.Channel
	returns <-chan amqp091.Return
	held    uint64 // the last delivery that is to be put back; 0: none
}

// scan takes the messages that are in the queue now, but not those that come
// meanwhile, and calls act for each that is selected. Those for which act
// returns true are removed, all others put back.
func (a *Admin) scan(ctx context.Context, q *DeadQuery, r *DeadReport, act func(*deadQueue, *letter) (bool, error)) (err error) {
	most := q.Scan
	setDefault(&most, 1000)
	dq := &deadQueue{a: a}
	if dq.ch, err = a.s.channel(); err != nil {
		return fmt.Errorf("amqp: open a channel: %w", err)
	}
	defer func() {
		if e := dq.close(); err == nil && e != nil {
			err = fmt.Errorf("amqp: dead letters: %w", e)
		}
	}()
	dq.returns = dq.ch.NotifyReturn(make(chan amqp091.Return, 8))
	if err := a.s.rpc(func() error { return dq.ch.Confirm(false) }); err != nil {
		return fmt.Errorf("amqp: ask for confirmations: %w", err)
	}
	for ready := 1; r.Seen < min(ready, most); {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("amqp: dead letters: %w", err)
		}
		x, err := dq.take()
		if err != nil {
			return refused(fmt.Errorf("amqp: take a dead letter: %w", err))
		}
		if x == nil {
			break
		}
		if r.Seen == 0 { // a declaration would tell of a quorum queue as it was a while ago
			ready += int(x.d.MessageCount)
		}
		r.Seen++
		r.Unseen = max(ready-r.Seen, 0)
		done := false
		if q.selects(x) {
			if done, err = act(dq, x); err != nil {
				dq.held = x.d.DeliveryTag
				return refused(err)
			}
		}
		if err := dq.settle(ctx, x, done); err != nil {
			return refused(err)
		}
	}
	return nil
}

// take takes the next message; nil when there is none.
func (dq *deadQueue) take() (x *letter, err error) {
	err = dq.a.s.rpc(func() error {
		d, ok, err := dq.ch.Get(dq.a.layout.dead(), false)
		if ok {
			x = dq.a.layout.letter(d)
		}
		return err
	})
	return x, err
}

// settle removes a message, or holds it until all are put back.
func (dq *deadQueue) settle(ctx context.Context, x *letter, done bool) error {
	tag := x.d.DeliveryTag
	if !done && returned(&x.d) >= freshAfter {
		if err := dq.send(ctx, dq.a.layout.dead(), x.d.RoutingKey, dq.a.layout.renewed(x)); err != nil {
			dq.held = tag
			return err
		}
		done = true
	}
	if !done {
		dq.held = tag
		return nil
	}
	if err := x.d.Ack(false); err != nil {
		return fmt.Errorf("amqp: remove a dead letter: %w", err)
	}
	return nil
}

// close puts back what is held. It returns when the broker has dealt with all
// that was said to it before.
func (dq *deadQueue) close() error {
	var err error
	if dq.held != 0 {
		err = dq.ch.Nack(dq.held, true, true)
	}
	return errors.Join(err, dq.a.s.rpc(dq.ch.Close))
}

// send publishes a message and waits until the broker has it.
func (dq *deadQueue) send(ctx context.Context, exchange, key string, m amqp091.Publishing) error {
	s := dq.a.s
	switch {
	case s.blocked.Load():
		return ErrBlocked
	case len(key) > maxShortText:
		return fmt.Errorf("%w: amqp: publish: a key of %d bytes", saga.ErrInvalid, len(key))
	}
	confirm, err := dq.ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
	if err != nil {
		return fmt.Errorf("amqp: publish: %w", err)
	}
	t := time.NewTimer(dq.a.cfg.Timeout)
	defer t.Stop()
	select {
	case <-confirm.Done():
	case <-s.dead:
		return fmt.Errorf("%w: %w", errUnconfirmed, s.err)
	case <-t.C:
		return fmt.Errorf("amqp: no confirmation within %v", dq.a.cfg.Timeout)
	case <-ctx.Done():
		return fmt.Errorf("amqp: publish: %w", ctx.Err())
	}
	select {
	case r := <-dq.returns: // came before the confirmation
		return fmt.Errorf("%w: exchange %q, key %q: %d %s", errUnroutable, exchange, key, r.ReplyCode, r.ReplyText)
	default:
	}
	switch {
	case confirm.Acked():
		return nil
	case dq.ch.IsClosed():
		return errUnconfirmed
	}
	return errNacked
}

// returned says how often a message was given back to its queue, where that is
// counted.
func returned(d *amqp091.Delivery) int64 {
	n, _ := d.Headers["x-delivery-count"].(int64)
	return n
}

// renewed makes a message that stands for a letter, without what the broker
// noted on it.
func (l layout) renewed(x *letter) amqp091.Publishing {
	headers := amqp091.Table(maps.Clone(x.d.Headers))
	maps.DeleteFunc(headers, func(k string, _ any) bool { return strings.HasPrefix(k, "x-") })
	if _, ok := headers["saga-reason"]; !ok { // the broker alone knew
		headers["saga-reason"], headers["saga-partition"] = x.Reason, x.Partition
		if !x.DeadAt.IsZero() {
			headers["saga-dead-at"] = x.DeadAt.Format(time.RFC3339)
		}
	}
	return amqp091.Publishing{
		ContentType:     x.d.ContentType,
		ContentEncoding: x.d.ContentEncoding,
		DeliveryMode:    amqp091.Persistent,
		Type:            x.d.Type,
		MessageId:       x.d.MessageId,
		CorrelationId:   x.d.CorrelationId,
		Timestamp:       x.d.Timestamp,
		AppId:           x.d.AppId,
		Headers:         headers,
		Body:            x.d.Body,
	}
}
