// Package sagatest is a harness for tests of your own sagas: it runs them step
// by step in the test's goroutine, on a clock that stands still unless the test
// moves it. Nothing sleeps, nothing happens by chance, and any line of a saga
// can be made to fail, to time out, or to crash.
//
//	func TestCheckoutRefundsWhenNoCourierIsFree(t *testing.T) {
//		h := sagatest.New(t, nil)
//		checkout := sagatest.Register(h, checkoutSaga(services))
//		h.At("courier").Fail(saga.Fail(errors.New("no courier")))
//
//		x, err := checkout.Start(t.Context(), saga.Resource{Type: "order", ID: "4711"}, Order{Cents: 1999}, nil)
//		…
//		h.Drain()
//
//		if got := h.Execution(x.ID).Status; got != store.StatusCompensated {
//			t.Errorf("status %s", got)
//		}
//		want := []string{"stock", "charge", "courier failed", "undo charge", "undo stock"}
//		if got := h.Steps(x.ID); !slices.Equal(got, want) {
//			t.Errorf("steps %v, want %v", got, want)
//		}
//	}
//
// # Time
//
// [Harness.Drain] works until nothing is left to do. It jumps over what a saga
// waits for only because something went wrong: the delay before a retry, the
// lease of a crashed attempt, the time for which a body that nobody saw return
// may still be at work. It does not jump over what a saga wants to wait for: a
// snooze or a wait. [Harness.Advance] lets time pass, and with it all that
// comes due.
//
// The steps' own time-outs still run on the real clock.
//
// # One step alone
//
// [NewRun] makes a Run to call a step's function with, without any engine.
package sagatest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A Config sets up a [Harness]. Its zero value is right for most tests.
type Config struct {
	// Store keeps the executions. Nobody else may work on it during the test.
	// Defaults to a new store in memory.
	Store store.Store

	// Start is the time at which the test begins. Defaults to the beginning
	// of 2030, UTC.
	Start time.Time

	// MaxDeliveries is how many times one Drain or Advance looks at executions
	// before it gives up. Defaults to 1000.
	MaxDeliveries int

	// Engine, if not nil, changes the engine's configuration. Store, Publisher
	// and Now are the harness's.
	Engine func(cfg *saga.Config)
}

// A Harness runs sagas for one test. Make one with [New]. Its methods, and
// those of its Engine, are called from the test's goroutine only; the steps may
// start what they like.
type Harness struct {
	// Engine is the engine under test, for operators' acts and the like. Its
	// Wait waits for nothing to happen: call Drain instead. Its Run is
	// already running.
	Engine *saga.Engine

	t     testing.TB
	store *recorder
	id    uuid.UUID // of the store
	most  int

	clock struct {
		sync.Mutex
		now time.Time
	}
	faults faults
	last   map[uuid.UUID]delivery
}

// A delivery is what the harness last did with an execution.
type delivery struct {
	pointer saga.Pointer
	result  saga.Result
}

