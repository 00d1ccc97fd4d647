package amqp

import (
	"context"
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

// An Admin looks into a broker and mends it, for people and their tools: no
// engine, no store and no code of the service is needed. It has one connection
// and makes no other one: when that is lost every method returns an error, and
// nothing is lost by it. Make one with [OpenAdmin] and close it. All methods are
// safe for concurrent use.
//
// Each exchange with the broker is bounded by Config.Timeout; the ctx of a method
// is looked at between two of them.
type Admin struct {
	cfg    Config
	layout layout
	s      *session
}

// OpenAdmin connects to the first of Config.URLs that answers, each tried once.
// URLs, Prefix, Queues, TLS, Auth, Name, Heartbeat and Timeout of cfg count. The
// error wraps [saga.ErrInvalid] for a wrong cfg and [ErrMisconfigured] for what
// the broker refuses.
func OpenAdmin(ctx context.Context, cfg Config) (*Admin, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.fill()
	a := &Admin{cfg: cfg, layout: layoutOf(&cfg)}
	a.layout.mode = Declare
	var err error
	if a.s, err = newDialer(&a.cfg, "admin").dial(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// Close ends the connection, within two seconds. A second call does nothing.
func (a *Admin) Close() error {
	a.s.close(closeWithin)
	return nil
}

// Declare makes what has to be in the broker for these partitions
// ([Declarations]) and is not there. What is there as it should be is left
// alone. The rest of it is made even when something is refused; the error joins
// all that was.
func (a *Admin) Declare(ctx context.Context, partitions ...string) error {
	all, err := Declarations(a.cfg, partitions...)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range all {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, fmt.Errorf("amqp: declare: %w", err))...)
		}
		if err := a.layout.ensure(a.s, []Declaration{d}); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Found says how what is in the broker compares with a [Declaration].
type Found string

const (
	// FoundOK: it is there as it should be.
	FoundOK Found = "ok"
	// FoundMissing: it is not there.
	FoundMissing Found = "missing"
	// FoundDiffers: it is there with other properties. They cannot be changed;
	// consumers with Topology Declare do not work on it.
	FoundDiffers Found = "differs"
	// FoundUnknown: AMQP has no way to ask, or the user may not.
	FoundUnknown Found = "unknown"
)

// A Finding is what [Admin.Check] found of one declaration.
type Finding struct {
	Declaration
	Found Found `json:"found"`
	// Detail says what differs, in the broker's words, or why it is
	// unknown.
	Detail string `json:"detail,omitempty"`
	// Ready messages and consumers of a queue that is there.
	Ready     int `json:"ready,omitempty"`
	Consumers int `json:"consumers,omitempty"`
}

// String returns the finding as one line for people to read.
func (f Finding) String() string {
	s := string(f.Found) + ": " + f.Declaration.String()
	if f.Detail != "" {
		s += ": " + f.Detail
	}
	return s
}

// Check compares what is in the broker with the [Declarations] for these
// partitions, one finding for each, and changes nothing. The properties of what
// exists are compared by declaring it once more, which needs the permission to
// configure it; without that it is FoundUnknown. (What somebody deletes at
// that very moment is thereby made again.) Bindings are always unknown: AMQP
// cannot list them, [Admin.Declare] makes sure of them.
//
// The error is for what keeps it from asking; the findings up to there are
// returned with it.
func (a *Admin) Check(ctx context.Context, partitions ...string) ([]Finding, error) {
	all, err := Declarations(a.cfg, partitions...)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, d := range all {
		if err := ctx.Err(); err != nil {
			return found, fmt.Errorf("amqp: check: %w", err)
		}
		f, err := a.check(d)
		if err != nil {
			return found, fmt.Errorf("amqp: check %s %q: %w", d.Kind, d.Name, err)
		}
		found = append(found, f)
	}
	return found, nil
}

func (a *Admin) check(d Declaration) (Finding, error) {
	f := Finding{Declaration: d, Found: FoundOK}
	if d.Kind == KindBinding {
		f.Found, f.Detail = FoundUnknown, "AMQP cannot list bindings; to declare makes sure of it"
		return f, nil
	}
	err := a.s.with(func(ch *amqp091.Channel) error {
		if d.Kind == KindExchange {
			return d.find(ch)
		}
		q, err := ch.QueueDeclarePassive(d.Name, true, false, false, false, nil)
		f.Ready, f.Consumers = q.Messages, q.Consumers
		return err
	})
	if err == nil {
		err = a.s.with(d.declare)
	}
	e, answered := errors.AsType[*amqp091.Error](err)
	switch {
	case err == nil:
		return f, nil
	case !answered || !e.Server:
		return f, err
	case e.Code == amqp091.NotFound:
		f.Found = FoundMissing
	case e.Code == amqp091.PreconditionFailed:
		f.Found, f.Detail = FoundDiffers, e.Reason
	case e.Code == amqp091.AccessRefused:
		f.Found, f.Detail = FoundUnknown, "it is there, but not to be compared: "+e.Reason
	default:
		return f, err
	}
	return f, nil
}

// Depth returns how many messages are ready in a partition's queue and how many
// consumers it has. A queue that does not exist is an error that wraps
// [ErrMisconfigured].
func (a *Admin) Depth(ctx context.Context, partition string) (ready, consumers int, err error) {
	if !partitionRule.MatchString(partition) {
		return 0, 0, fmt.Errorf("%w: amqp: depth: partition %q must match %s", saga.ErrInvalid, partition, partitionRule)
	}
	return a.depth(ctx, a.layout.queue(partition))
}

func (a *Admin) depth(ctx context.Context, queue string) (ready, consumers int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, fmt.Errorf("amqp: depth of queue %q: %w", queue, err)
	}
	var q amqp091.Queue
	err = a.s.with(func(ch *amqp091.Channel) (err error) {
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	if err != nil {
		return 0, 0, refused(fmt.Errorf("amqp: depth of queue %q: %w", queue, err))
	}
	return q.Messages, q.Consumers, nil
}
