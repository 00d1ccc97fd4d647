package inproc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/inproc"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

type order struct {
	N int `json:"n"`
}

type step = saga.Step[order]

func work(d time.Duration) saga.Func[order] {
	return func(ctx context.Context, run *saga.Run[order]) error {
		select {
		case <-time.After(d):
			run.State.N++
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// setUp returns an engine with a broker, and a consumer of the given workers.
func setUp(t *testing.T, st store.Store, queue int, workers map[string]int, defs ...saga.AnyDefinition) (*inproc.Broker, *saga.Engine, *inproc.Consumer) {
	t.Helper()
	b := inproc.New(&inproc.Config{Queue: queue})
	e, err := saga.New(saga.Config{Store: st, Publisher: b, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.RegisterAll(defs...); err != nil {
		t.Fatal(err)
	}
	c, err := inproc.NewConsumer(b, e, inproc.ConsumerConfig{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	return b, e, c
}

// start starts n executions of a saga of orders.
func start(t *testing.T, e *saga.Engine, name saga.Name[order], partition string, n int) (ids []uuid.UUID) {
	t.Helper()
	s, err := saga.Declare(e, name, &saga.DeclareOptions{Partition: partition})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		x, err := s.Start(t.Context(), saga.Resource{}, order{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, x.ID)
	}
	return ids
}

// run runs an engine with consumers until f has returned; all goroutines of
// the bubble must end then.
func run(t *testing.T, e *saga.Engine, f func(ctx context.Context), consumers ...saga.Runner) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, consumers...) }()
	f(ctx)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestEveryPartitionHasItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		count := func(ctx context.Context, run *saga.Run[order]) error {
			mu.Lock()
			now[run.Partition]++
			most[run.Partition] = max(most[run.Partition], now[run.Partition])
			mu.Unlock()
			err := work(time.Second)(ctx, run)
			mu.Lock()
			now[run.Partition]--
			mu.Unlock()
			return err
		}
		d := saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "a", Execute: count}, {Name: "b", Execute: count, Isolated: true}}}
		_, e, c := setUp(t, memory.New(), 0, map[string]int{"default": 3, "mail": 1}, d)
		if got, want := c.Workers(), 4; got != want {
			t.Errorf("Workers %d, want %d", got, want)
		}
		if got, want := c.Partitions(), map[string]int{"default": 3, "mail": 1}; !maps.Equal(got, want) {
			t.Errorf("Partitions %v, want %v", got, want)
		}
		run(t, e, func(ctx context.Context) {
			ids := append(start(t, e, "checkout", "default", 9), start(t, e, "checkout", "mail", 3)...)
			for _, id := range ids {
				x, err := e.Wait(ctx, id)
				if err != nil || x.Status != store.StatusCompleted || string(x.State) != `{"n":2}` {
					t.Errorf("execution: %+v, %v", x, err)
				}
			}
		}, c)
		if most["default"] != 3 || most["mail"] != 1 {
			t.Errorf("steps at once: %v, want default 3, mail 1", most)
		}
	})
}

// What a full queue refuses comes due again; nothing is taken for lost, given
// up and compensated because of it.
func TestFullQueueLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int64
		d := saga.Definition[order]{Name: "checkout", Steps: []step{{
			Name: "a",
			Execute: func(ctx context.Context, run *saga.Run[order]) error {
				attempts.Add(1)
				return work(3*time.Second)(ctx, run)
			},
			Compensate: work(0),
		}}}
		b, e, c := setUp(t, memory.New(), 1, map[string]int{"default": 2}, d)
		if err := b.Publish(t.Context(), "full", saga.Pointer{}); err != nil {
			t.Fatal(err)
		}
		if err := b.Publish(t.Context(), "full", saga.Pointer{}); !errors.Is(err, inproc.ErrFull) {
			t.Fatalf("Publish to a full queue: %v", err)
		}
		run(t, e, func(ctx context.Context) {
			for _, id := range start(t, e, "checkout", "default", 200) {
				x, err := e.Wait(ctx, id)
				if err != nil || x.Status != store.StatusCompleted {
					t.Fatalf("execution: %v, %v", x.Status, err)
				}
			}
		}, c)
		if got := attempts.Load(); got != 200 {
			t.Errorf("%d attempts for 200 executions", got)
		}
	})
}

func TestDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, e, c := setUp(t, memory.New(), 5, map[string]int{"default": 1},
			saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "a", Execute: work(time.Second)}}})
		depth := func(wantReady, wantConsumers int) {
			t.Helper()
			ready, consumers, err := b.Depth(t.Context(), "default")
			if err != nil || ready != wantReady || consumers != wantConsumers {
				t.Errorf("depth %d, %d, %v; want %d, %d", ready, consumers, err, wantReady, wantConsumers)
			}
		}
		depth(0, 0)
		ids := start(t, e, "checkout", "default", 5)
		depth(5, 0)
		if err := b.Publish(t.Context(), "default", saga.Pointer{}); !errors.Is(err, inproc.ErrFull) {
			t.Errorf("Publish to a full queue: %v", err)
		}
		if _, _, err := b.Depth(t.Context(), "default"); err == nil {
			t.Error("the depth is known although a pointer was refused")
		}
		depth(5, 0)
		run(t, e, func(ctx context.Context) {
			synctest.Wait()
			depth(4, 1)
			for _, id := range ids {
				if _, err := e.Wait(ctx, id); err != nil {
					t.Error(err)
				}
			}
			depth(0, 1)
		}, c)
		depth(0, 0)
	})
}

