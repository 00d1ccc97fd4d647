package saga

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A Config sets up an engine. Store is required; the zero value of every other
// field is right for most services.
type Config struct {
	// Store keeps the executions. All engines on one store should use the same
	// Lease.
	Store store.Store

	// Publisher carries pointers to executor consumers. Nil: the engine's own
	// Run works the store, on Workers goroutines, without any transport.
	Publisher Publisher

	// Events sends the status events of sagas that have them ([Definition.Events])
	// to other services. Nil: the Publisher does, if it is an [EventPublisher],
	// as a broker of package amqp is.
	Events EventPublisher

	// Workers is how many steps Run works on at once when there is no
	// Publisher. Defaults to 10. Consumers have their own setting.
	Workers int

	// Worker names this process in attempts and logs; a random part is added
	// at each start. Defaults to host:pid. At most 100 bytes.
	Worker string

	// Lease is how long an attempt is safe from being taken over after its
	// worker was last heard of. It is renewed every third of it. Defaults to
	// 30 seconds; at least 1 second.
	Lease time.Duration

	// StepTimeout is the time-out of steps that set none. Defaults to 5
	// minutes; NoTimeout for none.
	StepTimeout time.Duration

	// ChainFor bounds how long one worker goes on with the steps of one
	// execution before it hands the next one over by a pointer. Defaults to 1
	// second; negative is refused.
	ChainFor time.Duration

	// Handover says how an execution gets from one step to the next: Chain
	// (the default) or Publish.
	Handover Handover

	// SweepEvery is how often the engine looks for due executions, give or
	// take a fifth. Defaults to 1 second.
	SweepEvery time.Duration

	// PickupWithin is how long a published pointer may take before the
	// execution is due again. Defaults to Lease.
	PickupWithin time.Duration

	// Grace is how long steps may go on when Run's ctx has ended, before their
	// own ctx ends with ErrShutdown; and again how long Run waits for them
	// after that. Defaults to 20 seconds.
	Grace time.Duration

	// MaxResumes is how many pointers in a row may be lost before an execution
	// is given up. Defaults to 5.
	MaxResumes int

	// OnStalled says what becomes of an execution that is given up because its
	// pointers get lost: StalledCompensate (the default) or StalledHalt.
	OnStalled OnStalled

	// BacklogThreshold is how many ready pointers in a partition's queue count
	// as a backlog, in which nothing is published again until it has waited
	// for BacklogPatience. They default to 100 and 2 hours.
	BacklogThreshold int
	BacklogPatience  time.Duration

	// Budgets are the rates that steps share, by the names that [Step.Budget]
	// uses: 1 to 100 characters, [a-z0-9][a-z0-9._-]*. The store must have
	// store.Cells.
	Budgets map[string]Budget

	// Exclusive says that this engine is the only one on the store: New takes
	// the store's lock, and fails with store.ErrInUse while another holds it;
	// Run then abandons at once the attempts that a dead predecessor left
	// open, instead of waiting for their leases. Run gives the lock back at
	// its end, unless steps still run then: see ShutdownIncompleteError. The store must be a store.Exclusiver, as SQLite and memory are.
	Exclusive bool

	// Retention, if not nil, lets Run delete finished executions that are older,
	// about once a minute: see [Engine.Purge]. Whichever engines on a store have
	// it do it. The store must be a store.Querier and a store.Deleter. Nil: all
	// are kept.
	Retention *Retention

	// Middleware stands around every call of a step's function, the first one
	// outermost, and outside of that of [Definition.Middleware].
	Middleware []Middleware

	// Logger gets step progress at debug, failed attempts at warn, failed
	// sagas at error. Defaults to slog.Default(). A panic in it is swallowed. It
	// is called where things happen, and waited for: one that blocks holds the
	// engine.
	Logger *slog.Logger

	// Observe, if not nil, is called for each event, after commit: one at a
	// time, in the order in which they were emitted, in a goroutine that is not
	// the emitter's. (A worker may emit before Start does: saga.started is not
	// always the first one.) ctx has the values of the call that caused the event, and
	// does not end. Panics are swallowed.
	//
	// The emitter waits until Observe has returned, but 100 milliseconds at
	// most. Then the observer is slow: until it has caught up nobody waits for
	// it, at most 1024 events are kept for it, and more are dropped and counted
	// ([Stats]); what is kept when the process ends is lost. Nor is it waited for events that it causes itself by a call of
	// the engine with its ctx.
	Observe func(ctx context.Context, e Event)

	// TraceParent, if not nil, returns the W3C trace context of a Start whose
	// StartOptions name none, from the ctx of that call, or "": so that the
	// steps join the caller's trace. A panic in it counts as "", and so does
	// what is not fit to be stored.
	TraceParent func(ctx context.Context) string

	// Now is the engine's clock, for tests; waits between tries then do not
	// vary. Nil: the store's, learned from Store.Now at the start and every
	// minute, and carried on by the monotonic clock in between.
	Now func() time.Time
}

