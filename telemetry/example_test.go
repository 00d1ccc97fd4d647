package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/memory"
	"github.com/leveret-go/leveret/telemetry"
)

// One call before the engine is made, one after it. An execution that fails and
// is compensated is then one trace, with a span for each attempt.
func Example() {
	// A service takes the providers of its own SDK, or leaves them out to take
	// the global ones.
	spans := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	tel, err := telemetry.New(telemetry.Config{TracerProvider: tracer})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tel.Close() }()

	cfg := saga.Config{Store: memory.New(), Logger: slog.New(slog.DiscardHandler)}
	tel.Apply(&cfg)
	engine, err := saga.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	tel.Watch(engine)

	type Order struct{}
	done := func(context.Context, *saga.Run[Order]) error { return nil }
	checkout, err := saga.Register(engine, saga.Definition[Order]{Name: "checkout", Steps: []saga.Step[Order]{
		{Name: "charge", Execute: done, Compensate: done},
		{Name: "ship", Execute: func(context.Context, *saga.Run[Order]) error { return saga.Fail(errors.New("none left")) }},
	}})
	if err != nil {
		log.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- engine.Run(ctx) }()

	request, span := tracer.Tracer("shop").Start(ctx, "POST /orders")
	x, err := checkout.Start(request, saga.Resource{Type: "order", ID: "7"}, Order{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	span.End()
	if _, err := engine.Wait(ctx, x.ID); err != nil {
		log.Fatal(err)
	}
	stop()
	if err := <-stopped; err != nil {
		log.Fatal(err)
	}

	for _, s := range spans.GetSpans() {
		if s.Name != "POST /orders" {
			fmt.Println(s.Name, s.Status.Code, s.Parent.SpanID() == span.SpanContext().SpanID())
		}
	}
	// Output:
	// execute checkout/charge Unset true
	// execute checkout/ship Error true
	// compensate checkout/charge Unset true
}
