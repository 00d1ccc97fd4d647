package main

import (
	"context"
	"errors"
	"log/slog"
)

func openAMQP(context.Context, options, *slog.Logger) (*transport, error) {
	return nil, errors.New("this build has no RabbitMQ transport")
}
