// Package faults holds no code but tests: what Leveret promises when processes, brokers, databases
// and clocks fail, tried on real servers and real processes. `make faults` tries every fault,
// `make faults FAULT=name` one (a group's name works too); plain go test only the short core of them.
//
// # How to add a case
//
// Add a fault to the list of its group (processFaults in process_test.go, rabbitmqFaults,
// postgresFaults, sqliteFaults, engineFaults), with a function that gets a world:
//
//	{name: "worker-killed-in-a-step", group: "process", core: true, run: workerKilledInAStep},
//
//	func workerKilledInAStep(w *world) {
//		w.up(setup{Store: onPostgres, Rabbit: true})    // servers, behind proxies, and participants
//		workers := w.work(2, nil)                       // processes that run steps
//		gate := w.participants.hold(afterEffect, executes("charge"))
//		w.start(60, 20*time.Millisecond)                // 60 executions, one every 20 ms, in the background
//		held := gate.next()                             // a call that is being worked on now
//		w.worker(held.PID).kill()                       // the fault
//		gate.release()
//		w.lifted()                                      // from here on it has to recover
//		w.finish()                                      // waits for all executions and checks everything
//	}
//
// What there is for a case:
//
//   - setup.Private gives it servers of its own, to stop, kill and start again: w.postgres.server,
//     w.rabbit.server (a [testenv.Server]). Else it shares the servers of all tests, with a database
//     and a prefix of its own.
//   - w.postgres.proxy and w.rabbit.proxy (a [faultproxy.Proxy]) stand in front of both for workers and
//     starter alike. The world itself looks at the store without it (w.observer).
//   - w.work(n, change) starts processes, and change may alter the settings of each. A child can kill,
//     stop (SIGSTOP), resume (SIGCONT) and term (SIGTERM). w.local(n, change, wrap) runs the same worker
//     inside the test process, on a store that wrap may replace: for stores in memory, and where a
//     seam is enough.
//   - w.participants are the systems that the steps call. They are in the test process, so no fault hits
//     them; they know each idempotency key, refuse an effect after its undo, and can hold calls.
//   - w.start may be called several times: before, while and after. The starter repeats a start, under
//     the same id, until the store has it. w.ended(n) waits until so many executions have ended.
//   - w.allow(d, why) adds to the time that recovery may take; see world.bound for what it is made of.
//     w.mayGiveUp() says that executions meant to succeed may be compensated instead, w.mayReportLate()
//     that a worker may report an effect after its undo.
//   - w.beside(setup) is a second world, on the broker and prefix of the first one.
//   - w.note("…") adds a remark to the result, w.say("…") a line to the log with the time.
//
// finish fails the case when an effect was lost (a completed execution without each of its effects,
// another one with any left), when one was doubled (two keys had the same effect), when an execution
// has not ended within the bound, when a worker that was told to end does not end with 0, when it has
// goroutines left after that, when a connection is left at a server, or a call of the starter outlived
// its ctx.
//
// A case takes the time it needs but no more: wait for what can be seen (gates, w.ended, w.until) and
// only for the length of a fault with w.pause. Cases run two at a time; one that cannot bear that is
// marked alone. The core of all groups together has to end within five minutes.
package faults
