package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// An Act is something done to an execution by somebody, as it stands in the
// audit trail.
type Act string

// The acts of [Engine.Act], [Engine.Plan] and [Engine.Bulk].
const (
	ActRetry      Act = "retry"
	ActCompensate Act = "compensate"
	ActCancel     Act = "cancel"
	ActHalt       Act = "halt"
	ActResume     Act = "resume"
	ActSkipStep   Act = "skip_step"
)

var acts = []Act{ActRetry, ActCompensate, ActCancel, ActHalt, ActResume, ActSkipStep}

// Acts lists the acts that [Engine.Act] takes.
func Acts() []Act { return slices.Clone(acts) }

// The other acts of the audit trail, and of the log of the pauses.
const (
	ActResolve     Act = "resolve"
	ActEditState   Act = "edit_state"
	ActMove        Act = "move"
	ActErase       Act = "erase"
	ActRerun       Act = "rerun"
	ActResumeStuck Act = "resume_stuck"
	ActPause       Act = "pause"
	ActUnpause     Act = "unpause"
	ActReopen      Act = "reopen"      // by the engine: a late effect has to be undone
	ActLateEffect  Act = "late_effect" // by the engine: an effect came after its undo
	ActGiveUp      Act = "give_up"     // by the engine: pointers got lost again and again
	ActAbandon     Act = "abandon"     // by the engine: an attempt of a dead predecessor, see Config.Exclusive
)

// ActOptions says how an act is done.
type ActOptions struct {
	// Force acts at once although an attempt is running. Its step is left in
	// doubt, and an effect it still has may come after its undo: see the
	// package comment.
	Force bool
	// IfRevision, if not 0, makes the act fail with ErrChanged when the
	// execution is at another revision: what was planned is then what is done.
	IfRevision int64
}

// Act does one of the acts that have a method of their own: [Engine.Retry],
// [Engine.Compensate], [Engine.Cancel], [Engine.Halt], [Engine.Resume] and
// [Engine.SkipStep].
//
// What holds for all of them: an act and its audit entry (who, when, why,
// before and after) are one transaction; a process that dies has done both or
// neither. It is done from the execution's row alone, in any process, whether
// it knows the saga or not. It returns the execution after the act, or an error
// that says why it was not done: one of this package's, store.ErrNotFound,
// or one of the store's, after which it may have been done or not; By.Request
// makes it safe to ask again. What is to be done next is done by the workers:
// [Engine.WaitAct] waits for that.
//
// While an attempt is running, Compensate, Cancel and Halt are left as a
// request on the execution, which the attempt settles when it ends; Retry and
// SkipStep return [ErrAttemptRunning]. With Force they are done at once.
func (e *Engine) Act(ctx context.Context, id uuid.UUID, act Act, by By, opts *ActOptions) (*Execution, error) {
	return e.desk().act(ctx, id, act, by, opts)
}

func (d desk) act(ctx context.Context, id uuid.UUID, act Act, by By, opts *ActOptions) (*Execution, error) {
	o := optionsOf(opts)
	return d.operate(ctx, id, operation{act: act, by: by, ifRevision: o.IfRevision, content: []string{strconv.FormatBool(o.Force)}},
		func(m *machine) error { return m.act(act, by, o.Force) })
}

// Retry gives a failed execution, or one stuck in running or compensating,
// another try: from the step where it stands, with fresh attempts. A
// compensation_failed one goes on with its undos; a step whose effect came after
// its undo is undone again, under a new key.
//
// It returns the execution after the act; [ErrFinished] for one that is
// completed, compensated or cancelled, [ErrNotRetryable] for a waiting or
// halted one, [ErrErased] for one without its state, [ErrAttemptRunning]
// (unless Force) while an attempt runs, *store.KeyTakenError for a failed one
// whose start key another execution holds by now. What holds for all acts: see
// [Engine.Act].
func (e *Engine) Retry(ctx context.Context, id uuid.UUID, by By, opts *ActOptions) (*Execution, error) {
	return e.Act(ctx, id, ActRetry, by, opts)
}

