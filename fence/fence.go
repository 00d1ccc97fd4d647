package fence

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/leveret-go/leveret/fence/internal/core"
)

// A Verdict says what to do with a call.
type Verdict string

// The verdicts. The package comment says which call gets which.
const (
	// First: do it, and commit.
	First Verdict = core.First
	// Repeat: it was done before. Do nothing, answer as the first time.
	Repeat Verdict = core.Repeat
	// Refuse: an undo of this effect came before. Do nothing, answer with an
	// error. Comes with [ErrRefused].
	Refuse Verdict = core.Refuse
	// Noop: the effect that this call would undo has not happened. Do nothing,
	// commit, answer with success. Without the commit nothing is remembered,
	// and the effect is not refused when it comes.
	Noop Verdict = core.Noop
)

var (
	// ErrRefused is the error of [Refuse]. For an HTTP answer, 409 suits; a
	// step that reads it should fail for good with no effect, as there is none
	// and will be none: saga.Fail(saga.NoEffect(err)).
	ErrRefused = core.ErrRefused

	// ErrInvalid is wrapped by errors that name what the caller did wrong:
	// for an HTTP answer, 400.
	ErrInvalid = core.ErrInvalid
)

// A Querier is a transaction of database/sql: a *sql.Tx, one of what is built
// on it, or a *sql.Conn on which BEGIN was executed. A *sql.DB has this method
// too but is no transaction, and is refused.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Pass judges a call, and remembers it in tx. What is to be done on [First]
// belongs into the same tx. The table of verdicts is in the package comment.
//
// It waits while another transaction has passed under the same executeKey and
// not ended, at most until ctx ends.
//
// Errors: [ErrRefused], with the verdict [Refuse]; one that wraps [ErrInvalid],
// for keys that are empty, longer than 1024 bytes or not printable ASCII, for
// keys of Leveret of which one has been mistaken for the other, and for a second
// undo of an effect under a key that differs in more than the round (an effect
// has one undo: name effects, if there are more); the database's own. After an
// error roll back; with ErrRefused a commit is right as well.
//
// A crash before the commit leaves no trace, one after it leaves the effect and
// the memory of it: the caller's next attempt gets [First] or [Repeat].
func Pass(ctx context.Context, tx Querier, key, executeKey string) (Verdict, error) {
	q, err := query(tx)
	if err != nil {
		return "", err
	}
	v, err := core.Pass(ctx, q, key, executeKey)
	return Verdict(v), err
}

// Do passes as [Pass] does and, on [First], calls fn and keeps what it returns,
// at most 64 KiB, in tx. On [Repeat] it returns what is kept: that of the
// effect's fn in a repeated effect, that of the undo's in a repeated undo. On
// [Noop] it returns nil.
//
// An undo's fn is given what the effect's returned, a charge's number for
// instance; an effect's fn is given nil.
//
// An error of fn is returned as it is, with First: roll back, and nothing has
// happened. A refusal of the participant's own (no money, no stock) is such an
// error; the same call may succeed later. So might one that is still on its
// way: a step that reads such a refusal must not call it saga.NoEffect, which
// would keep the undo from being sent.
func Do(ctx context.Context, tx Querier, key, executeKey string, fn func(effect []byte) ([]byte, error)) (Verdict, []byte, error) {
	q, err := query(tx)
	if err != nil {
		return "", nil, err
	}
	v, result, err := core.Do(ctx, q, key, executeKey, fn)
	return Verdict(v), result, err
}

func query(tx Querier) (core.Query, error) {
	if _, pool := tx.(interface{ SetMaxOpenConns(int) }); pool {
		return nil, fmt.Errorf("%w: tx: is a pool of connections and no transaction", ErrInvalid)
	}
	return func(ctx context.Context, query string, args ...any) core.Row {
		return tx.QueryRowContext(ctx, query, args...)
	}, nil
}
