package amqp

import (
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

// A layout knows the names of everything in the broker, and its arguments.
type layout struct {
	prefix string
	mode   Topology
	queues Queues
}

func layoutOf(cfg *Config) layout {
	return layout{prefix: cfg.Prefix, mode: cfg.Topology, queues: cfg.Queues}
}

func (l layout) exchange() string                  { return l.prefix }
func (l layout) dead() string                      { return l.prefix + ".dead" }
func (l layout) queue(partition string) string     { return l.prefix + ".execute." + partition }
func (l layout) key(partition, name string) string { return "execute." + partition + "." + name }
func (l layout) commands() string                  { return l.prefix + ".commands" }
func (l layout) event(e *saga.StatusEvent) string  { return "event." + e.Saga + "." + string(e.Status) }

// shared is what all partitions use. The exchange for dead letters comes first:
// until it exists, what is dead-lettered is gone.
func (l layout) shared() []Declaration {
	return []Declaration{
		{Kind: KindExchange, Name: l.dead(), Type: amqp091.ExchangeFanout},
		{Kind: KindQueue, Name: l.dead(), Arguments: map[string]any{"x-queue-type": string(l.queues)}},
		{Kind: KindBinding, Name: l.dead(), Exchange: l.dead()},
		{Kind: KindExchange, Name: l.exchange(), Type: amqp091.ExchangeTopic},
	}
}

// partition is what one partition adds. Names and arguments are for ever: a
// queue cannot be declared with other ones, nor should a name be used again.
func (l layout) partition(partition string) []Declaration {
	return []Declaration{
		{Kind: KindQueue, Name: l.queue(partition), Arguments: l.arguments()},
		{Kind: KindBinding, Name: l.queue(partition), Exchange: l.exchange(), Key: "execute." + partition + ".#"},
	}
}

// commandQueue is where commands go.
func (l layout) commandQueue() []Declaration {
	return []Declaration{
		{Kind: KindQueue, Name: l.commands(), Arguments: l.arguments()},
		{Kind: KindBinding, Name: l.commands(), Exchange: l.exchange(), Key: commandKey},
	}
}

// arguments are those of a queue whose messages are not to be lost.
func (l layout) arguments() map[string]any {
	args := map[string]any{
		"x-queue-type":           string(l.queues), // the virtual host may have another default
		"x-dead-letter-exchange": l.dead(),
	}
	if l.queues == Quorum {
		args["x-delivery-limit"] = int64(200) // unset means 20 from RabbitMQ 4 on, and lost connections count
		args["x-dead-letter-strategy"] = "at-least-once"
		args["x-overflow"] = "reject-publish" // else at-least-once is silently not kept
	}
	return args
}

// ensure declares, verifies or does nothing, as the mode says.
func (l layout) ensure(s *session, all []Declaration) error {
	for _, d := range all {
		if l.mode == Skip || l.mode == Verify && d.Kind == KindBinding {
			continue
		}
		do := d.declare
		if l.mode == Verify {
			do = d.find
		}
		if err := s.with(do); err != nil {
			return refused(fmt.Errorf("amqp: %s %s %q: %w", l.mode, d.Kind, d.Name, err))
		}
	}
	return nil
}

// declare makes what is declared, unless it is there as it should be.
func (d Declaration) declare(ch *amqp091.Channel) (err error) {
	switch d.Kind {
	case KindExchange:
		err = ch.ExchangeDeclare(d.Name, d.Type, true, false, false, false, nil)
	case KindQueue:
		_, err = ch.QueueDeclare(d.Name, true, false, false, false, amqp091.Table(d.Arguments))
	case KindBinding:
		err = ch.QueueBind(d.Name, d.Key, d.Exchange, false, nil)
	}
	return err
}

// find is an error when there is no exchange, or no queue, of the name.
func (d Declaration) find(ch *amqp091.Channel) (err error) {
	if d.Kind == KindExchange {
		return ch.ExchangeDeclarePassive(d.Name, d.Type, true, false, false, false, nil)
	}
	_, err = ch.QueueDeclarePassive(d.Name, true, false, false, false, nil)
	return err
}
