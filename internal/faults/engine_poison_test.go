//go:build linux

package faults

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/saga"
)

// The queue is full of what is no pointer, or none to work that there is, and of executions that this
// build cannot run. The work beside it goes on over the same connections.
func poisonInTheQueue(w *world) {
	w.up(rabbit(setup{Worker: settings{StepTimeout: time.Minute}}))
	old := w.work(2, nil)
	w.consumed(2)
	began := time.Now()
	strangers := w.startUnknown(5)
	gate := w.participants.hold(beforeEffect, func(c call) bool { return executes("charge")(c) && c.Order.N == 5 })
	w.start(80, 50*time.Millisecond)
	held := gate.next()
	store, err := w.observer.ID(w.t.Context())
	w.must(err)
	good := fmt.Sprintf(`{"v":1,"store":"%s","execution":"%s","saga":"checkout","step":"charge","direction":"execute","epoch":0}`, store, held.Execution)
	edit := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	bodies := []struct{ body, reason string }{ // "": acknowledged
		{"", "malformed"},
		{good[:50], "malformed"},
		{good + good, "malformed"},
		{`null`, "malformed"},
		{"\xff\xfe\x00", "malformed"},
		{strings.Repeat(`{"a":`, 3000), "malformed"},
		{strings.Repeat("x", 1<<20), "malformed"},
		{edit(`"v":1`, `"v":1,"more":"`+strings.Repeat("y", 1<<20)+`"`), "malformed"},
		{edit(`"epoch":0`, `"epoch":"0"`), "malformed"},
		{edit(`"v":1`, `"v":2`), saga.DeadVersion},
		{`{"v":99,"execution":{"of":"the future"}}`, saga.DeadVersion},
		{edit(`"epoch":0`, `"epoch":7`), saga.DeadFutureEpoch},
		{edit(store.String(), uuid.NewString()), saga.DeadForeignStore},
		{edit(held.Execution.String(), uuid.NewString()), ""},
		{edit("checkout", "nobody-knows"), ""},
		{edit("charge", "nobody-knows"), ""},
		{edit(`"execute","epoch"`, `"compensate","epoch"`), ""},
		{good, ""}, // it is being worked on
	}
	want := map[string]int{}
	sent := 0
	w.must(w.withBroker(func(ch *amqp091.Channel) error {
		for range 4 {
			for _, headers := range []amqp091.Table{nil, everyType(), nested(100)} {
				for _, row := range bodies {
					err := ch.Publish(w.settings.Prefix, "execute.default.checkout", true, false, amqp091.Publishing{
						Body: []byte(row.body), Headers: headers, MessageId: strings.Repeat("\xff", 255), Type: "\x00",
						ContentEncoding: "gzip", ReplyTo: "nobody", Timestamp: time.Unix(1<<40, 0), DeliveryMode: 1, Priority: 255,
					})
					if err != nil {
						return err
					}
					sent++
					if row.reason != "" {
						want[row.reason]++
					}
				}
			}
		}
		return nil
	}))
	all := 0
	for _, n := range want {
		all += n
	}
	w.until("all poison is put aside", func() bool { return w.dead() >= all })
	gate.release()
	w.until("what the build knows has ended", func() bool {
		started, open, err := w.unfinished()
		return err == nil && started == 80 && len(open) == len(strangers)
	})
	for i, c := range old { // a build that knows them comes instead
		w.runUnknown(i)
		c.term()
		c.exit()
	}
	w.allow(time.Since(began), "what no worker knew is offered again after as long as it has waited")
	w.lifted()
	w.finishWith(2)
	for _, id := range strangers {
		x, err := w.observer.Get(w.t.Context(), id)
		w.must(err)
		if x.Status != "completed" || x.Resumes != 0 {
			w.fail("an execution that waited for its build: %s, %d resumes", x.Status, x.Resumes)
		}
	}
	if got := w.deadLetters(); !maps.Equal(got, want) {
		w.fail("dead letters by reason: %v, want %v", got, want)
	}
	if n := w.count(interrupted) + w.count(lostBroker); n > 0 {
		w.fail("channels or connections were lost %d times", n)
	}
	w.note("%d messages of poison, put aside: %v", sent, want)
}

