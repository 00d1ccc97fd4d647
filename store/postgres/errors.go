package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leveret-go/leveret/store"
)

// The SQLSTATEs that mean something to us.
const (
	codeUniqueViolation = "23505"
	codeSerialization   = "40001"
	codeDeadlock        = "40P01"
	codeLockTimeout     = "55P03"
	codeCancelled       = "57014" // by a cancel request or statement_timeout
	codeStalePlan       = "0A000" // among others: a prepared plan after a migration
	codeUndefinedTable  = "42P01"
	codeUndefinedSchema = "3F000"
)

// The indexes that keep start keys and requests unique.
const (
	constraintKey     = "executions_holder"
	constraintRequest = "audit_request"
)

const (
	maxTries    = 3  // of a call that failed with nothing written
	maxVanished = 10 // conflicts in a row whose cause was gone when looked for
)

var errVanished = errors.New("whatever is in the way is gone whenever it is looked for")

// sqlstate returns the code of a server's error, "" for another one. A caller's
// transaction may be of a driver other than pgx; they differ in how they tell.
func sqlstate(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	if e, ok := errors.AsType[interface {
		error
		Field(k byte) string
	}](err); ok {
		return e.Field('C')
	}
	return ""
}

// keyViolation reports whether a write gave an execution a key that another
// one holds.
func keyViolation(err error) bool { return violates(err, constraintKey) }

func violates(err error, constraint string) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == codeUniqueViolation && e.ConstraintName == constraint
	}
	// In whatever language, the message has the name.
	return sqlstate(err) == codeUniqueViolation && strings.Contains(err.Error(), `"`+constraint+`"`)
}

// requestUsed returns ErrRequestUsed for the error of a write whose audit entry
// has the request of another, and any other error as it is.
func requestUsed(err error) error {
	if violates(err, constraintRequest) {
		return store.ErrRequestUsed
	}
	return err
}

// rolledBack reports whether err is certain proof that nothing was written and
// the same may succeed when it is tried again.
func rolledBack(err error) bool {
	switch sqlstate(err) {
	case codeSerialization, codeDeadlock, codeLockTimeout, codeStalePlan:
		return true
	case "":
		return pgconn.SafeToRetry(err)
	}
	return false
}

// lostConnection reports whether err, from database/sql, says that the
// connection is gone.
func lostConnection(err error) bool {
	switch code := sqlstate(err); {
	case code == "":
		return errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, driver.ErrBadConn) ||
			errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	case code == "57P01", code == "57P02", strings.HasPrefix(code, "08"):
		return true
	}
	return false
}

// named reports whether err is one of the errors of package store.
func named(err error) bool {
	if _, ok := errors.AsType[*store.KeyTakenError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*store.SchemaError](err); ok {
		return true
	}
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrExists) ||
		errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrInvalid) ||
		errors.Is(err, store.ErrRequestUsed)
}

// An unsentError is an error from before anything to be written was sent.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// failed turns an error from below into what a method returns. It is ctx's own
// only when ctx is done and the server is known to have done nothing.
func failed(ctx context.Context, op string, err error) error {
	if err == nil || named(err) {
		return err
	}
	if ctx.Err() != nil {
		_, unsent := errors.AsType[*unsentError](err)
		if unsent || sqlstate(err) == codeCancelled || rolledBack(err) {
			return fmt.Errorf("postgres: %s: %w", op, ctx.Err())
		}
	}
	return opaque(op, err)
}

// failedRead is failed for a call that writes nothing.
func failedRead(ctx context.Context, op string, err error) error {
	if err == nil || named(err) {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("postgres: %s: %w", op, ctx.Err())
	}
	return opaque(op, err)
}

// opaque wraps an error so that a time-out inside, of ours or of the network,
// is not taken for the end of the caller's ctx.
func opaque(op string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("postgres: %s: %v", op, err)
	}
	return fmt.Errorf("postgres: %s: %w", op, err)
}
