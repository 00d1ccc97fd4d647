package saga

import (
	"fmt"
	"slices"
	"time"

	"github.com/leveret-go/leveret/store"
)

// dropAsk is advance's reason to stop at a step that has to be asked something
// first, outside of the lock: see answers.
const dropAsk = "ask"

// The reasons and classes of waits.
const (
	reasonDeadline = "deadline" // compensating because the saga's deadline passed
	reasonReplaced = "replaced" // cancelled: a newer one was started in its place
	classDeadline  = "deadline"
)

// closed reports whether the execution waits at a gate.
func (m *machine) closed() bool { return m.x.Gate != nil && !m.x.Gate.Open }

// resting reports whether nothing is to be done with the execution now.
func (m *machine) resting() bool {
	return m.ended() || m.x.WakeAt != nil || m.x.Status == store.StatusWaiting
}

// waitAtGate is what a look at an execution with a closed gate comes to: "" when
// it is open now.
func (m *machine) waitAtGate() string {
	x, g := m.x, m.x.Gate
	switch {
	case g.Until != nil && g.Until.After(m.now):
		return m.rest()
	case g.Until == nil && (g.Kind == store.GateSignal || g.Kind == store.GateRetry):
		return m.rest()
	case m.paused():
		m.notePaused()
		return DropPaused
	}
	switch g.Kind {
	case store.GateStart, store.GateTurn, store.GatePredecessor:
		if m.plan == nil {
			m.noteUnknown()
			return DropUnknown
		}
	}
	switch g.Kind {
	case store.GateStart:
		m.startNow()
		return ""
	case store.GateTurn:
		return m.waitForTurn()
	case store.GateTime:
		if !m.known() {
			m.noteUnknown()
			return DropUnknown
		}
		if s, _ := m.plan.step(x.Step); s.waits && !g.Moved {
			e, asked := m.answers.about(x.Step, x.State)
			switch {
			case !asked:
				return dropAsk
			case e.err != nil:
				m.condition(e.err)
				return DropEnded
			case e.gate != nil && e.gate.again && e.gate.until.After(m.now):
				g.Until = e.gate.until // the time has moved
				return m.park()
			}
		}
		m.openGate(false)
		return ""
	case store.GateSignal, store.GateRetry:
		m.openGate(true)
		return ""
	case store.GatePredecessor:
		return m.waitForPredecessor()
	case store.GateChildren:
		return m.waitForChildren()
	}
	return m.rest()
}

// rest leaves a waiting execution as it is, due when it was: a claim has put that
// off.
func (m *machine) rest() string {
	x := m.x
	due := m.gateDue()
	if due == nil && x.DueAt != nil || due != nil && (x.DueAt == nil || !x.DueAt.Equal(*due)) || x.OfferedAt != nil {
		x.DueAt, x.OfferedAt, x.Resumes = due, nil, 0
		m.touch()
	}
	return DropEarly
}

// gateDue is when somebody must look at a waiting execution; nil: never.
func (m *machine) gateDue() *time.Time {
	due := m.x.Gate.Until
	switch m.x.Gate.Kind {
	case store.GatePredecessor:
		at := m.now.Add(predecessorLook)
		due = &at
	case store.GateChildren:
		at := m.now.Add(childrenLook)
		due = &at
	case store.GateTurn:
		at := m.now.Add(turnLook)
		due = &at
	}
	if d := m.deadline(); d != nil && (due == nil || d.Before(*due)) {
		due = d
	}
	return due
}

// park lets the execution wait at its gate.
func (m *machine) park() string {
	x := m.x
	x.Status, x.WakeAt = store.StatusWaiting, x.Gate.Until
	x.DueAt, x.OfferedAt = m.gateDue(), nil
	m.publish = false
	m.touch()
	m.emit(EventWaiting).Reason = string(x.Gate.Kind)
	return DropEarly
}

// openGate ends a wait.
func (m *machine) openGate(timedOut bool) {
	m.x.Gate.Open, m.x.Gate.TimedOut = true, timedOut
	if m.x.Gate.Kind == store.GateRetry {
		m.x.Tries, m.x.Gate.TimedOut = 0, false
	}
	m.goOnFromGate()
}

