package amqp

import (
	"context"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

// Publish hands a pointer to the connection and returns: it waits neither for
// the broker nor for its confirmation. What becomes of the pointer is told by
// [Broker.Report]. An error means that the pointer is lost: ErrAway, ErrBlocked,
// ErrBusy, ErrClosed, or one that wraps [saga.ErrInvalid] for names that no key
// can hold. A pointer for a partition that nobody has declared a queue for makes
// the Broker declare it, if Config.Topology says so.
func (b *Broker) Publish(ctx context.Context, partition string, p saga.Pointer) error {
	key := b.layout.key(partition, p.Saga)
	if !partitionRule.MatchString(partition) || len(key) > maxShortText {
		return fmt.Errorf("%w: amqp: publish: partition %q or saga %q", saga.ErrInvalid, partition, p.Saga)
	}
	if len(p.TraceParent) > maxTrace {
		p.TraceParent = ""
	}
	out, err := b.outlet()
	if err != nil {
		return err
	}
	m, err := message(b.cfg.Name, p)
	if err != nil {
		return fmt.Errorf("amqp: publish: %w", err)
	}
	return out.take(&outgoing{exchange: b.layout.exchange(), key: key, partition: partition, message: m,
		done: func(kind saga.EventKind, err error) {
			if err != nil {
				b.tell(partition, p, kind, err)
			}
		}})
}

// An outgoing is a message on its way to the broker.
type outgoing struct {
	exchange, key string
	partition     string // whose queue has to be there; "": none
	unheard       bool   // it is no matter whether a queue takes it
	message       amqp091.Publishing
	done          func(kind saga.EventKind, err error) // called once, when its fate is known

	confirm  *amqp091.DeferredConfirmation
	at       time.Time
	returned error
}

// session returns the outlet on a session that answers, or says why there is
// none.
func (b *Broker) session() (*outlet, error) {
	out := b.live.Load()
	switch {
	case b.closing.Load():
		return nil, ErrClosed
	case out == nil:
		return nil, ErrAway
	case out.s.blocked.Load():
		return nil, ErrBlocked
	}
	return out, nil
}

// outlet returns where to leave a message now, or says why that cannot be.
func (b *Broker) outlet() (*outlet, error) {
	out, err := b.session()
	if err == nil && len(out.queue) == cap(out.queue) {
		return nil, ErrBusy
	}
	return out, err
}
