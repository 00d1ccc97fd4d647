//go:build linux

package faults

import (
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

var processFaults = []fault{
	{name: "worker-killed-in-a-step", group: "process", core: true, run: workerKilledInAStep},
	{name: "worker-killed-in-an-undo", group: "process", core: true, run: workerKilledInAnUndo},
	{name: "worker-killed-before-its-publish", group: "process", core: true, run: workerKilledBeforeItsPublish},
	{name: "worker-stopped-past-its-lease", group: "process", core: true, run: workerStoppedPastItsLease},
	{name: "workers-killed-one-after-the-other", group: "process", run: workersKilledOneAfterTheOther},
	{name: "rolling-restart-under-load", group: "process", core: true, run: rollingRestartUnderLoad},
	{name: "everything-sleeps-past-its-leases", group: "process", core: true, run: everythingSleepsPastItsLeases},
	{name: "store-clock-10-minutes-ahead", group: "process", run: storeClockOff(10 * time.Minute)},
	{name: "store-clock-10-minutes-behind", group: "process", run: storeClockOff(-10 * time.Minute)},
	{name: "worker-believes-10-minutes-ahead", group: "process", run: workerBelieves(10 * time.Minute)},
	{name: "worker-believes-10-minutes-behind", group: "process", run: workerBelieves(-10 * time.Minute)},
	{name: "two-services-on-one-prefix", group: "process", run: twoServicesOnOnePrefix},
	{name: "transaction-holds-an-execution", group: "process", core: true, run: transactionHoldsAnExecution},
	{name: "no-call-outlives-its-ctx", group: "process", run: noCallOutlivesItsCtx},
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
	if again := w.participants.callsOf(func(c call) bool { return c.Key == held.Key }); len(again) < 2 {
		w.fail("nobody asked again for what the dead worker had asked for: %+v", again)
	}
	w.note("attempts %s", tally(w.attempts()))
}

// The same in an undo.
func workerKilledInAnUndo(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	w.work(2, nil)
	gate := w.participants.hold(afterEffect, undoes("reserve"))
	w.start(60, 20*time.Millisecond)
	held := gate.next()
	w.worker(held.PID).kill()
	gate.release()
	w.lifted()
	w.finish()
	w.note("attempts %s", tally(w.attempts()))
}

// A worker dies when the result of a step is written and the pointer to the next one is not sent.
func workerKilledBeforeItsPublish(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true, Worker: settings{Handover: saga.HandoverPublish}})
	victim := w.work(2, func(i int, s *settings) {
		if i == 0 {
			s.DieInPublish = "ship"
		}
	})[0]
	w.start(60, 20*time.Millisecond)
	w.until("the worker has killed itself", victim.over)
	if ws := victim.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
		w.fail("%s ended otherwise: %v\n%s", victim.name, victim.cmd.ProcessState, victim.tail())
	}
	w.lifted()
	w.finish()
	w.note("attempts %s", tally(w.attempts()))
}

// A worker stands still for longer than its lease, others do its work, and it wakes up with results
// in its hands. They count for nothing, and what its step did counts once.
func workerStoppedPastItsLease(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	w.mayReportLate() // on what it had in its hands besides
	w.work(2, nil)
	gate := w.participants.hold(beforeEffect, func(c call) bool {
		return executes("charge")(c) && c.Order.fails() == "" && !c.Order.flaky("charge", "execute")
	})
	w.start(40, 20*time.Millisecond)
	held := gate.next()
	victim := w.worker(held.PID)
	victim.stop()
	began := time.Now()
	gate.release() // what it asked for happens, and the answer waits for it
	var taken *store.Execution
	w.until("another worker has taken over", func() bool {
		x, err := w.observer.Get(w.t.Context(), held.Execution)
		w.must(err)
		taken = x
		return x.Status.Finished()
	})
	w.note("taken over and ended within %.1f s", time.Since(began).Seconds())
	victim.resume()
	w.lifted()
	w.finish()

	x, err := w.observer.Get(w.t.Context(), held.Execution)
	w.must(err)
	if x.Status != taken.Status || x.Step != taken.Step || x.Epoch != taken.Epoch || string(x.State) != string(taken.State) ||
		!slices.EqualFunc(x.Ledger, taken.Ledger, func(a, b store.LedgerEntry) bool { return a.Status == b.Status && !a.Stray && !b.Stray }) {
		w.fail("a late result changed %+v into %+v", taken, x)
	}
	list, err := w.observer.Attempts(w.t.Context(), held.Execution)
	w.must(err)
	var abandoned, others int
	for _, a := range list {
		if a.Step == "charge" && a.Direction == "execute" {
			if a.Status == store.AttemptAbandoned {
				abandoned++
			} else {
				others++
			}
		}
	}
	if abandoned != 1 || others < 1 {
		w.fail("the step was abandoned %d times and ended %d times, want once and at least once", abandoned, others)
	}
	w.note("attempts %s, events: %d attempt.late, %d saga.reopened", tally(w.attempts()), w.count("attempt.late"), w.count("saga.reopened"))
}