// startNow lets an execution begin that has waited to.
func (m *machine) startNow() {
	m.x.Gate, m.x.ProgressAt = nil, m.now
	m.goOnFromGate()
	m.queueUp()
}

func (m *machine) goOnFromGate() {
	x := m.x
	x.Status, x.WakeAt = store.StatusRunning, nil
	m.due(m.now)
}

// enter passes what stands before the cursor's step: its condition and its gate.
// It returns "" when an attempt of the cursor may be opened, which may be
// another step then (moved), else why not.
func (m *machine) enter(s *planStep) (reason string, moved bool) {
	x, l := m.x, m.entry()
	if s.ask == nil || x.Gate != nil || l.Opens > 0 && !s.waits {
		return "", false
	}
	e, asked := m.answers.about(x.Step, x.State)
	switch {
	case !asked:
		return dropAsk, false
	case e.err != nil:
		m.condition(e.err)
		return DropEnded, false
	case e.skip && l.Opens == 0:
		raise(l, store.StepSkipped)
		m.overcome()
		m.emit(EventStepSkipped).Reason = "its condition is false"
		m.moveOn()
		return "", true
	case e.gate == nil:
		return "", false
	}
	m.setGate(e.gate)
	if x.Gate.Open {
		m.touch()
		return "", false
	}
	return m.park(), false
}

// arrive passes what stands before the cursor's step, as far as it was asked
// before, although no attempt is going to be opened here.
func (m *machine) arrive() {
	for m.known() && m.x.Direction == store.DirectionExecute && !m.resting() && !m.expired() {
		s, ok := m.plan.step(m.x.Step)
		if !ok || s.removed {
			return
		}
		if _, moved := m.enter(s); !moved {
			return
		}
	}
}

// setGate makes a step's terms the execution's gate, open if nothing has to be
// waited for.
func (m *machine) setGate(t *gateTerms) {
	x := m.x
	g := &store.Gate{Kind: t.kind, Since: x.ProgressAt, Signals: t.signals, All: t.all, Prompt: t.prompt, Choices: t.choices}
	if m.entry().Opens > 0 && t.kind == store.GateSignal { // armed again
		g.Since = m.now
	}
	switch {
	case t.after != nil:
		until := g.Since.Add(*t.after)
		g.Until = &until
	case t.until != nil:
		g.Until = t.until
	}
	x.Gate = g
	switch {
	case t.kind == store.GateSignal && m.take():
		g.Open = true
	case g.Until != nil && !g.Until.After(m.now):
		g.Open, g.TimedOut = true, t.kind == store.GateSignal
	}
}

// take gives the signals that the gate waits for to the cursor's step, and
// reports whether they are all that it needs.
func (m *machine) take() bool {
	x, g := m.x, m.x.Gate
	found := 0
	for _, name := range g.Signals {
		i := slices.IndexFunc(x.Inbox, func(s store.Message) bool { return s.Name == name && !s.Spent && s.Step == x.Step })
		if i < 0 {
			i = slices.IndexFunc(x.Inbox, func(s store.Message) bool { return s.Name == name && !s.Spent && s.Step == "" })
		}
		if i < 0 {
			continue
		}
		if found++; !g.All {
			x.Inbox[i].Step = x.Step
			return true
		}
		x.Inbox[i].Step = x.Step
	}
	return found == len(g.Signals)
}

// spend ends what a step has received: it remains for its keys.
func (m *machine) spend(step string, names []string) {
	x := m.x
	if len(x.Inbox) == 0 {
		return
	}
	spent := 0
	for i := range x.Inbox {
		if s := &x.Inbox[i]; s.Step == step && step != "" && (names == nil || slices.Contains(names, s.Name)) {
			s.Spent, s.Payload = true, nil
		}
		if x.Inbox[i].Spent {
			spent++
		}
	}
	x.Inbox = slices.DeleteFunc(x.Inbox, func(s store.Message) bool {
		if s.Spent && (s.Key == "" || spent > maxSpent) {
			spent--
			return true
		}
		return false
	})
}

