package saga

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// CommandVersion is the version of commands that this build takes.
const CommandVersion = 1

const maxCommand = 2 << 20 // bytes of a body

// A CommandMessage is a command as a transport received it: see [Engine.Command].
type CommandMessage struct {
	// ID names the command for ever: whoever sends it again sends the same one.
	// Required, 1 to 200 bytes. A UUIDv7 lets executions be listed by the time of
	// their command.
	ID string
	// Body is the command as JSON, at most 2 MiB; docs/guides/other-languages.md
	// says what it holds.
	Body []byte
	// TraceParent is the W3C trace context that a start joins; "" for none.
	TraceParent string
}

// CommandStatus says what became of a command.
type CommandStatus string

// The statuses of a command.
const (
	CommandDone    CommandStatus = "done"
	CommandRefused CommandStatus = "refused"
)

// The codes of refused commands.
const (
	CommandInvalid          = "invalid"           // it is malformed, or asks for what cannot be
	CommandUnknownSaga      = "unknown_saga"      // no worker has ever had the saga
	CommandUnknownExecution = "unknown_execution" // there is no such execution, or none holds the key
	CommandKeyTaken         = "key_taken"         // another execution holds the start key
	CommandFinished         = "finished"          // the execution has ended
	CommandPastPivot        = "past_pivot"        // it only goes forward
	CommandInboxFull        = "inbox_full"        // it keeps too many signals
	CommandIDUsed           = "id_used"           // another command had this ID
)

// A CommandAnswer says what became of a command, and to which execution. Names of
// fields are stable; later versions may add some.
type CommandAnswer struct {
	V       int           `json:"v"`  // CommandVersion
	ID      string        `json:"id"` // of the command
	Command string        `json:"command,omitempty"`
	Status  CommandStatus `json:"status"`
	// Code and Message say why it was refused. The Message is for people, and
	// quotes no value of the command.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Execution is the one that was started, signalled or cancelled; of one that
	// was refused, the one in its way.
	Execution *uuid.UUID `json:"execution,omitempty"`
	// ExecutionStatus is its status then.
	ExecutionStatus store.Status `json:"execution_status,omitempty"`
	// Existing, Differs and Replaces are those of [Started].
	Existing bool       `json:"existing,omitempty"`
	Differs  bool       `json:"differs,omitempty"`
	Replaces *uuid.UUID `json:"replaces,omitempty"`
	// Repeated says that the command had been carried out before.
	Repeated bool `json:"repeated,omitempty"`
	// Signal is what became of a signal: delivered, buffered or duplicate.
	Signal SignalResult `json:"signal,omitempty"`
}

// The commands.
const (
	commandStart  = "start"
	commandSignal = "signal"
	commandCancel = "cancel"
)

// Command carries out a command that came from outside of this program, in JSON:
// start, signal or cancel. It is for transports; within Go, [Saga.Start],
// [Engine.Signal] and [Engine.Cancel] say more. The engine need not be running.
//
// A command that comes twice is carried out once. A start has an execution id
// made of its saga and its ID, a signal has the ID as its key, a cancel as its
// request. Where a start came to an execution that was there before (on_conflict
// existing) there is no trace of it: when that has ended meanwhile, a repetition
// starts one. The same holds for a signal or cancel that names an execution by
// its start key: a repetition means whoever holds the key then.
//
// An error means that it is not known what became of it, most often because the
// store is away: try again. Everything else is an answer, refusals too. A crash in
// the middle leaves it carried out or not: carry it out again.
func (e *Engine) Command(ctx context.Context, m CommandMessage) (*CommandAnswer, error) {
	a := &CommandAnswer{V: CommandVersion, ID: m.ID, Status: CommandDone}
	err := e.carryOut(ctx, &m, a)
	if err == nil {
		return a, nil
	}
	code := refusalOf(err)
	if code == "" {
		return nil, fmt.Errorf("saga: command: %w", err)
	}
	a.Status, a.Code, a.Message = CommandRefused, code, truncate(err.Error(), maxCommandMessage)
	if taken, ok := errors.AsType[*store.KeyTakenError](err); ok {
		a.Execution = &taken.Execution
	}
	return a, nil
}

const maxCommandMessage = 1000

// errUnknownSaga says that a command's saga is known to nobody.
var errUnknownSaga = errors.New("no worker has had the saga")

