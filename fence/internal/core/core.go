// Package core judges the calls of a participant by its table. Package fence
// puts database/sql in front of it, package pgxfence pgx.
package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The verdicts, as package fence documents them.
const (
	First  = "first"
	Repeat = "repeat"
	Refuse = "refuse"
	Noop   = "noop"
)

// MaxResult is how long a kept result may be, in bytes.
const MaxResult = 64 << 10

// The errors, as package fence documents them.
var (
	ErrInvalid = errors.New("fence: invalid")
	ErrRefused = errors.New("fence: refused: the undo of this effect came before it")
)

// A Row is a row that has not been read.
type Row interface {
	Scan(dest ...any) error
}

// A Query runs a statement in the participant's transaction that gives one row.
type Query func(ctx context.Context, query string, args ...any) Row

// The row of an effect is found, or made, and locked by one statement, so that
// of two transactions one waits for the other, and there is one lock to take
// and no order to take it in. In the row stand how many calls of the effect and
// of its undo have been seen, and whether the effect was the first of them: that
// is all it takes to judge.
//
// PostgreSQL and SQLite both take this text. SQLite numbers $1, $2 by where they
// stand first.
const (
	effectCall = `INSERT INTO leveret_fence AS f (effect, done, effects, undos, at)
VALUES ($1, 1, 1, 0, $2)
ON CONFLICT (effect) DO UPDATE SET effects = f.effects + 1, at = excluded.at
RETURNING done, effects, undos, undo, result, undo_result`

	undoCall = `INSERT INTO leveret_fence AS f (effect, undo, done, effects, undos, at)
VALUES ($1, $2, 0, 0, 1, $3)
ON CONFLICT (effect) DO UPDATE SET undo = COALESCE(f.undo, excluded.undo), undos = f.undos + 1, at = excluded.at
RETURNING done, effects, undos, undo, result, undo_result`

	keepResult     = `UPDATE leveret_fence SET result = $1 WHERE effect = $2 RETURNING effects`
	keepUndoResult = `UPDATE leveret_fence SET undo_result = $1 WHERE effect = $2 RETURNING undos`
)

type row struct {
	done, effects, undos int
	undo                 *string
	result, undoResult   []byte
}

// Pass is [fence.Pass].
func Pass(ctx context.Context, q Query, key, executeKey string) (string, error) {
	verdict, _, _, err := pass(ctx, q, key, executeKey)
	return verdict, err
}

func pass(ctx context.Context, q Query, key, executeKey string) (verdict, undo string, r row, err error) {
	undo, err = undoOf(key, executeKey)
	if err != nil {
		return "", "", row{}, err
	}
	now := time.Now().Unix()
	var found Row
	if undo == "" {
		found = q(ctx, effectCall, executeKey, now)
	} else {
		found = q(ctx, undoCall, executeKey, undo, now)
	}
	if err := found.Scan(&r.done, &r.effects, &r.undos, &r.undo, &r.result, &r.undoResult); err != nil {
		return "", "", row{}, fmt.Errorf("fence: pass: %w", err)
	}
	verdict = r.judge(undo)
	switch {
	case verdict == Refuse:
		return Refuse, undo, r, ErrRefused
	case undo != "" && verdict != Noop && r.undo != nil && *r.undo != undo:
		return "", "", row{}, fmt.Errorf("%w: key: the effect of this executeKey is undone under another key: give each undo an effect of its own", ErrInvalid)
	}
	return verdict, undo, r, nil
}

// judge says what the call is that has just been counted in r.
func (r row) judge(undo string) string {
	switch {
	case undo == "" && (r.done == 0 || r.undos > 0):
		return Refuse
	case undo == "" && r.effects == 1:
		return First
	case undo == "":
		return Repeat
	case r.done == 0:
		return Noop
	case r.undos == 1:
		return First
	default:
		return Repeat
	}
}

// Do is [fence.Do].
func Do(ctx context.Context, q Query, key, executeKey string, fn func(effect []byte) ([]byte, error)) (string, []byte, error) {
	verdict, undo, r, err := pass(ctx, q, key, executeKey)
	if err != nil {
		return verdict, nil, err
	}
	keep, kept, effect := keepResult, r.result, []byte(nil)
	if undo != "" {
		keep, kept, effect = keepUndoResult, r.undoResult, r.result
	}
	switch verdict {
	case Repeat:
		return verdict, kept, nil
	case Noop:
		return verdict, nil, nil
	}
	result, err := fn(effect)
	if err != nil {
		return verdict, nil, err
	}
	if len(result) > MaxResult {
		return verdict, nil, fmt.Errorf("%w: result: has %d bytes, at most %d are kept", ErrInvalid, len(result), MaxResult)
	}
	if len(result) > 0 {
		var calls int
		if err := q(ctx, keep, result, executeKey).Scan(&calls); err != nil {
			return verdict, nil, fmt.Errorf("fence: keep the result: %w", err)
		}
	}
	return verdict, result, nil
}