// New returns a harness whose engine knows these sagas; [Register] makes more
// known, and returns what to start them with. A wrong configuration or
// definition ends the test. So does, at its end, a fault of [Harness.At] that
// was never reached. A nil cfg is the zero Config.
func New(t testing.TB, cfg *Config, defs ...saga.AnyDefinition) *Harness {
	t.Helper()
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.Store == nil {
		c.Store = memory.New()
	}
	if c.Start.IsZero() {
		c.Start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if c.MaxDeliveries <= 0 {
		c.MaxDeliveries = 1000
	}
	h := &Harness{t: t, most: c.MaxDeliveries, last: map[uuid.UUID]delivery{}}
	h.clock.now = store.Micros(c.Start)
	h.store = newRecorder(c.Store, &h.faults)

	ec := saga.Config{
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		// No part of the outcome may depend on how fast this machine is.
		ChainFor: 24 * time.Hour,
	}
	if c.Engine != nil {
		c.Engine(&ec)
	}
	ec.Store, ec.Publisher, ec.Now = h.store.forEngine(), away{}, h.Now
	ec.SweepEvery = 24 * time.Hour
	ec.Middleware = append(ec.Middleware, h.faults.around)
	var err error
	if h.Engine, err = saga.New(ec); err != nil {
		t.Fatalf("sagatest: %v", err)
	}
	if err := h.Engine.RegisterAll(defs...); err != nil {
		t.Fatalf("sagatest: %v", err)
	}
	if h.id, err = c.Store.ID(t.Context()); err != nil {
		t.Fatalf("sagatest: identify the store: %v", err)
	}
	h.run()
	return h
}

// run lets the engine run until the end of the test. It renews leases and does
// nothing else: its sweep claims nothing while its publisher is away.
func (h *Harness) run() {
	ctx, stop := context.WithCancel(context.WithoutCancel(h.t.Context()))
	running := make(signal)
	done := make(chan error, 1)
	go func() { done <- h.Engine.Run(ctx, running) }()
	select {
	case <-running:
	case err := <-done:
		h.t.Fatalf("sagatest: run the engine: %v", err)
	}
	h.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			h.t.Errorf("sagatest: run the engine: %v", err)
		}
		for _, f := range h.faults.left() {
			h.t.Errorf("sagatest: the fault at %s was never reached", f)
		}
	})
}

// Register makes a saga known to the harness's engine. A wrong definition ends
// the test.
func Register[S any](h *Harness, d saga.Definition[S]) *saga.Saga[S] {
	h.t.Helper()
	s, err := saga.Register(h.Engine, d)
	if err != nil {
		h.t.Fatalf("sagatest: %v", err)
	}
	return s
}

// Now returns the time by the harness's clock, which is the engine's.
func (h *Harness) Now() time.Time {
	h.clock.Lock()
	defer h.clock.Unlock()
	return h.clock.now
}

// to moves the clock on; it never goes back.
func (h *Harness) to(now time.Time) {
	h.clock.Lock()
	defer h.clock.Unlock()
	if now.After(h.clock.now) {
		h.clock.now = now
	}
}

// Execution returns an execution as it is stored. An unknown id ends the test.
func (h *Harness) Execution(id uuid.UUID) *saga.Execution {
	h.t.Helper()
	x, err := h.store.Get(h.t.Context(), id)
	if err != nil {
		h.t.Fatalf("sagatest: execution %s: %v", id, err)
	}
	return x
}

// State returns the state of an execution of s.
func State[S any](h *Harness, s *saga.Saga[S], id uuid.UUID) S {
	h.t.Helper()
	state, err := s.State(h.Execution(id))
	if err != nil {
		h.t.Fatalf("sagatest: state of %s: %v", id, err)
	}
	return state
}

// Steps returns what an execution has done so far: one line for each attempt,
// in the order in which they were begun. It is the step's name, behind "undo "
// when it was compensated, and followed by the attempt's status unless it
// succeeded:
//
//	"charge failed", "charge", "courier failed", "undo charge"
func (h *Harness) Steps(id uuid.UUID) []string {
	h.t.Helper()
	attempts, err := h.store.Attempts(h.t.Context(), id)
	if err != nil {
		h.t.Fatalf("sagatest: attempts of %s: %v", id, err)
	}
	lines := []string{}
	for _, a := range attempts {
		line := a.Step
		if a.Direction == store.DirectionCompensate {
			line = "undo " + line
		}
		if a.Status != store.AttemptSucceeded {
			line += " " + string(a.Status)
		}
		lines = append(lines, line)
	}
	return lines
}

// away is a publisher whose broker is away for good, so that the engine leaves
// everything to whoever works the store: the harness.
type away struct{}

func (away) Publish(context.Context, string, saga.Pointer) error {
	return errors.New("sagatest: nothing is published")
}

func (away) Connected() bool { return false }

// A signal is closed when the engine runs.
type signal chan struct{}

func (s signal) Run(ctx context.Context) error {
	close(s)
	<-ctx.Done()
	return nil
}
