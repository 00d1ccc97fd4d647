package saga

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"github.com/leveret-go/leveret/store"
)

// AnyDefinition is a Definition of any state type, for [Engine.RegisterAll].
type AnyDefinition interface {
	// Outline returns what the definition looks like from outside.
	Outline() Outline
	register(e *Engine) error
}

func (d Definition[S]) register(e *Engine) error {
	_, err := Register(e, d)
	return err
}

// RegisterAll registers several definitions; all faults are in one error, but
// those before the first faulty one stay registered.
func (e *Engine) RegisterAll(defs ...AnyDefinition) error {
	var errs []error
	for _, d := range defs {
		errs = append(errs, d.register(e))
	}
	return errors.Join(errs...)
}

// An Outline is what a definition looks like from outside, so that a saga can
// be drawn that has never run, and a build be held against the executions there
// are ([Check]). Workers keep theirs in the store ([Engine.StoredOutlines]).
//
// In JSON, a list of them is also what a service writes down about its build:
//
//	json.NewEncoder(file).Encode(engine.Outlines())
//
// Names of fields are stable; later versions may add some.
type Outline struct {
	Saga      string        `json:"saga"`
	Version   int           `json:"version"`
	Partition string        `json:"partition"`
	Steps     []OutlineStep `json:"steps"`
	Removed   []OutlineStep `json:"removed,omitempty"`
	// Keyed says that the definition works out a start key.
	Keyed bool `json:"keyed,omitempty"`
	// Schema is the JSON Schema of the state: see [Definition.Schema].
	Schema json.RawMessage `json:"schema,omitempty"`
	// Redact is what people are not to see of the state: [Definition.Redact].
	Redact []string `json:"redact,omitempty"`
}

// An OutlineStep is a step of an Outline.
type OutlineStep struct {
	Name        string        `json:"name"`
	Was         []string      `json:"was,omitempty"`
	Compensable bool          `json:"compensable,omitempty"`
	InDoubt     store.InDoubt `json:"in_doubt"`
	Pivot       bool          `json:"pivot,omitempty"`
	// If says that the step has a condition.
	If bool `json:"if,omitempty"`
	// Waits is what it waits for before its attempts: "time" or "signal"; ""
	// for nothing. Awaits are the signals that do not depend on the state.
	Waits  string   `json:"waits,omitempty"`
	Awaits []string `json:"awaits,omitempty"`
	// RetryOnSignal is the signal of [Step.RetryOnSignal].
	RetryOnSignal string `json:"retry_on_signal,omitempty"`
	// Children says that it starts other sagas, Tx that it works in a
	// transaction.
	Children bool `json:"children,omitempty"`
	Tx       bool `json:"tx,omitempty"`
}

// Outline returns what the definition looks like from outside.
func (d Definition[S]) Outline() Outline {
	p, _ := erase(d)
	return p.outline()
}

func (p *plan) outline() Outline {
	o := Outline{Saga: p.saga, Version: p.version, Partition: p.partition, Keyed: p.starter.keyed}
	for _, list := range p.redact {
		pointer := ""
		for _, token := range list {
			pointer += "/" + escapePointer(token)
		}
		o.Redact = append(o.Redact, pointer)
	}
	if p.schema != nil {
		o.Schema = p.schema.text
	}
	list := func(steps []*planStep) (out []OutlineStep) {
		for _, s := range steps {
			out = append(out, s.outline())
		}
		return out
	}
	o.Steps, o.Removed = list(p.steps), list(p.removed)
	return o
}

func (s *planStep) outline() OutlineStep {
	o := OutlineStep{
		Name: s.name, Was: s.was, Compensable: s.compensable, InDoubt: s.inDoubt, Pivot: s.pivot, If: s.hasIf,
		Awaits: s.awaits, RetryOnSignal: s.retryOn, Children: s.children != nil, Tx: s.executeTx != nil || s.compensateTx != nil,
	}
	switch {
	case s.await:
		o.Waits = waitsForSignal
	case s.waits:
		o.Waits = waitsForTime
	}
	return o
}

const (
	waitsForSignal = "signal"
	waitsForTime   = "time"
)

// Outlines lists the sagas registered here, by name and version.
func (e *Engine) Outlines() []Outline {
	e.plans.RLock()
	defer e.plans.RUnlock()
	var out []Outline
	for _, versions := range e.plans.byName {
		for _, p := range versions {
			out = append(out, p.outline())
		}
	}
	sortOutlines(out)
	return out
}

// definitions counts them.
func (e *Engine) definitions() (n int) {
	e.plans.RLock()
	defer e.plans.RUnlock()
	for _, versions := range e.plans.byName {
		n += len(versions)
	}
	return n
}

func sortOutlines(list []Outline) {
	slices.SortFunc(list, func(a, b Outline) int {
		return cmp.Or(cmp.Compare(a.Saga, b.Saga), cmp.Compare(a.Version, b.Version))
	})
}