// refusalOf returns the code of a refusal; "" when it is not known what became of
// the command.
func refusalOf(err error) string {
	if _, ok := errors.AsType[*store.KeyTakenError](err); ok {
		return CommandKeyTaken
	}
	for _, r := range []struct {
		err  error
		code string
	}{
		{errUnknownSaga, CommandUnknownSaga},
		{store.ErrNotFound, CommandUnknownExecution},
		{ErrFinished, CommandFinished},
		{ErrPastPivot, CommandPastPivot},
		{ErrInboxFull, CommandInboxFull},
		{ErrRequestUsed, CommandIDUsed},
		{ErrInvalid, CommandInvalid},
	} {
		if errors.Is(err, r.err) {
			return r.code
		}
	}
	return ""
}

// head is what all commands have.
type head struct {
	V       int    `json:"v"`
	Command string `json:"command"`
}

// target names the execution that a command is for.
type target struct {
	Execution *uuid.UUID `json:"execution"`
	Saga      string     `json:"saga"`
	Key       string     `json:"key"`
	Actor     string     `json:"actor"`
	Reason    string     `json:"reason"`
}

func (e *Engine) carryOut(ctx context.Context, m *CommandMessage, a *CommandAnswer) error {
	switch {
	case m.ID == "" || len(m.ID) > maxKey || !cleanText(m.ID):
		a.ID = ""
		return fmt.Errorf("%w: the command's ID must be valid UTF-8 without NUL of 1 to %d bytes", ErrInvalid, maxKey)
	case len(m.Body) > maxCommand:
		return fmt.Errorf("%w: the command is longer than %d bytes", ErrInvalid, maxCommand)
	}
	var h head
	if err := json.Unmarshal(m.Body, &h); err != nil {
		return fmt.Errorf("%w: the command is no JSON object with a text as command", ErrInvalid)
	}
	if h.V != 0 && h.V != CommandVersion {
		return fmt.Errorf("%w: the command has version %d, this build knows %d", ErrInvalid, h.V, CommandVersion)
	}
	switch h.Command {
	case commandStart:
		a.Command = h.Command
		return e.startByCommand(ctx, m, a)
	case commandSignal:
		a.Command = h.Command
		return e.signalByCommand(ctx, m, a)
	case commandCancel:
		a.Command = h.Command
		return e.cancelByCommand(ctx, m, a)
	}
	return fmt.Errorf("%w: the command is none of start, signal and cancel", ErrInvalid)
}

// readCommand reads a command strictly: what it does not know would be something
// that the sender relies on.
func readCommand(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		return nil
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("%w: the command has no field %.100s", ErrInvalid, field)
	}
	return fmt.Errorf("%w: the command does not fit%s", ErrInvalid, jsonField(err))
}

func (e *Engine) signalByCommand(ctx context.Context, m *CommandMessage, a *CommandAnswer) error {
	var c struct {
		head
		target
		Signal  string          `json:"signal"`
		Payload json.RawMessage `json:"payload"`
	}
	if err := readCommand(m.Body, &c); err != nil {
		return err
	}
	x, err := e.targetOf(ctx, &c.target)
	if err != nil {
		return err
	}
	var payload any
	if c.Payload != nil {
		payload = c.Payload
	}
	o := &SignalOptions{Key: m.ID, By: By{Actor: c.Actor, Reason: c.Reason}}
	a.Execution = &x.ID
	if a.Signal, err = e.Signal(ctx, x.ID, c.Signal, payload, o); err != nil {
		return err
	}
	switch a.Signal {
	case SignalFinished:
		return ErrFinished
	case SignalUnknown:
		return store.ErrNotFound
	}
	return nil
}

func (e *Engine) cancelByCommand(ctx context.Context, m *CommandMessage, a *CommandAnswer) error {
	var c struct {
		head
		target
	}
	if err := readCommand(m.Body, &c); err != nil {
		return err
	}
	x, err := e.targetOf(ctx, &c.target)
	if err != nil {
		return err
	}
	a.Execution = &x.ID
	x, err = e.Cancel(ctx, x.ID, By{Actor: c.Actor, Reason: c.Reason, Request: m.ID}, nil)
	if err == nil {
		a.ExecutionStatus = x.Status
	}
	return err
}

// targetOf finds the execution that a command is for.
func (e *Engine) targetOf(ctx context.Context, t *target) (*store.Execution, error) {
	switch {
	case t.Execution != nil && (t.Saga != "" || t.Key != ""):
		return nil, fmt.Errorf("%w: the command names an execution both by its id and by saga and key", ErrInvalid)
	case t.Execution != nil:
		return e.store.Get(ctx, *t.Execution)
	case t.Saga == "" || t.Key == "":
		return nil, fmt.Errorf("%w: the command names no execution: give execution, or saga and key", ErrInvalid)
	}
	return e.store.Live(ctx, t.Saga, t.Key)
}
