package saga

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// By says who acts on an execution, and why. Both are required: 1 to 200 and 1
// to 2,000 characters. They are kept in the audit trail.
type By struct {
	Actor  string
	Reason string
}

func (b By) check() error {
	text := func(field, s string, most int) error {
		switch n := utf8.RuneCountInString(s); {
		case strings.TrimSpace(s) == "":
			return fmt.Errorf("%w: By.%s is empty", ErrInvalid, field)
		case !cleanText(s):
			return fmt.Errorf("%w: By.%s is not valid UTF-8 without NUL", ErrInvalid, field)
		case n > most:
			return fmt.Errorf("%w: By.%s is longer than %d characters", ErrInvalid, field, most)
		}
		return nil
	}
	if err := text("Actor", b.Actor, 200); err != nil {
		return err
	}
	return text("Reason", b.Reason, 2000)
}

// ActOptions says how an act is done.
type ActOptions struct {
	// Force acts at once although an attempt is running. Its step is left in
	// doubt, and an effect it still has may come after its undo: see the
	// package comment.
	Force bool
	// IfRevision, if not 0, makes the act fail with ErrChanged when the
	// execution is at another revision.
	IfRevision int64
}

// Retry gives a failed execution, or one stuck in running or compensating,
// another try: from the step where it stands, with fresh attempts. A
// compensation_failed one goes on with its undos; a step whose effect came after
// its undo is undone again, under a new key.
//
// It returns the execution after the act; [ErrFinished] for one that is
// completed, compensated or cancelled, [ErrNotRetryable] for a waiting or
// halted one, [ErrAttemptRunning] (unless Force) while an attempt runs. The
// act and its audit entry are one transaction; it may be done from any process,
// whether it knows the saga or not.
func (e *Engine) Retry(ctx context.Context, id uuid.UUID, by By, opts *ActOptions) (*Execution, error) {
	return e.act(ctx, id, ActRetry, by, opts)
}

// Compensate undoes what an unfinished execution has done. While an attempt is
// running it is left as a request: the step's ctx ends with [ErrInterrupted]
// within a third of a lease, and whatever the attempt comes to, the walk back
// begins when it settles. On a compensating execution it changes nothing but
// takes back a halt that is pending; a halted walk it resumes. It returns
// [ErrFinished] for a finished execution. What holds for all acts: see
// [Engine.Retry].
func (e *Engine) Compensate(ctx context.Context, id uuid.UUID, by By, opts *ActOptions) (*Execution, error) {
	return e.act(ctx, id, ActCompensate, by, opts)
}

// Resume lets a halted execution go on from where it stands, with fresh
// attempts. One that halted in its walk because it was not known whether a step
// had its effect ([InDoubtHalt]) takes the step as done, and undoes it if it
// can be. It also takes back a halt that is only requested. It returns
// [ErrNotHalted] or [ErrFinished] otherwise. What holds for all acts: see
// [Engine.Retry].
func (e *Engine) Resume(ctx context.Context, id uuid.UUID, by By, opts *ActOptions) (*Execution, error) {
	return e.act(ctx, id, ActResume, by, opts)
}

func (e *Engine) act(ctx context.Context, id uuid.UUID, act string, by By, opts *ActOptions) (*Execution, error) {
	var o ActOptions
	if opts != nil {
		o = *opts
	}
	if err := by.check(); err != nil {
		return nil, err
	}
	if err := e.clock.ready(ctx); err != nil {
		return nil, err
	}
	x, err := e.decideIn(ctx, id, func(m *machine) error {
		if o.IfRevision != 0 && o.IfRevision != m.x.Revision {
			return ErrChanged
		}
		return m.act(act, by, o.Force)
	})
	if err != nil {
		return nil, fmt.Errorf("saga: %s %s: %w", act, id, err)
	}
	return x, nil
}