// maxSpent is of how many used up signals the keys are remembered.
const maxSpent = 500

// rearm lets the step wait again, for other signals.
func (m *machine) rearm() {
	x := m.x
	if x.Gate != nil && (x.Gate.Kind == store.GateSignal || x.Gate.Kind == store.GateRetry) {
		m.spend(x.Step, nil)
		x.Gate = nil
	}
}

// parkForRetry lets a step whose attempts are exhausted wait for a signal.
func (m *machine) parkForRetry(name string, f *store.Failure) {
	x := m.x
	m.spend(x.Step, []string{name})
	x.Failure = f
	x.Gate = &store.Gate{Kind: store.GateRetry, Since: m.now, Signals: []string{name}}
	if m.take() {
		m.openGate(false)
		return
	}
	m.park()
}

// signal takes a signal in. It reports what became of it.
func (m *machine) signal(s store.Message) (SignalResult, error) {
	x := m.x
	if x.Status.Finished() {
		return SignalFinished, nil
	}
	total := 0
	for i := range x.Inbox {
		if k := &x.Inbox[i]; s.Key != "" && k.Name == s.Name && k.Key == s.Key {
			return SignalDuplicate, nil
		}
		total += len(x.Inbox[i].Payload)
	}
	if len(x.Inbox) >= store.MaxMessages || total+len(s.Payload) > store.MaxInbox {
		return "", ErrInboxFull
	}
	x.Inbox = append(x.Inbox, s)
	m.touch()
	m.emit(EventSignal).Reason = s.Name
	if !m.closed() || x.Status != store.StatusWaiting || !slices.Contains(x.Gate.Signals, s.Name) {
		return SignalBuffered, nil
	}
	if x.Gate.Until != nil && x.Gate.Kind == store.GateSignal && !x.Gate.Until.After(m.now) {
		return SignalBuffered, nil // the deadline has passed, though nobody has looked yet
	}
	if m.take() {
		m.openGate(false)
		m.offer()
	}
	return SignalDelivered, nil
}

// reschedule moves the time for which the execution waits.
func (m *machine) reschedule(at time.Time) error {
	x := m.x
	switch {
	case x.Status.Finished():
		return ErrFinished
	case m.live():
		return ErrAttemptRunning
	case x.Status == store.StatusWaiting && m.closed():
		switch x.Gate.Kind {
		case store.GateTime, store.GateStart, store.GateSignal, store.GateRetry:
		default:
			return ErrNotWaiting
		}
		x.Gate.Until, x.Gate.Moved = &at, true
		x.WakeAt = &at
		x.DueAt, x.OfferedAt = m.gateDue(), nil
	case m.ended() || x.WakeAt == nil || m.waitsFor() == DiagnosisDoubt:
		return ErrNotWaiting
	default: // the wait of a retry, or of a snooze
		m.wait(at)
	}
	m.touch()
	return nil
}

// deadline is when the execution is turned around; nil: never (any more).
func (m *machine) deadline() *time.Time {
	if m.x.Direction != store.DirectionExecute || m.past() {
		return nil
	}
	return m.x.Deadline
}

// expired reports whether the saga's deadline has passed.
func (m *machine) expired() bool {
	d := m.deadline()
	return d != nil && !d.After(m.now)
}

// expire turns an execution around whose deadline has passed.
func (m *machine) expire() {
	x := m.x
	f := m.stepFailure(classDeadline, "the deadline of the saga passed at step %q", x.Step)
	m.because(reasonDeadline, "")
	x.Status = store.StatusRunning
	m.failForGood(f)
	m.actDone()
}

// condition halts an execution one of whose functions about its state is broken.
func (m *machine) condition(err error) {
	m.x.Failure = m.stepFailure(classCondition, "step %q: %v", m.x.Step, err)
	m.halt(fmt.Sprintf("step %q could not be asked: %v", m.x.Step, err))
}

const classCondition = "condition"

// predecessorLook is how often an execution looks whether its predecessor has
// ended without letting it know.
const predecessorLook = 10 * time.Minute

// turnLook is how often an execution looks whether it is its turn without having
// been let in.
const turnLook = 10 * time.Minute
