//go:build linux

package faults

import "time"

var processFaults = []fault{
	{name: "worker-killed-in-a-step", group: "process", core: true, run: workerKilledInAStep},
}

// A worker dies while a participant works for it: the effect happened, nobody heard of it.
func workerKilledInAStep(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	w.work(2, nil)
	gate := w.participants.hold(afterEffect, executes("charge"))
	w.start(60, 20*time.Millisecond)
	held := gate.next()
	w.worker(held.PID).kill()
	gate.release()
	w.lifted()
	w.finish()
	w.note("attempts %s", tally(w.attempts()))
}
