package amqp

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

const eventType = "saga.event"

// PublishEvents publishes status events to the exchange, with the key
// event.<saga>.<status>, and waits until the broker has confirmed all of them. An
// event for which nobody has bound a queue is gone: that is no error.
//
// The body is the event as JSON. The message has its ID as message_id, the type
// saga.event, the execution as correlation_id, is persistent, and carries
// saga-name, saga-execution, saga-status and, if there is one, traceparent as
// headers.
func (b *Broker) PublishEvents(ctx context.Context, events []saga.StatusEvent) error {
	// Not more at a time than fit: pointers have to get through as well.
	for batch := max(b.cfg.Window/4, 1); len(events) > 0; events = events[min(batch, len(events)):] {
		if err := b.publishEvents(ctx, events[:min(batch, len(events))]); err != nil {
			return fmt.Errorf("amqp: publish events: %w", err)
		}
	}
	return nil
}

func (b *Broker) publishEvents(ctx context.Context, events []saga.StatusEvent) error {
	sent := make(chan error, len(events))
	for i := range events {
		m, err := eventMessage(b.cfg.Name, &events[i])
		if err != nil {
			return err
		}
		out, err := b.outlet()
		if err == nil {
			err = out.take(&outgoing{
				exchange: b.layout.exchange(), key: b.layout.event(&events[i]), unheard: true, message: m,
				done: func(_ saga.EventKind, err error) { sent <- err },
			})
		}
		if err != nil {
			return err
		}
	}
	// The outlet tells of each message, at the latest when the session is given up.
	var failed error
	for range events {
		select {
		case err := <-sent:
			if err != nil {
				failed = err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return failed
}

func eventMessage(app string, e *saga.StatusEvent) (amqp091.Publishing, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return amqp091.Publishing{}, err
	}
	headers := amqp091.Table{
		"saga-name":      e.Saga,
		"saga-execution": e.Execution.String(),
		"saga-status":    string(e.Status),
	}
	if e.TraceParent != "" && len(e.TraceParent) <= maxTrace {
		headers["traceparent"] = e.TraceParent
	}
	return amqp091.Publishing{
		ContentType:   "application/json",
		DeliveryMode:  amqp091.Persistent,
		Type:          eventType,
		MessageId:     e.ID,
		CorrelationId: e.Execution.String(),
		Timestamp:     time.Now(),
		AppId:         app,
		Headers:       headers,
		Body:          body,
	}, nil
}
