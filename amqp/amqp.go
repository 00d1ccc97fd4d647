// Package amqp carries pointers over RabbitMQ, or another broker that speaks
// AMQP 0-9-1: a [Broker] publishes them, a [Consumer] takes them from the
// queues and hands them to the engine.
//
//	broker, err := amqp.Open(ctx, amqp.Config{URLs: []string{"amqp://leveret:secret@rabbit/"}})
//	engine, err := saga.New(saga.Config{Store: store, Publisher: broker})
//	consumer, err := amqp.NewConsumer(broker, engine, amqp.ConsumerConfig{
//		Workers: map[string]int{"default": 10},
//	})
//	err = engine.Run(ctx, consumer)
//	err = broker.Close(ctx)
//
// The broker may be away: when the service starts, for a while, or for ever.
// Nothing waits for it, nothing is lost, and what it lost itself comes due
// again: the store knows all that is to be done. While it is away, or refuses
// to be published to, consumers work the store directly.
//
// # What is in the broker
//
// With the prefix "saga": the topic exchange "saga", to which a pointer goes
// with the key execute.<partition>.<saga>; one queue for each partition,
// "saga.execute.<partition>", bound with execute.<partition>.#; and the fanout
// exchange "saga.dead" with the queue of the same name, for messages that
// nobody can make sense of, and commands that were refused. Status events go to
// the exchange with the key event.<saga>.<status>; a consumer with
// [ConsumerConfig].Commands takes commands from the queue "saga.commands", bound with
// command. There are no delays and no retries in the broker:
// they are due times in the store. [Plan] prints all of it. Who declares it is
// [Config.Topology]. Services with stores of their own need prefixes of their
// own: a pointer of another store is put aside.
//
// # Permissions
//
// A user who declares needs configure, write and read on ^saga(\..*)?$. One
// that works on what others have declared ([Verify]) needs write on
// ^saga(\.dead)?$ and read on ^saga\.execute\..*$; one that only starts sagas
// needs write on ^saga$. One that takes commands needs read on ^saga\.commands$
// besides, and write on ^amq\.default$ to answer. An [Admin] that lists, replays or purges dead letters
// needs read on ^saga\.dead$ and write on ^saga(\.dead)?$.
package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/leveret-go/leveret/saga"
)

// A Broker publishes pointers. It keeps one connection for that and makes a new
// one whenever it is lost; each [Consumer] has one of its own. Make one with
// [Open], for one engine, and close it when that engine's Run has returned. All
// methods are safe for concurrent use.
//
// It is a [saga.Publisher], [saga.EventPublisher], [saga.DepthProber],
// [saga.Connector] and [saga.Reporter].
type Broker struct {
	cfg    Config
	layout layout

	state   watched[state]
	answers watched[struct{}]       // set whenever a connection of the process gets through
	live    atomic.Pointer[outlet]  // nil while there is no session to publish on
	current atomic.Pointer[session] // the session that is to be killed when Close must end
	report  atomic.Pointer[func(partition string, p saga.Pointer, kind saga.EventKind, err error)]

	closing atomic.Bool
	stop    context.CancelFunc
	done    chan struct{}  // closed when the supervisor has ended
	probes  sync.WaitGroup // calls of Depth that outlive their caller's patience
}

var (
	_ saga.Publisher      = (*Broker)(nil)
	_ saga.EventPublisher = (*Broker)(nil)
	_ saga.DepthProber    = (*Broker)(nil)
	_ saga.Connector      = (*Broker)(nil)
	_ saga.Reporter       = (*Broker)(nil)
)

// A state says whether pointers can be published now, and if not, the last
// reason.
type state struct {
	connected bool
	err       error
}

