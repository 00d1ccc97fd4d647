package amqp_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/memory"
)

// BenchmarkPublish publishes pointers until all are confirmed.
func BenchmarkPublish(b *testing.B) {
	broker, err := amqp.Open(b.Context(), amqp.Config{
		URLs: []string{testenv.AMQP(b)}, Prefix: testenv.Prefix(b), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := broker.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	p := pointer()
	b.ReportAllocs()
	for b.Loop() {
		for errors.Is(broker.Publish(b.Context(), "default", p), amqp.ErrBusy) {
			<-time.After(100 * time.Microsecond)
		}
	}
	if err := broker.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSteps runs sagas of ten steps, each of which travels as a pointer.
func BenchmarkSteps(b *testing.B) {
	broker, err := amqp.Open(b.Context(), amqp.Config{
		URLs: []string{testenv.AMQP(b)}, Prefix: testenv.Prefix(b), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer broker.Close(context.Background())
	e, err := saga.New(saga.Config{Store: memory.New(), Publisher: broker, Handover: saga.HandoverPublish, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	var steps []saga.Step[order]
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		steps = append(steps, saga.Step[order]{Name: name, Execute: func(context.Context, *saga.Run[order]) error { return nil }})
	}
	orders, err := saga.Register(e, saga.Definition[order]{Name: "order", Steps: steps})
	if err != nil {
		b.Fatal(err)
	}
	c, err := amqp.NewConsumer(broker, e, amqp.ConsumerConfig{Workers: map[string]int{"default": 20}})
	if err != nil {
		b.Fatal(err)
	}
	if err := broker.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = e.Run(ctx, c) })
	slots := make(chan struct{}, 50)
	var sagas sync.WaitGroup
	n := 0
	for b.Loop() {
		n++
		slots <- struct{}{}
		sagas.Go(func() {
			defer func() { <-slots }()
			x, err := orders.Start(ctx, saga.Resource{Type: "order", ID: "1"}, order{}, nil)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := e.Wait(ctx, x.ID); err != nil {
				b.Error(err)
			}
		})
	}
	sagas.Wait()
	b.ReportMetric(float64(10*n)/b.Elapsed().Seconds(), "steps/s")
	stop()
	run.Wait()
}
