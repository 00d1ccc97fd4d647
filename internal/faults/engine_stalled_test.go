//go:build linux

package faults

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/saga"
)

// stalled is a saga of one step, in a partition of its own.
const (
	stalled          = saga.Name[order]("stalled")
	stalledPartition = "stalled"
	stalledStep      = "once"
	sweepers         = 20
)

// A tray collects the effects of the stalled saga's step.
type tray struct {
	open    chan struct{} // closed: steps may go on
	entered chan uuid.UUID

	mu      sync.Mutex
	keys    map[uuid.UUID]string
	doubled int
	repeats int
}

func (t *tray) effect(ctx context.Context, run *saga.Run[order]) error {
	select {
	case t.entered <- run.Execution:
	default:
	}
	select {
	case <-t.open:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch key, ok := t.keys[run.Execution]; {
	case !ok:
		t.keys[run.Execution] = run.Key()
	case key == run.Key():
		t.repeats++
	default:
		t.doubled++
	}
	return nil
}

// stalledRows wakes 20 engines, with two connections each, in a store full of executions that came to a
// stop: half of them lost their pointers, the others their worker. All sweep at once, beside the two
// workers of another partition.
//
// While pointers pile up in a queue, what was offered before is looked at again after as long as it has
// waited, so that the last ones end up to twice as late as the queue would allow. A thousand a minute have
// to end at the least, whatever else this machine does.
func stalledRows(rows int) func(*world) {
	return func(w *world) {
		within := time.Duration(rows/1000) * time.Minute
		w.up(setup{Store: onPostgres, Rabbit: true, Worker: settings{Lease: 6 * time.Second}})
		w.t.Cleanup(w.removeStalled)
		w.mayReportLate() // the machine is busy
		t := &tray{open: make(chan struct{}), entered: make(chan uuid.UUID, 1), keys: map[uuid.UUID]string{}}
		engines := []*saga.Engine{w.sweeper(0, t)}
		w.stall(engines[0], t, rows)
		deepest := w.watchDepth()
		began := time.Now()
		for i := 1; i < sweepers; i++ {
			engines = append(engines, w.sweeper(i, t))
		}
		close(t.open)
		w.work(2, nil)
		w.start(60, 50*time.Millisecond)
		beside := w.drained(string(checkoutName), within)
		w.say("the work beside has ended")
		drained := w.drained(string(stalled), within)
		w.note("%d stalled rows had ended after %.1f s, the work beside after %.1f s", rows, drained.Sub(began).Seconds(), beside.Sub(began).Seconds())
		w.checkSweeps(engines)
		if most := deepest(); most > rows+1 {
			w.fail("%d pointers were queued for %d executions", most, rows+1)
		} else {
			w.note("at most %d pointers were queued", most)
		}
		w.checkTray(t, rows+1)
		w.lifted()
		w.finishStore()
		w.result.Executions += rows + 1
		w.result.Recovery = drained.Sub(began).Seconds()
		w.result.Bound = within.Seconds()
		w.check(w.empty())
	}
}

// sweeper runs an engine that knows the stalled saga alone.
func (w *world) sweeper(i int, t *tray) *saga.Engine {
	w.t.Helper()
	s := w.settings
	s.Name = fmt.Sprintf("worker-sweeper-%d", i)
	s.Workers = 2
	e, b, closeAll := w.engine(s, 2*time.Second)
	_, err := saga.Register(e, saga.Definition[order]{Name: stalled, Steps: []saga.Step[order]{{Name: stalledStep, Execute: t.effect}}})
	w.must(err)
	c, err := amqp.NewConsumer(b, e, amqp.ConsumerConfig{Workers: map[string]int{stalledPartition: s.Workers}})
	w.must(err)
	w.localEngine(s, e, closeAll, c)
	return e
}

// stall makes copies of an execution whose step is running: of half of them the worker is said to have
// died an hour ago, of the others the pointer to have been lost in the last 30 seconds.
func (w *world) stall(e *saga.Engine, t *tray, rows int) {
	w.t.Helper()
	s := w.settings
	s.Name = "worker-stalled-starter"
	starter, _, closeAll := w.engine(s, 2*time.Second)
	handle, err := saga.Declare(starter, stalled, nil)
	w.must(err)
	x, err := handle.Start(w.t.Context(), saga.Resource{Type: "order", ID: "1"}, order{}, &saga.StartOptions{Partition: stalledPartition})
	w.must(err)
	w.must(closeAll())
	w.until("the step runs", func() bool {
		select {
		case <-t.entered:
			return true
		default:
			return false
		}
	})
	conn := w.sql()
	for _, what := range []string{
		`'attempt_worker', 'the-dead', 'attempt_started_at', now() - interval '1 hour', 'attempt_lease_until', now() - interval '59 minutes',
			'offered_at', NULL`,
		`'attempt_worker', NULL, 'attempt_number', NULL, 'attempt_started_at', NULL, 'attempt_lease_until', NULL, 'attempt_timeout_at', NULL,
			'attempt_progress', NULL, 'offered_at', now() - (2 + 28 * random()) * interval '1 second'`,
	} {
		tag, err := conn.Exec(w.t.Context(), `INSERT INTO saga.executions
			SELECT r.* FROM saga.executions AS x, generate_series(1, $2::int) AS n, LATERAL jsonb_populate_record(x,
				jsonb_build_object('id', gen_random_uuid(), 'resource_id', n::text, 'due_at', now() - interval '58 minutes', `+what+`)) AS r
			WHERE x.id = $1`, x.ID, rows/2)
		w.must(err)
		if tag.RowsAffected() != int64(rows/2) {
			w.fail("%d rows were made, want %d", tag.RowsAffected(), rows/2)
		}
	}
	_, err = conn.Exec(w.t.Context(), "ANALYZE saga.executions")
	w.must(err)
	w.say("%d rows are stalled", rows)
}

// drained waits until all executions of a saga have ended, and returns when that was.
func (w *world) drained(name string, within time.Duration) time.Time {
	w.t.Helper()
	conn := w.sql()
	tick := time.NewTicker(time.Second) // it is no small query
	defer tick.Stop()
	end := time.After(within)
	for {
		var open int
		w.must(conn.QueryRow(w.t.Context(), `SELECT count(*) FROM saga.executions
			WHERE saga = $1 AND status IN ('running', 'waiting', 'halted', 'compensating')`, name).Scan(&open))
		if open == 0 && (name != string(checkoutName) || w.starter.confirmed() >= 60) {
			return time.Now()
		}
		select {
		case <-tick.C:
		case <-end:
			_, all, err := w.unfinished()
			w.fail("%d executions of %s have not ended within %v: %v%s", open, name, within, err, describe(all))
			w.t.FailNow()
		}
	}
}

// watchDepth looks at the queue of the stalled again and again, and returns the most that was in it.
func (w *world) watchDepth() (deepest func() int) {
	ctx, stop := context.WithCancel(w.t.Context())
	most, done := 0, make(chan error, 1)
	go func() {
		done <- w.withBroker(func(ch *amqp091.Channel) error {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for {
				q, err := ch.QueueDeclarePassive(w.settings.Prefix+".execute."+stalledPartition, true, false, false, false, nil)
				if err != nil {
					return err
				}
				most = max(most, q.Messages)
				select {
				case <-tick.C:
				case <-ctx.Done():
					return nil
				}
			}
		})
	}()
	return func() int {
		stop()
		w.check(<-done)
		return most
	}
}

// checkSweeps wants each engine to end sweeps, and to find nothing any more.
func (w *world) checkSweeps(engines []*saga.Engine) {
	w.t.Helper()
	longest, after := time.Duration(0), time.Now()
	for i, e := range engines {
		w.until(fmt.Sprintf("engine %d has swept and found nothing", i), func() bool {
			s := e.Stats().Sweep
			return s.Sweeps > 0 && s.StartedAt.After(after) && s.Claimed == 0
		})
		s := e.Stats().Sweep
		longest = max(longest, s.EndedAt.Sub(s.StartedAt))
	}
	w.note("sweeps end, within %v", longest.Round(time.Millisecond))
}

// checkTray wants one effect of each execution, and each to have completed.
func (w *world) checkTray(t *tray, want int) {
	w.t.Helper()
	conn := w.sql()
	var completed int
	w.must(conn.QueryRow(w.t.Context(), "SELECT count(*) FROM saga.executions WHERE saga = $1 AND status = 'completed'", string(stalled)).Scan(&completed))
	t.mu.Lock()
	defer t.mu.Unlock()
	if completed != want || len(t.keys) != want || t.doubled > 0 {
		w.result.Lost += want - min(completed, len(t.keys))
		w.result.Doubled += t.doubled
		w.fail("of %d executions %d completed, %d had an effect, %d were doubled", want, completed, len(t.keys), t.doubled)
	}
	w.note("%d repeats", t.repeats)
}

// empty wants no pointer to be left.
func (w *world) empty() error {
	return w.withBroker(func(ch *amqp091.Channel) error {
		q, err := ch.QueueDeclarePassive(w.settings.Prefix+".execute."+stalledPartition, true, false, false, false, nil)
		if err == nil && (q.Messages > 0 || q.Consumers > 0) {
			err = fmt.Errorf("the queue has %d messages and %d consumers left", q.Messages, q.Consumers)
		}
		return err
	})
}

func (w *world) removeStalled() {
	w.check(w.withBroker(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDelete(w.settings.Prefix+".execute."+stalledPartition, false, false, false)
		return err
	}))
}
