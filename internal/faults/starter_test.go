//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// startTimeout is that of one try to start. A call must be back answerTime after the end of its ctx:
// a store may wait for the answer to a cancelled write for a few seconds, to be sure of its outcome.
const (
	startTimeout = 2 * time.Second
	answerTime   = 8 * time.Second
)

// A starter starts executions, and does not give up: it repeats a start under the same id until the
// store has it.
type starter struct {
	w      *world
	store  store.Store // through the proxy
	engine *saga.Engine
	broker *amqp.Broker // nil: none
	handle *saga.Saga[order]

	running sync.WaitGroup

	mu      sync.Mutex
	ids     []uuid.UUID // by number; asked for
	has     int         // confirmed
	marked  int         // asked for when the fault was lifted; -1: it was not
	retries int
	overrun time.Duration
}

// newStarter opens the starter's own way to store and broker, through the proxies.
func (w *world) newStarter() *starter {
	w.t.Helper()
	s := &starter{w: w, marked: -1}
	st, log := w.observer, slog.New(slog.DiscardHandler)
	if w.set.Store == onPostgres {
		opened, closeStore, err := openStore(w.t.Context(), w.settings)
		w.must(err)
		w.t.Cleanup(func() { w.check(closeStore()) })
		st = opened
	}
	if off := w.settings.StoreClockOff; off != 0 {
		st = &offClock{Store: st, off: off}
	}
	cfg := saga.Config{Store: st, Lease: w.settings.Lease, Logger: log}
	if w.settings.AMQP != "" {
		set := w.settings
		set.Name = "starter"
		broker, err := openBroker(w.t.Context(), set, log)
		w.must(err)
		w.t.Cleanup(func() { closeBroker(broker) })
		cfg.Publisher, s.broker = broker, broker
	}
	s.store = st
	var err error
	s.engine, err = saga.New(cfg)
	w.must(err)
	s.handle, err = saga.Declare(s.engine, checkoutName, nil)
	w.must(err)
	w.t.Cleanup(s.running.Wait)
	return s
}

// closeBroker leaves pointers behind when the broker is away; they come due again.
func closeBroker(b *amqp.Broker) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = b.Close(ctx)
}

// start starts n more in the background, one every so often, up to 16 at once.
func (s *starter) start(n int, every time.Duration) {
	free := make(chan struct{}, 16)
	s.running.Go(func() {
		var started sync.WaitGroup
		defer started.Wait()
		tick := time.NewTicker(max(every, time.Microsecond))
		defer tick.Stop()
		for range n {
			select {
			case <-tick.C:
			case <-s.w.t.Context().Done():
				return
			}
			free <- struct{}{}
			started.Go(func() {
				defer func() { <-free }()
				s.one()
			})
		}
	})
}

// one starts one execution.
func (s *starter) one() {
	id := uuid.New()
	s.mu.Lock()
	n := len(s.ids)
	s.ids = append(s.ids, id)
	s.mu.Unlock()
	partitions := s.w.settings.Partitions
	for s.w.t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(s.w.t.Context(), startTimeout)
		began := time.Now()
		_, err := s.handle.Start(ctx, saga.Resource{Type: "order", ID: fmt.Sprint(n)}, order{N: n},
			&saga.StartOptions{ID: id, Partition: partitions[n%len(partitions)]})
		over := time.Since(began) - startTimeout
		cancel()
		s.mu.Lock()
		s.overrun = max(s.overrun, over)
		if err == nil || errors.Is(err, store.ErrExists) {
			s.has++
			s.mu.Unlock()
			return
		}
		s.retries++
		s.mu.Unlock()
		if wait(s.w.t.Context(), 100*time.Millisecond) != nil {
			return
		}
	}
}

// confirmed returns how many have been started for sure.
func (s *starter) confirmed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has
}

// started returns the ids of all, by number.
func (s *starter) started() []uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]uuid.UUID(nil), s.ids...)
}

// mark notes which executions have to recover: those that were asked for by now.
func (s *starter) mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked = len(s.ids)
}

// hit returns the ids of those.
func (s *starter) hit() []uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marked < 0 {
		s.marked = len(s.ids)
	}
	return append([]uuid.UUID(nil), s.ids[:s.marked]...)
}

// longest returns by how much a call has outlived its ctx at most.
func (s *starter) longest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overrun
}
