package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The acts of operators.
const (
	actCompensate = iota
	actCancel
	actHalt
	actResume
	actRetry
	actForceCompensate
	actForceHalt
	actForceRetry
	actSkip
	actForceSkip
	actMove
	actResolveDone
	actResolvePending
)

var (
	actNames = []string{
		"Compensate", "Cancel", "Halt", "Resume", "Retry", "Compensate (force)", "Halt (force)", "Retry (force)",
		"SkipStep", "SkipStep (force)", "Move", "Resolve as done", "Resolve as without effect",
	}
	actVerbs = []Act{
		ActCompensate, ActCancel, ActHalt, ActResume, ActRetry, ActCompensate, ActHalt, ActRetry, ActSkipStep, ActSkipStep, ActMove,
		ActResolve, ActResolve,
	}
)

// forced reports whether an act is done although an attempt runs.
func forced(op int) bool {
	return op >= actForceCompensate && op <= actForceRetry || op == actForceSkip
}

// A scenario says what can happen.
type scenario struct {
	name        string
	steps       int // 3
	compensable [worldSteps]bool
	inDoubt     InDoubt // of the steps; default by Compensate
	body        int8    // time-out of a body, in ticks
	attempts    int     // budget of a step
	maxResumes  int
	onStalled   OnStalled

	faults, acts int8
	either       bool // a fault leaves no act, and an act no fault

	// Faults, each of which costs one of the budget.
	crash, lose, twice, unknown, shutdown, unknownProcess, slow, zombie bool
	lapse                                                               bool // leases of living workers run out, at no cost
	sameProcess                                                         bool // both workers are slots of one process
	// Outcomes besides success.
	errs, timeouts, skips, fails, completes, halts, snoozes, noEffects bool
	effectErrs                                                         bool // an ordinary error may come after the effect: ErrorsInDoubt
	// Participants.
	fence    bool // it refuses an effect after its undo
	noMemory bool // it does not know keys
	truth    bool // a body whose effect landed returns success
	bounded  bool // no effect leaves a body after its time-out
	hang     bool // bodies may ignore an ended ctx for ever
	ops      []int
	depth    bool // the sweep may also see a queue that is not empty, or unknown
	realLoss bool // S8: whoever is given up has really lost so many pointers

	limit   int    // states
	partial bool   // it may stop there
	breaks  string // the property that is known not to hold
	mutant  string
}

// A violation is panicked with.
type violation struct{ property, why string }

func violate(property, format string, args ...any) {
	panic(violation{property, fmt.Sprintf(format, args...)})
}

type explorer struct {
	scenario
	drawer
	rules   rules
	plan    *plan
	results [outcomes][worldSteps][2]result
	asked   map[question]response
	graph   graph
	retries bool // an act may undo a stray step again
	brief   bool // no body's time-out is ahead when its attempt is taken over
}

func newExplorer(s scenario) *explorer {
	e := &explorer{scenario: s, asked: map[question]response{}}
	force := slices.ContainsFunc(s.ops, forced)
	e.retries = slices.Contains(s.ops, actRetry)
	e.brief = !force && s.body <= ticksLease/2+ticksMargin
	body := func(context.Context, *Run[struct{}]) error { return nil }
	policy := RetryPolicy{Attempts: s.attempts, Initial: worldTick, Max: worldTick}
	d := Definition[struct{}]{Name: "walk"}
	for i := range s.steps {
		st := Step[struct{}]{
			Name: worldNames[i], Execute: body, Retry: policy, CompensateRetry: policy, ErrorsInDoubt: s.effectErrs,
			Timeout: time.Duration(s.body) * worldTick,
		}
		if s.compensable[i] {
			st.Compensate = body
			st.InDoubt = s.inDoubt
		} else if s.inDoubt == InDoubtHalt || s.inDoubt == InDoubtIgnore {
			st.InDoubt = s.inDoubt
		}
		d.Steps = append(d.Steps, st)
	}
	if err := checkDefinition(d); err != nil {
		panic(err)
	}
	e.plan, _ = erase(d)
	e.drawer.plan = e.plan.ledger()
	e.rules = rules{
		lease: ticksLease * worldTick, margin: ticksMargin * worldTick, pickup: ticksPickup * worldTick,
		stepTimeout: time.Duration(s.body) * worldTick, maxResumes: s.maxResumes, onStalled: s.onStalled,
	}
	for out := outSuccess; out < outcomes; out++ {
		for i := range s.steps {
			for d := range 2 {
				e.results[out][i][d] = e.resultOf(out, e.plan.steps[i], worldDirections[d])
			}
		}
	}
	return e
}

// resultOf is what judge makes of an outcome.
func (e *explorer) resultOf(out int8, s *planStep, d Direction) result {
	var ret returned
	broken := errors.New("broken")
	switch out {
	case outError:
		ret.err = broken
	case outTimeout:
		ret.err, ret.cause = context.DeadlineExceeded, context.DeadlineExceeded
	case outSkip:
		ret.err = Skip("test")
	case outFail:
		ret.err = Fail(broken)
	case outComplete:
		ret.err = Complete("test")
	case outHalt:
		ret.err = Halt("test")
	case outNoEffect:
		ret.err = NoEffect(broken)
	case outSnooze:
		ret.err = Snooze(worldTick)
	case outShutdown:
		ret.err, ret.cause = context.Canceled, ErrShutdown
	case outRequest:
		ret.err, ret.cause = context.Canceled, ErrInterrupted
	case outLost:
		ret.err, ret.cause = context.Canceled, ErrAttemptLost
	}
	return judge(s, d, ret)
}

// start returns the world in which an execution has just been started.
func (e *explorer) start() world {
	w := world{faults: e.faults, acts: e.acts, ptr: 1}
	w.row = worldRow{due: ticksPickup, wake: never, offered: true}
	return w
}
