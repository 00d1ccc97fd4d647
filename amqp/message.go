package amqp

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

const (
	messageType  = "saga.step.v1"
	maxBody      = 16 << 10 // of a pointer; those of this build are below 1 KiB
	maxName      = 100
	maxTrace     = 1000
	maxShortText = 255 // of keys and properties; amqp091 ends the connection over a longer one
)

// ErrMalformed: a body is not a pointer.
var ErrMalformed = errors.New("amqp: malformed pointer")

// Decode reads a message's body, for consumers and for tools that look into
// queues. It returns an error that wraps [ErrMalformed] for what is not a
// pointer: no JSON object, more than 16 KiB, a field that is missing or of the
// wrong kind. Fields that it does not know are ignored. Of a pointer with a
// version greater than [saga.PointerVersion] only V is sure; whoever handles it
// puts it aside.
func Decode(body []byte) (saga.Pointer, error) {
	bad := func(format string, args ...any) (saga.Pointer, error) {
		return saga.Pointer{}, fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	if len(body) > maxBody {
		return bad("%d bytes, want at most %d", len(body), maxBody)
	}
	var version struct{ V int }
	if err := json.Unmarshal(body, &version); err != nil {
		return bad("%w", err)
	}
	var p saga.Pointer
	err := json.Unmarshal(body, &p)
	if version.V > saga.PointerVersion {
		p.V = version.V
		return p, nil
	}
	switch {
	case err != nil:
		return bad("%w", err)
	case p.V < 1:
		return bad("no version")
	case p.Store == uuid.Nil:
		return bad("no store")
	case p.Execution == uuid.Nil:
		return bad("no execution")
	case p.Saga == "" || len(p.Saga) > maxName:
		return bad("saga of %d bytes, want 1 to %d", len(p.Saga), maxName)
	case len(p.Step) > maxName:
		return bad("step of %d bytes, want at most %d", len(p.Step), maxName)
	case p.Direction != store.DirectionExecute && p.Direction != store.DirectionCompensate:
		return bad("direction %.20q", p.Direction)
	case p.Epoch < 0:
		return bad("epoch %d", p.Epoch)
	}
	return p, nil
}

// read decodes a delivery; what travels beside the body comes from its headers.
func read(d *amqp091.Delivery) (saga.Pointer, error) {
	p, err := Decode(d.Body)
	if trace, ok := d.Headers["traceparent"].(string); ok && len(trace) <= maxTrace {
		p.TraceParent = trace
	}
	return p, err
}

// message makes a pointer's message. The body counts; the headers are for those
// who look into a queue. Names that begin with x- belong to the broker.
func message(app string, p saga.Pointer) (amqp091.Publishing, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return amqp091.Publishing{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return amqp091.Publishing{}, err
	}
	headers := amqp091.Table{
		"saga-name":      p.Saga,
		"saga-execution": p.Execution.String(),
		"saga-epoch":     int64(p.Epoch),
		"saga-step":      p.Step,
		"saga-direction": string(p.Direction),
	}
	if p.TraceParent != "" {
		headers["traceparent"] = p.TraceParent
	}
	return amqp091.Publishing{
		ContentType:   "application/json",
		DeliveryMode:  amqp091.Persistent,
		Type:          messageType,
		MessageId:     id.String(), // tells returns apart
		CorrelationId: p.Execution.String(),
		Timestamp:     time.Now(),
		AppId:         app,
		Headers:       headers,
		Body:          body,
	}, nil
}
