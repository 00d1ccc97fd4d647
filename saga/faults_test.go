package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

type faultState struct {
	A int `json:"a"`
}

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

func faultEngine(t *testing.T, cfg Config, steps ...Step[faultState]) (*Engine, *Saga[faultState]) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = discard
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Register(e, Definition[faultState]{Name: "faults", Steps: steps})
	if err != nil {
		t.Fatal(err)
	}
	return e, s
}

// faultRun runs e and returns what ends it.
func faultRun(t *testing.T, e *Engine) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	return func() {
		cancel()
		<-done
	}
}

func faultStart(t *testing.T, s *Saga[faultState]) *store.Execution {
	t.Helper()
	x, err := s.Start(t.Context(), Resource{Type: "r", ID: "1"}, faultState{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return x.Execution
}

func faultPass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func faultPointer(x *store.Execution, id uuid.UUID) Pointer {
	return Pointer{V: 1, Store: id, Execution: x.ID, Saga: x.Saga, Step: x.Step, Direction: x.Direction, Epoch: x.Epoch}
}

// faultAway is a publisher whose broker is away: the engine then does nothing by
// itself.
type faultAway struct{}

func (faultAway) Publish(context.Context, string, Pointer) error { return errors.New("away") }
func (faultAway) Connected() bool                                { return false }

type faultNilError struct{ msg string }

func (e *faultNilError) Error() string { return e.msg } // panics on nil

// A typed nil error, Go's best known trap, must be a failed attempt, not the
// end of the process.
func TestErrorThatPanicsDoesNotEscape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		e, s := faultEngine(t, Config{Store: st, Publisher: faultAway{}}, Step[faultState]{
			Name: "a", Execute: func(context.Context, *Run[faultState]) error { var err *faultNilError; return err },
		})
		defer faultRun(t, e)()
		faultPass(time.Second)
		x := faultStart(t, s)
		id, _ := st.ID(t.Context())
		func() {
			defer func() {
				if v := recover(); v != nil {
					t.Errorf("a panic escaped from Handle; on a consumer's goroutine it ends the process: %v", v)
				}
			}()
			if _, err := e.Handle(t.Context(), faultPointer(x, id)); err != nil {
				t.Error(err)
			}
		}()
		y, _ := st.Get(t.Context(), x.ID)
		if y.Attempt != nil {
			t.Error("its attempt was not settled")
		}
	})
}

// faultHung is a store whose Renew hangs until its ctx ends, as over a network
// that swallows everything.
type faultHung struct {
	*memory.Store
	hung atomic.Bool
}

func (s *faultHung) Renew(ctx context.Context, l []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if s.hung.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Renew(ctx, l, r)
}

func TestHungRenewalEndsTheBodyBeforeItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &faultHung{Store: memory.New()}
		st.hung.Store(true)
		var lease, ended time.Time
		e, s := faultEngine(t, Config{Store: st, Publisher: faultAway{}, Lease: 30 * time.Second}, Step[faultState]{
			Name: "a", Timeout: NoTimeout, Execute: func(ctx context.Context, run *Run[faultState]) error {
				lease = time.Now().Add(30 * time.Second)
				<-ctx.Done()
				ended = time.Now()
				return ctx.Err()
			},
		})
		defer faultRun(t, e)()
		faultPass(2400 * time.Millisecond) // shortly before the loop's tick
		x := faultStart(t, s)
		id, _ := st.ID(t.Context())
		_, _ = e.Handle(t.Context(), faultPointer(x, id))
		if ended.After(lease.Add(-time.Second)) {
			t.Errorf("the body was ended %v after its lease (others take over %v after it); want a margin before", ended.Sub(lease), leaseMargin)
		}
	})
}

// faultSkew is a store whose clock can jump.
type faultSkew struct {
	*memory.Store
	skew atomic.Int64
}

func (s *faultSkew) Now(ctx context.Context) (time.Time, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(time.Duration(s.skew.Load())), err
}