// unknown is a saga that no worker process knows.
const unknown = saga.Name[order]("from-a-newer-build")

// engine opens an engine inside the test process, by the settings of a worker and a pick-up time; 0: its
// lease.
func (w *world) engine(s settings, pickup time.Duration) (e *saga.Engine, b *amqp.Broker, closeAll func() error) {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	st, closeStore, err := openStore(w.t.Context(), s)
	w.must(err)
	b, err = openBroker(w.t.Context(), s, log)
	w.must(err)
	e, err = saga.New(saga.Config{
		Store: st, Publisher: b, Worker: s.Name, Lease: s.Lease, SweepEvery: s.Sweep, Grace: s.Grace, Workers: s.Workers,
		PickupWithin: pickup, Logger: log,
	})
	w.must(err)
	return e, b, func() error {
		closeBroker(b)
		return closeStore()
	}
}

// startUnknown starts executions of it.
func (w *world) startUnknown(n int) (ids []uuid.UUID) {
	w.t.Helper()
	s := w.settings
	s.Name = "worker-newer-starter"
	e, _, closeAll := w.engine(s, 0)
	handle, err := saga.Declare(e, unknown, nil)
	w.must(err)
	for range n {
		x, err := handle.Start(w.t.Context(), saga.Resource{}, order{}, nil)
		w.must(err)
		ids = append(ids, x.ID)
	}
	w.must(closeAll())
	return ids
}

// runUnknown starts a worker that knows it, inside the test process.
func (w *world) runUnknown(i int) {
	w.t.Helper()
	s := w.settings
	s.Name = fmt.Sprintf("worker-newer-%d", i)
	e, b, closeAll := w.engine(s, 0)
	_, err := saga.Register(e, saga.Definition[order]{Name: unknown, Steps: []saga.Step[order]{{
		Name: "nothing", Execute: func(context.Context, *saga.Run[order]) error { return nil },
	}}})
	w.must(err)
	c, err := amqp.NewConsumer(b, e, amqp.ConsumerConfig{Workers: map[string]int{"default": 1}})
	w.must(err)
	p := newClient(s.Participants, s.Name)
	w.t.Cleanup(p.close)
	_, err = saga.Register(e, checkout(s, p))
	w.must(err)
	w.localEngine(s, e, closeAll, c)
}

// localEngine runs an engine inside the test process until the world ends.
func (w *world) localEngine(s settings, e *saga.Engine, closeAll func() error, consumers ...saga.Runner) {
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	l := &local{settings: s, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = e.Run(ctx, consumers...)
		if err := closeAll(); l.err == nil {
			l.err = err
		}
	}()
	w.t.Cleanup(func() {
		stop()
		<-l.done
	})
	w.locals = append(w.locals, l)
}

// everyType is a header of every type that AMQP has.
func everyType() amqp091.Table {
	inner := amqp091.Table{"void": nil, "bytes": []byte{0, 255}, "deeper": amqp091.Table{"array": []any{int32(1), "two", nil}}}
	return amqp091.Table{
		"bool": true, "byte": byte(255), "int8": int8(-1), "int16": int16(-1), "int32": int32(-1), "int64": int64(-1),
		"uint16": uint16(65535), "uint32": uint32(1 << 31), "float32": float32(1.5), "float64": 1e300,
		"decimal": amqp091.Decimal{Scale: 2, Value: 12345}, "time": time.Unix(1<<33, 0), "string": "\x00\xff\u202e",
		"bytes": []byte("\x00\x01"), "void": nil, "table": inner,
		"array":       []any{true, int64(1), 1.5, "x", []byte("y"), nil, time.Unix(1, 0), amqp091.Decimal{}, []any{[]any{}}, inner},
		"x-death":     "no array",
		"saga-epoch":  amqp091.Decimal{Scale: 255, Value: -1},
		"saga-name":   []any{"a"},
		"saga-reason": nil,
		"traceparent": amqp091.Table{"no": "string"},
	}
}

// nested is a table in a table, and so on.
func nested(depth int) amqp091.Table {
	t := amqp091.Table{}
	for range depth {
		t = amqp091.Table{"deeper": t}
	}
	return t
}
