package fence

import (
	"context"
	"database/sql"
	"time"

	"github.com/leveret-go/leveret/fence/internal/core"
)

// Schema is the SQL that makes the table leveret_fence and its index, for
// PostgreSQL and SQLite alike: two statements that change nothing where both
// are there. Take it into your own migrations, or call [Migrate]. In PostgreSQL
// the table may stand in any schema of the search_path. A participant's user
// needs SELECT, INSERT and UPDATE on it, and DELETE for [Prune].
//
// A row stands for one execute key: effect is that key, undo the key of its undo
// without the round; done is 1 when the effect happened before any undo came, in
// which case it is in force while undos is 0; effects and undos count the calls
// seen, in committed transactions; at is when the last one came, in seconds since
// 1970 UTC by the participant's clock; result and undo_result are what [Do] kept.
const Schema = core.CreateTable + ";\n" + core.CreateIndex + ";\n"

// An Execer executes statements: a *sql.DB, and what is built on one.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Migrate makes what [Schema] says. Any number of processes may call it at once.
// Give it no transaction: when two collide, one tries again. In PostgreSQL the
// user must be allowed to create tables, even when the table is there.
func Migrate(ctx context.Context, db Execer) error { return core.Migrate(ctx, exec(db)) }

// Prune forgets the effects of which no call, not even a repeated or a refused
// one, has come since before, and returns how many. It goes on in batches, each
// a transaction of its own when db is no transaction, and may run beside
// everything else; two at once are of no use.
//
// What was forgotten has never been. A late effect whose undo is forgotten
// happens; a repeated one happens again; and the undo of a forgotten effect is
// [Noop], so that the effect stays for ever. Keep what any saga may still call
// for: at least the longest time between a saga's start and the last attempt of
// its undo, days that an operator takes for a failed compensation included, and
// what a message may spend in a queue. 90 days are a careful choice: a row has
// some 300 bytes.
func Prune(ctx context.Context, db Execer, before time.Time) (int64, error) {
	return core.Prune(ctx, exec(db), before)
}

func exec(db Execer) core.Exec {
	return func(ctx context.Context, query string, args ...any) (int64, error) {
		res, err := db.ExecContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	}
}