// The machine was suspended for a minute (or the wall clock, which SQLite's and
// memory's Now are, was set). Nobody took the lease over; whoever notices first,
// this engine must renew before it claims.
func TestSuspendedMachineRenewsBeforeItClaims(t *testing.T) {
	st := &faultSkew{Store: memory.New()} // not in a bubble: those have no monotonic clock
	begun, free := make(chan int, 8), make(chan struct{})
	var runs atomic.Int32
	e, s := faultEngine(t, Config{Store: st, Publisher: faultAway{}, Lease: 30 * time.Second}, Step[faultState]{
		Name: "a", Timeout: NoTimeout, Execute: func(context.Context, *Run[faultState]) error {
			begun <- int(runs.Add(1))
			<-free
			return nil
		},
	})
	e.life.start() // Run without its loops, which would need time
	e.sessions.start()
	x := faultStart(t, s)
	id, _ := st.ID(t.Context())
	done := make(chan struct{}, 2)
	handle := func() { _, _ = e.Handle(t.Context(), faultPointer(x, id)); done <- struct{}{} }
	go handle()
	<-begun

	// A minute passes by the store's clock and by the wall, none by the monotonic clock.
	st.skew.Store(int64(time.Minute))
	e.clock.mu.Lock()
	(*struct{ wall uint64 })(unsafe.Pointer(&e.clock.mark)).wall -= 60 << 30
	e.clock.mu.Unlock()
	if slept, _ := e.clock.slept(); !slept {
		t.Fatal("the test does not suspend the machine")
	}

	// What WorkStore does, up to once a second; the renewal loop looks every Lease/12.
	xs, _, err := e.claim(t.Context(), "", nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	n := 1
	if len(xs) > 0 {
		n++
		go handle()
		select {
		case <-begun:
			t.Error("the engine abandoned its own running attempt and runs the step a second time beside it")
		case <-done:
			n--
		}
	} else if slept, _ := e.clock.slept(); !slept {
		if y, _ := st.Get(t.Context(), x.ID); !y.Attempt.LeaseUntil.After(e.clock.now()) {
			t.Error("the suspension is forgotten, and the lease was not renewed")
		}
	}
	close(free)
	for range n {
		<-done
	}
}

func TestExclusiveEngineThatRunsAgainTakesNothingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		var running, most atomic.Int32
		step := Step[faultState]{Name: "a", Execute: func(ctx context.Context, _ *Run[faultState]) error {
			n := running.Add(1)
			defer running.Add(-1)
			most.Store(max(most.Load(), n))
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Minute):
				return nil
			}
		}}
		first, _ := faultEngine(t, Config{Store: st, Exclusive: true}, step)
		stop := faultRun(t, first)
		faultPass(time.Second)
		stop() // gives the lock back

		second, s := faultEngine(t, Config{Store: st, Exclusive: true}, step)
		defer faultRun(t, second)()
		faultPass(time.Second)
		faultStart(t, s)
		faultPass(5 * time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := first.Run(ctx)
		if most.Load() > 1 {
			t.Errorf("a step ran %d times at once: an engine without the lock abandoned a living engine's attempt (Run: %v)", most.Load(), err)
		}
	})
}

// faultDeafCreate commits the first Create, does not say so, and meanwhile a
// worker takes the execution up.
type faultDeafCreate struct {
	*memory.Store
	tries int
}

func (s *faultDeafCreate) Create(ctx context.Context, x *store.Execution) error {
	if s.tries++; s.tries > 1 {
		return s.Store.Create(ctx, x)
	}
	y := x.Clone()
	if err := s.Store.Create(ctx, y); err != nil {
		return err
	}
	_, _ = s.Store.WithLock(ctx, x.ID, func(*store.Execution) (store.Change, error) { return store.Change{}, nil })
	return errors.New("connection reset by peer")
}

