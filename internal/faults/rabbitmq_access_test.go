//go:build linux

package faults

import (
	"time"

	"github.com/leveret-go/leveret/store"
)

// The broker's user may do nothing any more, which brokers look at now and then only, and again all.
func permissionsLost(w *world) {
	w.up(rabbit(setup{Private: true, RabbitConf: []string{"{channel_tick_interval, 1000}"}}))
	w.work(2, nil)
	w.consumed(2)
	w.start(200, 100*time.Millisecond)
	w.ended(20)
	w.rabbitmqctl("set_permissions", "guest", "", "", "")
	w.ended(50)
	w.rabbitmqctl("close_all_connections", "--vhost", "/", "a test")
	w.away()
	w.ended(80)
	w.rabbitmqctl("set_permissions", "guest", ".*", ".*", ".*")
	w.lifted()
	w.finishWith(2)
}

// Workers have a password that the broker does not know, until it does.
func wrongPassword(w *world) {
	w.up(rabbit(setup{Private: true}))
	w.rabbitmqctl("change_password", "guest", "another")
	w.rabbitmqctl("close_all_connections", "--vhost", "/", "a test")
	w.away()
	w.work(2, nil)
	w.start(150, 80*time.Millisecond)
	w.ended(50)
	w.rabbitmqctl("change_password", "guest", "guest")
	w.lifted()
	w.finishWith(2)
}

// Steps take longer than the broker lets a consumer keep a message. It is acknowledged before, or, when
// nobody has told the workers, the broker ends their channels and delivers again: then leases say that
// the step is being worked on.
func consumerTimeout(ackAfter time.Duration) func(*world) {
	return func(w *world) {
		const limit = 3 * time.Second
		w.up(rabbit(setup{
			Private: true, RabbitConf: []string{"consumer_timeout = 3000", "{channel_tick_interval, 1000}"},
			Worker: settings{AckAfter: ackAfter, SlowStep: 10 * time.Second, StepTimeout: 30 * time.Second},
		}))
		w.allow(30*time.Second, "a fifth of the orders takes 10 s in each of up to two calls")
		w.work(2, nil)
		w.consumed(2)
		w.start(40, 100*time.Millisecond)
		w.finish()
		w.checkBroker()
		ended := w.count(interrupted) + w.count(lostBroker)
		if (ended > 0) != (ackAfter > limit) {
			w.fail("the broker has ended %d channels", ended)
		}
		for _, a := range w.attempts() {
			if a.Status == store.AttemptAbandoned || a.Late {
				w.fail("an attempt lost its lease: %+v", a)
			}
		}
	}
}