// A Handover says how an execution gets from one step to the next.
type Handover string

const (
	// HandoverChain: the worker that finished a step goes on with the next
	// one, in the same write to the store.
	HandoverChain Handover = "chain"
	// HandoverPublish: every step travels as a pointer of its own.
	HandoverPublish Handover = "publish"
)

// OnStalled says what becomes of an execution that is given up.
type OnStalled string

const (
	// StalledCompensate undoes what was done.
	StalledCompensate OnStalled = "compensate"
	// StalledHalt parks it for a person.
	StalledHalt OnStalled = "halt"
)

const (
	leaseMargin  = 2 * time.Second // between the end of a lease and its being taken over
	maxWorkerLen = 100
	year         = 365 * 24 * time.Hour
)

func (cfg *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: Config."+format, append([]any{ErrInvalid}, args...)...))
	}
	if cfg.Store == nil {
		bad("Store is required")
	}
	if cfg.Workers < 0 || cfg.Workers > 10_000 {
		bad("Workers is %d, want 0 to 10000", cfg.Workers)
	}
	if len(cfg.Worker) > maxWorkerLen || !cleanText(cfg.Worker) {
		bad("Worker must be valid UTF-8 without NUL of at most %d bytes", maxWorkerLen)
	}
	span := func(name string, d, least time.Duration) {
		if d != 0 && (d < least || d > year) {
			bad("%s is %v, want %v to %v", name, d, least, year)
		}
	}
	span("Lease", cfg.Lease, time.Second)
	if cfg.StepTimeout != NoTimeout {
		span("StepTimeout", cfg.StepTimeout, time.Millisecond)
	}
	span("ChainFor", cfg.ChainFor, 0)
	span("SweepEvery", cfg.SweepEvery, time.Millisecond)
	span("PickupWithin", cfg.PickupWithin, time.Millisecond)
	span("Grace", cfg.Grace, time.Millisecond)
	span("BacklogPatience", cfg.BacklogPatience, time.Second)
	if cfg.MaxResumes < 0 || cfg.MaxResumes > 1_000_000 {
		bad("MaxResumes is %d, want 0 to 1000000", cfg.MaxResumes)
	}
	if cfg.BacklogThreshold < 0 {
		bad("BacklogThreshold is negative")
	}
	switch cfg.Handover {
	case "", HandoverChain, HandoverPublish:
	default:
		bad("Handover %q is neither chain nor publish", cfg.Handover)
	}
	switch cfg.OnStalled {
	case "", StalledCompensate, StalledHalt:
	default:
		bad("OnStalled %q is neither compensate nor halt", cfg.OnStalled)
	}
	for _, f := range middlewareFaults(cfg.Middleware) {
		bad("%s", f)
	}
	if cfg.Exclusive && cfg.Store != nil {
		if _, ok := store.As[store.Exclusiver](cfg.Store); !ok {
			bad("Exclusive needs a store that can be locked (store.Exclusiver)")
		}
	}
	for name, b := range cfg.Budgets {
		if !nameRule.MatchString(name) {
			bad("Budgets: name %s", nameFault(name))
		}
		for _, f := range b.faults() {
			bad("Budgets[%q].%s", name, f)
		}
	}
	if len(cfg.Budgets) > 0 && cfg.Store != nil {
		if _, ok := store.As[store.Cells](cfg.Store); !ok {
			bad("Budgets need a store with shared facts (store.Cells)")
		}
	}
	errs = append(errs, cfg.checkRetention())
	return errors.Join(errs...)
}

func (cfg *Config) fill() {
	if cfg.Retention != nil {
		r := *cfg.Retention
		cfg.Retention = &r
	}
	setDefault(&cfg.Workers, 10)
	setDefault(&cfg.Lease, 30*time.Second)
	setDefault(&cfg.StepTimeout, 5*time.Minute)
	setDefault(&cfg.ChainFor, time.Second)
	setDefault(&cfg.Handover, HandoverChain)
	setDefault(&cfg.SweepEvery, time.Second)
	setDefault(&cfg.PickupWithin, cfg.Lease)
	setDefault(&cfg.Grace, 20*time.Second)
	setDefault(&cfg.MaxResumes, 5)
	setDefault(&cfg.OnStalled, StalledCompensate)
	setDefault(&cfg.BacklogThreshold, 100)
	setDefault(&cfg.BacklogPatience, 2*time.Hour)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
