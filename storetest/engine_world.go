package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A world is a store, a clock that stands still unless it is moved, and what
// the steps do outside.
type world struct {
	t     *testing.T
	s     store.Store
	label string
	parts *participant

	ps []*process // all that were started
	// lossy: something may have got lost, so that only the due time helps.
	lossy bool
	// definition of the saga that all processes know; without a name that of trips.
	definition saga.Definition[trip]
	also       func(e *saga.Engine) error // registers more
	signals    []saga.StartSignal         // of each start
	schedules  func(s *saga.Saga[trip]) []saga.AnySchedule
	cells      bool // processes see the store's Cells
	// exclusive: at most one process at a time, see saga.Config.Exclusive.
	exclusive bool

	mu   sync.Mutex
	time time.Time
}

func newWorld(t *testing.T, s store.Store) *world {
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, s: s, label: "saga", time: now, parts: &participant{effects: map[string]int{}, refused: map[string]bool{}}}
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.time
}

func (w *world) moveTo(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at.After(w.time) {
		w.time = at
	}
}

// A process is an engine at work, which may die.
type process struct {
	e      *saga.Engine
	s      *saga.Saga[trip]
	cancel context.CancelFunc
	done   chan error
	dead   *mortality
}

// mortality is whether a process lives.
type mortality struct {
	dead chan struct{}
	once sync.Once
	heir func() // called at death; what the system does for the dead
}

func (m *mortality) die() {
	m.once.Do(func() {
		close(m.dead)
		if m.heir != nil {
			m.heir()
		}
	})
}

func (m *mortality) isDead() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}

