//go:build linux

package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/store"
)

// finish waits until all executions have ended, and checks that nothing was lost, doubled or left.
func (w *world) finish() {
	w.t.Helper()
	if w.liftedAt.IsZero() { // whatever is wrong stays so; all have to end in time
		w.starter.running.Wait()
		w.lifted()
	}
	w.recover()
	w.checkEffects()
	for _, c := range w.children {
		if c.deathWanted() {
			continue
		}
		if c.over() && !c.cmd.ProcessState.Success() {
			w.fail("%s has ended by itself: %v", c.name, c.cmd.ProcessState)
		}
		c.term()
	}
	for _, l := range w.locals {
		l.stop()
	}
	for _, c := range w.children {
		if !c.deathWanted() {
			c.exit()
		}
	}
	for _, l := range w.locals {
		<-l.done
		if l.err != nil {
			w.fail("%s: %v", l.settings.Name, l.err)
		}
	}
	w.checkConnections()
	w.finished = true
}

// recover waits until what the fault has hit has ended, in time, and then all else.
func (w *world) recover() {
	w.t.Helper()
	bound := w.bound()
	w.result.Bound = bound.Seconds()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.starter.running.Wait() // a start goes on until the store has it
	}()
	hit := map[uuid.UUID]bool{}
	for _, id := range w.starter.hit() {
		hit[id] = true
	}
	limit := time.After(2*bound + patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for recovered, last := false, ""; ; {
		started, open, err := w.unfinished()
		left := slices.ContainsFunc(open, func(x *store.Execution) bool { return hit[x.ID] })
		if err == nil && !left && !recovered && started >= len(hit) {
			recovered = true
			took := time.Since(w.liftedAt)
			w.result.Recovery = took.Seconds()
			if took > bound {
				w.fail("recovery took %.1f s, want at most %.1f s", took.Seconds(), bound.Seconds())
			}
		}
		if recovered && len(open) == 0 {
			select {
			case <-done:
				return
			default:
			}
		}
		if err != nil {
			last = err.Error()
		}
		select {
		case <-tick.C:
		case <-limit:
			w.fail("%d of %d executions have not ended: %s%s", len(open), len(w.starter.started()), last, describe(open))
			w.t.FailNow()
		}
	}
}

// describe shows where executions stand.
func describe(xs []*store.Execution) string {
	var b strings.Builder
	for _, x := range xs[:min(len(xs), 20)] {
		attempt := "no attempt"
		if x.Attempt != nil {
			attempt = fmt.Sprintf("attempt %d of %s until %v", x.Attempt.Number, x.Attempt.Worker, x.Attempt.LeaseUntil)
		}
		fmt.Fprintf(&b, "\n  %s order %s: %s %s/%s, epoch %d, tries %d, resumes %d, %s, due %v, wake %v, offered %v, failure %+v",
			x.ID, x.Resource.ID, x.Status, x.Direction, x.Step, x.Epoch, x.Tries, x.Resumes, attempt, x.DueAt, x.WakeAt, x.OfferedAt, x.Failure)
	}
	return b.String()
}

// attempts returns the attempts of all executions.
func (w *world) attempts() (all []store.Attempt) {
	w.t.Helper()
	for _, id := range w.starter.started() {
		list, err := w.observer.Attempts(w.t.Context(), id)
		w.must(err)
		all = append(all, list...)
	}
	return all
}

// tally describes attempts by how they ended.
func tally(all []store.Attempt) string {
	n := map[string]int{}
	for _, a := range all {
		n[string(a.Status)]++
		if a.Late {
			n["late"]++
		}
	}
	return strings.TrimPrefix(fmt.Sprint(n), "map")
}

// checkConnections wants none left of the workers that have ended: at the proxies, by what they see of
// the clients, and at PostgreSQL, by what it says itself.
//
// In a world beside another one the consumers of that one are still there.
func (w *world) checkConnections() {
	w.t.Helper()
	if w.postgres != nil {
		ctx, cancel := context.WithTimeout(w.t.Context(), patience)
		defer cancel()
		conn, err := pgx.Connect(ctx, w.postgres.direct)
		w.must(err)
		defer conn.Close(ctx)
		var left string
		w.until("no worker is connected to PostgreSQL", func() bool {
			// The starter's pool, the observer's and this connection are the test's own.
			err := conn.QueryRow(ctx, `SELECT coalesce(string_agg(application_name || ': ' || query, '; '), '') FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'worker-%'`).Scan(&left)
			w.must(err)
			return left == ""
		})
	}
	if w.rabbit != nil && !w.besides {
		conn, err := amqp091.Dial(w.rabbit.direct)
		w.must(err)
		defer conn.Close()
		for _, partition := range w.settings.Partitions {
			w.until("no worker consumes from "+partition, func() bool {
				ch, err := conn.Channel()
				w.must(err)
				defer ch.Close()
				q, err := ch.QueueDeclarePassive(w.settings.Prefix+".execute."+partition, true, false, false, false, nil)
				return err != nil || q.Consumers == 0
			})
		}
	}
}

// removeQueues removes what was declared in a broker that other tests use.
func (w *world) removeQueues() {
	conn, err := amqp091.Dial(w.rabbit.direct)
	if err != nil {
		w.check(err)
		return
	}
	defer conn.Close()
	var removed sync.WaitGroup
	remove := func(f func(*amqp091.Channel) error) {
		removed.Go(func() {
			ch, err := conn.Channel()
			if err == nil {
				err = f(ch)
				ch.Close()
			}
			w.check(err)
		})
	}
	prefix := w.settings.Prefix
	for _, q := range []string{"dead"} {
		remove(func(ch *amqp091.Channel) error {
			_, err := ch.QueueDelete(prefix+"."+q, false, false, false)
			return err
		})
	}
	for _, q := range w.settings.Partitions {
		remove(func(ch *amqp091.Channel) error {
			_, err := ch.QueueDelete(prefix+".execute."+q, false, false, false)
			return err
		})
	}
	removed.Wait()
	for _, x := range []string{prefix, prefix + ".dead"} {
		remove(func(ch *amqp091.Channel) error { return ch.ExchangeDelete(x, false, false) })
	}
	removed.Wait()
}
