package amqp

import (
	"fmt"
	"slices"
	"strings"

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

// A declaration is one exchange, or one queue with its binding.
type declaration struct {
	name     string
	exchange string // its kind; "" for a queue
	args     amqp091.Table
	to, key  string // of a queue's binding
}

// shared is what all partitions use. The exchange for dead letters comes first:
// until it exists, what is dead-lettered is gone.
func (l layout) shared() []declaration {
	return []declaration{
		{name: l.dead(), exchange: amqp091.ExchangeFanout},
		{name: l.dead(), args: amqp091.Table{"x-queue-type": string(l.queues)}, to: l.dead()},
		{name: l.exchange(), exchange: amqp091.ExchangeTopic},
	}
}

// partition is what one partition adds. Names and arguments are for ever: a
// queue cannot be declared with other ones, nor should a name be used again.
func (l layout) partition(partition string) []declaration {
	args := amqp091.Table{
		"x-queue-type":           string(l.queues), // the virtual host may have another default
		"x-dead-letter-exchange": l.dead(),
	}
	if l.queues == Quorum {
		args["x-delivery-limit"] = int64(200) // unset means 20 from RabbitMQ 4 on, and lost connections count
		args["x-dead-letter-strategy"] = "at-least-once"
		args["x-overflow"] = "reject-publish" // else at-least-once is silently not kept
	}
	return []declaration{{name: l.queue(partition), args: args, to: l.exchange(), key: "execute." + partition + ".#"}}
}

// ensure declares, verifies or does nothing, as the mode says.
func (l layout) ensure(s *session, all []declaration) error {
	if l.mode == Skip {
		return nil
	}
	for _, d := range all {
		if err := s.with(func(ch *amqp091.Channel) error { return d.ensure(ch, l.mode) }); err != nil {
			kind := "queue"
			if d.exchange != "" {
				kind = "exchange"
			}
			return refused(fmt.Errorf("amqp: %s %s %q: %w", l.mode, kind, d.name, err))
		}
	}
	return nil
}

func (d declaration) ensure(ch *amqp091.Channel, mode Topology) error {
	if d.exchange != "" {
		if mode == Verify {
			return ch.ExchangeDeclarePassive(d.name, d.exchange, true, false, false, false, nil)
		}
		return ch.ExchangeDeclare(d.name, d.exchange, true, false, false, false, nil)
	}
	if mode == Verify {
		_, err := ch.QueueDeclarePassive(d.name, true, false, false, false, nil)
		return err
	}
	if _, err := ch.QueueDeclare(d.name, true, false, false, false, d.args); err != nil {
		return err
	}
	return ch.QueueBind(d.name, d.key, d.to, false, nil)
}

// Plan returns, line by line and for people to read, what has to be in the
// broker for these partitions: what Declare declares, and what somebody else has
// to declare for Verify and Skip. Only Prefix and Queues of cfg count.
func Plan(cfg Config, partitions ...string) (string, error) {
	for _, p := range partitions {
		if !partitionRule.MatchString(p) {
			return "", fmt.Errorf("%w: amqp: partition %q must match %s", saga.ErrInvalid, p, partitionRule)
		}
	}
	cfg.fill()
	l := layoutOf(&cfg)
	all := l.shared()
	for _, p := range partitions {
		all = append(all, l.partition(p)...)
	}
	var b strings.Builder
	for _, d := range all {
		if d.exchange != "" {
			fmt.Fprintf(&b, "exchange %s type=%s durable\n", d.name, d.exchange)
			continue
		}
		fmt.Fprintf(&b, "queue %s durable", d.name)
		var args []string
		for k, v := range d.args {
			args = append(args, fmt.Sprintf("%s=%v", k, v))
		}
		slices.Sort(args)
		fmt.Fprintf(&b, " %s\nbinding %s to %s key=%q\n", strings.Join(args, " "), d.name, d.to, d.key)
	}
	return b.String(), nil
}
