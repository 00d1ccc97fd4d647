package main

import (
	"context"
	"log/slog"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/saga"
)

func openAMQP(ctx context.Context, o options, log *slog.Logger) (*transport, error) {
	b, err := amqp.Open(ctx, amqp.Config{URLs: []string{o.amqp}, Prefix: o.prefix, Logger: log})
	if err != nil {
		return nil, err
	}
	return &transport{
		name: "RabbitMQ, prefix " + o.prefix, publisher: b, close: b.Close,
		consumer: func(e *saga.Engine, workers map[string]int) (saga.Runner, error) {
			return amqp.NewConsumer(b, e, amqp.ConsumerConfig{Workers: workers})
		},
	}, nil
}
