package amqp_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/faultproxy"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
)

// eventful registers one more saga with the rig, whose events are published.
func (r *rig) eventful(steps ...saga.Step[order]) *saga.Saga[order] {
	r.t.Helper()
	s, err := saga.Register(r.engine, saga.Definition[order]{Name: "parcel", Events: true, Steps: steps})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func TestStatusEventsArePublished(t *testing.T) {
	noLeaks(t)
	r := newRig(t, amqp.Config{Name: "shop"}, saga.Config{})
	parcels := r.eventful(step("a"), step("b"))
	ready(t, r.broker)
	heard := r.spy("event.parcel.#")
	r.run(amqp.ConsumerConfig{})
	r.completed(r.start(nil)) // one without events
	x, err := parcels.Start(t.Context(), saga.Resource{Type: "parcel", ID: "9"}, order{}, &saga.StartOptions{TraceParent: "tp"})
	if err != nil {
		t.Fatal(err)
	}
	r.completed(x.ID)
	var keys []string
	for range 2 {
		var d amqp091.Delivery
		select {
		case d = <-heard:
		case <-time.After(patience):
			t.Fatal("no event came")
		}
		keys = append(keys, d.RoutingKey)
		var e saga.StatusEvent
		if err := json.Unmarshal(d.Body, &e); err != nil {
			t.Fatal(err)
		}
		if e.Execution != x.ID || e.V != 1 || e.Resource.ID != "9" || e.ID != d.MessageId {
			t.Errorf("%+v", e)
		}
		if d.Type != "saga.event" || d.ContentType != "application/json" || d.DeliveryMode != amqp091.Persistent ||
			d.AppId != "shop" || d.CorrelationId != x.ID.String() || d.Headers["saga-name"] != "parcel" ||
			d.Headers["saga-status"] != string(e.Status) || d.Headers["traceparent"] != "tp" {
			t.Errorf("%+v", d)
		}
	}
	if want := []string{"event.parcel.running", "event.parcel.completed"}; !slices.Equal(keys, want) {
		t.Errorf("%q", keys)
	}
}

// Nobody has to listen, and more events than fit through at once get through.
func TestStatusEventsNobodyHears(t *testing.T) {
	noLeaks(t)
	b := open(t, amqp.Config{Prefix: testenv.Prefix(t), Window: 4})
	ready(t, b)
	list := make([]saga.StatusEvent, 50)
	for i := range list {
		p := pointer()
		list[i] = saga.StatusEvent{ID: p.Execution.String() + "/1", Execution: p.Execution, Saga: "order", Status: "running"}
	}
	if err := b.PublishEvents(within(t, patience), list); err != nil {
		t.Error(err)
	}
	if !b.Connected() {
		t.Error("the connection is gone")
	}
	if err := b.Close(within(t, patience)); err != nil {
		t.Error(err)
	}
	if err := b.PublishEvents(within(t, patience), list[:1]); err == nil {
		t.Error("an event was published over a closed broker")
	}
}

// What happens while the broker is away is told when it is back.
func TestStatusEventsWhileTheBrokerIsAway(t *testing.T) {
	noLeaks(t)
	server := testenv.AMQP(t)
	proxy, err := faultproxy.New(hostOf(server))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	r := newRig(t, amqp.Config{URLs: []string{strings.Replace(server, hostOf(server), proxy.Addr(), 1)}}, saga.Config{})
	parcels := r.eventful(step("a"))
	ready(t, r.broker)
	heard := r.spy("event.parcel.completed")
	r.run(amqp.ConsumerConfig{})
	r.consuming("default")
	proxy.Refuse()
	proxy.Cut()
	eventually(t, "the broker is away", func() bool { return !r.broker.Connected() })
	x, err := parcels.Start(t.Context(), saga.Resource{}, order{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.completed(x.ID)
	proxy.Heal()
	select {
	case d := <-heard:
		if d.CorrelationId != x.ID.String() {
			t.Errorf("%+v", d)
		}
	case <-time.After(patience):
		t.Error("no event came")
	}
}
