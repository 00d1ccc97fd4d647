package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A DiagnosisCode says in one word why an execution is where it is.
type DiagnosisCode string

// The diagnoses.
const (
	DiagnosisFinished     DiagnosisCode = "finished"
	DiagnosisHalted       DiagnosisCode = "halted"       // parked for a person
	DiagnosisRequested    DiagnosisCode = "requested"    // an act waits for the running attempt to settle
	DiagnosisRunning      DiagnosisCode = "running"      // an attempt runs under a live lease
	DiagnosisLeaseLapsed  DiagnosisCode = "lease_lapsed" // its worker was not heard of; it is taken over when due
	DiagnosisPaused       DiagnosisCode = "paused"       // its partition or saga is paused
	DiagnosisRetry        DiagnosisCode = "retry"        // an attempt failed, the next one comes later
	DiagnosisDoubt        DiagnosisCode = "doubt"        // the undo waits until a lost body must have ended
	DiagnosisWaiting      DiagnosisCode = "waiting"      // it waits for a time of its own
	DiagnosisUnknown      DiagnosisCode = "unknown"      // no living worker knows the saga or its step
	DiagnosisBrokerDown   DiagnosisCode = "broker_down"  // consumers work the store meanwhile
	DiagnosisNoConsumer   DiagnosisCode = "no_consumer"  // nobody consumes its partition
	DiagnosisQueued       DiagnosisCode = "queued"       // its pointer waits behind others
	DiagnosisBacklog      DiagnosisCode = "backlog"      // and these are many
	DiagnosisLost         DiagnosisCode = "lost"         // its pointer is in no queue; the sweep publishes it again
	DiagnosisPickup       DiagnosisCode = "pickup"       // its pointer is on its way
	DiagnosisDue          DiagnosisCode = "due"          // somebody must look at it now
	DiagnosisOverdue      DiagnosisCode = "overdue"      // and nobody has for too long
	DiagnosisNotAdopted   DiagnosisCode = "not_adopted"  // started from outside, no worker has looked at it yet
	DiagnosisInconsistent DiagnosisCode = "inconsistent" // it should not be possible: report it
)

// A Diagnosis is the one reason why an execution is where it is.
type Diagnosis struct {
	Execution uuid.UUID     `json:"execution"`
	Code      DiagnosisCode `json:"code"`
	// Sentence says it to people, in English.
	Sentence string    `json:"sentence"`
	Since    time.Time `json:"since"`
	// Until is when that ends by itself, as far as is known; nil: not, or not
	// known.
	Until *time.Time `json:"until,omitempty"`
	Step  string     `json:"step,omitempty"`
	// Worker is whose attempt is open.
	Worker string `json:"worker,omitempty"`
	// By and Because are who halted or paused it, and why; Because is also the
	// error of a failed attempt.
	By      string `json:"by,omitempty"`
	Because string `json:"because,omitempty"`
	// Ahead is how many pointers are ready in its partition's queue.
	Ahead int `json:"ahead,omitempty"`
	// Behind is the execution that has to end first.
	Behind *uuid.UUID `json:"behind,omitempty"`
	// Act is what a person can do about it, "" when there is nothing to be
	// done.
	Act Act `json:"act,omitempty"`
}

// Diagnose says why an execution is where it is: one reason, the first that
// keeps it from moving. It asks the store for the row, the pauses and the
// workers, and the publisher, if this engine has one, for its queue. A process
// without the service's code diagnoses as well, from the records of the
// workers. A queue that does not answer within 2 seconds is taken as not known.
// Errors are those of the store.
func (e *Engine) Diagnose(ctx context.Context, id uuid.UUID) (*Diagnosis, error) {
	x, err := e.store.Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("saga: diagnose %s: %w", id, err)
	}
	all, err := e.DiagnoseAll(ctx, []*Execution{x})
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// DiagnoseAll is Diagnose for executions that were just read, such as those of a
// list: what they have in common is asked for once. All their queues together are
// given 5 seconds to answer.
func (e *Engine) DiagnoseAll(ctx context.Context, xs []*Execution) ([]Diagnosis, error) {
	if err := e.clock.ready(ctx); err != nil {
		return nil, err
	}
	s, err := e.surroundings(ctx, xs)
	if err != nil {
		return nil, err
	}
	out := make([]Diagnosis, len(xs))
	for i, x := range xs {
		out[i] = s.diagnose(x)
	}
	return out, nil
}

