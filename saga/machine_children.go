package saga

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

const (
	reasonParent = "parent" // cancelled or compensated because its parent turned around
	// classChild is the class of a step one of whose children did not complete.
	classChild = "child_failed"
)

// childrenLook is how often an execution looks whether its children have ended
// without letting it know.
const childrenLook = 10 * time.Minute

// joined is what is known of an execution's children from outside of its lock.
type joined struct {
	open   int
	failed *store.Execution // the first that ended in another way than completed
}

// spawn starts the children of the cursor's step, and waits for them.
func (m *machine) spawn(children []*child) {
	x, e := m.x, m.entry()
	raise(e, store.StepDone) // from now on there is something to undo
	m.overcome()
	for _, c := range children {
		y := &store.Execution{
			ID: c.id, Saga: c.saga, Partition: x.Partition, Resource: c.resource, State: c.state, TraceParent: x.TraceParent,
			Parent: &store.Parent{Execution: x.ID, Step: x.Step, Key: c.key},
		}
		if c.plan != nil {
			y.Partition = c.plan.partition
		}
		if o := c.Options; o != nil {
			y.Tags = o.Tags
			if o.Partition != "" {
				y.Partition = o.Partition
			}
			if o.TraceParent != "" {
				y.TraceParent = o.TraceParent
			}
		}
		m.create(y, c.plan)
	}
	x.Tries = 0
	x.Gate = &store.Gate{Kind: store.GateChildren, Since: m.now}
	if len(children) == 0 {
		m.join(nil)
		return
	}
	m.park()
}

// waitForChildren is what a look at an execution that waits for its children
// comes to.
func (m *machine) waitForChildren() string {
	j := m.answers.children(m.x)
	if j == nil {
		m.wants = wantChildren
		return dropAsk
	}
	s, ok := m.plan.step(m.x.Step)
	if !ok || s.children == nil {
		m.noteUnknown()
		return DropUnknown
	}
	if j.open > 0 && (s.children.join == JoinSettled || j.failed == nil) {
		return m.rest()
	}
	if s.children.join == JoinSettled {
		j.failed = nil
	}
	m.join(j.failed)
	if m.ended() {
		return DropEnded
	}
	return ""
}

// join goes on when the children have ended, failed being one that did not
// complete, where all have to.
func (m *machine) join(failed *store.Execution) {
	x := m.x
	if failed != nil {
		x.Status = store.StatusRunning
		f := m.stepFailure(classChild, "child %s of saga %q ended as %s", failed.ID, failed.Saga, failed.Status)
		m.failForGood(f)
		if !m.resting() {
			m.due(m.now)
		}
		return
	}
	m.openGate(false)
	if s, ok := m.plan.step(x.Step); ok && s.execute == nil {
		m.moveOn()
	}
}

// joining leaves an undo that waits for the children to end. When the execution
// has been written since the undo looked at them, one may have ended meanwhile:
// it could not make the execution due, as the undo was under way.
func (m *machine) joining(looked int64) {
	if m.x.Revision != looked {
		m.due(m.now)
		return
	}
	m.due(m.now.Add(childrenLook))
}

// undoForParent cancels a child that is at work, or compensates one that has
// completed.
func (m *machine) undoForParent(by By) error {
	x := m.x
	before := x.Status
	switch {
	case x.Status == store.StatusCompleted && x.ContinuedAs == nil && x.ErasedAt == nil:
		x.Status, x.FinishedAt = store.StatusRunning, nil
		m.keylessReopen()
		m.turnNow(store.TurnCompensate, by.Actor)
		m.because(reasonParent, by.Actor)
		m.actDone()
	case x.Status.Finished() || x.Direction == store.DirectionCompensate:
		return nil
	default:
		// A pivot that has been passed does not keep it: its parent has turned.
		if m.live() && !m.atPivot() {
			x.Request = &store.Request{Turn: store.TurnCancel, Actor: by.Actor, Reason: by.Reason, At: m.now}
			m.touch()
			break
		}
		if m.live() {
			return nil // the next look finds the pivot settled
		}
		m.clear(false)
		x.Request = nil
		m.turnNow(store.TurnCancel, by.Actor)
		m.actDone()
	}
	m.audit(ActCompensate, by, before)
	return nil
}

// keylessReopen takes the key of a completed child that is compensated: another
// one may have it by now.
func (m *machine) keylessReopen() { m.x.Key = "" }

// tellParent wakes the execution that has started this one.
func (m *machine) tellParent() {
	if p := m.x.Parent; p != nil {
		m.wake(p.Execution, false)
	}
}

// wake plans a look at another execution.
func (m *machine) wake(id uuid.UUID, release bool) {
	if i := slices.IndexFunc(m.change.Wake, func(w store.Wake) bool { return w.ID == id }); i >= 0 {
		m.change.Wake[i].Release = m.change.Wake[i].Release || release
		return
	}
	m.change.Wake = append(m.change.Wake, store.Wake{ID: id, At: m.now, Release: release})
}

func childSummary(list []*store.Execution) *joined {
	j := &joined{}
	for _, c := range list {
		switch {
		case !c.Status.Finished():
			j.open++
		case c.Status != store.StatusCompleted && j.failed == nil:
			j.failed = c
		}
	}
	return j
}
