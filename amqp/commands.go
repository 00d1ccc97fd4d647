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

const (
	reasonCommand = "command_refused"
	commandKey    = "command"
	commandType   = "saga.command"
	answerType    = "saga.answer"
)

// commands takes commands from their queue and answers them. One goroutine owns
// the channel they come over; each command has one of its own.
type commands struct {
	c       *Consumer
	n       int // at once
	trouble trouble
}

// run consumes until ctx is done and all that was begun has ended.
func (k *commands) run(ctx context.Context) {
	retry := newRetries(&k.c.b.cfg)
	for ctx.Err() == nil {
		s, changed := k.c.session.get()
		if s == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := k.consume(ctx, s)
		if ctx.Err() != nil {
			return
		}
		wait := retry.wait(err, time.Since(began))
		select {
		case <-s.dead: // the connection's trouble
			retry.reset()
		default:
			k.trouble.warn("amqp: taking commands was interrupted", err)
			sleep(ctx, wait)
		}
	}
}

func (k *commands) consume(ctx context.Context, s *session) error {
	l := k.c.b.layout
	if err := l.ensure(s, append(l.shared(), l.commandQueue()...)); err != nil {
		return err
	}
	ch, err := s.channel()
	if err != nil {
		return fmt.Errorf("amqp: open a channel: %w", err)
	}
	var begun sync.WaitGroup
	defer func() { _ = s.rpc(ch.Close) }() // acknowledgements on their way come first
	answers := &answerer{b: k.c.b}
	defer answers.close()
	defer begun.Wait()

	closes, ends := ch.NotifyClose(make(chan *amqp091.Error, 1)), ch.NotifyCancel(make(chan string, 8))
	tag := l.commands()
	var deliveries <-chan amqp091.Delivery
	err = s.rpc(func() error {
		if err := ch.Qos(k.n, 0, false); err != nil {
			return err
		}
		deliveries, err = ch.Consume(l.commands(), tag, false, false, false, false, nil)
		return err
	})
	if err != nil {
		return refused(fmt.Errorf("amqp: consume: %w", err))
	}
	// What is waited for ends with the channel: nothing could be acknowledged.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return errConsumerEnded
			}
			begun.Go(func() { k.handle(ctx, answers, d) })
		case e := <-closes:
			return closedBy(e)
		case <-ends:
			return errConsumerEnded
		case <-s.dead:
			return fmt.Errorf("amqp: the connection ended: %w", s.err)
		case <-ctx.Done():
			// What was delivered and not begun goes back with the channel.
			return s.rpc(func() error { return ch.Cancel(tag, false) })
		}
	}
}

// handle carries out a command, answers, and acknowledges it, in this order: a
// crash in between repeats all of it, and the command is still carried out once.
// While nobody knows what became of it, it is tried again, ever more rarely; at
// the end of ctx it is left to the broker, which gives it to another one.
func (k *commands) handle(ctx context.Context, answers *answerer, d amqp091.Delivery) {
	m := saga.CommandMessage{ID: d.MessageId, Body: d.Body}
	m.TraceParent, _ = d.Headers["traceparent"].(string)
	a, err := k.carryOut(ctx, m)
	for wait := pauseFirst; err != nil; wait = min(2*wait, pauseMost) {
		k.trouble.warn("amqp: a command cannot be carried out yet", err)
		if sleep(ctx, wait); ctx.Err() != nil {
			return
		}
		a, err = k.carryOut(ctx, m)
	}
	if d.ReplyTo != "" && !k.answer(ctx, answers, &d, a) {
		return
	}
	if a.Status == saga.CommandRefused && k.c.b.entomb(commandCorpse(d, a)) != nil {
		_ = d.Nack(false, false) // the broker puts it there, without the reason
		return
	}
	_ = d.Ack(false)
}

// answer answers a command, and waits for a broker that cannot be published to
// now. It returns false when ctx has ended before. An answer that nobody takes is
// none.
func (k *commands) answer(ctx context.Context, answers *answerer, d *amqp091.Delivery, a *saga.CommandAnswer) bool {
	for wait := pauseFirst; ; wait = min(2*wait, pauseMost) {
		err := answers.send(d, a)
		if err != nil {
			k.trouble.warn("amqp: a command cannot be answered", err, "command", d.MessageId)
		}
		if err == nil || errors.Is(err, errUnanswerable) || errors.Is(err, ErrMisconfigured) {
			return true
		}
		if sleep(ctx, wait); ctx.Err() != nil {
			return false
		}
	}
}

// carryOut does not end with ctx: what was begun is better known.
func (k *commands) carryOut(ctx context.Context, m saga.CommandMessage) (*saga.CommandAnswer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	return k.c.e.Command(ctx, m)
}

const commandTimeout = 15 * time.Second

// commandCorpse makes the message that stands for a refused command.
func commandCorpse(d amqp091.Delivery, a *saga.CommandAnswer) amqp091.Publishing {
	m := corpse(d, "", reasonCommand, errors.New(a.Code+": "+a.Message))
	delete(m.Headers, "saga-partition")
	m.Headers["saga-queue"] = commandKey
	m.Headers["saga-command"] = a.Command
	if d.ReplyTo != "" {
		m.Headers["saga-reply-to"] = d.ReplyTo
	}
	m.Type = commandType
	if len(d.Body) <= maxCommandBody { // whole, so that it can be sent again
		delete(m.Headers, "saga-size")
		m.Body = d.Body
	}
	return m
}

const maxCommandBody = 2 << 20
