package saga

import (
	"errors"
	"fmt"
	"time"
)

// An Outcome is what a step returns, as an error, to say something other than
// "done" or "try again". Steps make one with [Skip], [Complete], [Fail],
// [NoEffect], [Unknown], [Halt], [RetryAfter], [Snooze] and [Class]; it is found
// with errors.As, so it may be wrapped with %w. Where outcomes wrap each other
// the outermost one that settles the attempt counts; NoEffect, Unknown and Class
// add to it.
type Outcome struct {
	Kind   OutcomeKind
	Reason string        // of skip, complete, halt; the class of class
	After  time.Duration // of retry_after and snooze
	Err    error         // of fail, retry_after, no_effect, unknown, class
}

// An OutcomeKind says what an Outcome means.
type OutcomeKind string

// The kinds of outcomes.
const (
	KindSkip          OutcomeKind = "skip"
	KindComplete      OutcomeKind = "complete"
	KindContinueAsNew OutcomeKind = "continue_as_new"
	KindFail          OutcomeKind = "fail"
	KindHalt          OutcomeKind = "halt"
	KindRetryAfter    OutcomeKind = "retry_after"
	KindSnooze        OutcomeKind = "snooze"
	KindNoEffect      OutcomeKind = "no_effect"
	KindUnknown       OutcomeKind = "unknown"
	KindClass         OutcomeKind = "class"
)

// Error describes the outcome; for those with an Err it is the Err's text.
func (o *Outcome) Error() string {
	switch {
	case o.Err != nil:
		return o.Err.Error()
	case o.Reason != "":
		return fmt.Sprintf("saga: %s: %s", o.Kind, o.Reason)
	}
	return "saga: " + string(o.Kind)
}

// Unwrap returns Err.
func (o *Outcome) Unwrap() error { return o.Err }

// Skip says that there was nothing to do. The saga goes on; the step is not
// undone later, unless an earlier attempt may have had an effect. In a
// compensation: there is nothing to undo here, which counts as undone.
func Skip(reason string) error { return &Outcome{Kind: KindSkip, Reason: reason} }

// Complete says that this step is done and the saga with it: the steps after it
// are not run. In a compensation it is an ordinary error.
func Complete(reason string) error { return &Outcome{Kind: KindComplete, Reason: reason} }

// ContinueAsNew says that this step is done and the saga with it, and starts the
// saga anew, in the same write: a new execution of the newest version with the
// same resource, key, tags and partition, the state that the step leaves, a
// deadline of the same length, and the signals that nobody has received yet. The
// two are linked. It is for what never ends, such as renewals: a history stays
// short. When another execution was started to take this one's place, that one goes on
// instead. In a compensation it is an ordinary error.
func ContinueAsNew(reason string) error { return &Outcome{Kind: KindContinueAsNew, Reason: reason} }

// Fail gives up without trying again: what was done is undone. In a
// compensation the execution ends compensation_failed. A nil err gets a text of
// its own.
func Fail(err error) error { return &Outcome{Kind: KindFail, Err: orUnnamed(err)} }

// NoEffect is an ordinary error that also says that no effect is left of this
// attempt and all before it: it takes the step out of doubt. Fail(NoEffect(err))
// gives up at once.
func NoEffect(err error) error { return &Outcome{Kind: KindNoEffect, Err: orUnnamed(err)} }

// Unknown is an ordinary error that leaves the step in doubt: the effect may
// have happened. Fail(Unknown(err)) gives up at once.
func Unknown(err error) error { return &Outcome{Kind: KindUnknown, Err: orUnnamed(err)} }

// Halt parks the execution until a person resumes it; the same step then runs
// again. The step is left in doubt.
func Halt(reason string) error { return &Outcome{Kind: KindHalt, Reason: reason} }

// RetryAfter is an ordinary error with a wait of its own instead of the
// policy's. A negative d counts as 0.
func RetryAfter(d time.Duration, err error) error {
	return &Outcome{Kind: KindRetryAfter, After: max(d, 0), Err: orUnnamed(err)}
}

// Snooze parks the step for d and then runs it again. The state is saved, no
// attempt is spent, the step is left in doubt. A negative d counts as 0.
func Snooze(d time.Duration) error { return &Outcome{Kind: KindSnooze, After: max(d, 0)} }

// Class gives err a class of its own, by which failures are grouped: 1 to 100
// bytes, longer ones are cut.
func Class(class string, err error) error {
	return &Outcome{Kind: KindClass, Reason: class, Err: orUnnamed(err)}
}

var errUnnamed = errors.New("no error given")

func orUnnamed(err error) error {
	if err == nil {
		return errUnnamed
	}
	return err
}