// Workers die again and again, wherever they are; each is replaced.
func workersKilledOneAfterTheOther(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	workers := w.work(3, nil)
	w.start(200, 40*time.Millisecond)
	for i := range 5 {
		w.ended(25 * (i + 1))
		workers[0].kill()
		workers = append(workers[1:], w.work(1, nil)...)
	}
	w.lifted()
	w.finish()
	w.note("attempts %s", tally(w.attempts()))
}

// Five processes are replaced one after the other under load, as in a deployment. Nothing is cut short,
// and no attempt is lost by it.
func rollingRestartUnderLoad(w *world) {
	// The lease is longer than elsewhere, as ten processes keep a small machine busy.
	w.up(setup{Store: onPostgres, Rabbit: true, Worker: settings{Lease: 6 * time.Second, Workers: 2}})
	old := w.work(5, nil)
	w.start(150, 80*time.Millisecond)
	w.ended(10)
	for _, c := range old {
		c.term()
		w.work(1, nil)
		c.exit()
	}
	w.lifted()
	w.finish()

	failed, abandoned := 0, 0
	all := w.attempts()
	for _, a := range all {
		switch a.Status {
		case store.AttemptFailed:
			failed++
		case store.AttemptAbandoned:
			abandoned++
		}
	}
	want := 0
	for n := range w.starter.started() {
		want += failuresOf(order{N: n})
	}
	if failed != want || abandoned > 0 {
		w.fail("%d attempts failed, want the %d of the participants; %d were abandoned, want none", failed, want, abandoned)
	}
	w.note("attempts %s", tally(all))
}

// failuresOf returns how many attempts of an order fail when nothing else goes wrong.
func failuresOf(o order) (n int) {
	for _, step := range stepNames {
		if o.flaky(step, "execute") {
			n++
		}
		if o.fails() == step {
			return n + 1 + len(slices.DeleteFunc(slices.Clone(stepNames[:slices.Index(stepNames, step)]), func(undone string) bool {
				return !o.flaky(undone, "compensate")
			}))
		}
	}
	return n
}

// All processes stand still, and the network with them, for longer than a lease: a laptop that was
// closed. All wake up at once.
func everythingSleepsPastItsLeases(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	workers := w.work(2, nil)
	gate := w.participants.hold(afterEffect, executes("charge"))
	w.start(60, 20*time.Millisecond)
	for range 3 {
		gate.next()
	}
	for _, c := range workers {
		c.stop()
	}
	w.postgres.proxy.Hang(both)
	w.rabbit.proxy.Hang(both)
	gate.release()
	w.pause(w.settings.Lease + 4*time.Second)
	w.postgres.proxy.Heal()
	w.rabbit.proxy.Heal()
	for _, c := range workers {
		c.resume()
	}
	w.lifted()
	w.finish()
	w.note("attempts %s", tally(w.attempts()))
}

