package amqp_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// patience bounds every wait of a test. A busy machine needs much of it only
// when a broker starts.
const patience = 90 * time.Second

// noLeaks fails the test when goroutines are left at its end. Those of the
// servers are not meant.
func noLeaks(t *testing.T) {
	t.Helper()
	testenv.AMQP(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, before,
			goleak.IgnoreAnyFunction("os/exec.(*Cmd).Wait"), goleak.IgnoreAnyFunction("os/exec.(*Cmd).watchCtx"),
			goleak.IgnoreAnyFunction("os.(*Process).Wait"))
	})
}

// within returns a ctx that ends with the test, or when patience does.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// A logbook is a log that can be read while it is written.
type logbook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// open opens a broker whose end the test sees to.
func open(t *testing.T, cfg amqp.Config) *amqp.Broker {
	t.Helper()
	if cfg.URLs == nil {
		cfg.URLs = []string{testenv.AMQP(t)}
	}
	if cfg.Prefix == "" {
		cfg.Prefix = testenv.Prefix(t)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Reconnect == 0 {
		cfg.Reconnect = time.Second
	}
	b, err := amqp.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(within(t, 10*time.Second)) })
	return b
}

func ready(t *testing.T, b *amqp.Broker) {
	t.Helper()
	if err := b.Ready(within(t, patience)); err != nil {
		t.Fatal(err)
	}
}

// events counts what an engine tells.
type events struct {
	mu  sync.Mutex
	all []saga.Event
}

func (e *events) observe(_ context.Context, ev saga.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) of(kind saga.EventKind) (out []saga.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		if ev.Kind == kind {
			out = append(out, ev)
		}
	}
	return out
}

type order struct {
	Done []string `json:"done,omitempty"`
}

// A rig is an engine with a store in memory that publishes to a broker.
type rig struct {
	t      *testing.T
	broker *amqp.Broker
	prefix string
	engine *saga.Engine
	orders *saga.Saga[order]
	events events
	end    func() // ends Run and waits for it
}

// step appends its name to the state.
func step(name string) saga.Step[order] {
	return saga.Step[order]{Name: name, Execute: func(_ context.Context, run *saga.Run[order]) error {
		run.State.Done = append(run.State.Done, name)
		return nil
	}}
}

func newRig(t *testing.T, acfg amqp.Config, cfg saga.Config, steps ...saga.Step[order]) *rig {
	t.Helper()
	if acfg.Prefix == "" {
		acfg.Prefix = testenv.Prefix(t)
	}
	r := &rig{t: t, prefix: acfg.Prefix, broker: open(t, acfg)}
	cfg.Publisher = r.broker
	cfg.Observe = r.events.observe
	cfg.Logger = slog.New(slog.DiscardHandler)
	if cfg.Store == nil {
		cfg.Store = memory.New()
	}
	var err error
	if r.engine, err = saga.New(cfg); err != nil {
		t.Fatal(err)
	}
	if len(steps) == 0 {
		steps = []saga.Step[order]{step("a"), step("b"), step("c")}
	}
	if r.orders, err = saga.Register(r.engine, saga.Definition[order]{Name: "order", Steps: steps}); err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs the engine with a consumer until the test ends, or r.end is called.
func (r *rig) run(cfg amqp.ConsumerConfig) {
	r.t.Helper()
	if cfg.Workers == nil {
		cfg.Workers = map[string]int{"default": 4}
	}
	c, err := amqp.NewConsumer(r.broker, r.engine, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.engine.Run(ctx, c) }()
	r.end = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				r.t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			r.t.Error("Run does not end")
		}
	})
	r.t.Cleanup(r.end)
}

// consuming waits until the partition's queue has a consumer.
func (r *rig) consuming(partition string) {
	r.t.Helper()
	ready(r.t, r.broker)
	eventually(r.t, "the queue has a consumer", func() bool {
		_, consumers, err := r.broker.Depth(r.t.Context(), partition)
		return err == nil && consumers > 0
	})
}

// depth waits until the queue has that many ready messages and consumers.
func (r *rig) depth(wantReady, wantConsumers int) {
	r.t.Helper()
	var ready, consumers int
	var err error
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the last depth is %d ready, %d consumers, %v", ready, consumers, err)
		}
	}()
	eventually(r.t, "the queue has the wanted depth", func() bool {
		ready, consumers, err = r.broker.Depth(r.t.Context(), "default")
		return err == nil && ready == wantReady && consumers == wantConsumers
	})
}

func (r *rig) start(opts *saga.StartOptions) uuid.UUID {
	r.t.Helper()
	x, err := r.orders.Start(r.t.Context(), saga.Resource{Type: "order", ID: "1"}, order{}, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return x.ID
}

func (r *rig) completed(id uuid.UUID) *saga.Execution {
	r.t.Helper()
	x, err := r.engine.Wait(within(r.t, patience), id)
	if err != nil {
		r.t.Fatalf("wait: %v; the execution is %+v", err, x)
	}
	if x.Status != store.StatusCompleted {
		r.t.Fatalf("the execution is %s, want completed", x.Status)
	}
	return x
}

// raw is a channel beside everything, to look into the broker.
func raw(t *testing.T, url string) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// spy gets a copy of every message of the exchange with that key.
func (r *rig) spy(key string) <-chan amqp091.Delivery {
	r.t.Helper()
	ch := raw(r.t, testenv.AMQP(r.t))
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err == nil {
		err = ch.QueueBind(q.Name, key, r.prefix, false, nil)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	d, err := ch.Consume(q.Name, "", true, true, false, false, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

// take takes one message, waiting for it.
func take(t *testing.T, ch *amqp091.Channel, queue string) amqp091.Delivery {
	t.Helper()
	var d amqp091.Delivery
	eventually(t, "a message in "+queue, func() bool {
		var ok bool
		var err error
		if d, ok, err = ch.Get(queue, true); err != nil {
			t.Fatal(err)
		}
		return ok
	})
	return d
}

// pointer is one that makes sense to nobody in particular.
func pointer() saga.Pointer {
	return saga.Pointer{
		V: saga.PointerVersion, Store: uuid.New(), Execution: uuid.New(), Saga: "order", Step: "a",
		Direction: store.DirectionExecute, Epoch: 1, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// reports collects what a broker reports.
type reports chan string

func (r reports) report(partition string, p saga.Pointer, kind saga.EventKind, err error) {
	r <- fmt.Sprintf("%s %s %v", partition, kind, err)
}

func (r reports) want(t *testing.T, parts ...string) {
	t.Helper()
	select {
	case got := <-r:
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("reported %q, want %q in it", got, part)
			}
		}
	case <-time.After(patience):
		t.Fatalf("nothing is reported, want %q", parts)
	}
}
