package store

import "context"

// A Tx is a transaction of a database, wrapped by the adapter that can work in
// it: postgres.Tx, postgres.SQLTx, sqlite.Tx.
type Tx interface {
	// TxKind names the driver, such as "pgx" or "sql".
	TxKind() string
}

// A Binder can work inside a transaction of the caller's. Optional, found with
// [As].
type Binder interface {
	// Bind returns a Store whose calls are part of tx: what they write is seen
	// by others when the caller commits tx, and is gone when it rolls back. Rows
	// that WithLock and Advance have written, and those it has locked, stay locked until then.
	//
	// No error that this package names, nor one that fn returns, leaves the
	// transaction unusable: what the failed call had written is taken back, and the
	// transaction goes on. After any other error it must be rolled back.
	//
	// The bound store has Create, Get, Live, WithLock, Attempts, Audit, Children, ID and
	// Now, and is an [Advancer] if the store is; ClaimDue, Renew, Stalled and
	// ForResource return ErrNotSupported. It is used by one goroutine at a time, as the transaction is, and
	// no longer than it. A tx of another driver or of another database's kind is
	// ErrForeignTx.
	Bind(tx Tx) (Store, error)
}

// A Transactor can open transactions for functions that need one. Optional,
// found with [As].
type Transactor interface {
	// TxKinds lists the kinds that RunTx takes.
	TxKinds() []string

	// RunTx begins a transaction of this kind and calls fn with it and with a
	// Store bound to it (see [Binder]). It commits when fn returns nil, and rolls
	// back when it returns an error or panics; the error, or the panic, is
	// passed on. An error of the commit says that nothing was written only if it is ErrConflict
	// (the database chose this transaction to fail: try again); after any other
	// it may have been.
	RunTx(ctx context.Context, kind string, fn func(tx Tx, s Store) error) error
}

// A TxFunc is a function that wants a transaction of a certain kind, such as a
// step's that works in the transaction which settles it. R is what else it gets.
// Adapters make them: postgres.InTx, sqlite.InTx.
type TxFunc[R any] struct {
	kind string
	fn   func(ctx context.Context, run R, tx Tx) error
}

// NewTxFunc is for adapters.
func NewTxFunc[R any](kind string, fn func(ctx context.Context, run R, tx Tx) error) TxFunc[R] {
	return TxFunc[R]{kind: kind, fn: fn}
}

// IsZero reports whether there is no function.
func (f TxFunc[R]) IsZero() bool { return f.fn == nil }

// Kind returns the kind of transaction that it wants.
func (f TxFunc[R]) Kind() string { return f.kind }

// Call calls the function.
func (f TxFunc[R]) Call(ctx context.Context, run R, tx Tx) error { return f.fn(ctx, run, tx) }
