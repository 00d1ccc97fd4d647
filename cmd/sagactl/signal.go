package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

func signalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "payload", Usage: "the `JSON` that it carries; - for stdin (default: none)"},
		&cli.StringFlag{Name: "key", Usage: "`KEY` of this one signal: sent again with it, it counts once"},
		&cli.StringFlag{Name: "reason", Usage: "`WHY` it is sent: required, kept in the audit trail"},
		&cli.StringFlag{Name: "actor", Usage: "`WHO` sends it (default: user@host)"},
	}
}

// A signalView is what became of a signal, in JSON.
type signalView struct {
	Signal string            `json:"signal"`
	Result saga.SignalResult `json:"result"`
}

// sendSignal hands a signal to an execution.
func sendSignal(ctx context.Context, c *call) error {
	id, err := c.id()
	if err != nil {
		return err
	}
	return c.signalled(ctx, c.args[1], func(s *session, payload json.RawMessage, o *saga.SignalOptions) (saga.SignalResult, error) {
		return s.Signal(ctx, id, c.args[1], anyPayload(payload), o)
	})
}

// sendSignalKey hands one to whoever holds a start key.
func sendSignalKey(ctx context.Context, c *call) error {
	return c.signalled(ctx, c.args[2], func(s *session, payload json.RawMessage, o *saga.SignalOptions) (saga.SignalResult, error) {
		return s.SignalKey(ctx, c.args[0], c.args[1], c.args[2], anyPayload(payload), o)
	})
}

// anyPayload is nil for none.
func anyPayload(b json.RawMessage) any {
	if b == nil {
		return nil
	}
	return b
}

func (c *call) signalled(ctx context.Context, name string, send func(*session, json.RawMessage, *saga.SignalOptions) (saga.SignalResult, error)) error {
	by, err := c.by()
	if err != nil {
		return err
	}
	payload, err := c.payload()
	if err != nil {
		return err
	}
	return c.with(ctx, func(s *session) error {
		got, err := send(s, payload, &saga.SignalOptions{Key: c.String("key"), By: by})
		if err != nil {
			return err
		}
		if c.json() {
			err = c.document(signalView{name, got})
		} else {
			c.fields("signal", name, "result", string(got))
		}
		switch {
		case err != nil:
			return err
		case got == saga.SignalUnknown:
			return fail(exitNotFound, "there is no such execution")
		case got == saga.SignalFinished:
			return fail(exitRefused, "the execution has ended: the signal is not kept")
		}
		return nil
	})
}

// payload reads -payload.
func (c *call) payload() (json.RawMessage, error) {
	text := c.String("payload")
	if text == "" {
		return nil, nil
	}
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(c.stdin, store.MaxPayload+1))
		if err != nil {
			return nil, fail(exitFailure, "-payload: %w", err)
		}
		text = string(b)
	}
	if !json.Valid([]byte(text)) {
		return nil, usage("-payload is no JSON")
	}
	return json.RawMessage(text), nil
}

// reschedule moves the time for which an execution waits.
func reschedule(ctx context.Context, c *call) error {
	id, by, err := c.subject()
	if err != nil {
		return err
	}
	return c.with(ctx, func(s *session) error {
		k, err := c.clock(ctx, s.store)
		if err != nil {
			return err
		}
		at, err := futureTime(c.args[1], k.now)
		if err != nil {
			return err
		}
		x, err := s.Reschedule(ctx, id, at, by)
		if err != nil {
			return hint(err)
		}
		return c.acted(ctx, s, saga.ActReschedule, x)
	})
}

// futureTime reads a time, now, or how long from now.
func futureTime(s string, now time.Time) (time.Time, error) {
	if s == "now" {
		return now, nil
	}
	if rest, ok := strings.CutPrefix(s, "+"); ok {
		if d, err := duration(rest); err == nil {
			return now.Add(d), nil
		}
	} else if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	return time.Time{}, usage("the time is neither one like 2026-01-31T12:00:00Z, nor now, nor how long from now, like +36h or +7d")
}
