package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

func TestSagasCompleteOverTheBroker(t *testing.T) {
	for _, queues := range []amqp.Queues{amqp.Classic, amqp.Quorum} {
		t.Run(string(queues), func(t *testing.T) {
			noLeaks(t)
			r := newRig(t, amqp.Config{Queues: queues}, saga.Config{Handover: saga.HandoverPublish, PickupWithin: time.Hour})
			r.run(amqp.ConsumerConfig{Workers: map[string]int{"default": 3, "eu": 1}})
			r.consuming("default")
			r.consuming("eu")
			var ids []uuid.UUID
			for i := range 20 {
				ids = append(ids, r.start(&saga.StartOptions{Partition: []string{"default", "eu"}[i%2]}))
			}
			for _, id := range ids {
				if x := r.completed(id); string(x.State) != `{"done":["a","b","c"]}` {
					t.Errorf("the state is %s", x.State)
				}
			}
			r.end()
			for _, p := range []string{"default", "eu"} {
				eventually(t, "everything is acknowledged", func() bool {
					ready, consumers, err := r.broker.Depth(t.Context(), p)
					return err == nil && ready == 0 && consumers == 0
				})
			}
			if n := len(r.events.of(saga.EventPointerDead)); n > 0 {
				t.Errorf("%d pointers were put aside", n)
			}
		})
	}
}

// TestEveryStepTravelsAsPointer: with Handover Publish every step, and every
// retry of one, is a pointer of its own, and nothing else is published.
func TestEveryStepTravelsAsPointer(t *testing.T) {
	noLeaks(t)
	var tries atomic.Int32
	flaky := saga.Step[order]{
		Name:  "b",
		Retry: saga.RetryPolicy{Attempts: 3, Initial: 5 * time.Millisecond, Max: 5 * time.Millisecond},
		Execute: func(context.Context, *saga.Run[order]) error {
			if tries.Add(1) < 3 {
				return errors.New("not yet")
			}
			return nil
		},
	}
	r := newRig(t, amqp.Config{}, saga.Config{Handover: saga.HandoverPublish, PickupWithin: time.Hour}, step("a"), flaky, step("c"))
	r.run(amqp.ConsumerConfig{})
	r.consuming("default")
	seen := r.spy("execute.#")
	id := r.start(nil)
	r.completed(id)
	r.end()
	if err := r.broker.Close(within(t, patience)); err != nil { // all is confirmed
		t.Fatal(err)
	}
	// The spy's queue got its copies before those confirmations.
	raw(t, testenv.AMQP(t)).Publish(r.prefix, "execute.the.end", false, false, amqp091.Publishing{Type: "end"})
	var got []string
	for {
		select {
		case d := <-seen:
			if d.Type == "end" {
				if want := []string{"a", "b", "b", "b", "c"}; !slices.Equal(got, want) {
					t.Errorf("pointers to %v were published, want %v", got, want)
				}
				return
			}
			p, err := amqp.Decode(d.Body)
			if err != nil || p.Execution != id {
				t.Errorf("a pointer to %v: %v", p, err)
			}
			got = append(got, p.Step)
		case <-time.After(patience):
			t.Fatalf("the end does not come; got %v", got)
		}
	}
}

func TestQueueDeletedWhileConsuming(t *testing.T) {
	noLeaks(t)
	r := newRig(t, amqp.Config{}, saga.Config{PickupWithin: time.Second, Lease: time.Second})
	r.run(amqp.ConsumerConfig{})
	r.consuming("default")
	r.completed(r.start(nil))
	if _, err := raw(t, testenv.AMQP(t)).QueueDelete(r.prefix+".execute.default", false, false, false); err != nil {
		t.Fatal(err)
	}
	id := r.start(nil)
	r.consuming("default")
	r.completed(id)
}

