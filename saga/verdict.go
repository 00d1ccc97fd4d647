package saga

import (
	"context"
	"time"
)

// A Verdict is what an error of a step's function is taken for.
type Verdict struct {
	Kind VerdictKind
	// InDoubt: the attempt leaves the step in doubt, or an error of Execute
	// does not say that it had no effect.
	InDoubt bool
	// Failure is that of failed and gave up, nil otherwise. Its Class groups
	// failures.
	Failure *Failure
	// Reason is that of skipped, completed, halted and interrupted.
	Reason string
	// After is the wait that the step asked for by [Snooze] or [RetryAfter]; 0
	// where it did not.
	After time.Duration
}

// A VerdictKind says what an attempt came to.
type VerdictKind string

// The kinds of verdicts.
const (
	VerdictSucceeded VerdictKind = "succeeded"
	VerdictSkipped   VerdictKind = "skipped"
	VerdictCompleted VerdictKind = "completed" // done, and the saga with it
	VerdictFailed    VerdictKind = "failed"    // tried again, unless the policy is exhausted
	VerdictGaveUp    VerdictKind = "gave_up"   // by Fail: not tried again
	VerdictHalted    VerdictKind = "halted"
	VerdictSnoozed   VerdictKind = "snoozed"
	// VerdictInterrupted: by a drain, an operator or a lost lease.
	VerdictInterrupted VerdictKind = "interrupted"
)

func (k resultKind) verdict() VerdictKind {
	switch k {
	case succeeded:
		return VerdictSucceeded
	case skipped:
		return VerdictSkipped
	case completed:
		return VerdictCompleted
	case gaveUp:
		return VerdictGaveUp
	case halted:
		return VerdictHalted
	case snoozed:
		return VerdictSnoozed
	case interrupted:
		return VerdictInterrupted
	case spawned:
		return VerdictSucceeded
	case joining:
		return VerdictSnoozed
	}
	return VerdictFailed
}

// Verdict says what the engine will take err for, if it is what the attempt
// comes to and returns now: a [Middleware] asks it about the error of next. That
// a failed attempt was the last one of its policy is decided later, and told by
// an event; so is what the store does with the attempt, which may have been
// lost, and with a state that is refused.
func (c *Call) Verdict(err error) Verdict {
	step := c.judged
	if step == nil {
		step = &planStep{name: c.Step}
	}
	ret := returned{err: err}
	if c.ctx != nil && c.ctx.Err() != nil {
		ret.cause = context.Cause(c.ctx)
	}
	r := judgeSafely(step, c.Direction, ret)
	v := Verdict{Kind: r.kind.verdict(), InDoubt: r.doubt, Failure: r.failure, Reason: r.reason}
	if v.Failure != nil {
		v.Failure.Step = c.Step
	}
	if r.after != nil {
		v.After = *r.after
	}
	return v
}

func (c *Call) errorsInDoubt() bool { return c.judged != nil && c.judged.errorsInDoubt }