// Compensate undoes what an unfinished execution has done. While an attempt is
// running it is left as a request: the step's ctx ends with [ErrInterrupted]
// within a third of a lease, and whatever the attempt comes to, the walk back
// begins when it settles. On a compensating execution it changes nothing but
// takes back a halt that is pending; a halted walk it resumes. It returns
// [ErrFinished] for a finished execution. What holds for all acts: see
// [Engine.Act].
func (e *Engine) Compensate(ctx context.Context, id uuid.UUID, by By, opts *ActOptions) (*Execution, error) {
	return e.Act(ctx, id, ActCompensate, by, opts)
}

// Cancel is Compensate for what nobody wants any more: an execution with nothing
// to undo ends cancelled instead of failed.
func (e *Engine) Cancel(ctx context.Context, id uuid.UUID, by By, opts *ActOptions) (*Execution, error) {
	return e.Act(ctx, id, ActCancel, by, opts)
}

// Halt parks an unfinished execution where it stands, until it is resumed,
// compensated or cancelled. While an attempt is running it is left as a request
// that does not disturb it: when it succeeds the execution moves on to the next
// step and parks there; when the execution ends by it, the halt is void. A halt
// of a halted execution changes nothing. It returns [ErrFinished] for a finished
// execution. What holds for all acts: see [Engine.Act].
func (e *Engine) Halt(ctx context.Context, id uuid.UUID, by By, opts *ActOptions) (*Execution, error) {
	return e.Act(ctx, id, ActHalt, by, opts)
}

// Resume lets a halted execution go on from where it stands, with fresh
// attempts. One that halted in its walk because it was not known whether a step
// had its effect ([InDoubtHalt]) takes the step as done, and undoes it if it
// can be. It also takes back a halt that is only requested. It returns
// [ErrNotHalted] or [ErrFinished] otherwise. What holds for all acts: see
// [Engine.Act].
func (e *Engine) Resume(ctx context.Context, id uuid.UUID, by By, opts *ActOptions) (*Execution, error) {
	return e.Act(ctx, id, ActResume, by, opts)
}

// Reschedule moves the time for which an execution waits: that of a step's wait,
// of StartAfter, of the deadline of an await, of the next attempt after a failure
// or a snooze. A time that has passed means now: an await ends then as if its
// deadline had passed. It returns [ErrNotWaiting] when the execution waits for no time,
// [ErrAttemptRunning], or [ErrFinished]. What holds for all acts: see
// [Engine.Act].
func (e *Engine) Reschedule(ctx context.Context, id uuid.UUID, at time.Time, by By) (*Execution, error) {
	at, err := saneTime("the time", at)
	if err != nil {
		return nil, fmt.Errorf("%w: saga: reschedule %s: %w", ErrInvalid, id, err)
	}
	return e.operate(ctx, id, operation{act: ActReschedule, by: by, content: []string{at.Format(time.RFC3339Nano)}}, func(m *machine) error {
		detail := map[string]any{"to": at}
		if m.x.WakeAt != nil {
			detail["from"] = *m.x.WakeAt
		}
		return m.operate(ActReschedule, by, detailOf(detail), func() error { return m.reschedule(at) })
	})
}

// SkipStep records the step at which an execution stands as skipped by hand,
// a doubt about it as settled (no effect), and lets it go on with the next
// step: a running, halted or failed one. In a compensation it records the undo
// that has failed, or else the one that would come next, as not needed; of a step that waits
// for a person's word ([InDoubtHalt]) it says that it had no effect; of effects
// that came after their undo, that they are accepted.
//
// It returns [ErrFinished] for a completed, compensated or cancelled execution,
// [ErrNoStep] when there is nothing to skip, [ErrAttemptRunning] (unless Force)
// while an attempt runs, [ErrChanged] while a compensation is requested,
// [ErrErased] for a failed execution without its state, *store.KeyTakenError for
// a failed one, or one that waits for its predecessor, while another execution
// holds the start key. What holds for all acts: see
// [Engine.Act].
func (e *Engine) SkipStep(ctx context.Context, id uuid.UUID, by By, opts *ActOptions) (*Execution, error) {
	return e.Act(ctx, id, ActSkipStep, by, opts)
}