func TestDeadLettersSayWhy(t *testing.T) {
	noLeaks(t)
	block := make(chan struct{})
	waiting := saga.Step[order]{Name: "a", Execute: func(context.Context, *saga.Run[order]) error { <-block; return nil }}
	r := newRig(t, amqp.Config{}, saga.Config{}, waiting)
	r.run(amqp.ConsumerConfig{})
	r.consuming("default")
	id := r.start(nil)
	defer close(block)
	storeID, err := r.engine.Store().ID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ch := raw(t, testenv.AMQP(t))
	good := fmt.Sprintf(`{"v":1,"store":"%s","execution":"%s","saga":"order","step":"a","direction":"execute","epoch":%%d}`, storeID, id)
	for _, row := range []struct{ reason, body string }{
		{"malformed", "\xff not json"},
		{"malformed", strings.Repeat("x", 1<<20)},
		{"malformed", ""},
		{saga.DeadFutureEpoch, fmt.Sprintf(good, 99)},
		{saga.DeadForeignStore, strings.Replace(fmt.Sprintf(good, 0), storeID.String(), uuid.NewString(), 1)},
		{saga.DeadVersion, strings.Replace(fmt.Sprintf(good, 0), `"v":1`, `"v":2`, 1)},
	} {
		deep := amqp091.Table{"a": amqp091.Table{"b": "c"}, "saga-step": "a", "x-mine": "x"}
		if err := ch.Publish(r.prefix, "execute.default.order", false, false, amqp091.Publishing{Body: []byte(row.body), MessageId: "m1", Headers: deep}); err != nil {
			t.Fatal(err)
		}
		d := take(t, ch, r.prefix+".dead")
		if d.Headers["saga-reason"] != row.reason || d.Headers["saga-partition"] != "default" || d.Headers["saga-message"] != "m1" || d.Headers["saga-step"] != "a" {
			t.Errorf("headers %v, want reason %s", d.Headers, row.reason)
		}
		if len(row.body) > 16<<10 {
			if len(d.Body) != 16<<10 || d.Headers["saga-size"] != int64(len(row.body)) {
				t.Errorf("%d bytes are left of %d, with headers %v", len(d.Body), len(row.body), d.Headers)
			}
		} else if string(d.Body) != row.body {
			t.Errorf("the body became %q", d.Body)
		}
	}
	if n := len(r.events.of(saga.EventPointerDead)); n != 6 {
		t.Errorf("%d pointers are reported dead, want 6", n)
	}
}

// TestEarlyAck: with one worker that stays busy beyond AckAfter, its delivery is
// acknowledged and the queue has no consumer, so that its depth tells the truth;
// with the worker free again, it has one.
func TestEarlyAck(t *testing.T) {
	noLeaks(t)
	began, finish := make(chan struct{}, 10), make(chan struct{})
	slow := saga.Step[order]{Name: "a", Execute: func(context.Context, *saga.Run[order]) error {
		began <- struct{}{}
		<-finish
		return nil
	}}
	r := newRig(t, amqp.Config{}, saga.Config{PickupWithin: time.Hour}, slow)
	r.run(amqp.ConsumerConfig{Workers: map[string]int{"default": 1}, AckAfter: 50 * time.Millisecond})
	r.consuming("default")
	first := r.start(nil)
	<-began
	second := r.start(nil)
	eventually(t, "the second pointer is ready, and nobody consumes", func() bool {
		ready, consumers, err := r.broker.Depth(t.Context(), "default")
		return err == nil && ready == 1 && consumers == 0
	})
	finish <- struct{}{}
	<-began
	finish <- struct{}{}
	r.completed(first)
	r.completed(second)
	if n := len(r.events.of(saga.EventPointerBusy)); n > 0 {
		t.Errorf("%d deliveries came twice", n)
	}
}

// TestPrefetchIsTheFreeWorkers: two of three workers were acknowledged early, so
// one more delivery may come, and no second one.
func TestPrefetchIsTheFreeWorkers(t *testing.T) {
	noLeaks(t)
	finish := make(chan struct{})
	var running atomic.Int32
	slow := saga.Step[order]{Name: "a", Execute: func(context.Context, *saga.Run[order]) error {
		running.Add(1)
		<-finish
		return nil
	}}
	r := newRig(t, amqp.Config{}, saga.Config{PickupWithin: time.Hour}, slow)
	r.run(amqp.ConsumerConfig{Workers: map[string]int{"default": 3}, AckAfter: 100 * time.Millisecond})
	r.consuming("default")
	ids := []uuid.UUID{r.start(nil), r.start(nil)}
	unacked := func() int { // what is not ready is with the consumer
		ready, _, err := r.broker.Depth(t.Context(), "default")
		if err != nil {
			return -1
		}
		return len(ids) - ready
	}
	for range 4 {
		ids = append(ids, r.start(nil))
	}
	eventually(t, "all three work and no consumer is left", func() bool {
		_, consumers, err := r.broker.Depth(t.Context(), "default")
		return err == nil && consumers == 0 && running.Load() == 3
	})
	if n := unacked(); n != 3 {
		t.Errorf("%d pointers have left the queue, want 3: one for each worker", n)
	}
	close(finish)
	for _, id := range ids {
		r.completed(id)
	}
}

// A failing store says no on command.
type failing struct {
	store.Store
	down  atomic.Bool
	calls atomic.Int32
}

