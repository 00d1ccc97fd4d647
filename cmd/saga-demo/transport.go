package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/leveret-go/leveret/inproc"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A transport carries pointers from those who start sagas to those who work.
type transport struct {
	name string
	// publisher and consumer are nil where there is no transport.
	publisher saga.Publisher
	consumer  func(e *saga.Engine, workers map[string]int) (saga.Runner, error)
	close     func(ctx context.Context) error
}

func openTransport(ctx context.Context, o options, st store.Store, log *slog.Logger) (*transport, error) {
	if o.amqp != "" {
		if o.prefix == "" {
			id, err := st.ID(ctx)
			if err != nil {
				return nil, err
			}
			o.prefix = "saga-demo-" + strings.ReplaceAll(id.String(), "-", "")[:12]
		}
		return openAMQP(ctx, o, log)
	}
	nothing := func(context.Context) error { return nil }
	if o.role != roleAll {
		// Without a broker the workers share the store: each takes from it
		// what it has room for.
		return &transport{name: "none, workers look into the store", close: nothing}, nil
	}
	b := inproc.New(nil)
	return &transport{
		name: "queues in the process", publisher: b,
		consumer: func(e *saga.Engine, workers map[string]int) (saga.Runner, error) {
			return inproc.NewConsumer(b, e, inproc.ConsumerConfig{Workers: workers})
		},
		close: nothing,
	}, nil
}
