package saga

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leveret-go/leveret/store"
)

// The errors of operators' acts.
var (
	// ErrFinished: the execution has ended, in a way that the act cannot
	// change.
	ErrFinished = errors.New("saga: execution has finished")
	// ErrNotRetryable: a waiting or halted execution is not retried but
	// resumed.
	ErrNotRetryable = errors.New("saga: not retryable from this status")
	// ErrNotFinished: only an execution that has ended can be rerun or erased.
	ErrNotFinished = errors.New("saga: execution has not finished")
	// ErrNoStep: the execution stands at no step yet, or has nothing left that
	// could be skipped.
	ErrNoStep = errors.New("saga: execution stands at no step")
	// ErrNotInDoubt: only a step in doubt can be resolved.
	ErrNotInDoubt = errors.New("saga: step is not in doubt")
	// ErrNotEditable: the state can be edited only while the execution is
	// halted, failed or compensation_failed.
	ErrNotEditable = errors.New("saga: state cannot be edited in this status")
	// ErrErased: the state of the execution was erased.
	ErrErased = errors.New("saga: the execution's data was erased")
	// ErrUnknownSaga: the saga, or this version of it, is not registered here.
	ErrUnknownSaga = errors.New("saga: saga is not registered here")
	// ErrRequestUsed: By.Request was used before, for something else.
	ErrRequestUsed = errors.New("saga: the request was used before with other content")
	// ErrPastPivot: the execution is past its pivot, or the pivot is running or
	// in doubt: it turns back only by Force.
	ErrPastPivot = errors.New("saga: execution is past its pivot")
	// ErrNotWaiting: only an execution that waits for a time, or for signals,
	// can be rescheduled.
	ErrNotWaiting = errors.New("saga: execution does not wait for a time")
	// ErrInboxFull: too many signals are waiting for the execution, or too
	// long ones.
	ErrInboxFull = errors.New("saga: the execution's inbox is full")
	// ErrNotHalted: only a halted execution can be resumed.
	ErrNotHalted = errors.New("saga: execution is not halted")
	// ErrAttemptRunning: an attempt is running under a live lease; try later,
	// or use Force.
	ErrAttemptRunning = errors.New("saga: an attempt is running")
	// ErrChanged: the execution is not at ActOptions.IfRevision any more.
	ErrChanged = errors.New("saga: execution changed since it was looked at")
	// ErrInvalid: bad input to a call; the error that wraps it names the field
	// and the rule.
	ErrInvalid = store.ErrInvalid
)

// The errors of an engine.
var (
	// ErrNotRunning: Handle was called while Run is not running, or is
	// draining. The pointer was not looked at.
	ErrNotRunning = errors.New("saga: engine is not running")
	// ErrPaused: the worker is paused. The pointer was not looked at; it stays
	// where it is.
	ErrPaused = errors.New("saga: worker is paused")
	// ErrNotSupported: the store lacks the optional ability that the call
	// needs.
	ErrNotSupported = errors.New("saga: not supported by this store")
	// ErrRunning: Run was called while it is running.
	ErrRunning = errors.New("saga: engine is running")
)

// The causes ([context.Cause]) with which the ctx of a step ends, besides its
// time-out ([context.DeadlineExceeded]).
var (
	// ErrAttemptLost: this attempt does not count any more, its lease was lost.
	ErrAttemptLost = errors.New("saga: attempt lost")
	// ErrInterrupted: an operator asked for a compensation.
	ErrInterrupted = errors.New("saga: interrupted by an operator")
	// ErrShutdown: the process drains.
	ErrShutdown = errors.New("saga: shutting down")
)

// A ShutdownIncompleteError is returned by [Engine.Run] when steps ignored the
// end of their ctx. They still run; their leases are not renewed any more, and
// other workers take their executions over when those end.
type ShutdownIncompleteError struct {
	// Steps names them: saga/step/direction and execution.
	Steps []string
}

func (e *ShutdownIncompleteError) Error() string {
	return fmt.Sprintf("saga: shutdown incomplete: %d steps still run: %s", len(e.Steps), strings.Join(e.Steps, ", "))
}
