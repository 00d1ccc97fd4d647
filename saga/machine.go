package saga

import (
	"fmt"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A machine decides what happens to one execution: what a delivery, a result,
// an operator's act or a lapsed lease makes of it. It does no I/O and reads no
// clock. The engine loads an execution, lets a machine change it, writes x and
// change in one transaction, and then, after the commit, emits the events and
// publishes a pointer if publish is set.
//
// A machine is used for one transaction and thrown away.
type machine struct {
	x     *store.Execution
	was   store.Status // as it was loaded; "": it is new
	now   time.Time
	rules rules
	plan  *plan // nil: the saga is not known to this process
	// answers are what steps were asked before; nil: nothing.
	answers   *answers
	wants     want // what to ask, after dropAsk
	newcomers newcomers
	// jitter varies waits; in [-1, 1).
	jitter float64

	change  store.Change
	events  []Event
	created []*machine // those of executions that change creates
	publish bool       // a pointer to the row's position is to be published
	opened  bool       // an attempt was opened for this worker
	keyless bool       // somebody else has its key: it is reopened without it
	dirty   bool       // something changed
}

// Rules are the settings of the engine that the machine decides by.
type rules struct {
	worker      string
	lease       time.Duration
	margin      time.Duration // between the end of a lease and its being taken over
	pickup      time.Duration
	stepTimeout time.Duration
	maxResumes  int
	onStalled   OnStalled
	// paused: what must not move.
	paused *pauseSet
	// direct: pointers cannot be published (now), the store is worked directly:
	// new work is due at once.
	direct bool
}

// The reasons that the machine gives an execution.
const (
	reasonCancelled      = "cancelled"       // compensating or ended because somebody cancelled it
	reasonOperator       = "operator"        // compensating because somebody asked for it
	reasonInDoubt        = "in_doubt"        // halted: a person must say whether the step had its effect
	reasonNoCompensation = "no_compensation" // halted: this build cannot undo the step
	reasonStalled        = "stalled"         // given up because pointers got lost
)

// The classes of failures that the machine makes.
const (
	classAbandoned  = "abandoned"
	classStalled    = "stalled"
	classLateEffect = "late_effect"
	classState      = "state_refused"
)

// earlyTolerance is how much too early a pointer may come and still be taken:
// else a retry would wait for another sweep because of a rounded clock.
const earlyTolerance = 100 * time.Millisecond

func (m *machine) entry() *store.LedgerEntry { return m.x.Entry(m.x.Step) }

func (m *machine) ended() bool {
	return m.x.Status.Finished() || m.x.Status == store.StatusHalted
}

// live reports whether an attempt is open that must not be taken over.
func (m *machine) live() bool {
	return m.x.Attempt != nil && m.now.Before(m.x.Attempt.LeaseUntil.Add(m.rules.margin))
}

// known reports whether this process can work on the execution's cursor.
func (m *machine) known() bool {
	if m.plan == nil {
		return false
	}
	if m.x.Step == "" {
		return true
	}
	_, ok := m.plan.step(m.x.Step)
	return ok
}

// touch marks the execution as changed.
func (m *machine) touch() {
	m.dirty = true
	m.x.UpdatedAt = m.now
}

func (m *machine) emit(kind EventKind) *Event {
	x := m.x
	e := Event{
		Kind: kind, At: m.now, Execution: x.ID, Saga: x.Saga, Version: x.Version, Partition: x.Partition,
		Resource: x.Resource, Status: x.Status, Epoch: x.Epoch, Step: x.Step, Direction: x.Direction,
	}
	if x.Attempt != nil {
		e.Attempt = x.Attempt.Number
	}
	if x.Failure != nil {
		e.Err = &FailureError{*x.Failure}
	}
	m.events = append(m.events, e)
	return &m.events[len(m.events)-1]
}

// due sets when the execution must be looked at again, not offered to anybody.
func (m *machine) due(at time.Time) {
	if d := m.deadline(); d != nil && m.x.Attempt == nil && d.Before(at) {
		at = *d
	}
	m.x.DueAt, m.x.OfferedAt = &at, nil
	m.touch()
}

// lookAt is due for an execution that may be past its deadline and cannot be
// turned around here: there is no hurry any more.
func (m *machine) lookAt(at time.Time) {
	at = m.beforeDeadline(at)
	m.x.DueAt, m.x.OfferedAt = &at, nil
	m.touch()
}

// beforeDeadline returns the deadline, if that is still to come, and before at.
func (m *machine) beforeDeadline(at time.Time) time.Time {
	if d := m.deadline(); d != nil && m.x.Attempt == nil && d.After(m.now) && d.Before(at) {
		return *d
	}
	return at
}

// wait parks the execution until at.
func (m *machine) wait(at time.Time) {
	m.due(at)
	m.x.WakeAt = &at
}

// paused reports whether the execution must not move now.
func (m *machine) paused() bool { return m.rules.paused.holds(m.x) }

// offer plans a pointer to the execution's position.
func (m *machine) offer() {
	if m.rules.direct || m.paused() {
		m.due(m.now)
		return
	}
	now := m.now
	m.lookAt(now.Add(m.rules.pickup))
	m.x.OfferedAt = &now
	m.publish = true
}

// moveTo sets the cursor.
func (m *machine) moveTo(step string, d store.Direction) {
	x := m.x
	if x.Direction != d {
		m.resetOpens()
	}
	if x.Direction != d || x.Step != step {
		x.Checkpoint, x.Gate = nil, nil
	}
	x.Step, x.Direction = step, d
	x.Tries, x.WakeAt = 0, nil
	x.ProgressAt = m.now
	m.touch()
}

func (m *machine) resetOpens() {
	for i := range m.x.Ledger {
		m.x.Ledger[i].Opens = 0
	}
}

// epochUp makes all pointers and attempts so far those of the past.
func (m *machine) epochUp() {
	x := m.x
	x.Epoch++
	x.Tries, x.Resumes, x.WakeAt = 0, 0, nil
	x.ProgressAt = m.now
	m.resetOpens()
	m.touch()
}

// raise lifts a step's status in the ledger; it never falls.
func raise(e *store.LedgerEntry, to store.StepStatus) {
	if rank(to) > rank(e.Status) {
		e.Status = to
	}
}

func rank(s store.StepStatus) int {
	switch s {
	case store.StepSkipped:
		return 1
	case store.StepInDoubt:
		return 2
	case store.StepDone:
		return 3
	case store.StepUndone:
		return 4
	}
	return 0
}

// close ends the open attempt and records it in the history.
func (m *machine) close(status store.AttemptStatus) *store.Attempt {
	a, _ := m.x.OpenAttempt()
	now := m.now
	a.Status, a.FinishedAt = status, &now
	m.x.Attempt = nil
	m.change.Attempts = append(m.change.Attempts, a)
	m.touch()
	return &m.change.Attempts[len(m.change.Attempts)-1]
}

// abandon closes an open attempt whose body was not seen to return.
func (m *machine) abandon(why string) {
	x := m.x
	e := m.entry()
	if x.Direction == store.DirectionExecute && !e.Atomic {
		raise(e, store.StepInDoubt)
		// The body may be at work for as long as its time-out lets it.
		until := x.Attempt.LeaseUntil.Add(m.rules.lease)
		if x.Attempt.TimeoutAt != nil {
			until = *x.Attempt.TimeoutAt
		}
		if e.DoubtUntil == nil || e.DoubtUntil.Before(until) {
			e.DoubtUntil = &until
		}
	}
	ev := m.emit(EventAttemptAbandoned)
	ev.Took, ev.Reason = m.now.Sub(x.Attempt.StartedAt), why
	m.close(store.AttemptAbandoned).Reason = why
}

// open opens the next attempt of the cursor for this worker. inherit, if not
// nil, is the end of a lease that is taken over as it is.
func (m *machine) open(s *planStep, inherit *time.Time) {
	x, e := m.x, m.entry()
	e.Opens++
	x.Tries++
	e.Atomic = e.Atomic && s.atomic()
	until := m.now.Add(m.rules.lease)
	if inherit != nil {
		until = *inherit
	}
	x.Attempt = &store.OpenAttempt{Number: e.Opens, Worker: m.rules.worker, StartedAt: m.now, LeaseUntil: until}
	timeout := s.timeout
	if timeout == 0 {
		timeout = m.rules.stepTimeout
	}
	if timeout != NoTimeout {
		at := m.now.Add(timeout)
		x.Attempt.TimeoutAt = &at
	}
	if d := m.deadline(); d != nil && (x.Attempt.TimeoutAt == nil || d.Before(*x.Attempt.TimeoutAt)) {
		x.Attempt.TimeoutAt = d
	}
	if x.Direction == store.DirectionCompensate && e.Round == 0 {
		e.Round = 1
	}
	m.due(until.Add(m.rules.margin))
	x.WakeAt, x.Resumes = nil, 0
	m.publish, m.opened = false, true
	m.emit(EventStepStarted)
}

// finish ends the execution.
func (m *machine) finish(status store.Status) {
	x, now := m.x, m.now
	x.Status, x.FinishedAt = status, &now
	x.DueAt, x.WakeAt, x.OfferedAt, x.Request = nil, nil, nil, nil
	x.Tries, x.Resumes = 0, 0
	if status != store.StatusFailed { // Retry goes on from its checkpoint
		x.Checkpoint = nil
	}
	if g := x.Gate; status != store.StatusFailed || g != nil && (!g.Open || g.TimedOut) {
		x.Gate = nil // Retry waits again for what did not come
	}
	x.ProgressAt = now
	m.publish = false
	m.touch()
	kind := map[store.Status]EventKind{
		store.StatusCompleted: EventCompleted, store.StatusCompensated: EventCompensated, store.StatusFailed: EventFailed,
		store.StatusCompensationFailed: EventCompensationFailed, store.StatusCancelled: EventCancelled,
	}[status]
	m.emit(kind).Reason = x.Reason
	m.handKeyOver()
	m.tellParent()
}

// halt parks the execution for a person.
func (m *machine) halt(reason string) {
	x := m.x
	x.Status = store.StatusHalted
	x.Reason, x.ReasonBy = reason, ""
	x.DueAt, x.WakeAt, x.OfferedAt, x.Request = nil, nil, nil, nil
	m.publish = false
	m.touch()
	m.emit(EventHalted).Reason = reason
}

// audit records what somebody did.
func (m *machine) audit(act Act, by By, before store.Status) *store.AuditEntry {
	m.change.Audit = append(m.change.Audit, store.AuditEntry{
		Execution: m.x.ID, At: m.now, Act: string(act), Actor: by.Actor, Reason: by.Reason,
		Before: before, After: m.x.Status, Request: by.Request,
	})
	m.touch()
	return &m.change.Audit[len(m.change.Audit)-1]
}

// because says why the execution halts, compensates or ended, and who said so.
func (m *machine) because(reason, by string) { m.x.Reason, m.x.ReasonBy = reason, by }

// stepFailure is a failure of the cursor's step.
func (m *machine) stepFailure(class, format string, args ...any) *store.Failure {
	return &store.Failure{Class: class, Message: fmt.Sprintf(format, args...), Step: m.x.Step}
}
