package saga_test

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

const day = 24 * time.Hour

// A playground is where the examples of the guides run: an engine at work on a memory
// store, whose clock stands still until the example moves it.
type playground struct {
	engine *saga.Engine
	store  store.Store

	mu    sync.Mutex
	clock time.Time
}

// newPlayground begins on the first of March 2030, at noon.
func newPlayground() *playground {
	s := &playground{clock: time.Date(2030, 3, 1, 12, 0, 0, 0, time.UTC)}
	s.store = memory.New()
	var err error
	s.engine, err = saga.New(saga.Config{
		Store: s.store, Now: s.now, SweepEvery: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	check(err)
	return s
}

// run lets the engine work until the function that it returns is called.
func (s *playground) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- s.engine.Run(ctx) }()
	return func() {
		cancel()
		check(<-ran)
	}
}

func (s *playground) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

// settle returns an execution when it has ended, or waits for something.
func (s *playground) settle(id uuid.UUID) *saga.Execution {
	for {
		x, err := s.engine.Get(context.Background(), id)
		check(err)
		now := s.now()
		due := func(t *time.Time) bool { return t != nil && !t.After(now) }
		switch {
		case x.Status.Finished(), x.Status == store.StatusHalted:
			return x
		case x.Attempt != nil, due(x.WakeAt), due(x.Deadline), due(x.DueAt):
		case x.Status == store.StatusWaiting, x.WakeAt != nil:
			return x
		}
		<-time.After(time.Millisecond)
	}
}

// move moves the clock on.
func (s *playground) move(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

// reaches returns when an execution waits at this step.
func (s *playground) reaches(id uuid.UUID, step string) {
	for s.settle(id).Step != step {
		<-time.After(time.Millisecond)
	}
}

// pass lets time go by for an execution, and all that comes due meanwhile be
// done at its time.
func (s *playground) pass(id uuid.UUID, d time.Duration) *saga.Execution {
	until := s.now().Add(d)
	for {
		x := s.settle(id)
		next := until
		if !x.Status.Finished() && x.DueAt != nil && x.DueAt.Before(until) {
			next = *x.DueAt
		}
		s.mu.Lock()
		s.clock = next
		s.mu.Unlock()
		if !next.Before(until) {
			return s.settle(id)
		}
	}
}
