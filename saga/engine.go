package saga

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// An Engine starts sagas and runs their steps. Make one with [New], register
// what it knows with [Register] or [Declare], and, in processes that work, call
// [Engine.Run]. All methods are safe for concurrent use.
type Engine struct {
	cfg      Config
	store    store.Store
	advancer store.Advancer // nil: the store has none
	pub      Publisher      // nil: Run works the store itself
	worker   string
	clock    clock
	rules    rules
	log      *slog.Logger
	release  func() error // of Config.Exclusive; nil: the store is not held

	plans struct {
		sync.RWMutex
		byName map[string]map[int]*plan
		latest map[string]*plan
	}

	storeID atomic.Pointer[uuid.UUID]

	gate     gate
	worked   worked
	reports  reports
	beat     atomic.Int64 // when the loop without I/O last went round, in ns since 1970
	heard    atomic.Int64 // when the store last answered one of the loops, likewise
	forgot   time.Time    // when dead workers' records were last removed
	probes   probes
	refused  refusals
	life     lifecycle
	sessions sessions
	claims   claims
	alarms   alarms
	waiters  waiters
	budgets  budgets
	// schedules are those that this process has declared.
	schedules schedules
	limits    limits
	relay     relay
	stats     stats
	purging   *Slots // one batch at a time

	deliveries deliveries
}

// New checks cfg, with all faults in one error that wraps [ErrInvalid], and
// returns an engine. It does no I/O, except that Config.Exclusive takes the
// store's lock.
func New(cfg Config) (*Engine, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.fill()
	e := &Engine{
		cfg: cfg, store: cfg.Store, pub: cfg.Publisher, log: cfg.Logger,
		worker:  workerID(cfg.Worker),
		clock:   clock{fixed: cfg.Now, store: cfg.Store},
		purging: NewSlots(1),
		relay:   newRelay(&cfg),
	}
	e.advancer, _ = store.As[store.Advancer](cfg.Store)
	e.rules = rules{
		worker: e.worker, lease: cfg.Lease, margin: leaseMargin, pickup: cfg.PickupWithin,
		stepTimeout: cfg.StepTimeout, maxResumes: cfg.MaxResumes, onStalled: cfg.OnStalled,
	}
	e.plans.byName = map[string]map[int]*plan{}
	e.plans.latest = map[string]*plan{}
	e.sessions.open = map[store.Lease]*session{}
	e.limits.sagas, e.limits.bell = map[string]bool{}, make(chan struct{}, 1)
	e.waiters.m = map[uuid.UUID][]chan struct{}{}
	if cfg.Exclusive {
		if err := e.takeExclusively(context.Background()); err != nil {
			return nil, err
		}
	}
	e.deliveries.observe, e.deliveries.warn = cfg.Observe, e.warn
	if r, ok := cfg.Publisher.(Reporter); ok {
		r.Report(e.reported)
	}
	return e, nil
}

// takeExclusively takes the store's lock.
func (e *Engine) takeExclusively(ctx context.Context) error {
	x, _ := store.As[store.Exclusiver](e.store)
	release, err := x.Exclusive(ctx)
	if err != nil {
		return fmt.Errorf("saga: take the store exclusively: %w", err)
	}
	e.release = release
	return nil
}

// workerID names this process. The random part tells a restarted process from
// its predecessor: in containers host and pid repeat.
func workerID(name string) string {
	if name == "" {
		host, err := os.Hostname()
		if err != nil || !cleanText(host) {
			host = "unknown"
		}
		name = fmt.Sprintf("%s:%d", truncate(host, maxWorkerLen-12), os.Getpid())
	}
	var b [6]byte
	rand.Read(b[:])
	return name + "/" + hex.EncodeToString(b[:])
}

// Worker returns the name under which this process opens attempts.
func (e *Engine) Worker() string { return e.worker }

// Store returns the engine's store.
func (e *Engine) Store() store.Store { return e.store }

func (e *Engine) register(p *plan) error {
	e.plans.Lock()
	defer e.plans.Unlock()
	if _, ok := e.plans.byName[p.saga][p.version]; ok {
		return fmt.Errorf("%w: saga %q version %d is registered twice", ErrInvalid, p.saga, p.version)
	}
	if e.plans.byName[p.saga] == nil {
		e.plans.byName[p.saga] = map[int]*plan{}
	}
	e.plans.byName[p.saga][p.version] = p
	if l := e.plans.latest[p.saga]; l == nil || l.version < p.version {
		e.plans.latest[p.saga] = p
	}
	return nil
}

// planFor returns what this process knows of an execution's saga, or nil.
func (e *Engine) planFor(x *store.Execution) *plan {
	e.plans.RLock()
	defer e.plans.RUnlock()
	if x.Version == 0 {
		return e.plans.latest[x.Saga]
	}
	return e.plans.byName[x.Saga][x.Version]
}

// Get returns an execution, or store.ErrNotFound.
func (e *Engine) Get(ctx context.Context, id uuid.UUID) (*Execution, error) {
	return e.store.Get(ctx, id)
}

// Attempts returns the attempts of an execution, the open one included, in the
// order in which they were opened.
func (e *Engine) Attempts(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
	return e.store.Attempts(ctx, id)
}

// Audit returns what was done to an execution, by whom and why.
func (e *Engine) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	return e.store.Audit(ctx, id)
}

// identity returns the store's id, asked for once.
func (e *Engine) identity(ctx context.Context) (uuid.UUID, error) {
	if id := e.storeID.Load(); id != nil {
		return *id, nil
	}
	id, err := e.store.ID(ctx)
	if err != nil {
		return id, fmt.Errorf("saga: identify the store: %w", err)
	}
	e.storeID.Store(&id)
	return id, nil
}

// machine returns a machine for an execution that was just loaded.
func (e *Engine) machine(x *store.Execution) *machine {
	r := e.rules
	r.direct, r.paused = e.direct(), e.gate.now()
	m := &machine{x: x, was: x.Status, now: e.clock.now(), rules: r, plan: e.planFor(x), newcomers: newcomers{ids: e.newID, latest: e.latest}}
	if e.clock.fixed == nil {
		m.jitter = 2*mathrand.Float64() - 1
	}
	return m
}
