//go:build linux

package faults

import (
	"syscall"
	"time"
)

// The broker dies as if its plug were pulled, and is started again. Work goes on while it is away.
func brokerKilledUnderLoad(w *world) {
	w.up(rabbit(setup{Private: true}))
	w.work(2, nil)
	w.consumed(2)
	w.start(150, 100*time.Millisecond)
	w.ended(15)
	w.rabbit.server.Kill(w.t)
	w.say("the broker is dead")
	w.away()
	w.ended(30) // without it
	w.rabbit.server.Start(w.t)
	w.lifted()
	w.finishWith(2)
}

// The broker is shut down in order and started again, twice.
func brokerRestartedUnderLoad(w *world) {
	w.up(rabbit(setup{Private: true}))
	w.work(2, nil)
	w.consumed(2)
	w.start(250, 120*time.Millisecond)
	for i := range 2 {
		w.ended(20 + 60*i)
		w.rabbit.server.Stop(w.t)
		w.away()
		w.ended(40 + 60*i)
		w.rabbit.server.Start(w.t)
		w.until("the broker is back", w.starter.broker.Connected)
	}
	w.lifted()
	w.finishWith(2)
}

// The broker stands still: its connections are open, and nobody is there.
func brokerStandsStill(d time.Duration) func(*world) {
	return func(w *world) {
		w.up(rabbit(setup{Private: true}))
		w.work(2, nil)
		w.consumed(2)
		w.start(200, d/150)
		w.ended(10)
		w.signalBroker(syscall.SIGSTOP)
		began := time.Now()
		w.away()
		w.note("known to be away after %.1f s", time.Since(began).Seconds())
		w.ended(50)
		w.pause(d - time.Since(began))
		w.signalBroker(syscall.SIGCONT)
		w.lifted()
		w.finishWith(2)
	}
}

// The broker takes no messages for want of memory, gets some, and is out of it again.
func brokerOutOfMemory(w *world) {
	w.up(rabbit(setup{Private: true}))
	w.work(2, nil)
	w.consumed(2)
	w.start(150, 80*time.Millisecond)
	for i := range 2 {
		w.ended(10 + 50*i)
		w.rabbitmqctl("set_vm_memory_high_watermark", "0.00001")
		w.away()
		w.ended(40 + 50*i)
		w.rabbitmqctl("set_vm_memory_high_watermark", "0.4")
		w.until("the broker takes messages", w.starter.broker.Connected)
	}
	w.lifted()
	w.finishWith(2)
}