func TestStartRecognisesItsOwnRowAlthoughItMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &faultDeafCreate{Store: memory.New()}
		_, s := faultEngine(t, Config{Store: st}, Step[faultState]{Name: "a", Execute: func(context.Context, *Run[faultState]) error { return nil }})
		if _, err := s.Start(t.Context(), Resource{Type: "r", ID: "1"}, faultState{}, nil); err != nil {
			t.Errorf("Start: %v; but it has started, and a caller that tries again starts a second saga", err)
		}
	})
}

// faultOutage fails all calls until a sweeper comes after the lease is over.
type faultOutage struct {
	*memory.Store
	off   atomic.Bool
	until time.Time
}

var errFaultOff = errors.New("connection refused")

func (s *faultOutage) back() {
	if !time.Now().Before(s.until) {
		s.off.Store(false)
	}
}

func (s *faultOutage) Now(ctx context.Context) (time.Time, error) {
	if s.back(); s.off.Load() {
		return time.Time{}, errFaultOff
	}
	return s.Store.Now(ctx)
}

func (s *faultOutage) err() error {
	if s.off.Load() {
		return errFaultOff
	}
	return nil
}

func (s *faultOutage) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	if s.off.Load() {
		return nil, errFaultOff
	}
	return s.Store.ClaimDue(ctx, q)
}

func (s *faultOutage) Renew(ctx context.Context, l []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if s.off.Load() {
		return nil, errFaultOff
	}
	return s.Store.Renew(ctx, l, r)
}

func (s *faultOutage) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	return errors.Join(s.err(), func() error {
		if s.off.Load() {
			return nil
		}
		return s.Store.Advance(ctx, x, c)
	}())
}

func (s *faultOutage) WithLock(ctx context.Context, id uuid.UUID, f func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if s.off.Load() {
		return nil, errFaultOff
	}
	return s.Store.WithLock(ctx, id, f)
}

func TestFirstSweepAfterAnOutageLetsLivingWorkersRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &faultOutage{Store: memory.New()}
		var runs atomic.Int32
		e, s := faultEngine(t, Config{Store: st, Lease: 30 * time.Second}, Step[faultState]{Name: "a", Execute: func(context.Context, *Run[faultState]) error {
			if runs.Add(1) == 1 {
				st.until = time.Now().Add(34 * time.Second)
				st.off.Store(true)
			}
			return nil // at once; but it cannot be written
		}})
		defer faultRun(t, e)()
		faultPass(time.Second)
		x := faultStart(t, s)
		faultPass(2 * time.Minute)
		if n := runs.Load(); n != 1 {
			as, _ := st.Attempts(t.Context(), x.ID)
			t.Errorf("the step ran %d times (%s first): the store's first answer went to the sweep, and not, for Lease/3, to the worker that lives", n, as[0].Status)
		}
	})
}

// faultSlow is a store that takes long to tell the time, because the question
// waited for a connection.
type faultSlow struct {
	store.Store
	wait time.Duration
}

func (s faultSlow) Now(ctx context.Context) (time.Time, error) {
	<-time.After(s.wait)
	return s.Store.Now(ctx)
}

func TestSlowAnswerOfTheClockStealsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		var runs atomic.Int32
		step := Step[faultState]{Name: "a", Execute: func(ctx context.Context, _ *Run[faultState]) error {
			runs.Add(1)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Minute):
				return nil
			}
		}}
		a, s := faultEngine(t, Config{Store: st, Lease: 3 * time.Second}, step)
		b, _ := faultEngine(t, Config{Store: faultSlow{st, 9900 * time.Millisecond}, Lease: 3 * time.Second}, step)
		defer faultRun(t, a)()
		faultPass(time.Second)
		faultStart(t, s)
		defer faultRun(t, b)()
		faultPass(45 * time.Second)
		if n := runs.Load(); n != 1 {
			t.Errorf("the step ran %d times: the other engine's clock is %v ahead", n, 4950*time.Millisecond)
		}
	})
}

