package amqp

import (
	"context"
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

// Depth asks the broker how many messages are ready in a partition's queue and
// how many consumers it has. It returns an error when that cannot be learned:
// the broker is away or blocked, the queue does not exist, ctx is done. It needs
// no permission on the queue before RabbitMQ 4.3, and any one from then on.
func (b *Broker) Depth(ctx context.Context, partition string) (ready, consumers int, err error) {
	if !partitionRule.MatchString(partition) {
		return 0, 0, fmt.Errorf("%w: amqp: depth: partition %q", saga.ErrInvalid, partition)
	}
	out, err := b.session()
	if err != nil {
		return 0, 0, err
	}
	type answer struct {
		q   amqp091.Queue
		err error
	}
	answers := make(chan answer, 1)
	if !out.probe(func() {
		var a answer
		a.err = out.s.with(func(ch *amqp091.Channel) (err error) {
			a.q, err = ch.QueueDeclarePassive(b.layout.queue(partition), true, false, false, false, nil)
			return err
		})
		answers <- a
	}) {
		return 0, 0, ErrAway
	}
	select {
	case a := <-answers:
		if e, ok := errors.AsType[*amqp091.Error](a.err); ok && e.Code == amqp091.NotFound {
			return 0, 0, fmt.Errorf("amqp: depth: the queue of partition %q does not exist: %w", partition, a.err)
		}
		if a.err != nil {
			return 0, 0, fmt.Errorf("amqp: depth of partition %q: %w", partition, a.err)
		}
		return a.q.Messages, a.q.Consumers, nil
	case <-ctx.Done():
		return 0, 0, fmt.Errorf("amqp: depth of partition %q: %w", partition, ctx.Err())
	}
}

// probe runs f beside the outlet, unless that has ended: nothing is begun that
// Close would not see.
func (out *outlet) probe(f func()) bool {
	out.mu.RLock()
	defer out.mu.RUnlock()
	if out.ended {
		return false
	}
	out.b.probes.Go(f)
	return true
}