const (
	diagnoseProbe  = 2 * time.Second // for one queue
	diagnoseProbes = 5 * time.Second // for all that one call asks
)

// surroundings are what a diagnosis has to know besides the row.
type surroundings struct {
	now    time.Time
	cfg    *Config
	margin time.Duration
	pauses []Pause
	depths map[string]depth
	// predecessors are the executions that others wait for.
	predecessors map[uuid.UUID]*store.Execution
	connected    bool
	publisher    bool
	// known reports whether a living process can work on the execution's cursor.
	known func(x *store.Execution) bool
	// attended reports whether a living worker has the partition; nil: not
	// known.
	attended func(partition string) bool
}

func (e *Engine) surroundings(ctx context.Context, xs []*store.Execution) (*surroundings, error) {
	s := &surroundings{now: e.clock.now(), cfg: &e.cfg, margin: leaseMargin, connected: !e.direct(), publisher: e.pub != nil}
	p, _, err := e.readPauses(ctx)
	if err != nil {
		return nil, err
	}
	s.pauses = p.Now
	if s.predecessors, err = e.predecessorsOf(ctx, xs); err != nil {
		return nil, err
	}
	workers, err := e.Workers(ctx)
	if err != nil && !errors.Is(err, ErrNotSupported) {
		return nil, err
	}
	living := slices.DeleteFunc(workers, func(w WorkerInfo) bool { return !w.Alive })
	s.known = func(x *store.Execution) bool {
		m := &machine{x: x, plan: e.planFor(x)}
		return m.known() || len(living) == 0 && !e.registered() || slices.ContainsFunc(living, func(w WorkerInfo) bool { return w.knows(x) })
	}
	if err == nil {
		s.attended = func(p string) bool {
			return slices.ContainsFunc(living, func(w WorkerInfo) bool { return w.attends(p) })
		}
	}
	if s.connected {
		s.depths = e.depths(ctx, xs)
	}
	return s, nil
}

// depths asks for the queues of executions, each once and for diagnoseProbe, all
// of them for diagnoseProbes.
func (e *Engine) depths(ctx context.Context, xs []*store.Execution) map[string]depth {
	out := map[string]depth{}
	ctx, cancel := context.WithTimeout(ctx, diagnoseProbes)
	defer cancel()
	for _, x := range xs {
		if _, ok := out[x.Partition]; ok || x.Status.Finished() {
			continue
		}
		pctx, cancel := context.WithTimeout(ctx, diagnoseProbe)
		ready, consumers, err := e.Depth(pctx, x.Partition)
		cancel()
		if errors.Is(err, errors.ErrUnsupported) || ctx.Err() != nil {
			break
		}
		out[x.Partition] = depth{ready: ready, consumers: consumers, known: err == nil}
	}
	return out
}

// registered reports whether any saga is registered here.
func (e *Engine) registered() bool {
	e.plans.RLock()
	defer e.plans.RUnlock()
	return len(e.plans.byName) > 0
}

// overdueAfter is how late an execution is looked at before that is a reason
// for a person to look.
func (cfg *Config) overdueAfter() time.Duration { return max(10*cfg.SweepEvery, cfg.PickupWithin) }

