// Package fence keeps a participant right: a service that the steps of sagas
// call, and that has effects in a database of its own. One call in the
// transaction of the effect makes it happen once, makes nothing of the undo of
// an effect that never happened, and refuses an effect that arrives after its
// undo.
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	defer tx.Rollback()
//	verdict, err := fence.Pass(ctx, tx, key, executeKey)
//	if err != nil {
//		return err // errors.Is(err, fence.ErrRefused): this effect must not happen any more
//	}
//	if verdict == fence.First {
//		// charge the card, or pay it back: in tx
//	}
//	return tx.Commit()
//
// The keys are those of the step, saga.Call.Key and saga.Call.ExecuteKey; the
// caller sends both with each call ([SetCall], [SetTable]), and the
// participant takes them from it ([FromHeader], [Middleware], [FromTable]). The
// call is that of an effect when they are equal, else that of an undo. Anybody
// else may use the fence as well, with keys of another form: one for each
// effect, and one for its undo.
//
// # What comes first decides
//
// What a call gets depends only on the calls whose transactions have committed
// before it, under the same execute key:
//
//	calls so far                 an effect         its undo, of any round
//	---------------------------  ----------------  ----------------------
//	none                         First             Noop
//	the effect                   Repeat            First
//	the effect, then its undo    Refuse            Repeat
//	the undo                     Refuse            Noop
//
// How often each came does not matter, nor what comes after: an effect that was
// refused, or an undo that had nothing to do, leave their line as it is. So the
// whole of it, with E an effect, U its undo and U2 the undo of a raised round:
//
//	sequence         verdicts                      in force at the end
//	---------------  ----------------------------  -------------------
//	E                First                         yes
//	E E              First Repeat                  yes
//	E U              First First                   no
//	E U U            First First Repeat            no
//	E U U2           First First Repeat            no: nothing is paid back twice
//	E U E            First First Refuse            no
//	E U E U2         First First Refuse Repeat     no
//	E U2             First First                   no
//	E U2 U           First First Repeat            no
//	U                Noop                          no
//	U U              Noop Noop                     no
//	U E              Noop Refuse                   no
//	U E E            Noop Refuse Refuse            no
//	U E U            Noop Refuse Noop              no
//	U E U2           Noop Refuse Noop              no
//	U U2 E           Noop Noop Refuse              no
//
// A repeated effect whose undo has come is refused and not repeated, as its
// caller would take the answer for a success.
//
// # Transactions at once
//
// Two calls under one execute key never pass at once: the second waits until
// the transaction of the first has ended, and is then judged by what became of
// it. A transaction that is rolled back, or dies with its process, has not been.
// On PostgreSQL the second waits for the lock of a row, under READ COMMITTED as
// under every other level; under REPEATABLE READ and SERIALIZABLE it may fail
// with a serialization failure (40001) instead: nothing has happened then, and
// the call may be repeated. SQLite has one writer, which the others wait for as
// long as their busy_timeout says.
//
// Call Pass first in the transaction. It locks one row, so that calls cannot
// get in each other's way; a transaction that has locked something before, or
// passes two effects, takes its locks in an order of its own, and should always
// take the same. On SQLite a transaction that has read before, and was not begun
// IMMEDIATE, may fail as busy.
//
// # What is needed
//
// PostgreSQL, or SQLite since 3.35, and the table of [Schema] in the database of
// the effect: the fence knows what it has seen in this transaction and nothing
// else. An effect in two databases needs two tables; one outside of any, such as
// a call of another service, needs that service to know the key.
//
// database/sql is served here, with the transactions of what is built on it as
// long as they hand statements over unchanged (of bun's Tx give the *sql.Tx in
// it). Package pgxfence serves pgx. MySQL has another syntax, and is not
// supported.
package fence
