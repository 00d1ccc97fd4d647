//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
	"github.com/leveret-go/leveret/store/sqlite"
)

// envWorker makes the test binary a worker, with these settings.
const envWorker = "LEVERET_FAULTS_WORKER"

func TestMain(m *testing.M) {
	if raw := os.Getenv(envWorker); raw != "" {
		os.Exit(workerMain(raw))
	}
	os.Exit(m.Run())
}

// settings are those of a worker.
type settings struct {
	Name         string
	Store        string // a DSN, or sqlite: and a path
	Postgres     *postgres.Config
	AMQP         string // "": the worker works the store
	Prefix       string
	Participants string

	Lease       time.Duration // 2 s
	Sweep       time.Duration // 500 ms
	Grace       time.Duration // 10 s
	StepTimeout time.Duration // 5 s
	ChainFor    time.Duration
	Handover    saga.Handover
	MaxResumes  int
	Workers     int           // for each partition, and connections to the database; 4
	Partitions  []string      // default
	Step        time.Duration // that a step takes; 20 ms
	SlowStep    time.Duration // that a slow one takes; 400 ms
	Heartbeat   time.Duration // of the broker; 2 s
	Timeout     time.Duration // of the broker; 5 s
	AckAfter    time.Duration // of the consumer
	Topology    amqp.Topology
	Queues      amqp.Queues
	Exclusive   bool

	// ClockOff is how much the clock is off that the engine is given as Config.Now; 0: it follows
	// the store's.
	ClockOff time.Duration
	// StoreClockOff is how much the store's clock is off from this machine's.
	StoreClockOff time.Duration
	// DieInPublish makes the process kill itself when it is to publish a pointer to this step for
	// the third time: what it publishes for has been written by then.
	DieInPublish string
}

func (s settings) filled() settings {
	setDefault(&s.Lease, 2*time.Second)
	setDefault(&s.Sweep, 500*time.Millisecond)
	setDefault(&s.Grace, 10*time.Second)
	setDefault(&s.StepTimeout, 5*time.Second)
	setDefault(&s.Workers, 4)
	setDefault(&s.Step, 20*time.Millisecond)
	setDefault(&s.SlowStep, 400*time.Millisecond)
	setDefault(&s.Heartbeat, 2*time.Second)
	setDefault(&s.Timeout, 5*time.Second)
	if s.Partitions == nil {
		s.Partitions = []string{"default"}
	}
	return s
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// A parting is what a worker says at its end.
type parting struct {
	Error string // of Run, and of what was closed after it
	Leaks string // goroutines that are left
}

// workerMain is a worker process. Its first SIGTERM drains it; it ends with 0 when all is in order.
func workerMain(raw string) int {
	var s settings
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		fmt.Fprintln(os.Stderr, "settings:", err)
		return 2
	}
	before := goleak.IgnoreCurrent()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var p parting
	st, closeStore, err := openStore(ctx, s)
	if err == nil {
		err = errors.Join(runWorker(ctx, s, st, log), closeStore())
	}
	stop()
	if err != nil {
		p.Error = err.Error()
	}
	// The goroutine that hands out signals lives as long as the process.
	if err := goleak.Find(before, goleak.IgnoreAnyFunction("os/signal.loop")); err != nil {
		p.Leaks = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(p); err != nil || p != (parting{}) {
		return 1
	}
	return 0
}

// openStore opens a store as a service would. PostgreSQL need not answer.
func openStore(ctx context.Context, s settings) (store.Store, func() error, error) {
	if path, ok := strings.CutPrefix(s.Store, "sqlite:"); ok {
		st, err := sqlite.Open(ctx, path, nil)
		if err != nil {
			return nil, nil, err
		}
		return st, st.Close, nil
	}
	cfg, err := pgxpool.ParseConfig(s.Store)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = int32(s.Workers * len(s.Partitions))
	cfg.ConnConfig.RuntimeParams["application_name"] = s.Name
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, nil, err
	}
	st, err := postgres.New(pool, s.Postgres)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return st, func() error {
		defer pool.Close()
		return st.Close()
	}, nil
}

// runWorker runs an engine on a store until ctx ends, and closes all that it made.
func runWorker(ctx context.Context, s settings, st store.Store, log *slog.Logger) (err error) {
	p := newClient(s.Participants, s.Name)
	defer p.close()
	if s.StoreClockOff != 0 {
		st = &offClock{Store: st, off: s.StoreClockOff}
	}
	cfg := saga.Config{
		Store: st, Worker: s.Name, Lease: s.Lease, SweepEvery: s.Sweep, Grace: s.Grace, StepTimeout: s.StepTimeout,
		ChainFor: s.ChainFor, Handover: s.Handover, MaxResumes: s.MaxResumes, Workers: s.Workers, Exclusive: s.Exclusive,
		Logger: log,
	}
	if s.ClockOff != 0 {
		cfg.Now = func() time.Time { return time.Now().Add(s.ClockOff) }
	}
	var broker *amqp.Broker
	if s.AMQP != "" {
		if broker, err = openBroker(ctx, s, log); err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Timeout)
			defer cancel()
			// Pointers may be unconfirmed when the broker is away: they come due again.
			if e := broker.Close(ctx); e != nil {
				log.Warn("close the broker", "error", e)
			}
		}()
		cfg.Publisher = broker
		if s.DieInPublish != "" {
			cfg.Publisher = &dyingPublisher{Broker: broker, at: s.DieInPublish}
		}
	}
	e, err := saga.New(cfg)
	if err != nil {
		return err
	}
	if _, err := saga.Register(e, checkout(s, p)); err != nil {
		return err
	}
	var consumers []saga.Runner
	if broker != nil {
		workers := map[string]int{}
		for _, partition := range s.Partitions {
			workers[partition] = s.Workers
		}
		c, err := amqp.NewConsumer(broker, e, amqp.ConsumerConfig{Workers: workers, AckAfter: s.AckAfter})
		if err != nil {
			return err
		}
		consumers = append(consumers, c)
	}
	if err := p.hello(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return e.Run(ctx, consumers...)
}

func openBroker(ctx context.Context, s settings, log *slog.Logger) (*amqp.Broker, error) {
	return amqp.Open(ctx, amqp.Config{
		URLs: []string{s.AMQP}, Prefix: s.Prefix, Name: s.Name, Heartbeat: s.Heartbeat, Timeout: s.Timeout,
		Topology: s.Topology, Queues: s.Queues, Logger: log,
	})
}

// dyingPublisher kills its process.
type dyingPublisher struct {
	*amqp.Broker
	at    string
	calls atomic.Int64
}

func (p *dyingPublisher) Publish(ctx context.Context, partition string, x saga.Pointer) error {
	if x.Step == p.at && p.calls.Add(1) == 3 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		<-ctx.Done() // a little later the process is gone
	}
	return p.Broker.Publish(ctx, partition, x)
}

// offClock is a store on a machine whose clock is off.
type offClock struct {
	store.Store
	off time.Duration
}

func (s *offClock) Unwrap() store.Store { return s.Store }

func (s *offClock) Now(ctx context.Context) (time.Time, error) {
	t, err := s.Store.Now(ctx)
	return t.Add(s.off), err
}