func TestKeysOfStatesAreNotKeptForEver(t *testing.T) {
	c := &stateCodec[map[string]any]{}
	for i := range 20_000 {
		k := fmt.Sprintf("item-%d", i)
		if _, err := c.encode(map[string]any{k: 1}, json.RawMessage(`{"`+k+`":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	c.known.Range(func(any, any) bool { n++; return true })
	if n > 10_000 {
		t.Errorf("%d keys of states are kept for as long as the process lives", n)
	}
}

// faultTagged writes a member that it does not read.
type faultTagged struct{ A int }

func (s faultTagged) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"a": s.A, "kind": "order"})
}

func TestMembersThatAreOnlyWrittenDoNotMultiply(t *testing.T) {
	c := &stateCodec[faultTagged]{}
	var b json.RawMessage
	var err error
	for range 6 {
		if b, err = c.encode(faultTagged{1}, b); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(string(b), `"kind"`); n != 1 {
		t.Errorf("after 6 steps the member is there %d times: %s", n, b)
	}
}

// A step whose success was recorded, but whose state was refused, is run again
// by Retry: it must be told that it may have had its effect.
func TestRetryOfADoneStepIsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		var told []bool
		e, err := New(Config{Store: st, Logger: discard})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Register(e, Definition[map[string]any]{Name: "faults", Steps: []Step[map[string]any]{{
			Name: "a", Execute: func(_ context.Context, run *Run[map[string]any]) error {
				if told = append(told, run.InDoubt); len(told) == 1 {
					run.State["x"] = strings.Repeat("x", store.MaxState+1) // charged, but too much to keep
				}
				return nil
			},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		defer faultRun(t, e)()
		x, err := s.Start(t.Context(), Resource{Type: "r", ID: "1"}, map[string]any{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		faultPass(time.Minute)
		if _, err := e.Retry(t.Context(), x.ID, By{Actor: "anna", Reason: "again"}, nil); err != nil {
			t.Fatal(err)
		}
		faultPass(time.Minute)
		if len(told) != 2 || !told[1] {
			t.Errorf("in doubt: %v, want the second run to be told of the first one's effect", told)
		}
	})
}

func TestRunAgainAfterAStuckStepHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		e, s := faultEngine(t, Config{Store: memory.New(), Grace: time.Second}, Step[faultState]{
			Name: "a", Execute: func(context.Context, *Run[faultState]) error { <-free; return nil },
		})
		stop := faultRun(t, e)
		faultStart(t, s)
		faultPass(time.Second)
		stop()
		close(free)
		faultPass(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Run(ctx); errors.Is(err, ErrRunning) {
			t.Error("ErrRunning for ever, although nothing runs any more")
		}
	})
}

// faultDeafAdvance does what it is told once, and does not say so.
type faultDeafAdvance struct {
	*memory.Store
	armed atomic.Bool
}

func (s *faultDeafAdvance) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	if s.armed.Swap(false) {
		_ = s.Store.Advance(ctx, x, c)
		return errFaultOff
	}
	return s.Store.Advance(ctx, x, c)
}

type faultCounting struct{ n atomic.Int32 }

func (p *faultCounting) Publish(context.Context, string, Pointer) error { p.n.Add(1); return nil }

func TestHandOverWhoseCommitWasNotConfirmedIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, pub := &faultDeafAdvance{Store: memory.New()}, &faultCounting{}
		nop := func(context.Context, *Run[faultState]) error { st.armed.Store(true); return nil }
		e, s := faultEngine(t, Config{Store: st, Publisher: pub, Handover: HandoverPublish},
			Step[faultState]{Name: "a", Execute: nop}, Step[faultState]{Name: "b", Execute: nop})
		defer faultRun(t, e)()
		faultPass(time.Second)
		x := faultStart(t, s) // the first pointer
		id, _ := st.ID(t.Context())
		_, _ = e.Handle(t.Context(), faultPointer(x, id))
		faultPass(5 * time.Second)
		if n := pub.n.Load(); n != 2 {
			y, _ := st.Get(t.Context(), x.ID)
			t.Errorf("published %d pointers, want a second one to %q: the row says it was offered, but it waits %v for the sweep, which takes it for lost", n, y.Step, time.Until(*y.DueAt))
		}
	})
}