// A step that runs when ctx ends is finished; nothing more is begun, and what
// is queued stays queued.
func TestRunDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		d := saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "a", Execute: work(2 * time.Second)}, {Name: "b", Execute: work(time.Second)}}}
		b, e, c := setUp(t, st, 0, map[string]int{"default": 1}, d)
		var ids []uuid.UUID
		begun := time.Now()
		run(t, e, func(ctx context.Context) {
			ids = start(t, e, "checkout", "default", 3)
			synctest.Wait()
		}, c)
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("Run took %v to drain, want the 2 s of the running step", took)
		}
		if x, err := st.Get(t.Context(), ids[0]); err != nil || x.Step != "b" || x.Attempt != nil {
			t.Errorf("execution at %q, attempt %v, %v; want at b without one", x.Step, x.Attempt, err)
		}
		if ready, _, err := b.Depth(t.Context(), "default"); ready != 3 || err != nil {
			t.Errorf("%d pointers queued, want 2 and the hand-over; %v", ready, err)
		}
		run(t, e, func(ctx context.Context) {
			for _, id := range ids {
				if x, err := e.Wait(ctx, id); err != nil || x.Status != store.StatusCompleted {
					t.Errorf("execution %v, %v", x.Status, err)
				}
			}
		}, c)
	})
}

// down is a store that can be made to fail.
type down struct {
	store.Store
	is    atomic.Bool
	calls atomic.Int64
}

var errDown = errors.New("the store is down")

func (s *down) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	s.calls.Add(1)
	if s.is.Load() {
		return nil, errDown
	}
	return s.Store.WithLock(ctx, id, fn)
}

func TestStoreOutageDoesNotDrainTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &down{Store: memory.New()}
		d := saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "a", Execute: work(0)}}}
		b, e, c := setUp(t, st, 0, map[string]int{"default": 2}, d)
		run(t, e, func(ctx context.Context) {
			st.is.Store(true)
			ids := start(t, e, "checkout", "default", 20)
			<-time.After(10 * time.Minute)
			if ready, _, err := b.Depth(ctx, "default"); err != nil || ready < 18 {
				t.Errorf("%d pointers are left of 20, %v", ready, err)
			}
			if n := st.calls.Load(); n > 10*60*5 {
				t.Errorf("%d calls of the store in 10 minutes", n)
			}
			st.is.Store(false)
			for _, id := range ids {
				if x, err := e.Wait(ctx, id); err != nil || x.Status != store.StatusCompleted {
					t.Errorf("execution %v, %v", x, err)
				}
			}
		}, c)
	})
}

func TestRunOutsideOfEngineRunIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "a", Execute: work(0)}}}
		b, e, c := setUp(t, memory.New(), 0, map[string]int{"default": 2, "mail": 1}, d)
		start(t, e, "checkout", "default", 1)
		if err := c.Run(t.Context()); !errors.Is(err, saga.ErrNotRunning) {
			t.Errorf("Run: %v, want ErrNotRunning", err)
		}
		if ready, consumers, err := b.Depth(t.Context(), "default"); ready != 1 || consumers != 0 || err != nil {
			t.Errorf("depth %d, %d, %v; want the pointer back", ready, consumers, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		b2, e2, c2 := setUp(t, memory.New(), 0, map[string]int{"default": 1}, d)
		_, _ = b2, e2
		go func() { done <- c2.Run(ctx) }()
		synctest.Wait()
		if err := c2.Run(ctx); !errors.Is(err, saga.ErrRunning) {
			t.Errorf("second Run: %v, want ErrRunning", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestNewConsumerListsAllFaults(t *testing.T) {
	_, err := inproc.NewConsumer(nil, nil, inproc.ConsumerConfig{Workers: map[string]int{"a.b": 1, "ok": 0, "": 1}})
	if !errors.Is(err, saga.ErrInvalid) {
		t.Fatalf("error %v, want ErrInvalid", err)
	}
	for _, want := range []string{"broker is nil", "engine is nil", `partition "a.b"`, `Workers["ok"] is 0`, `partition ""`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	e, err := saga.New(saga.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inproc.NewConsumer(inproc.New(nil), e, inproc.ConsumerConfig{}); err == nil || !strings.Contains(err.Error(), "names no partition") {
		t.Errorf("error %v", err)
	}
}

func Example() {
	type order struct {
		Paid bool `json:"paid"`
	}
	broker := inproc.New(nil)
	engine, err := saga.New(saga.Config{Store: memory.New(), Publisher: broker})
	if err != nil {
		panic(err)
	}
	checkout, err := saga.Register(engine, saga.Definition[order]{
		Name: "checkout",
		Steps: []saga.Step[order]{{
			Name: "charge",
			Execute: func(ctx context.Context, run *saga.Run[order]) error {
				run.State.Paid = true
				return nil
			},
		}},
	})
	if err != nil {
		panic(err)
	}
	consumer, err := inproc.NewConsumer(broker, engine, inproc.ConsumerConfig{Workers: map[string]int{"default": 10}})
	if err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- engine.Run(ctx, consumer) }()

	x, err := checkout.Start(ctx, saga.Resource{Type: "order", ID: "4711"}, order{}, nil)
	if err != nil {
		panic(err)
	}
	y, err := engine.Wait(ctx, x.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(y.Status, string(y.State))
	stop()
	fmt.Println(<-done)
	// Output:
	// completed {"paid":true}
	// <nil>
}
