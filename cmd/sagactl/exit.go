package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// The exit codes: docs/sagactl.md.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitChanged     = 5
	exitUnconfirmed = 6
	exitTimeout     = 7
	exitAmiss       = 8
	exitInterrupted = 130
)

// A codeError is an error with an exit code of its own.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

func fail(code int, format string, args ...any) error {
	return &codeError{code, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return fail(exitUsage, format, args...) }

// exitCode says how the tool ends with err.
func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*codeError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[cli.ExitCoder](err); ok {
		return exitUsage // of the command line itself, such as help on what there is not
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	if _, ok := errors.AsType[*store.KeyTakenError](err); ok {
		return exitChanged
	}
	for _, row := range []struct {
		code int
		errs []error
	}{
		{exitNotFound, []error{store.ErrNotFound}},
		{exitChanged, []error{saga.ErrChanged, saga.ErrRequestUsed, store.ErrConflict, store.ErrExists}},
		{exitRefused, []error{
			saga.ErrFinished, saga.ErrNotFinished, saga.ErrNotRetryable, saga.ErrNotHalted, saga.ErrNoStep, saga.ErrNotInDoubt,
			saga.ErrNotEditable, saga.ErrNotWaiting, saga.ErrPastPivot, saga.ErrErased, saga.ErrAttemptRunning, saga.ErrUnknownSaga,
		}},
		{exitUsage, []error{saga.ErrInvalid}},
	} {
		for _, e := range row.errs {
			if errors.Is(err, e) {
				return row.code
			}
		}
	}
	return exitFailure
}
