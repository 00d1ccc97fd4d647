package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// SignalOptions says more about a signal.
type SignalOptions struct {
	// Key tells a repetition: of all signals of one name with this key that an
	// execution gets, the first one counts. At most 200 bytes. Give one
	// wherever a signal may be sent twice, such as the id of the webhook.
	Key string
	// By is who sent it, where a person did: it is then noted in the audit
	// trail. Optional, but an Actor wants a Reason.
	By By
}

// A SignalResult says what became of a signal.
type SignalResult string

// The results of a signal.
const (
	// SignalDelivered: a step was waiting for it.
	SignalDelivered SignalResult = "delivered"
	// SignalBuffered: it is kept with the execution until a step waits for it.
	SignalBuffered SignalResult = "buffered"
	// SignalDuplicate: one of this name and key came before.
	SignalDuplicate SignalResult = "duplicate"
	// SignalFinished: the execution has ended; the signal is not kept.
	SignalFinished SignalResult = "finished"
	// SignalUnknown: there is no such execution.
	SignalUnknown SignalResult = "unknown"
)

// Signal hands a signal to an execution, from any process, whether it knows the
// saga or not. It may come early: it is kept until a step awaits its name, over
// whatever happens to the execution; each is received once, in the order in
// which they came. With the answer delivered or buffered it is durable.
//
// payload is encoded as JSON, of at most 64 KiB; nil is a signal without one.
// Where the saga is registered, and one of its steps names the signal, a payload
// of another type is refused with [ErrInvalid], as are bad names and keys;
// [ErrInboxFull] when the execution keeps 1000 of them, or 1 MiB, already. Any
// other error is one of the store's: the signal may have come or not, and with a
// Key it can be sent again.
//
// opts may be nil.
func (e *Engine) Signal(ctx context.Context, id uuid.UUID, name string, payload any, opts *SignalOptions) (SignalResult, error) {
	return e.desk().signal(ctx, id, name, payload, opts)
}

// SignalKey is Signal for the execution that holds a start key of a saga; see
// [Definition.Key]. It is SignalUnknown when none does.
func (e *Engine) SignalKey(ctx context.Context, saga, key, name string, payload any, opts *SignalOptions) (SignalResult, error) {
	return e.desk().signalKey(ctx, saga, key, name, payload, opts)
}

// A Signaler takes signals: an [Engine], or a [Tx].
type Signaler interface {
	Signal(ctx context.Context, id uuid.UUID, name string, payload any, opts *SignalOptions) (SignalResult, error)
	SignalKey(ctx context.Context, saga, key, name string, payload any, opts *SignalOptions) (SignalResult, error)
}

// Send is [Engine.Signal] with a payload of the right type.
func (n Signal[T]) Send(ctx context.Context, to Signaler, id uuid.UUID, v T, opts *SignalOptions) (SignalResult, error) {
	return to.Signal(ctx, id, string(n), v, opts)
}

// SendKey is [Engine.SignalKey] with a payload of the right type.
func (n Signal[T]) SendKey(ctx context.Context, to Signaler, saga, key string, v T, opts *SignalOptions) (SignalResult, error) {
	return to.SignalKey(ctx, saga, key, string(n), v, opts)
}

func (d desk) signal(ctx context.Context, id uuid.UUID, name string, payload any, opts *SignalOptions) (SignalResult, error) {
	var o SignalOptions
	if opts != nil {
		o = *opts
	}
	msg, err := d.e.message(name, o, payload)
	if err == nil {
		err = d.e.clock.ready(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("saga: signal %s: %w", id, err)
	}
	var result SignalResult
	_, err = d.decideIn(ctx, id, func(m *machine) error {
		msg.At = m.now
		if m.plan != nil {
			if s, ok := m.plan.signals[name]; ok {
				if err := s.CheckPayload(msg.Payload); err != nil {
					return err
				}
			}
		}
		before := m.x.Status
		var err error
		result, err = m.signal(msg)
		if err == nil && m.dirty && o.By.Actor != "" {
			entry := m.audit(ActSignal, o.By, before)
			entry.Detail = detailOf(map[string]any{"signal": name, "key": o.Key}).json
		}
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return SignalUnknown, nil
	}
	if err != nil {
		return "", fmt.Errorf("saga: signal %s: %w", id, err)
	}
	return result, nil
}

func (d desk) signalKey(ctx context.Context, saga, key, name string, payload any, opts *SignalOptions) (SignalResult, error) {
	result := SignalUnknown
	for range 5 { // each time the key has gone to another one in between
		x, err := d.store.Live(ctx, saga, key)
		if errors.Is(err, store.ErrNotFound) {
			return result, nil
		}
		if err != nil {
			return "", fmt.Errorf("saga: signal: %w", err)
		}
		result, err = d.signal(ctx, x.ID, name, payload, opts)
		if err != nil || result != SignalFinished || x.Status.Finished() {
			return result, err
		}
	}
	return result, nil
}

// message checks a signal.
func (e *Engine) message(name string, o SignalOptions, payload any) (msg store.Message, err error) {
	if !nameRule.MatchString(name) {
		return msg, fmt.Errorf("%w: signal name %s", ErrInvalid, nameFault(name))
	}
	if err := checkSignalKey(o.Key); err != nil {
		return msg, err
	}
	if o.By != (By{}) {
		if err := o.By.check(); err != nil {
			return msg, err
		}
	}
	b, err := payloadOf(name, payload)
	return store.Message{Name: name, Key: o.Key, Actor: o.By.Actor, Reason: o.By.Reason, Payload: b}, err
}

func checkSignalKey(key string) error {
	if len(key) > maxKey || !cleanText(key) {
		return fmt.Errorf("%w: signal key must be valid UTF-8 without NUL of at most %d bytes", ErrInvalid, maxKey)
	}
	return nil
}

// payloadOf encodes a payload. One that is JSON already is taken as it is.
func payloadOf(name string, payload any) (json.RawMessage, error) {
	b, err := encodePayload(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: signal %q: %w", ErrInvalid, name, err)
	}
	return b, nil
}

// maxKey is the longest key of a start or a signal, in bytes.
const maxKey = 200

// ActSignal and ActReschedule are acts of the audit trail.
const (
	ActSignal     Act = "signal"
	ActReschedule Act = "reschedule"
)