// The clock of the store, which all follow, and those of the machines are ten minutes apart. Nobody
// notices: no lease is stolen and nothing waits.
func storeClockOff(off time.Duration) func(*world) {
	return func(w *world) {
		w.up(setup{Store: onPostgres, Rabbit: true, Worker: settings{StoreClockOff: off, Lease: 6 * time.Second}})
		w.work(2, nil)
		w.start(60, 20*time.Millisecond)
		w.finish()
		all := w.attempts()
		for _, a := range all {
			if a.Status == store.AttemptAbandoned || a.Late {
				w.fail("an attempt lost its lease: %+v", a)
			}
		}
		w.note("attempts %s", tally(all))
	}
}

// One worker of three goes by a clock of its own, which is wrong. It takes the leases of others for
// over, or they its own: that costs attempts, and no effect.
func workerBelieves(off time.Duration) func(*world) {
	return func(w *world) {
		w.up(setup{Store: onPostgres, Rabbit: true})
		w.mayReportLate()
		w.mayGiveUp() // stolen leases count as attempts
		w.allow(30*time.Second, "attempts are taken from their workers and tried again")
		w.work(3, func(i int, s *settings) {
			if i == 0 {
				s.ClockOff = off
			}
		})
		w.start(60, 50*time.Millisecond)
		w.ended(20)
		w.lifted()
		w.finish()
		w.note("attempts %s", tally(w.attempts()))
	}
}

// Two services with stores of their own were given the same prefix: each finds pointers of the other
// in its queue, and puts them aside. Their stores make up for them; and at once, when one of them has
// been given another prefix.
func twoServicesOnOnePrefix(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	v := w.beside(setup{Store: onPostgres})
	w.work(1, nil)
	mistaken := v.work(1, nil)[0]
	began := time.Now()
	w.start(40, 20*time.Millisecond)
	v.start(40, 20*time.Millisecond)
	w.until("pointers have been put aside", func() bool { return w.dead() >= 25 })
	mistaken.term()
	mistaken.exit()
	v.settings.Prefix = testenv.Prefix(w.t)
	w.t.Cleanup(v.removeQueues)
	v.work(1, nil)
	for _, x := range []*world{w, v} {
		x.allow(time.Since(began), "what was offered in vain is offered again after as long as it has waited")
		x.lifted()
	}
	v.finish()
	w.finish()
	dead := w.deadLetters()
	if dead["foreign_store"] == 0 || len(dead) != 1 {
		w.fail("dead letters by reason: %v, want only some of foreign_store", dead)
	}
	w.result.add(v.result)
	w.note("dead letters %v, attempts %s", dead, tally(append(w.attempts(), v.attempts()...)))
}

// The transaction of somebody else holds the row of one execution for longer than a lease. Its worker
// keeps the leases of all others.
func transactionHoldsAnExecution(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true, Worker: settings{StepTimeout: 30 * time.Second}})
	w.allow(30*time.Second, "an undo of the step in doubt waits for its time-out")
	w.work(2, nil)
	gate := w.participants.hold(beforeEffect, executes("charge"))
	w.start(20, 20*time.Millisecond)
	var held []uuid.UUID
	for range 4 {
		held = append(held, gate.next().Execution)
	}
	unlock := w.lockRow(held[0])
	w.pause(2*w.settings.Lease + 3*time.Second)
	for _, id := range held[1:] {
		list, err := w.observer.Attempts(w.t.Context(), id)
		w.must(err)
		last := list[len(list)-1]
		// It is renewed every third of a lease; a busy machine may be late with the last ones.
		if last.Status != store.AttemptRunning || last.Number != 1 || last.LeaseUntil.Sub(last.StartedAt) < 2*w.settings.Lease {
			w.fail("an attempt was not renewed beside a locked one, at %v: %+v", time.Now(), last)
		}
	}
	gate.release()
	unlock()
	w.lifted()
	w.finish()
	lost := 0
	for _, a := range w.attempts() {
		if a.Status == store.AttemptAbandoned {
			lost++
			if a.Execution != held[0] {
				w.fail("an attempt on another execution was abandoned: %+v", a)
			}
		}
	}
	w.note("%d attempts on the locked execution were abandoned, attempts %s", lost, tally(w.attempts()))
}
