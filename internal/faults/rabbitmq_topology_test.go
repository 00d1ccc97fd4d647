//go:build linux

package faults

import (
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// topology does something to exchanges and queues.
func (w *world) topology(what string, f func(*amqp091.Channel) error) {
	w.t.Helper()
	w.must(w.withBroker(f))
	w.say("%s", what)
}

// The queue is deleted with all that waits in it, while workers consume from it.
func queueDeletedUnderTheConsumer(w *world) {
	w.up(rabbit(setup{}))
	w.work(2, nil)
	w.consumed(2)
	gate := w.participants.hold(beforeEffect, executes("charge"))
	w.start(60, 20*time.Millisecond)
	for range 8 { // all workers are busy
		gate.next()
	}
	w.until("pointers wait in the queue", func() bool { ready, _ := w.depth(); return ready > 0 })
	lost := 0
	w.topology("the queue is deleted", func(ch *amqp091.Channel) (err error) {
		lost, err = ch.QueueDelete(w.queue(), false, false, false)
		return err
	})
	gate.release()
	w.note("%d pointers were lost with the queue", lost)
	w.lifted()
	w.finishWith(2)
}

// The exchange is deleted again and again, and all bindings with it.
func exchangeDeleted(w *world) {
	w.up(rabbit(setup{}))
	w.work(2, nil)
	w.consumed(2)
	w.start(150, 80*time.Millisecond)
	for i := range 3 {
		w.ended(20 + 30*i)
		w.topology("the exchange is deleted", func(ch *amqp091.Channel) error {
			return ch.ExchangeDelete(w.settings.Prefix, false, false)
		})
	}
	w.lifted()
	w.finishWith(2)
	w.routed()
}

// The binding of the queue is removed: what is published is returned.
func bindingRemoved(w *world) {
	w.up(rabbit(setup{}))
	w.work(2, nil)
	w.consumed(2)
	w.start(200, 80*time.Millisecond)
	for i := range 2 {
		w.ended(20 + 60*i)
		w.topology("the binding is removed", func(ch *amqp091.Channel) error {
			return ch.QueueUnbind(w.queue(), "execute.default.#", w.settings.Prefix, nil)
		})
	}
	w.lifted()
	w.finishWith(2)
	w.routed()
}

// routed wants the queue to be bound again.
func (w *world) routed() {
	w.t.Helper()
	w.topology("a message reaches the queue", func(ch *amqp091.Channel) error {
		returns := ch.NotifyReturn(make(chan amqp091.Return, 1))
		if err := ch.Confirm(false); err != nil {
			return err
		}
		c, err := ch.PublishWithDeferredConfirm(w.settings.Prefix, "execute.default.checkout", true, false, amqp091.Publishing{})
		if err != nil {
			return err
		}
		c.Wait()
		select {
		case r := <-returns:
			w.fail("nobody bound the queue again: %d %s", r.ReplyCode, r.ReplyText)
		default:
		}
		return nil
	})
}

// A queue of the name is there already, with other arguments, until somebody deletes it.
func queueWithOtherArguments(w *world) {
	w.up(rabbit(setup{}))
	w.topology("a queue with other arguments is declared", func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(w.queue(), true, false, false, false, amqp091.Table{"x-max-length": 1})
		return err
	})
	w.allow(30*time.Second, "a refused consumer tries again ever more rarely, and what nobody consumes is offered so")
	w.work(2, nil)
	w.start(150, 60*time.Millisecond)
	w.ended(60)
	w.topology("the queue is deleted", func(ch *amqp091.Channel) error {
		_, err := ch.QueueDelete(w.queue(), false, false, false)
		return err
	})
	w.lifted()
	w.finishWith(2)
}
