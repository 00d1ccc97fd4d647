//go:build linux

package faults

import "time"

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

// Steps take longer than the broker lets a consumer keep a message. It is acknowledged before.
func consumerTimeout(w *world) {
	w.up(rabbit(setup{
		Private: true, RabbitConf: []string{"consumer_timeout = 3000", "{channel_tick_interval, 1000}"},
		Worker: settings{AckAfter: time.Second, SlowStep: 10 * time.Second, StepTimeout: 30 * time.Second},
	}))
	w.allow(30*time.Second, "the slow steps")
	w.work(2, nil)
	w.consumed(2)
	w.start(24, 100*time.Millisecond)
	w.lifted()
	w.finishWith(0)
	if n := w.count(`"amqp: consuming was interrupted"`) + w.count(`"amqp: the broker is away"`); n > 0 {
		w.fail("the broker ended %d channels or connections, want none", n)
	}
}

// The same, and nobody has told the workers: the broker ends their channels and delivers again. Leases
// say that the step is being worked on.
func consumerTimeoutTooShort(w *world) {
	w.up(rabbit(setup{
		Private: true, RabbitConf: []string{"consumer_timeout = 3000", "{channel_tick_interval, 1000}"},
		Worker: settings{SlowStep: 10 * time.Second, StepTimeout: 30 * time.Second},
	}))
	w.allow(30*time.Second, "the slow steps")
	w.work(2, nil)
	w.consumed(2)
	w.start(24, 100*time.Millisecond)
	w.lifted()
	w.finishWith(0)
}
