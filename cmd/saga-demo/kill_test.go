//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leveret-go/leveret/internal/testenv"
)

// batch returns how many sagas a test runs, and how many workers a process has
// for each partition: few enough that there is work left for each of the events.
func batch() (sagas int, workers string) {
	if testing.Short() {
		return 200, "1"
	}
	return 1000, "5"
}

// Everything dies: the database while sagas are being started, a worker, the
// broker, and the database again. All sagas end, and what is left of each is what
// its status says.
func TestKillEverything(t *testing.T) {
	t.Parallel() // with the other one: both wait for servers much of the time
	began := time.Now()
	step := func(format string, args ...any) {
		t.Helper()
		t.Logf("%5.1f s  %s", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	n, workers := batch()
	postgres, rabbit := testenv.NewPostgres(t), testenv.NewRabbit(t)
	db := database(postgres.URL())
	k := newKennel(t, build(t), "-store", postgres.URL(), "-amqp", rabbit.URL(), "-prefix", "demo", "-lease", "3s", "-workers", workers, "-v")
	db.showUnfinished(t)
	step("services run")

	first, second := k.start("worker-1", "-role", "work"), k.start("worker-2", "-role", "work")
	starter := k.start("starter", "-role", "start", "-n", strconv.Itoa(n), "-fail", "0.2", "-seed", "1", "-json")

	// A start, and all that the workers write, is on its way when it goes down.
	db.until(t, "sagas started", started, n*20/100, first, second, starter)
	db.lock(t, `LOCK TABLE saga.executions IN SHARE MODE`)
	had := db.must(t, started)
	if had == n {
		t.Error("all sagas were started before the database could be restarted")
	}
	postgres.StopImmediate(t)
	step("PostgreSQL is stopped, mode immediate, with %d of %d sagas started", had, n)
	postgres.Start(t)
	step("PostgreSQL answers again")

	// The services of a worker do not answer when it is killed: so its attempts
	// stay open.
	db.until(t, "sagas ended", ended, n*25/100, first, second, starter)
	answer := db.lock(t, `LOCK TABLE demo_effects IN SHARE MODE`)
	open := fmt.Sprintf(`SELECT count(*) FROM saga.executions WHERE attempt_worker LIKE '%%:%d/%%'`, first.cmd.Process.Pid)
	db.until(t, "attempts open at worker-1", open, 1, first, second, starter)
	first.kill(t)
	left := db.must(t, open)
	answer()
	step("worker-1 is killed, with %d attempts open", left)
	third := k.start("worker-3", "-role", "work")

	db.until(t, "sagas ended", ended, n*45/100, second, third, starter)
	rabbit.Kill(t)
	step("RabbitMQ is killed")
	back := make(chan struct{})
	go func() {
		defer close(back)
		rabbit.Start(t)
		step("RabbitMQ answers again")
	}()

	had = db.until(t, "sagas ended", ended, n*65/100, second, third, starter)
	if had == n {
		t.Error("all sagas have ended before the database could be restarted")
	}
	postgres.StopImmediate(t)
	step("PostgreSQL is stopped, mode immediate, with %d of %d sagas ended", had, n)
	postgres.Start(t)
	step("PostgreSQL answers again")

	r := starter.report(t, n)
	step("the starter has reported: %v", r)
	<-back
	if got := db.must(t, ended); got != n {
		t.Errorf("%d sagas have ended, want %d", got, n)
	}
	if got := db.contradictions(t); got != 0 {
		t.Errorf("%d orders contradict their status", got)
	}
	if !strings.Contains(starter.log(), "the store does not answer, trying again") {
		t.Error("the starter did not notice that the database was away")
	}
	if db.must(t, `SELECT count(*) FROM saga.attempts WHERE status = 'abandoned'`) == 0 {
		t.Errorf("the killed worker left %d attempts open, and none was abandoned", left)
	}
	// Whatever of the broker's queues was lost, workers consume both again.
	for _, partition := range []string{shop, office} {
		untilConsumed(t, rabbit.URL(), "demo.execute."+partition, 2)
	}
	step("RabbitMQ is in use again")
	for _, p := range []*process{second, third} {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range []*process{second, third} {
		p.exit(t, exitOK)
	}
	step("attempts: %s; events: %s", db.tally(t), k.count("saga.resumed", "saga.reopened", "attempt.late", "step.stray",
		"pointer.unpublished", "pointer.unroutable"))
	step("CPU: %s", k.cpu())
}

// Without a broker nothing is refused and nothing waits: starters start, workers
// work the store. When it comes up they use it.
func TestBrokerDownFromTheStart(t *testing.T) {
	t.Parallel()
	n, _ := batch()
	postgres, rabbit := testenv.NewPostgres(t), testenv.NewRabbit(t)
	rabbit.Stop(t)
	db := database(postgres.URL())
	k := newKennel(t, build(t), "-store", postgres.URL(), "-amqp", rabbit.URL(), "-prefix", "demo", "-lease", "3s", "-v")
	db.showUnfinished(t)

	workers := []*process{k.start("worker-1", "-role", "work"), k.start("worker-2", "-role", "work")}
	began := time.Now()
	r := k.start("starter-1", "-role", "start", "-n", strconv.Itoa(n), "-fail", "0.2", "-seed", "1", "-json").report(t, n)
	t.Logf("without a broker, in %.1f s: %v", time.Since(began).Seconds(), r)
	if got := db.contradictions(t); got != 0 {
		t.Errorf("%d orders contradict their status", got)
	}
	t.Logf("attempts: %s", db.tally(t))

	began = time.Now()
	rabbit.Start(t)
	up := time.Now()
	for _, partition := range []string{shop, office} {
		untilConsumed(t, rabbit.URL(), "demo.execute."+partition, len(workers))
	}
	t.Logf("RabbitMQ answered after %.1f s, all workers consumed %.1f s later", up.Sub(began).Seconds(), time.Since(up).Seconds())

	// From here on each execution travels over the broker at least once.
	const few = 40
	spy := openSpy(t, rabbit.URL(), "demo")
	r = k.start("starter-2", "-role", "start", "-n", strconv.Itoa(few), "-run", "second", "-seed", "2", "-json").report(t, few)
	t.Logf("with the broker: %v", r)
	seen := spy.executions(t)
	for i, p := range planRun("second", few) {
		if seen[p.Execution.String()] == 0 {
			t.Errorf("saga %d, %s, did not go over the broker", i, p.Execution)
		}
	}
	for _, p := range workers {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range workers {
		p.exit(t, exitOK)
	}
	t.Logf("CPU: %s", k.cpu())
}

// The first signal lets running steps settle and opens no more; the second one
// waits for nothing; and -drain ends a worker that has nothing left to do.
func TestWorkerDrains(t *testing.T) {
	binary := build(t)
	for _, transport := range []string{"store", "amqp"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			store := testenv.Postgres(t)
			db := database(store)
			flags := []string{"-store", store, "-lease", "3s", "-v"}
			if transport == "amqp" {
				prefix := testenv.Prefix(t)
				flags = append(flags, "-amqp", testenv.AMQP(t), "-prefix", prefix)
				t.Cleanup(func() { removeQueues(t, testenv.AMQP(t), prefix) })
			}
			k := newKennel(t, binary, flags...)
			db.showUnfinished(t)
			const running = `SELECT count(*) FROM saga.executions WHERE attempt_number IS NOT NULL`
			// A store that takes no results keeps the worker draining. hold begins
			// that while steps are running, and sends the first signal.
			hold := func(p *process) (release func()) {
				release = func() {}
				wait(t, func() string { return "no step of " + p.name + " is running" }, func() bool {
					release()
					release = db.lock(t, `LOCK TABLE saga.executions IN SHARE MODE`)
					return db.must(t, running) > 0
				})
				p.signal(syscall.SIGTERM)
				wait(t, func() string { return p.name + " does not drain" }, func() bool { return strings.Contains(p.log(), "draining") })
				select {
				case <-p.ended:
					t.Errorf("%s did not wait for its steps", p.name)
				default:
				}
				return release
			}

			first := k.start("worker-1", "-role", "work")
			starter := k.start("starter", "-role", "start", "-n", "60", "-seed", "1", "-json")
			db.until(t, "sagas ended", ended, 5, first, starter)
			release := hold(first)
			release()
			first.exit(t, exitOK)
			if n := db.must(t, running); n > 0 {
				t.Errorf("%d attempts are open after a drain", n)
			}
			if cut := db.cutShort(t); len(cut) > 0 {
				t.Errorf("attempts were cut short by a drain:\n%s", strings.Join(cut, "\n"))
			}
			if n := db.must(t, ended); n == 60 {
				t.Error("the worker opened attempts until there were no more")
			}

			second := k.start("worker-2", "-role", "work")
			release = hold(second)
			second.signal(syscall.SIGTERM)
			second.exit(t, exitInterrupted)
			release()

			third := k.start("worker-3", "-role", "work", "-drain")
			r := starter.report(t, 60)
			third.exit(t, exitOK)
			t.Logf("%v; attempts: %s", r, db.tally(t))
		})
	}
}