// diagnose finds the first reason that keeps x from moving.
func (s *surroundings) diagnose(x *store.Execution) Diagnosis {
	d := Diagnosis{Execution: x.ID, Step: x.Step, Since: x.ProgressAt}
	say := func(code DiagnosisCode, act Act, format string, args ...any) Diagnosis {
		d.Code, d.Act, d.Sentence = code, act, fmt.Sprintf(format, args...)
		return d
	}
	if x.Attempt != nil {
		d.Worker = x.Attempt.Worker
	}
	at := fmt.Sprintf("step %q", x.Step)
	if x.Direction == store.DirectionCompensate {
		at = fmt.Sprintf("the undo of step %q", x.Step)
	}
	switch {
	case x.Status.Finished():
		return s.ended(x, d)
	case x.Status == store.StatusHalted:
		return s.halted(x, d)
	case x.Attempt != nil && s.now.Before(x.Attempt.LeaseUntil.Add(s.margin)):
		d.Since, d.Until = x.Attempt.StartedAt, &x.Attempt.LeaseUntil
		if q := x.Request; q != nil {
			d.By, d.Because = q.Actor, q.Reason
			return say(DiagnosisRequested, "", "%s runs at worker %s; %s asked for %s, which is done when the attempt ends.", at, d.Worker, q.Actor, requestText(q))
		}
		return say(DiagnosisRunning, "", "%s runs at worker %s, attempt %d since %s%s; its lease holds until %s.",
			at, d.Worker, x.Attempt.Number, clock3339(d.Since), progressText(x.Attempt.Progress), clock3339(*d.Until))
	}
	if p, ok := s.pauseOf(x); ok {
		d.Since, d.By, d.Because = p.At, p.Actor, p.Reason
		return say(DiagnosisPaused, "", "%s is paused since %s by %s: %s.", p.Scope, clock3339(p.At), p.Actor, p.Reason)
	}
	if x.Status == store.StatusWaiting && x.Gate != nil && !x.Gate.Open && (x.Gate.Until == nil || x.Gate.Until.After(s.now)) {
		return s.waits(x, d, at)
	}
	if x.WakeAt != nil && x.WakeAt.After(s.now) {
		d.Until = x.WakeAt
		m := &machine{x: x, now: s.now}
		switch code := m.waitsFor(); code {
		case DiagnosisRetry:
			d.Because = x.Failure.Class
			return say(code, ActRetry, "%s failed with %s; the next attempt (after %d) comes at %s.", at, x.Failure.Class, x.Tries, clock3339(*d.Until))
		case DiagnosisDoubt:
			return say(code, "", "%s waits until %s, when an attempt whose end nobody saw must have ended.", at, clock3339(*d.Until))
		default:
			return say(code, "", "%s waits until %s, as it asked to.", at, clock3339(*d.Until))
		}
	}
	if x.DueAt == nil {
		if x.Status == store.StatusWaiting {
			return say(DiagnosisWaiting, "", "%s waits without a deadline.", at)
		}
		return say(DiagnosisInconsistent, ActRetry, "it is unfinished, but nobody is to look at it.")
	}
	if !s.known(x) {
		return say(DiagnosisUnknown, "", "no living worker knows version %d of saga %q, or its step %q.", x.Version, x.Saga, x.Step)
	}
	return s.queued(x, d, at)
}

// ended is the diagnosis of a finished execution.
func (s *surroundings) ended(x *store.Execution, d Diagnosis) Diagnosis {
	d.Code = DiagnosisFinished
	if x.FinishedAt != nil {
		d.Since = *x.FinishedAt
	}
	d.By = x.ReasonBy
	if x.Failure != nil {
		d.Because = x.Failure.Class
	}
	switch x.Status {
	case store.StatusFailed:
		d.Act = ActRetry
		d.Sentence = fmt.Sprintf("it failed at step %q, and nothing was left to undo.", x.Step)
	case store.StatusCompensationFailed:
		d.Act = ActRetry
		d.Sentence = fmt.Sprintf("its compensation failed at step %q: a person must see to it.", failedStep(x))
	default:
		d.Sentence = fmt.Sprintf("it ended as %s.", x.Status)
	}
	return d
}

func failedStep(x *store.Execution) string {
	if x.Failure != nil {
		return x.Failure.Step
	}
	return x.Step
}

