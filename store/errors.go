package store

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// The errors of a store. They may come wrapped: check with errors.Is.
var (
	// ErrNotFound: there is no execution with this id.
	ErrNotFound = errors.New("store: execution not found")
	// ErrExists: there is already an execution with this id.
	ErrExists = errors.New("store: execution exists")
	// ErrConflict: what was to be changed is not as the caller last saw it.
	ErrConflict = errors.New("store: revision changed")
	// ErrInvalid: a value that no store takes. The error that wraps it names
	// the field and the rule, never the value.
	ErrInvalid = errors.New("store: invalid value")
	// ErrRequestUsed: the audit trail of the execution already has an entry
	// with this Request.
	ErrRequestUsed = errors.New("store: request was used before")
	// ErrForeignTx: a transaction that this store cannot work in: of another
	// driver or database.
	ErrForeignTx = errors.New("store: transaction of another store")
	// ErrNotSupported: a call that a store bound to a transaction does not
	// have.
	ErrNotSupported = errors.New("store: not supported here")
	// ErrInUse: another process (or another engine of this one) uses the
	// store exclusively.
	ErrInUse = errors.New("store: in use by another engine")

	// ErrUnchanged is returned by the function given to [Store.WithLock] to
	// say that nothing is to be written. No store returns it.
	ErrUnchanged = errors.New("store: unchanged")
)

// A KeyTakenError says that another execution of the saga holds the start key.
type KeyTakenError struct {
	Saga, Key string
	Execution uuid.UUID // the holder
}

func (e *KeyTakenError) Error() string {
	return fmt.Sprintf("store: key %q of saga %q is held by execution %s", e.Key, e.Saga, e.Execution)
}

// A SchemaCode says why a schema cannot be used.
type SchemaCode string

// The schema codes.
const (
	SchemaMissing SchemaCode = "missing" // there is none: migrate first
	SchemaTooOld  SchemaCode = "too_old" // it lacks migrations this library needs: migrate first
	SchemaTooNew  SchemaCode = "too_new" // this library is older than the schema still supports: upgrade the library
)

// A SchemaError says that the schema of a database does not fit this build.
type SchemaError struct {
	Code SchemaCode
	Have int // version of the schema found; 0 for none
	Want int // version this library was built for; for too_new the oldest the schema supports
}

func (e *SchemaError) Error() string {
	switch e.Code {
	case SchemaMissing:
		return fmt.Sprintf("store: schema is missing (want version %d): run Migrate first", e.Want)
	case SchemaTooOld:
		return fmt.Sprintf("store: schema version %d is older than %d: run Migrate first", e.Have, e.Want)
	}
	return fmt.Sprintf("store: schema version %d supports libraries from schema version %d on: upgrade this library", e.Have, e.Want)
}