// An operation is an act that is about to be done.
type operation struct {
	act        Act
	by         By
	ifRevision int64
	content    []string // what else makes it another act
}

// auditDetail is what an audit entry says besides who did what.
type auditDetail struct {
	digest string
	json   json.RawMessage
}

// operate does an act under the execution's lock, once for each By.Request.
func (e *Engine) operate(ctx context.Context, id uuid.UUID, op operation, f func(m *machine) error) (*Execution, error) {
	return e.desk().operate(ctx, id, op, f)
}

func (d desk) operate(ctx context.Context, id uuid.UUID, op operation, f func(m *machine) error) (*Execution, error) {
	x, err := d.tryOperate(ctx, id, op, f)
	if err != nil {
		return nil, fmt.Errorf("saga: %s %s: %w", op.act, id, err)
	}
	return x, nil
}

func (d desk) tryOperate(ctx context.Context, id uuid.UUID, op operation, f func(m *machine) error) (*Execution, error) {
	if err := op.by.check(); err != nil {
		return nil, err
	}
	if err := d.e.clock.ready(ctx); err != nil {
		return nil, err
	}
	digest := op.by.digest(op.act, op.content...)
	if x, err := d.repeated(ctx, id, op.by.Request, digest); x != nil || err != nil {
		return x, err
	}
	x, err := d.decideIn(ctx, id, func(m *machine) error {
		if op.ifRevision != 0 && op.ifRevision != m.x.Revision {
			return ErrChanged
		}
		if err := f(m); err != nil {
			return err
		}
		if op.by.Request != "" {
			for i := range m.change.Audit {
				if a := &m.change.Audit[i]; a.Request == op.by.Request {
					a.Digest = digest
				}
			}
		}
		return nil
	})
	if err != nil && op.by.Request != "" {
		// Another call may have done it in between, and the row may be as it is
		// because of that; or this one has, and did not hear of it.
		y, again := d.repeated(ctx, id, op.by.Request, digest)
		if y != nil || errors.Is(again, ErrRequestUsed) {
			return y, again
		}
	}
	return x, err
}

// repeated returns the execution if the request was done before, nil if not,
// and ErrRequestUsed if something else was done under its name.
func (d desk) repeated(ctx context.Context, id uuid.UUID, request, digest string) (*Execution, error) {
	if request == "" {
		return nil, nil
	}
	trail, err := d.store.Audit(ctx, id)
	if err != nil {
		return nil, err
	}
	for i := range trail {
		if trail[i].Request != request {
			continue
		}
		if trail[i].Digest != digest {
			return nil, ErrRequestUsed
		}
		return d.store.Get(ctx, id)
	}
	return nil, nil
}

// WaitAct waits until an act has shown its effect: nothing is requested of the
// execution any more, and, after Halt, it is parked or has ended; after
// Compensate and Cancel, it has ended or is parked; after Retry, Resume and
// SkipStep, it has ended or is parked again, or an attempt was opened that has
// not failed yet. It returns the execution as it is then, or as it was last seen
// together with ctx's error.
func (e *Engine) WaitAct(ctx context.Context, id uuid.UUID, act Act) (*Execution, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := waitPollFirst; ; wait = min(2*wait, waitPollMost) {
		x, err := e.store.Get(ctx, id)
		if err != nil || shown(x, act) {
			return x, err
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return x, ctx.Err()
		case <-timer.C:
		}
	}
}

func shown(x *store.Execution, act Act) bool {
	if x.Request != nil {
		return false
	}
	if x.Status.Finished() || x.Status == store.StatusHalted {
		return true
	}
	switch act {
	case ActHalt, ActCompensate, ActCancel:
		return false
	}
	entry := x.Entry(x.Step)
	return x.Attempt != nil || entry != nil && entry.Opens > 0 || x.Tries > 0
}
