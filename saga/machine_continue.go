package saga

import (
	"slices"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// newcomers are what the machine needs to make executions that go on from this
// one, or are started by it.
type newcomers struct {
	ids    func() uuid.UUID
	latest func(saga string) *plan // nil: not known here
}

// continueAsNew starts the saga anew with the state that this execution has
// come to.
func (m *machine) continueAsNew() {
	x := m.x
	if x.ReplacedBy != nil {
		return // the one that waits for its key goes on
	}
	m.spend(x.Step, nil)
	y := &store.Execution{
		ID: m.newcomers.ids(), Saga: x.Saga, Partition: x.Partition, Resource: x.Resource, Key: x.Key, Tags: x.Tags,
		Parent: x.Parent, Continues: &x.ID, Inbox: slices.Clone(x.Inbox), State: x.State, TraceParent: x.TraceParent,
	}
	if x.Deadline != nil {
		at := m.now.Add(x.Deadline.Sub(x.CreatedAt))
		y.Deadline = &at
	}
	x.ContinuedAs = &y.ID
	x.Inbox = nil
	m.create(y, m.newcomers.latest(x.Saga))
}

// create starts a new execution in the transaction of this one.
func (m *machine) create(y *store.Execution, p *plan) {
	y.Status, y.Direction = store.StatusRunning, store.DirectionExecute
	y.CreatedAt, y.UpdatedAt, y.ProgressAt = m.now, m.now, m.now
	if p != nil {
		p.equip(y)
	}
	ym := &machine{x: y, now: m.now, rules: m.rules, plan: p, jitter: m.jitter}
	ym.emit(EventStarted)
	// What a step has to be asked is asked by the worker that gets it.
	if ym.queueUp(); !ym.resting() {
		ym.offer()
	}
	m.change.Create = append(m.change.Create, y)
	m.created = append(m.created, ym)
}
