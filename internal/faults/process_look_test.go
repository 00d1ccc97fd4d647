//go:build linux

package faults

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/internal/faultproxy"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

const both = faultproxy.Both

// lockRow locks the row of an execution, as a transaction of somebody else does, until unlock.
func (w *world) lockRow(id uuid.UUID) (unlock func()) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.postgres.direct)
	w.must(err)
	w.t.Cleanup(func() { conn.Close(context.Background()) })
	tx, err := conn.Begin(w.t.Context())
	w.must(err)
	_, err = tx.Exec(w.t.Context(), "SELECT FROM saga.executions WHERE id = $1 FOR UPDATE", id.String())
	w.must(err)
	return func() { w.must(tx.Rollback(w.t.Context())) }
}

// dead returns how many messages are in the dead-letter queue, which may not exist yet.
func (w *world) dead() int {
	w.t.Helper()
	conn, err := amqp091.Dial(w.rabbit.direct)
	w.must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	w.must(err)
	q, err := ch.QueueDeclarePassive(w.settings.Prefix+".dead", true, false, false, false, nil)
	if err != nil {
		return 0
	}
	return q.Messages
}

// deadLetters takes the messages out of the dead-letter queue and counts them
// by their reason.
func (w *world) deadLetters() map[string]int {
	w.t.Helper()
	conn, err := amqp091.Dial(w.rabbit.direct)
	w.must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	w.must(err)
	n := map[string]int{}
	for {
		m, ok, err := ch.Get(w.settings.Prefix+".dead", true)
		w.must(err)
		if !ok {
			return n
		}
		reason, _ := m.Headers["saga-reason"].(string)
		n[reason]++
	}
}

// add adds the counts of another world to a result.
func (r *result) add(o result) {
	r.Executions += o.Executions
	r.Lost += o.Lost
	r.Doubled += o.Doubled
	r.Effects += o.Effects
	r.Repeats += o.Repeats
	r.Recovery, r.Bound = max(r.Recovery, o.Recovery), max(r.Bound, o.Bound)
	for s, n := range o.Statuses {
		r.Statuses[s] += n
	}
	if r.Failure == "" {
		r.Failure = o.Failure
	}
}

// Database and broker hold the line without a word. Each call comes back a little after its ctx has
// ended at the latest, whatever it waits for.
func noCallOutlivesItsCtx(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	w.work(1, nil)
	w.start(10, 20*time.Millisecond)
	w.ended(10)
	id := w.starter.started()[0]
	s := w.starter
	calls := map[string]func(ctx context.Context) error{
		"Start": func(ctx context.Context) error {
			_, err := s.handle.Start(ctx, saga.Resource{}, order{}, nil)
			return err
		},
		"Get":        func(ctx context.Context) error { _, err := s.engine.Get(ctx, id); return err },
		"Attempts":   func(ctx context.Context) error { _, err := s.engine.Attempts(ctx, id); return err },
		"Audit":      func(ctx context.Context) error { _, err := s.engine.Audit(ctx, id); return err },
		"Wait":       func(ctx context.Context) error { _, err := s.engine.Wait(ctx, id); return err },
		"Compensate": func(ctx context.Context) error { return s.compensate(ctx, id) },
		"WithLock": func(ctx context.Context) error {
			_, err := s.store.WithLock(ctx, id, func(*store.Execution) (store.Change, error) { return store.Change{}, store.ErrUnchanged })
			return err
		},
		"ClaimDue": func(ctx context.Context) error {
			_, err := s.store.ClaimDue(ctx, store.DueQuery{Now: time.Now().Add(-time.Hour), Limit: 1})
			return err
		},
		"Renew": func(ctx context.Context) error {
			now := store.Micros(time.Now())
			_, err := s.store.Renew(ctx, []store.Lease{{Execution: id, Step: "ship", Direction: "execute", Number: 1, Worker: "nobody"}},
				store.Renewal{Now: now, Until: now.Add(time.Second), DueAt: now.Add(2 * time.Second)})
			return err
		},
		"Now":   func(ctx context.Context) error { _, err := s.store.Now(ctx); return err },
		"Ready": s.broker.Ready,
		"Depth": func(ctx context.Context) error { _, _, err := s.broker.Depth(ctx, "default"); return err },
		"Publish": func(ctx context.Context) error {
			// To an execution that no store has: it is dropped when it arrives.
			return s.broker.Publish(ctx, "default", saga.Pointer{V: saga.PointerVersion, Saga: "checkout", Direction: "execute"})
		},
	}
	for way, d := range map[string]faultproxy.Direction{"to the server": faultproxy.ToServer, "to the client": faultproxy.ToClient} {
		for name, call := range calls { // makes sure that there are connections to hang
			w.until(name+" works", func() bool {
				ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
				defer cancel()
				err := call(ctx)
				return err == nil || errors.Is(err, saga.ErrFinished)
			})
		}
		w.postgres.proxy.Hang(d)
		w.rabbit.proxy.Hang(d)
		var all sync.WaitGroup
		var mu sync.Mutex
		late := map[string]string{} // by call
		for name, call := range calls {
			all.Go(func() {
				const patience = 500 * time.Millisecond
				ctx, cancel := context.WithTimeout(w.t.Context(), patience)
				defer cancel()
				began := time.Now()
				_ = call(ctx)
				over := time.Since(began) - patience
				mu.Lock()
				defer mu.Unlock()
				if over > patience {
					late[name] = over.Round(100 * time.Millisecond).String()
				}
				if over > answerTime {
					w.fail("hanging %s: %s came back %v after the end of its ctx", way, name, over)
				}
			})
		}
		all.Wait()
		w.note("hanging %s, back after the end of ctx by %v, all others at once", way, late)
		w.postgres.proxy.Heal()
		w.rabbit.proxy.Heal()
	}
	w.start(20, 20*time.Millisecond)
	w.lifted()
	w.finish()
}

// compensate asks for what an execution that has ended cannot do: ErrFinished.
func (s *starter) compensate(ctx context.Context, id uuid.UUID) error {
	_, err := s.engine.Compensate(ctx, id, saga.By{Actor: "test", Reason: "to see whether it comes back"}, nil)
	return err
}
