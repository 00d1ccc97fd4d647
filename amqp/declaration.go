package amqp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leveret-go/leveret/saga"
)

// A Kind says what a [Declaration] declares.
type Kind string

const (
	KindExchange Kind = "exchange"
	KindQueue    Kind = "queue"
	KindBinding  Kind = "binding"
)

// A Declaration is one thing that has to be in the broker: an exchange, a queue,
// or the binding of a queue to an exchange. All exchanges and queues are
// durable, none deletes itself.
type Declaration struct {
	Kind Kind `json:"kind"`
	// Name of the exchange or queue; of a binding, its queue's.
	Name string `json:"name"`
	// Type of an exchange: fanout or topic.
	Type string `json:"type,omitempty"`
	// Arguments of a queue.
	Arguments map[string]any `json:"arguments,omitempty"`
	// Exchange is where a binding leads from, for messages with a key that
	// matches Key.
	Exchange string `json:"exchange,omitempty"`
	Key      string `json:"key,omitempty"`
}

// String returns the declaration as one line for people to read.
func (d Declaration) String() string {
	switch d.Kind {
	case KindExchange:
		return fmt.Sprintf("exchange %s type=%s durable", d.Name, d.Type)
	case KindBinding:
		return fmt.Sprintf("binding %s to %s key=%q", d.Name, d.Exchange, d.Key)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "queue %s durable", d.Name)
	for _, k := range slices.Sorted(maps.Keys(d.Arguments)) {
		fmt.Fprintf(&b, " %s=%v", k, d.Arguments[k])
	}
	return b.String()
}

// Declarations returns what has to be in the broker for these partitions, in the
// order in which to make it: what [Declare] declares, and what somebody else has
// to declare for [Verify] and [Skip]. Only Prefix, Queues and Commands of cfg
// count. It returns an error that wraps [saga.ErrInvalid] for names that cannot be.
func Declarations(cfg Config, partitions ...string) ([]Declaration, error) {
	if cfg.Prefix != "" && !prefixRule.MatchString(cfg.Prefix) {
		return nil, fmt.Errorf("%w: amqp: Config.Prefix %q must match %s", saga.ErrInvalid, cfg.Prefix, prefixRule)
	}
	for _, p := range partitions {
		if !partitionRule.MatchString(p) {
			return nil, fmt.Errorf("%w: amqp: partition %q must match %s", saga.ErrInvalid, p, partitionRule)
		}
	}
	cfg.fill()
	l := layoutOf(&cfg)
	all := l.all(partitions)
	if cfg.Commands {
		all = append(all, l.commandQueue()...)
	}
	return all, nil
}

func (l layout) all(partitions []string) []Declaration {
	all := l.shared()
	for _, p := range partitions {
		all = append(all, l.partition(p)...)
	}
	return all
}

// Plan returns [Declarations] line by line, for people to read.
func Plan(cfg Config, partitions ...string) (string, error) {
	all, err := Declarations(cfg, partitions...)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintln(&b, d)
	}
	return b.String(), nil
}
