//go:build linux

package faults

import (
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/internal/faultproxy"
	"github.com/leveret-go/leveret/saga"
)

var rabbitmqFaults = []fault{
	{name: "broker-killed-under-load", group: "rabbitmq", core: true, run: brokerKilledUnderLoad},
	{name: "broker-restarted-under-load", group: "rabbitmq", run: brokerRestartedUnderLoad},
	{name: "broker-stands-still-for-a-minute", group: "rabbitmq", run: brokerStandsStill(time.Minute)},
	{name: "broker-out-of-memory", group: "rabbitmq", run: brokerOutOfMemory},
	{name: "connections-closed-every-2-s", group: "rabbitmq", core: true, run: connectionsClosedAgainAndAgain},
	{name: "cut-between-publish-and-confirm", group: "rabbitmq", core: true, run: cutBetweenPublishAndConfirm},
	{name: "cut-in-the-middle-of-frames", group: "rabbitmq", run: cutInTheMiddleOfFrames},
	{name: "broker-blackholed-both-ways", group: "rabbitmq", run: brokerIsBlackholed(both)},
	{name: "broker-does-not-hear", group: "rabbitmq", run: brokerIsBlackholed(faultproxy.ToServer)},
	{name: "broker-is-not-heard", group: "rabbitmq", run: brokerIsBlackholed(faultproxy.ToClient)},
	{name: "queue-deleted-under-the-consumer", group: "rabbitmq", core: true, run: queueDeletedUnderTheConsumer},
	{name: "exchange-deleted", group: "rabbitmq", run: exchangeDeleted},
	{name: "binding-removed", group: "rabbitmq", run: bindingRemoved},
	{name: "queue-with-other-arguments", group: "rabbitmq", run: queueWithOtherArguments},
	{name: "permissions-lost", group: "rabbitmq", run: permissionsLost},
	{name: "wrong-password", group: "rabbitmq", run: wrongPassword},
	{name: "consumer-timeout", group: "rabbitmq", run: consumerTimeout(time.Second)},
	{name: "consumer-timeout-too-short", group: "rabbitmq", run: consumerTimeout(time.Minute)},
}

// rabbit is a setup in which each step is handed over by a pointer through the broker, and lost pointers
// are missed after a lease.
func rabbit(s setup) setup {
	s.Store, s.Rabbit = onPostgres, true
	setDefault(&s.Worker.Handover, saga.HandoverPublish)
	return s
}

// withBroker calls f with a channel to the broker, past the proxy.
func (w *world) withBroker(f func(*amqp091.Channel) error) error {
	conn, err := amqp091.Dial(w.rabbit.direct)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return f(ch)
}

// queue is the name of the queue of the partition that all use.
func (w *world) queue() string { return w.settings.Prefix + ".execute.default" }

// depth returns how many messages wait in the queue, and how many consumers it has.
func (w *world) depth() (ready, consumers int) {
	err := w.withBroker(func(ch *amqp091.Channel) error {
		q, err := ch.QueueDeclarePassive(w.queue(), true, false, false, false, nil)
		ready, consumers = q.Messages, q.Consumers
		return err
	})
	if err != nil { // there is no queue, or no broker
		return 0, 0
	}
	return ready, consumers
}

// consumed waits until n workers consume from the queue.
func (w *world) consumed(n int) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d workers consume", n), func() bool { return w.consumers() >= n })
}

func (w *world) consumers() int {
	_, n := w.depth()
	return n
}

// away waits until the starter knows that the broker takes no messages.
func (w *world) away() {
	w.t.Helper()
	w.until("the broker is known to be away", func() bool { return !w.starter.broker.Connected() })
}

// finishWith is finish, after what the fault has hit has ended and n workers consume again; then pointers
// have to get through once more. No connection to the broker may be left but the starter's.
func (w *world) finishWith(n int) {
	w.t.Helper()
	back := make(chan time.Duration, 1)
	go func() { // beside the recovery
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for w.t.Context().Err() == nil {
			if w.consumers() >= n {
				back <- time.Since(w.liftedAt)
				return
			}
			<-tick.C
		}
	}()
	w.recover()
	recovery := w.result.Recovery
	w.consumed(n)
	w.until("the starter publishes", w.starter.broker.Connected)
	w.note("consumers back after %.1f s", (<-back).Seconds())
	w.lifted()
	w.start(20, 20*time.Millisecond)
	w.finish()
	w.result.Recovery = recovery
	w.checkBroker()
}

// checkBroker wants no connection to the broker to be left but the starter's.
func (w *world) checkBroker() {
	w.t.Helper()
	w.until("only the starter is connected to the broker", func() bool { return w.rabbit.proxy.Open() <= 1 })
	w.note("attempts %s, pointers: %d unpublished, %d unroutable; %d times a consumer was interrupted, %d times a connection",
		tally(w.attempts()), w.count("pointer.unpublished"), w.count("pointer.unroutable"), w.count(interrupted), w.count(lostBroker))
}

// What the workers log when a channel or a connection is lost, once a minute for the same reason.
const (
	interrupted = `"amqp: consuming was interrupted"`
	lostBroker  = `"amqp: the broker is away"`
)
