package amqp_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
)

// TestBrokerKilledUnderLoad: the broker is away at first, comes, is killed, and
// comes back, and sagas end all the while.
func TestBrokerKilledUnderLoad(t *testing.T) {
	node := testenv.NewRabbit(t)
	node.Stop(t)
	noLeaks(t)
	r := newRig(t, amqp.Config{URLs: []string{node.URL()}, Timeout: 3 * time.Second},
		saga.Config{PickupWithin: time.Second, Lease: 2 * time.Second, Handover: saga.HandoverPublish})
	r.run(amqp.ConsumerConfig{})
	for range 5 {
		r.completed(r.start(nil)) // without a broker
	}
	if r.broker.Connected() {
		t.Fatal("connected to a broker that is not there")
	}
	node.Start(t)
	r.consuming("default")
	before := len(r.events.of(saga.EventPointerUnpublished))
	r.completed(r.start(nil))
	if n := len(r.events.of(saga.EventPointerUnpublished)); n != before {
		t.Errorf("%d pointers were not published", n-before)
	}

	stop, started := make(chan struct{}), make(chan []uuid.UUID)
	go func() {
		var ids []uuid.UUID
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if x, err := r.orders.Start(context.Background(), saga.Resource{Type: "order", ID: "1"}, order{}, nil); err != nil {
					t.Error(err)
				} else {
					ids = append(ids, x.ID)
				}
			case <-stop:
				started <- ids
				return
			}
		}
	}()
	node.Kill(t)
	eventually(t, "the broker is known to be away", func() bool { return !r.broker.Connected() })
	node.Start(t)
	r.consuming("default")
	close(stop)
	ids := <-started
	for _, id := range ids {
		r.completed(id)
	}
	t.Logf("%d sagas were started around the crash; %d pointers were lost", len(ids), len(r.events.of(saga.EventPointerUnpublished)))
}

// TestAlarm: a broker that takes no messages.
func TestAlarm(t *testing.T) {
	node := testenv.NewRabbit(t, "vm_memory_high_watermark.absolute = 20MB")
	noLeaks(t)
	r := newRig(t, amqp.Config{URLs: []string{node.URL()}, Timeout: 2 * time.Second}, saga.Config{PickupWithin: time.Second, Lease: 2 * time.Second})
	r.run(amqp.ConsumerConfig{})
	// The broker says so when something is published.
	ready(t, r.broker)
	id := r.start(nil)
	eventually(t, "the alarm is known", func() bool { return !r.broker.Connected() })
	if err := r.broker.Publish(t.Context(), "default", pointer()); err != amqp.ErrBlocked {
		t.Errorf("Publish: %v, want ErrBlocked", err)
	}
	if _, _, err := r.broker.Depth(t.Context(), "default"); err != amqp.ErrBlocked {
		t.Errorf("Depth: %v, want ErrBlocked", err)
	}
	r.completed(id)
	r.completed(r.start(nil))
	r.end()
	began := time.Now()
	if err := r.broker.Close(within(t, 5*time.Second)); err == nil {
		t.Error("Close with an unconfirmed pointer: no error")
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// TestConsumerTimeout: the broker closes the channel of a delivery that is held
// too long. The step goes on, is not run twice, and the next ones come.
func TestConsumerTimeout(t *testing.T) {
	node := testenv.NewRabbit(t, "{consumer_timeout, 1000}", "{channel_tick_interval, 1000}")
	noLeaks(t)
	var log logbook
	finish := make(chan struct{})
	var runs atomic.Int32
	slow := saga.Step[order]{Name: "a", Execute: func(context.Context, *saga.Run[order]) error {
		runs.Add(1)
		<-finish
		return nil
	}}
	r := newRig(t, amqp.Config{URLs: []string{node.URL()}, Logger: log.logger()}, saga.Config{PickupWithin: time.Hour}, slow)
	r.run(amqp.ConsumerConfig{Workers: map[string]int{"default": 2}})
	r.consuming("default")
	id := r.start(nil)
	eventually(t, "the channel was closed", func() bool { return strings.Contains(log.String(), "consuming was interrupted") })
	eventually(t, "the delivery came again", func() bool { return len(r.events.of(saga.EventPointerBusy)) > 0 })
	close(finish)
	r.completed(id)
	r.completed(r.start(nil))
	if n := runs.Load(); n != 2 {
		t.Errorf("the step ran %d times, want once for each of 2 executions", n)
	}
	if !strings.Contains(log.String(), "PRECONDITION_FAILED") {
		t.Errorf("the log does not say why: %s", log.String())
	}
}
