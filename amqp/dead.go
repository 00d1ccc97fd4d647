package amqp

import (
	"strings"
	"time"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

const (
	reasonMalformed = "malformed"
	maxDeadError    = 1000 // bytes of a header
)

// bury puts a message aside and returns how to settle its delivery. It goes to
// the dead exchange with the reason in its headers, and is acknowledged when the
// broker has it; if that cannot be, it is rejected, and the broker itself puts
// it there, without the reason.
//
// The headers: saga-reason, one of the Dead constants of package saga,
// "malformed" or "command_refused"; saga-partition; saga-dead-at; saga-message, the id of the message
// it was; saga-error for what is malformed; saga-size when the body was cut to
// 16 KiB; and those the message came with.
func (d *delivery) bury(reason string, cause error) func() error {
	if d.in.p.c.b.entomb(corpse(d.d, d.in.p.name, reason, cause)) != nil {
		return d.drop
	}
	return d.ack
}

// entomb publishes a message to the dead exchange and waits until the broker has
// it.
func (b *Broker) entomb(m amqp091.Publishing) error {
	sent := make(chan error, 1)
	out, err := b.outlet()
	if err == nil {
		err = out.take(&outgoing{
			exchange: b.layout.dead(), message: m,
			done: func(_ saga.EventKind, err error) { sent <- err },
		})
	}
	if err != nil {
		return err
	}
	t := time.NewTimer(b.cfg.Timeout)
	defer t.Stop()
	select {
	case err := <-sent:
		return err
	case <-t.C:
		return errUnconfirmed
	}
}

// corpse makes the message that is put aside.
func corpse(d amqp091.Delivery, partition, reason string, cause error) amqp091.Publishing {
	headers := amqp091.Table{}
	// What others wrote may be of any number, size and depth.
	for _, k := range []string{"saga-name", "saga-execution", "saga-step", "saga-direction", "traceparent"} {
		if text, ok := d.Headers[k].(string); ok {
			headers[k] = cut(text, maxDeadError)
		}
	}
	if epoch, ok := d.Headers["saga-epoch"].(int64); ok {
		headers["saga-epoch"] = epoch
	}
	body := d.Body
	if len(body) > maxBody {
		headers["saga-size"] = int64(len(body))
		body = body[:maxBody]
	}
	headers["saga-reason"] = reason
	headers["saga-partition"] = partition
	headers["saga-dead-at"] = time.Now().UTC().Format(time.RFC3339)
	headers["saga-message"] = d.MessageId
	if cause != nil {
		headers["saga-error"] = cut(cause.Error(), maxDeadError)
	}
	return amqp091.Publishing{
		ContentType:   d.ContentType,
		DeliveryMode:  amqp091.Persistent,
		Type:          d.Type,
		MessageId:     uuid.NewString(), // tells returns apart; the old one may be anything
		CorrelationId: d.CorrelationId,
		Timestamp:     d.Timestamp,
		AppId:         d.AppId,
		Headers:       headers,
		Body:          body,
	}
}

// cut returns at most n bytes of valid UTF-8.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "?")
}