// process starts one, with a fault on its store, or connected to a wire.
func (w *world) process(f *fault, end *wireEnd) *process {
	w.t.Helper()
	w.lossy = w.lossy || f != nil || end != nil && end.fault != nil
	p := &process{done: make(chan error, 1), dead: &mortality{dead: make(chan struct{})}}
	cfg := saga.Config{
		Store: faultyFor(w.s, f, p.dead), Exclusive: w.exclusive, Logger: quiet, Now: w.now, Workers: 4,
		Lease: 30 * time.Second, PickupWithin: 30 * time.Second, SweepEvery: time.Millisecond, Grace: time.Millisecond,
	}
	if cells, ok := store.As[store.Cells](w.s); ok && w.cells {
		cfg.Store = withCells{cfg.Store, cells}
	}
	if f != nil {
		// What follows an outage of the store waits for a third of a lease,
		// whatever the clock says.
		cfg.Lease = 3 * time.Second
	}
	if end != nil {
		end.dead = p.dead
		cfg.Publisher, cfg.Handover = end, saga.HandoverPublish
	}
	var err error
	if p.e, err = saga.New(cfg); err != nil {
		w.t.Fatal(err)
	}
	d := w.definition
	if d.Name == "" {
		d = definition(w.parts)
	}
	if p.s, err = saga.Register(p.e, d); err != nil {
		w.t.Fatal(err)
	}
	if w.also != nil {
		if err := w.also(p.e); err != nil {
			w.t.Fatal(err)
		}
	}
	if w.schedules != nil {
		if err := p.e.Schedules("storetest", w.schedules(p.s)...); err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	p.cancel = cancel
	go func() {
		select {
		case <-p.dead.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	var consumers []saga.Runner
	if end != nil {
		consumers = append(consumers, &wireConsumer{end, p.e})
	}
	go func() {
		p.done <- p.e.Run(ctx, consumers...)
		close(p.done)
	}()
	w.ps = append(w.ps, p)
	return p
}

// close stops all processes: none may work on what another world starts.
func (w *world) close() {
	w.t.Helper()
	for _, p := range w.ps {
		p.cancel()
	}
	for _, p := range w.ps {
		p.wait(w)
	}
}

// wait waits until a process has ended, which was told to or has died.
func (p *process) wait(w *world) {
	w.t.Helper()
	for err := range p.done {
		if incomplete := (*saga.ShutdownIncompleteError)(nil); err != nil && !p.dead.isDead() && !errors.As(err, &incomplete) {
			w.t.Errorf("%s: Run: %v", w.label, err)
		}
	}
}

func (w *world) start(p *process, state trip) uuid.UUID {
	w.t.Helper()
	id := uuid.New()
	if err := w.tryStart(p, id, state); err != nil {
		w.t.Fatalf("%s: start: %v", w.label, err)
	}
	return id
}

func (w *world) tryStart(p *process, id uuid.UUID, state trip) error {
	// A partition of its own, so that runs on one store do not meet.
	_, err := p.s.Start(w.t.Context(), saga.Resource{Type: "trip", ID: id.String()}, state, &saga.StartOptions{ID: id, Signals: w.signals})
	return err
}

// end brings an execution to its end, however often processes die on the way.
func (w *world) end(id uuid.UUID) *store.Execution {
	w.t.Helper()
	return w.until(id, func(x *store.Execution) bool { return x.Status.Finished() })
}

// until waits for something to become true of an execution. It moves the clock
// on when nothing can happen before, and starts a new process when all are
// dead.
func (w *world) until(id uuid.UUID, done func(x *store.Execution) bool) *store.Execution {
	w.t.Helper()
	timer := time.NewTimer(0)
	defer timer.Stop()
	deadline := time.Now().Add(2 * time.Minute)
	var revision int64
	quiet := time.Now() // since when nothing has changed
	for {
		x, err := w.s.Get(w.t.Context(), id)
		if err != nil {
			w.t.Fatalf("%s: %v", w.label, err)
		}
		if done(x) {
			return x
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: after two minutes still %s at %s, due %v, now %v, attempt %+v", w.label, x.Status, x.Step, x.DueAt, w.now(), x.Attempt)
		}
		if w.living() == 0 {
			w.process(nil, nil)
		}
		if x.Revision != revision {
			revision, quiet = x.Revision, time.Now()
		}
		// On a slow machine a process may lose its own lease and know it.
		patient := time.Since(quiet) < 10*time.Second
		switch {
		case x.WakeAt != nil && x.WakeAt.After(w.now()):
			w.jump(x.ID, *x.WakeAt, patient)
		case x.DueAt != nil && w.lossy:
			w.jump(x.ID, *x.DueAt, patient)
		}
		timer.Reset(time.Millisecond)
		<-timer.C
	}
}

// living counts the processes that have not died.
func (w *world) living() (n int) {
	for _, p := range w.ps {
		if !p.dead.isDead() {
			n++
		}
	}
	return n
}

// jump moves the clock on to a time that an execution waits for. It does so under
// the lock of the execution, or of its child that is at work, and, if patient, not while a living process has an
// attempt of it open: that attempt's lease would be over all at once.
func (w *world) jump(id uuid.UUID, at time.Time, patient bool) {
	w.t.Helper()
	child := w.atWork(id)
	_, err := w.s.WithLock(w.t.Context(), child, func(x *store.Execution) (store.Change, error) {
		if patient && w.runs(x) {
			return store.Change{}, store.ErrUnchanged
		}
		if child == id && w.atWork(id) != id || child != id && x.Status.Finished() {
			return store.Change{}, store.ErrUnchanged // one was started, or has ended, in between
		}
		if child != id { // which opens none while the child is at work, and locked
			parent, err := w.s.Get(w.t.Context(), id)
			if err != nil || patient && w.runs(parent) {
				return store.Change{}, errors.Join(store.ErrUnchanged, err)
			}
		}
		w.moveTo(at)
		return store.Change{}, store.ErrUnchanged
	})
	if err != nil {
		w.t.Fatalf("%s: %v", w.label, err)
	}
}

// runs reports whether a living process has an attempt of the execution open.
func (w *world) runs(x *store.Execution) bool {
	return x.Attempt != nil && slices.ContainsFunc(w.ps, func(p *process) bool { return x.Attempt.Worker == p.e.Worker() && !p.dead.isDead() })
}

// atWork returns the child of an execution that has not ended, or the execution
// itself. None here has more than one.
func (w *world) atWork(id uuid.UUID) uuid.UUID {
	w.t.Helper()
	if w.also == nil {
		return id
	}
	list, err := w.s.Children(w.t.Context(), store.ChildQuery{Parent: id, Limit: 2})
	if err != nil || len(list) > 1 {
		w.t.Fatalf("%s: %d children, %v", w.label, len(list), err)
	}
	for _, x := range list {
		if !x.Status.Finished() {
			return x.ID
		}
	}
	return id
}

// check compares how an execution ended with what it left outside.
func (w *world) check(x *store.Execution, want store.Status) {
	w.t.Helper()
	if x.Status != want {
		w.t.Errorf("%s: ended %s (%+v), want %s", w.label, x.Status, x.Failure, want)
		return
	}
	n := 0
	if want == store.StatusCompleted {
		n = 1
	}
	for _, step := range []string{"hotel", "flight", "boat"} {
		if got := w.parts.stands(x.ID.String() + "/" + step + "/execute"); got != n {
			w.t.Errorf("%s: ended %s with %d effects of %s, want %d", w.label, x.Status, got, step, n)
		}
	}
	as, err := w.s.Attempts(w.t.Context(), x.ID)
	if err != nil {
		w.t.Errorf("%s: %v", w.label, err)
	}
	for _, a := range as {
		if a.Status == store.AttemptRunning {
			w.t.Errorf("%s: ended with an open attempt: %+v", w.label, a)
		}
	}
}

// checkOnce checks that no attempt was repeated.
func (w *world) checkOnce(x *store.Execution) {
	w.t.Helper()
	as, err := w.s.Attempts(w.t.Context(), x.ID)
	if err != nil {
		w.t.Errorf("%s: %v", w.label, err)
	}
	want := 4
	if x.Status == store.StatusCompensated {
		want = 6
	}
	if len(as) != want {
		w.t.Errorf("%s: %s after %d attempts, want %d", w.label, x.Status, len(as), want)
	}
}

// A participant is a system that steps work on: it has each effect once, whoever
// asks for it how often, and none that was cancelled before it came.
type participant struct {
	mu      sync.Mutex
	effects map[string]int
	refused map[string]bool
}

func (p *participant) book(key string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused[key] {
		return errors.New("was cancelled")
	}
	p.effects[key] = 1
	return nil
}

func (p *participant) cancel(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused[key] = true
	delete(p.effects, key)
}

func (p *participant) stands(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.effects[key]
}

// A wire carries pointers between processes; with a seed it doubles and shuffles
// them.
type wire struct {
	mu    sync.Mutex
	queue []saga.Pointer
	more  chan struct{}
	rand  *rand.Rand
}

func newWire(seed *uint64) *wire {
	w := &wire{more: make(chan struct{}, 1)}
	if seed != nil {
		w.rand = rand.New(rand.NewPCG(*seed, 1))
	}
	return w
}

func (w *wire) put(p saga.Pointer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, p)
	if w.rand != nil && w.rand.IntN(2) == 0 {
		w.queue = append(w.queue, p)
	}
	w.signal()
}

func (w *wire) signal() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *wire) take() (p saga.Pointer, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return p, false
	}
	i := 0
	if w.rand != nil {
		i = w.rand.IntN(len(w.queue))
	}
	p = w.queue[i]
	w.queue = append(w.queue[:i], w.queue[i+1:]...)
	if len(w.queue) > 0 {
		w.signal()
	}
	return p, true
}

// A wireEnd is a process's publisher.
type wireEnd struct {
	wire  *wire
	fault *fault
	dead  *mortality
}

func (e *wireEnd) Publish(_ context.Context, _ string, p saga.Pointer) error {
	return e.fault.around(e.dead, func() error { e.wire.put(p); return nil })
}

type wireConsumer struct {
	end *wireEnd
	e   *saga.Engine
}

func (c *wireConsumer) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	for range 3 {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-c.end.wire.more:
				}
				for ctx.Err() == nil {
					p, ok := c.end.wire.take()
					if !ok {
						break
					}
					_, _ = c.e.Handle(ctx, p)
				}
			}
		})
	}
	return nil
}