var (
	// ErrAway: there is no connection to the broker now.
	ErrAway = errors.New("amqp: the broker is away")
	// ErrBlocked: the broker takes no messages now, for want of memory or disk.
	ErrBlocked = errors.New("amqp: the broker is blocked by an alarm")
	// ErrBusy: as many pointers are under way as Config.Window allows.
	ErrBusy = errors.New("amqp: too many pointers are under way")
	// ErrClosed: the Broker was closed.
	ErrClosed = errors.New("amqp: broker is closed")
	// ErrMisconfigured: the broker answered, and refused for a reason that
	// only a person can mend: a wrong password, a virtual host that does not
	// exist, a missing permission, a queue that exists with other arguments.
	// It is tried again after a second, then ever more rarely, down to twice a
	// minute: a broker that is starting refuses for a moment what it has not
	// got ready yet.
	ErrMisconfigured = errors.New("amqp: refused")
)

// Open checks cfg, with all faults in one error that wraps [saga.ErrInvalid],
// and returns a Broker that connects in the background. It waits for nothing:
// see [Broker.Ready]. ctx gives its values to Config.Auth, not its end.
func Open(ctx context.Context, cfg Config) (*Broker, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.fill()
	b := &Broker{cfg: cfg, layout: layoutOf(&cfg), done: make(chan struct{})}
	b.state.set(state{err: ErrAway})
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	l := newLink(&b.cfg, &b.answers, "publish", b.publishOn, func(err error) { b.state.set(state{err: err}) })
	l.current = &b.current
	go func() {
		defer close(b.done)
		l.run(ctx)
	}()
	return b, nil
}

// Ready returns nil when pointers can be published: connected, and the topology
// declared or found. It returns the last error when ctx is done, and at once
// when it is an [ErrMisconfigured]; the Broker goes on trying all the same.
func (b *Broker) Ready(ctx context.Context) error {
	for {
		s, changed := b.state.get()
		switch {
		case b.closing.Load():
			return ErrClosed
		case s.connected:
			return nil
		case errors.Is(s.err, ErrMisconfigured):
			return s.err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("amqp: wait for the broker: %w: %w", ctx.Err(), s.err)
		}
	}
}

// Connected reports whether pointers can be published now: there is a session
// and no alarm of the broker blocks it.
func (b *Broker) Connected() bool {
	s, _ := b.state.get()
	return s.connected && !b.closing.Load()
}

// Report sets the function that is told what became of pointers: those that the
// broker returned because no queue takes them (EventPointerUnroutable), those
// that it refused or that were under way when the connection was lost
// (EventPointerUnpublished; they may have arrived), and messages that a
// consumer put aside without their having reached the engine
// (EventPointerDead). [saga.New] calls it; the last call counts.
func (b *Broker) Report(report func(partition string, p saga.Pointer, kind saga.EventKind, err error)) {
	b.report.Store(&report)
}

func (b *Broker) tell(partition string, p saga.Pointer, kind saga.EventKind, err error) {
	if report := b.report.Load(); report != nil {
		(*report)(partition, p, kind, err)
	}
}

// Close publishes what is queued, waits for the broker's confirmations, and
// closes the connection. When ctx ends first it closes the socket. Pointers that
// are left unconfirmed, then or because the broker is away, are reported and
// make it return an error. Nothing of the Broker runs when it has returned. A
// second call does nothing and returns nil.
func (b *Broker) Close(ctx context.Context) error {
	if !b.closing.CompareAndSwap(false, true) {
		return nil
	}
	out := b.live.Load()
	if out != nil {
		close(out.flush)
		select {
		case <-out.over:
		case <-ctx.Done():
		}
	}
	b.stop()
	release := context.AfterFunc(ctx, func() {
		if s := b.current.Load(); s != nil {
			s.kill()
		}
	})
	defer release()
	<-b.done
	b.probes.Wait()
	b.state.set(state{err: ErrClosed})
	if out != nil && out.left > 0 {
		return fmt.Errorf("amqp: close: %d pointers are unconfirmed: %w", out.left, errors.Join(ctx.Err(), errUnconfirmed))
	}
	return nil
}

// watched is a value whose changes can be waited for.
type watched[T any] struct {
	mu      sync.Mutex
	v       T
	changed chan struct{}
}

// get returns the value, and a channel that is closed when it is set again.
func (w *watched[T]) get() (T, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.v, w.changed
}

func (w *watched[T]) set(v T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.v = v
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}
