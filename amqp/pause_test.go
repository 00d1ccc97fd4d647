package amqp_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/memory"
)

func (r *rig) pause() {
	r.t.Helper()
	if err := r.engine.Pause(r.t.Context(), saga.Scope{Worker: r.engine.Worker()}, saga.By{Actor: "ann", Reason: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) unpause() {
	r.t.Helper()
	if err := r.engine.Unpause(r.t.Context(), saga.Scope{Worker: r.engine.Worker()}, saga.By{Actor: "ann", Reason: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

// gated is a step that says when it begins, and ends when told to.
func gated() (s saga.Step[order], began chan uuid.UUID, finish chan struct{}) {
	began, finish = make(chan uuid.UUID, 100), make(chan struct{})
	return saga.Step[order]{Name: "a", Execute: func(_ context.Context, run *saga.Run[order]) error {
		began <- run.Execution
		<-finish
		return nil
	}}, began, finish
}

// TestPausedWorkerLeavesItsQueue: a paused worker has no consumer, what comes
// stays ready, and with the pause over it is worked on.
func TestPausedWorkerLeavesItsQueue(t *testing.T) {
	for _, queues := range []amqp.Queues{amqp.Classic, amqp.Quorum} {
		t.Run(string(queues), func(t *testing.T) {
			noLeaks(t)
			r := newRig(t, amqp.Config{Queues: queues}, saga.Config{PickupWithin: time.Hour})
			r.run(amqp.ConsumerConfig{Workers: map[string]int{"default": 2}})
			r.consuming("default")
			r.completed(r.start(nil))
			for range 3 {
				r.pause()
				r.depth(0, 0)
				var ids []uuid.UUID
				for range 7 {
					ids = append(ids, r.start(nil))
				}
				r.depth(7, 0)
				r.unpause()
				for _, id := range ids {
					r.completed(id)
				}
				r.depth(0, 1)
			}
			if n := len(r.events.of(saga.EventPointerDead)); n > 0 {
				t.Errorf("%d pointers were put aside", n)
			}
		})
	}
}

// TestPausedWorkerLeavesTheWorkToOthers: with two workers on one queue, the one
// that is paused takes nothing more, and the other one everything.
func TestPausedWorkerLeavesTheWorkToOthers(t *testing.T) {
	noLeaks(t)
	prefix, st := testenv.Prefix(t), memory.New()
	paused := newRig(t, amqp.Config{Prefix: prefix}, saga.Config{Store: st, PickupWithin: time.Hour, Worker: "paused"})
	other := newRig(t, amqp.Config{Prefix: prefix}, saga.Config{Store: st, PickupWithin: time.Hour, Worker: "other"})
	paused.run(amqp.ConsumerConfig{})
	other.run(amqp.ConsumerConfig{})
	paused.depth(0, 2)
	var ids []uuid.UUID
	for i := range 200 {
		ids = append(ids, paused.start(nil))
		if i == 100 {
			paused.pause()
		}
	}
	for _, id := range ids {
		other.completed(id)
	}
	paused.depth(0, 1)
	for range 20 {
		id := paused.start(nil)
		other.completed(id)
		attempts, err := other.engine.Attempts(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attempts {
			if a.Worker != other.engine.Worker() {
				t.Fatalf("an attempt of %s, which is paused", a.Worker)
			}
		}
	}
	paused.unpause()
	paused.depth(0, 2)
	other.end()
	paused.completed(paused.start(nil))
}

// TestPauseWhileStepsRun: what runs goes on to its end and is acknowledged, what
// was prefetched or refused is back in the queue.
func TestPauseWhileStepsRun(t *testing.T) {
	noLeaks(t)
	slow, began, finish := gated()
	r := newRig(t, amqp.Config{}, saga.Config{PickupWithin: time.Hour}, slow)
	r.run(amqp.ConsumerConfig{Workers: map[string]int{"default": 2}})
	r.consuming("default")
	running := []uuid.UUID{r.start(nil), r.start(nil)}
	<-began
	<-began
	rest := []uuid.UUID{r.start(nil), r.start(nil), r.start(nil)}
	r.depth(3, 1)
	r.pause()
	r.depth(3, 0)
	close(finish)
	for _, id := range running {
		r.completed(id)
	}
	r.depth(3, 0)
	if len(began) > 0 {
		t.Errorf("%d steps began during the pause", len(began))
	}
	r.unpause()
	for _, id := range rest {
		r.completed(id)
	}
	r.depth(0, 1)
	if n := len(r.events.of(saga.EventPointerBusy)); n > 0 {
		t.Errorf("%d deliveries came twice", n)
	}
}

// TestShutdownWhilePaused: Run waits for what runs, and for nothing else.
func TestShutdownWhilePaused(t *testing.T) {
	noLeaks(t)
	slow, began, finish := gated()
	r := newRig(t, amqp.Config{}, saga.Config{PickupWithin: time.Hour}, slow)
	r.run(amqp.ConsumerConfig{Workers: map[string]int{"default": 1}})
	r.consuming("default")
	id := r.start(nil)
	<-began
	r.pause()
	r.depth(0, 0)
	r.start(nil)
	r.depth(1, 0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.end()
	}()
	close(finish)
	<-ended
	r.depth(1, 0)
	r.completed(id)
}

// TestPauseAndBrokerLost: a worker that is paused while its connection is cut
// stays paused with the next one.
func TestPauseAndBrokerLost(t *testing.T) {
	noLeaks(t)
	proxy := newProxy(t, hostOf(testenv.AMQP(t)))
	r := newRig(t, amqp.Config{URLs: []string{"amqp://guest:guest@" + proxy.addr() + "/"}, Timeout: 2 * time.Second},
		saga.Config{PickupWithin: time.Hour})
	r.run(amqp.ConsumerConfig{})
	r.consuming("default")
	r.pause()
	r.depth(0, 0)
	proxy.cut()
	eventually(t, "the cut is known", func() bool { return !r.broker.Connected() })
	ready(t, r.broker)
	id := r.start(nil)
	r.depth(1, 0)
	r.unpause()
	r.completed(id)
	r.depth(0, 1)
}

// TestPauseUnderLoad: pauses come and go while pointers pour in; nothing is lost
// and no step runs twice.
func TestPauseUnderLoad(t *testing.T) {
	noLeaks(t)
	r := newRig(t, amqp.Config{Window: 2000}, saga.Config{PickupWithin: time.Hour, Handover: saga.HandoverPublish})
	r.run(amqp.ConsumerConfig{Workers: map[string]int{"default": 3}})
	defer func() {
		if lost := r.events.of(saga.EventPointerUnpublished); t.Failed() && len(lost) > 0 {
			t.Errorf("%d pointers were not published: %v", len(lost), lost[0].Err)
		}
	}()
	r.consuming("default")
	var ids []uuid.UUID
	for i := range 300 {
		ids = append(ids, r.start(nil))
		switch i % 10 {
		case 3:
			r.pause()
		case 7:
			r.unpause()
		}
	}
	r.unpause()
	for _, id := range ids {
		if x := r.completed(id); string(x.State) != `{"done":["a","b","c"]}` {
			t.Errorf("the state is %s", x.State)
		}
	}
	r.depth(0, 1)
}
