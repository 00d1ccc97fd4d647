package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
)

// A Gate is what an execution waits for at its cursor before an attempt is
// opened, or what it has waited for.
type Gate struct {
	Kind  GateKind  `json:"kind"`
	Since time.Time `json:"since"`
	// Until is when the wait ends by itself; nil: it does not.
	Until *time.Time `json:"until,omitempty"`
	// Signals are the names that a signal gate waits for: one of them, or, with
	// All, each.
	Signals []string `json:"signals,omitempty"`
	All     bool     `json:"all,omitempty"`
	// Prompt and Choices make it a question to a person.
	Prompt  string   `json:"prompt,omitempty"`
	Choices []Choice `json:"choices,omitempty"`
	// Open says that the wait is over, and TimedOut that it was Until that
	// ended it.
	Open     bool `json:"open,omitempty"`
	TimedOut bool `json:"timed_out,omitempty"`
	// Moved says that a person has set Until.
	Moved bool `json:"moved,omitempty"`
	// Group is, of a turn gate, within what it waits for its turn.
	Group string `json:"group,omitempty"`
}

// A GateKind says what a [Gate] waits for.
type GateKind string

// The kinds of gates.
const (
	GateStart       GateKind = "start"       // the time before which the execution does not begin
	GateTime        GateKind = "time"        // the step's time
	GateSignal      GateKind = "signal"      // signals
	GateRetry       GateKind = "retry"       // a signal to try a step again whose attempts are exhausted
	GateChildren    GateKind = "children"    // the executions that the step has started
	GatePredecessor GateKind = "predecessor" // the end of the execution that it Follows
	GateTurn        GateKind = "turn"        // its turn among those of its saga or group
)

// Valid reports whether k is one of the kinds.
func (k GateKind) Valid() bool {
	switch k {
	case GateStart, GateTime, GateSignal, GateRetry, GateChildren, GatePredecessor, GateTurn:
		return true
	}
	return false
}

// A Choice is one answer that a person may give at a [Gate].
type Choice struct {
	Label   string          `json:"label"`
	Signal  string          `json:"signal"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// A Message is a signal that came for an execution.
type Message struct {
	Name string `json:"name"`
	// Key tells repetitions of one signal: of those with one Name and Key the
	// first one counts. "" for none.
	Key     string          `json:"key,omitempty"`
	Actor   string          `json:"actor,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"` // any JSON value; nil for none
	At      time.Time       `json:"at"`
	// Step is the step that has taken it, "" while it is buffered.
	Step string `json:"step,omitempty"`
	// Spent says that its step is over: it is kept for its Key alone, without a
	// payload.
	Spent bool `json:"spent,omitempty"`
}

// A Parent is the execution that started another one, the step of it that did,
// and the step's own name for the child.
type Parent struct {
	Execution uuid.UUID `json:"execution"`
	Step      string    `json:"step"`
	Key       string    `json:"key"`
}

// Clone returns a copy that shares nothing with g, with all times as stores
// keep them; nil for nil.
func (g *Gate) Clone() *Gate {
	if g == nil {
		return nil
	}
	h := *g
	h.Since, h.Until = Micros(g.Since), microsPtr(g.Until)
	h.Signals, h.Choices = slices.Clone(g.Signals), slices.Clone(g.Choices)
	for i := range h.Choices {
		h.Choices[i].Payload = bytes.Clone(h.Choices[i].Payload)
	}
	return &h
}

func cloneInbox(in []Message) []Message {
	out := slices.Clone(in)
	for i := range out {
		out[i].Payload, out[i].At = bytes.Clone(out[i].Payload), Micros(out[i].At)
	}
	return out
}