func (s *surroundings) halted(x *store.Execution, d Diagnosis) Diagnosis {
	d.Code, d.Act = DiagnosisHalted, ActResume
	d.Since, d.By, d.Because = x.UpdatedAt, x.ReasonBy, x.Reason
	switch {
	case x.ReasonBy != "":
		d.Sentence = fmt.Sprintf("%s halted it: %s.", x.ReasonBy, x.Reason)
	case x.Reason == reasonInDoubt:
		d.Sentence = fmt.Sprintf("nobody knows whether step %q had its effect: Resume takes it as done, SkipStep as not.", x.Step)
	case x.Reason == reasonNoCompensation:
		d.Act = ActSkipStep
		d.Sentence = fmt.Sprintf("step %q has to be undone, but the build that looked has no compensation for it.", x.Step)
	case x.Reason == reasonStalled:
		d.Sentence = "its pointers were lost again and again."
	default:
		d.Sentence = fmt.Sprintf("step %q asked for a person: %s.", x.Step, x.Reason)
	}
	return d
}

// queued is the diagnosis of an execution that could be worked on.
func (s *surroundings) queued(x *store.Execution, d Diagnosis, at string) Diagnosis {
	due := *x.DueAt
	if due.After(s.now) {
		d.Until = &due
	}
	say := func(code DiagnosisCode, act Act, format string, args ...any) Diagnosis {
		d.Code, d.Act, d.Sentence = code, act, fmt.Sprintf(format, args...)
		return d
	}
	late := s.now.Sub(due)
	if x.OfferedAt != nil {
		d.Since = *x.OfferedAt
	}
	if x.Attempt != nil {
		d.Since = x.Attempt.LeaseUntil
		if late <= s.cfg.overdueAfter() {
			return say(DiagnosisLeaseLapsed, "", "worker %s was not heard of since its lease ended at %s; %s is taken over at the next look.", d.Worker, clock3339(d.Since), at)
		}
	}
	q, asked := s.depths[x.Partition]
	switch {
	case s.publisher && !s.connected:
		return say(DiagnosisBrokerDown, "", "the broker is away; workers of partition %q take their work from the store.", x.Partition)
	case asked && q.known && q.consumers == 0 || !(asked && q.known) && s.unattended(x.Partition):
		return say(DiagnosisNoConsumer, "", "nobody consumes partition %q.", x.Partition)
	case asked && q.known && q.ready > 0 && x.OfferedAt != nil:
		d.Ahead = q.ready
		code := DiagnosisQueued
		if q.ready > s.cfg.BacklogThreshold {
			code = DiagnosisBacklog
		}
		return say(code, "", "its pointer waits in the queue of partition %q, where %d are ready.", x.Partition, q.ready)
	case late > s.cfg.overdueAfter():
		return say(DiagnosisOverdue, ActRetry, "it was due at %s, and nobody has looked at it: is any process sweeping?", clock3339(due))
	case x.Step == "":
		return say(DiagnosisNotAdopted, "", "it was started from outside; the first worker that knows saga %q gives it its plan.", x.Saga)
	case late < 0 && x.OfferedAt != nil:
		return say(DiagnosisPickup, "", "the pointer to %s is on its way; if it is lost, it is looked at again at %s.", at, clock3339(due))
	}
	return say(DiagnosisDue, "", "%s is due since %s; the next sweep looks at it.", at, clock3339(due))
}

// unattended reports whether no living worker has the partition, as far as is
// known.
func (s *surroundings) unattended(partition string) bool {
	return s.attended != nil && !s.attended(partition)
}

func (s *surroundings) pauseOf(x *store.Execution) (Pause, bool) {
	for _, p := range s.pauses {
		if p.Partition != "" && p.Partition == x.Partition || p.Saga != "" && p.Saga == x.Saga {
			return p, true
		}
	}
	return Pause{}, false
}

func requestText(q *store.Request) string {
	switch {
	case q.Turn == store.TurnNone:
		return "a halt"
	case q.Halt:
		return string(q.Turn) + " and a halt"
	}
	return string(q.Turn)
}

func progressText(p *store.Progress) string {
	switch {
	case p == nil:
		return ""
	case p.Total > 0:
		return fmt.Sprintf(" (%d of %d)", p.Done, p.Total)
	}
	return fmt.Sprintf(" (%d done)", p.Done)
}

func clock3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