func (f *failing) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if f.down.Load() {
		f.calls.Add(1)
		return nil, fmt.Errorf("with lock: %w", store.ErrInvalid)
	}
	return f.Store.WithLock(ctx, id, fn)
}

func TestFailingStorePausesInsteadOfDraining(t *testing.T) {
	noLeaks(t)
	s := &failing{Store: memory.New()}
	r := newRig(t, amqp.Config{}, saga.Config{Store: s, PickupWithin: time.Second, Lease: time.Second})
	r.run(amqp.ConsumerConfig{Workers: map[string]int{"default": 2}})
	r.consuming("default")
	s.down.Store(true)
	var ids []uuid.UUID
	for range 30 {
		ids = append(ids, r.start(nil))
	}
	eventually(t, "the partition pauses with a full queue", func() bool {
		ready, consumers, err := r.broker.Depth(t.Context(), "default")
		return err == nil && consumers == 0 && ready >= 20 && s.calls.Load() > 0
	})
	s.down.Store(false)
	for _, id := range ids {
		r.completed(id)
	}
}

func TestRunOutsideTheEngine(t *testing.T) {
	noLeaks(t)
	r := newRig(t, amqp.Config{}, saga.Config{})
	c, err := amqp.NewConsumer(r.broker, r.engine, amqp.ConsumerConfig{Workers: map[string]int{"default": 2, "eu": 3}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Workers() != 5 {
		t.Errorf("Workers is %d, want 5", c.Workers())
	}
	if got, want := c.Partitions(), map[string]int{"default": 2, "eu": 3}; !maps.Equal(got, want) {
		t.Errorf("Partitions is %v, want %v", got, want)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context()) }()
	r.consuming("default")
	if err := c.Run(t.Context()); !errors.Is(err, saga.ErrRunning) {
		t.Errorf("second Run: %v, want ErrRunning", err)
	}
	r.start(nil)
	if err := <-done; !errors.Is(err, saga.ErrNotRunning) {
		t.Errorf("Run: %v, want ErrNotRunning", err)
	}
	eventually(t, "the pointer is back in its queue", func() bool {
		ready, _, err := r.broker.Depth(t.Context(), "default")
		return err == nil && ready == 1
	})
}

// TestConnectionsCut: whatever is cut, again and again, all sagas end.
func TestConnectionsCut(t *testing.T) {
	noLeaks(t)
	proxy := newProxy(t, hostOf(testenv.AMQP(t)))
	r := newRig(t, amqp.Config{URLs: []string{"amqp://guest:guest@" + proxy.addr() + "/"}, Timeout: 2 * time.Second},
		saga.Config{PickupWithin: time.Second, Lease: time.Second, Handover: saga.HandoverPublish})
	r.run(amqp.ConsumerConfig{})
	r.consuming("default")
	var wg sync.WaitGroup
	var ids []uuid.UUID
	stop := make(chan struct{})
	wg.Go(func() {
		tick := time.NewTicker(150 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				proxy.cut()
			case <-stop:
				return
			}
		}
	})
	for range 100 {
		ids = append(ids, r.start(nil))
	}
	for _, id := range ids {
		r.completed(id)
	}
	close(stop)
	wg.Wait()
	r.consuming("default")
	r.completed(r.start(nil))
}

// TestShutdownFlushesAcks: what was worked on when Run ends is acknowledged,
// what was not begun is back in the queue.
func TestShutdownFlushesAcks(t *testing.T) {
	noLeaks(t)
	began, finish := make(chan struct{}, 10), make(chan struct{})
	slow := saga.Step[order]{Name: "a", Execute: func(context.Context, *saga.Run[order]) error {
		began <- struct{}{}
		<-finish
		return nil
	}}
	r := newRig(t, amqp.Config{}, saga.Config{PickupWithin: time.Hour}, slow)
	r.run(amqp.ConsumerConfig{Workers: map[string]int{"default": 2}})
	r.consuming("default")
	ids := []uuid.UUID{r.start(nil), r.start(nil), r.start(nil), r.start(nil)}
	<-began
	<-began
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.end()
	}()
	eventually(t, "nothing is consumed any more", func() bool {
		_, consumers, err := r.broker.Depth(t.Context(), "default")
		return err == nil && consumers == 0
	})
	close(finish)
	<-ended
	eventually(t, "two are left", func() bool {
		ready, _, err := r.broker.Depth(t.Context(), "default")
		return err == nil && ready == 2
	})
	n := 0
	for _, id := range ids {
		x, err := r.engine.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if x.Status == store.StatusCompleted {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d sagas are completed, want 2", n)
	}
}
