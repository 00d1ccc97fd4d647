package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// The hot path's statements, prepared once on each connection that runs them.
type statements struct {
	texts map[*sql.Stmt]string

	get      *sql.Stmt // on a reader
	live     *sql.Stmt // on a reader
	children *sql.Stmt // on a reader

	load        *sql.Stmt
	exists      *sql.Stmt
	holder      *sql.Stmt
	insert      *sql.Stmt
	update      update
	updateState update // the state too
	attempt     *sql.Stmt
	audit       *sql.Stmt
	wake        *sql.Stmt
	release     *sql.Stmt // wakes, and gives a key
	opponent    *sql.Stmt // holds the key that release gives
	due         *sql.Stmt
	dueIn       *sql.Stmt
	dueExcept   *sql.Stmt
	claim       *sql.Stmt
	renew       *sql.Stmt

	anyDue       *sql.Stmt // on a reader
	anyDueIn     *sql.Stmt // on a reader
	anyDueExcept *sql.Stmt // on a reader

	// For operators, but prepared as well: they run in a transaction.
	eraseTags      *sql.Stmt
	eraseAttempts  *sql.Stmt
	eraseAudit     *sql.Stmt
	deleteFinished *sql.Stmt
	deleteAttempts *sql.Stmt
	deleteAudit    *sql.Stmt
}

// An update writes a row if its revision has not changed. The arguments of both
// statements are the same.
type update struct {
	step *sql.Stmt // only if no column of indexed changes: a step of a quick chain
	any  *sql.Stmt
}

// indexed are the columns in any index, its predicate included, and in a trigger.
// SQLite writes an index anew when a column of it is set, to the value it had too,
// and looks at the trigger.
var indexed = []string{"saga", "partition", "resource_type", "resource_id", "key", "status", "follows", "waits_at", "waits_since", "due_at", "finished_at", "events"}

// Where clauses that need an index; a test asks SQLite whether they get it.
const (
	whereDue   = `due_at IS NOT NULL AND due_at <= ?1`
	whereDueIn = whereDue + ` AND "partition" = ?2`
	// The names that are left out, and the sagas that are wanted, if not all, are
	// in JSON arrays.
	whereDueExcept = whereDue + ` AND (?2 = '' OR "partition" = ?2)
	AND "partition" NOT IN (SELECT value FROM json_each(?3)) AND saga NOT IN (SELECT value FROM json_each(?4))
	AND (?5 = '' OR saga IN (SELECT value FROM json_each(CASE ?5 WHEN '' THEN '[]' ELSE ?5 END)))`
	whereHolder   = `saga = ?1 AND "key" = ?2 AND "key" <> '' AND ` + rows.HoldsKey
	whereOpponent = `(saga, "key") = (SELECT r.saga, r."key" FROM %s AS r WHERE r.id = ?1) AND "key" <> '' AND ` + rows.HoldsKey + ` AND id <> ?1`
	whereChild    = `parent = ?1 AND id > ?2 AND (?3 = '' OR parent_step = ?3)`
)

func (s *Store) prepare(ctx context.Context) error {
	s.texts = map[*sql.Stmt]string{}
	x := s.tables.Name(rows.Executions)
	all := rows.List(rows.Columns)
	for _, p := range []struct {
		to   **sql.Stmt
		on   *sql.DB
		text string
	}{
		{&s.get, s.readers, `SELECT ` + all + ` FROM ` + x + ` WHERE id = ?1`},
		{&s.live, s.readers, `SELECT ` + all + ` FROM ` + x + ` WHERE ` + whereHolder},
		{&s.children, s.readers, `SELECT ` + all + ` FROM ` + x + ` WHERE ` + whereChild + ` ORDER BY id LIMIT ?4`},
		{&s.anyDue, s.readers, `SELECT EXISTS (SELECT 1 FROM ` + x + ` WHERE ` + whereDue + `)`},
		{&s.anyDueIn, s.readers, `SELECT EXISTS (SELECT 1 FROM ` + x + ` WHERE ` + whereDueIn + `)`},
		{&s.anyDueExcept, s.readers, `SELECT EXISTS (SELECT 1 FROM ` + x + ` WHERE ` + whereDueExcept + `)`},
		{&s.load, s.writer, `SELECT ` + all + ` FROM ` + x + ` WHERE id = ?1`},
		{&s.exists, s.writer, `SELECT EXISTS (SELECT 1 FROM ` + x + ` WHERE id = ?1)`},
		{&s.holder, s.writer, `SELECT id FROM ` + x + ` WHERE ` + whereHolder},
		{&s.insert, s.writer, `INSERT INTO ` + x + ` (` + all + `) VALUES (` + rows.Marks(rows.Question, 1, len(rows.Columns)) + `) ON CONFLICT DO NOTHING`},
		{&s.update.step, s.writer, updateSQL(x, false, indexed)},
		{&s.update.any, s.writer, updateSQL(x, false, nil)},
		{&s.updateState.step, s.writer, updateSQL(x, true, indexed)},
		{&s.updateState.any, s.writer, updateSQL(x, true, nil)},
		{&s.attempt, s.writer, `INSERT INTO ` + s.tables.Name(rows.Attempts) + ` AS a (` + rows.List(rows.AttemptColumns) + `)
VALUES (` + rows.Marks(rows.Question, 1, len(rows.AttemptColumns)) + `)
ON CONFLICT (execution, step, direction, epoch, "number") DO UPDATE SET late = excluded.late, late_status = excluded.late_status
WHERE a.late_status = ''`},
		{&s.audit, s.writer, `INSERT INTO ` + s.tables.Name(rows.Audit) + ` (` + rows.List(rows.AuditColumns) + `)
VALUES (` + rows.Marks(rows.Question, 1, len(rows.AuditColumns)) + `)`},
		{&s.eraseTags, s.writer, `UPDATE ` + x + ` SET tags = NULL WHERE id = ?1`},
		{&s.eraseAttempts, s.writer, `UPDATE ` + s.tables.Name(rows.Attempts) + `
SET failure_message = CASE WHEN failure_message IS NOT NULL THEN '' END, stack = '', reason = '' WHERE execution = ?1`},
		{&s.eraseAudit, s.writer, `UPDATE ` + s.tables.Name(rows.Audit) + ` SET reason = '', detail = NULL WHERE execution = ?1`},
		{&s.wake, s.writer, `UPDATE ` + x + ` SET revision = revision + 1,
	due_at = CASE WHEN attempt_number IS NULL AND (due_at IS NULL OR due_at > ?2) THEN ?2 ELSE due_at END,
	offered_at = CASE WHEN attempt_number IS NULL THEN NULL ELSE offered_at END
WHERE id = ?1 AND status IN ('running', 'waiting', 'compensating')`},
		{&s.release, s.writer, `UPDATE ` + x + ` SET revision = revision + 1, follows = NULL,
	due_at = CASE WHEN attempt_number IS NULL AND status <> 'halted' AND (due_at IS NULL OR due_at > ?2) THEN ?2 ELSE due_at END,
	offered_at = CASE WHEN attempt_number IS NULL AND status <> 'halted' THEN NULL ELSE offered_at END
WHERE id = ?1 AND ` + rows.Unfinished},
		{&s.opponent, s.writer, `SELECT id, saga, "key" FROM ` + x + ` WHERE ` + fmt.Sprintf(whereOpponent, x)},
		{&s.due, s.writer, `SELECT ` + all + ` FROM ` + x + ` WHERE ` + whereDue + ` ORDER BY due_at, id LIMIT ?2`},
		{&s.dueIn, s.writer, `SELECT ` + all + ` FROM ` + x + ` WHERE ` + whereDueIn + ` ORDER BY due_at, id LIMIT ?3`},
		{&s.dueExcept, s.writer, `SELECT ` + all + ` FROM ` + x + ` WHERE ` + whereDueExcept + ` ORDER BY due_at, id LIMIT ?6`},
		{&s.claim, s.writer, `UPDATE ` + x + ` SET due_at = ?2, offered_at = ?3 WHERE id = ?1`},
		{&s.renew, s.writer, `UPDATE ` + x + ` SET attempt_lease_until = ?1, due_at = ?2,
	offered_at = CASE WHEN attempt_lease_until <= ?3 THEN NULL ELSE offered_at END,
	attempt_progress = COALESCE(?10, attempt_progress)
WHERE id = ?4 AND step = ?5 AND direction = ?6 AND epoch = ?7 AND attempt_number = ?8 AND attempt_worker = ?9
RETURNING request`},
		{&s.deleteFinished, s.writer, `DELETE FROM ` + x + ` WHERE id = ?1 AND revision = ?2 AND NOT (` + rows.Unfinished + `)`},
		{&s.deleteAttempts, s.writer, `DELETE FROM ` + s.tables.Name(rows.Attempts) + ` WHERE execution = ?1`},
		{&s.deleteAudit, s.writer, `DELETE FROM ` + s.tables.Name(rows.Audit) + ` WHERE execution = ?1`},
	} {
		var err error
		if *p.to, err = p.on.PrepareContext(ctx, p.text); err != nil {
			return err
		}
		s.texts[*p.to] = p.text
	}
	return nil
}

// updateSQL returns the statement that writes a row with an id and a revision,
// the last two arguments, unless a column of kept would change. The arguments
// before them are those of rows.UpdateColumns and rows.RareColumns, and of
// rows.StateColumns if the state is written.
func updateSQL(table string, state bool, kept []string) string {
	columns := slices.Concat(rows.UpdateColumns, rows.RareColumns)
	if state {
		columns = append(columns, rows.StateColumns...)
	}
	var sets, keeps []string
	for i, c := range columns {
		if slices.Contains(kept, c) {
			keeps = append(keeps, ` AND "`+c+`" IS `+rows.Question(i+1))
		} else {
			sets = append(sets, rows.Sets(rows.Question, i+1, []string{c}))
		}
	}
	n := len(columns)
	return fmt.Sprintf(`UPDATE %s SET %s WHERE id = %s AND revision = %s%s`, table,
		strings.Join(sets, ", "), rows.Question(n+1), rows.Question(n+2), strings.Join(keeps, ""))
}

// A txn is a write transaction. Its statements do not watch ctx: they are
// quick, and an interrupted one would cost the connection. ctx ends the wait
// for the lock, and the transaction, up to the commit.
type txn struct {
	s         *Store
	ctx       context.Context
	tx        *sql.Tx
	operation string
	// caller says that it is one of the caller's, perhaps of another sql.DB, whose
	// statements cannot be prepared before.
	caller bool
}

// write runs f in a transaction and commits it, unless f returns an error, or
// panics, or ctx ends. The errors of f are returned as they are.
func (s *Store) write(ctx context.Context, operation string, f func(*txn) error) error {
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(ctx, operation, err)
	}
	defer tx.Rollback() // does nothing after a commit
	if err := f(&txn{s: s, ctx: ctx, tx: tx, operation: operation}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return s.fail(ctx, operation, err)
	}
	if s.commits.Add(1)%checkEvery == 0 {
		s.truncateWAL(ctx)
	}
	return nil
}

func (t *txn) fail(err error) error { return t.s.fail(t.ctx, t.operation, err) }

// exec returns how many rows the statement changed.
func (t *txn) exec(stmt *sql.Stmt, args ...any) (int64, error) {
	background := context.WithoutCancel(t.ctx)
	var res sql.Result
	var err error
	if t.caller {
		res, err = t.tx.ExecContext(background, t.s.texts[stmt], args...)
	} else {
		res, err = t.tx.StmtContext(background, stmt).ExecContext(background, args...)
	}
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t *txn) row(stmt *sql.Stmt, args ...any) *sql.Row {
	background := context.WithoutCancel(t.ctx)
	if t.caller {
		return t.tx.QueryRowContext(background, t.s.texts[stmt], args...)
	}
	return t.tx.StmtContext(background, stmt).QueryRowContext(background, args...)
}

func (t *txn) rows(stmt *sql.Stmt, args ...any) (*sql.Rows, error) {
	background := context.WithoutCancel(t.ctx)
	if t.caller {
		return t.tx.QueryContext(background, t.s.texts[stmt], args...)
	}
	return t.tx.StmtContext(background, stmt).QueryContext(background, args...)
}

// load returns the row, or ErrNotFound.
func (t *txn) load(id uuid.UUID) (*rows.Execution, error) {
	r := new(rows.Execution)
	err := t.row(t.s.statements.load, id.String()).Scan(r.Dest()...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, store.ErrNotFound
	}
	return r, t.fail(err)
}

// insert creates an execution that has been validated.
func (t *txn) insert(x *store.Execution) error {
	r, err := rows.FromExecution(x)
	if err != nil {
		return t.fail(err)
	}
	r.Revision = 1
	n, err := t.exec(t.s.statements.insert, r.Values(rows.MicrosValue)...)
	if err != nil || n == 1 {
		return t.fail(err)
	}
	var exists bool
	if err := t.row(t.s.exists, r.ID.String()).Scan(&exists); err != nil {
		return t.fail(err)
	}
	if exists {
		return store.ErrExists
	}
	return t.keyTaken(x)
}

// keyTaken finds out who holds the key that x cannot have.
func (t *txn) keyTaken(x *store.Execution) error {
	e := &store.KeyTakenError{Saga: x.Saga, Key: x.Key}
	if err := t.row(t.s.holder, x.Saga, x.Key).Scan(&e.Execution); err != nil {
		return t.fail(err)
	}
	return e
}

// update writes x, which has been validated, over the row with its revision,
// and c, or returns ErrConflict.
func (t *txn) update(x *store.Execution, c *store.Change, sameState bool) error {
	r, err := rows.FromExecution(x)
	if err != nil {
		return t.fail(err)
	}
	r.Revision = x.Revision + 1
	u, args := t.s.statements.update, append(r.UpdateValues(rows.MicrosValue), r.RareValues(rows.MicrosValue)...)
	if !sameState {
		u, args = t.s.updateState, append(args, r.StateValues()...)
	}
	args = append(args, r.ID.String(), x.Revision)
	n, err := t.exec(u.step, args...)
	if n == 0 && err == nil {
		n, err = t.exec(u.any, args...)
	}
	switch {
	case isUnique(err):
		// The statement has been taken back, the transaction goes on.
		return t.keyTaken(x)
	case err != nil:
		return t.fail(err)
	case n == 0:
		return store.ErrConflict
	}
	return t.change(x.ID, c)
}

// change writes what comes with an execution.
func (t *txn) change(id uuid.UUID, c *store.Change) error {
	if c.Erase {
		for _, stmt := range []*sql.Stmt{t.s.eraseTags, t.s.eraseAttempts, t.s.eraseAudit} {
			if _, err := t.exec(stmt, id.String()); err != nil {
				return t.fail(err)
			}
		}
	}
	for i := range c.Attempts {
		if _, err := t.exec(t.s.attempt, rows.FromAttempt(&c.Attempts[i]).Values(rows.MicrosValue)...); err != nil {
			return t.fail(err)
		}
	}
	for i := range c.Audit {
		if _, err := t.exec(t.s.audit, rows.FromAudit(&c.Audit[i]).Values(rows.MicrosValue)...); isUnique(err) {
			return store.ErrRequestUsed
		} else if err != nil {
			return t.fail(err)
		}
	}
	for _, w := range c.Wake {
		if err := t.wake(w); err != nil {
			return err
		}
	}
	for _, x := range c.Create {
		if err := t.insert(x); err != nil {
			return err
		}
	}
	return nil
}

// wake wakes an execution, and gives it its key or says who holds that.
func (t *txn) wake(w store.Wake) error {
	stmt := t.s.statements.wake
	if w.Release {
		stmt = t.s.release
	}
	_, err := t.exec(stmt, w.ID.String(), rows.NewTime(w.At).UnixMicro())
	if !isUnique(err) {
		return t.fail(err)
	}
	e := new(store.KeyTakenError)
	if err := t.row(t.s.opponent, w.ID.String()).Scan(&e.Execution, &e.Saga, &e.Key); err != nil {
		return t.fail(err)
	}
	return e
}

// How often, in commits, the size of the -wal file is looked at, and how large
// it may be.
const (
	checkEvery = 256
	walLimit   = 64 << 20
)

// truncateWAL empties the -wal file when it has grown large. SQLite folds it
// back by itself but never makes it smaller, and not while there always is a
// reader: so this waits for them, but not long, and lets it be if they do not
// end; it is tried again soon. It is no part of the write before it.
func (s *Store) truncateWAL(ctx context.Context) {
	info, err := os.Stat(s.path + "-wal")
	if err != nil || info.Size() <= s.walLimit {
		return
	}
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	background := context.WithoutCancel(ctx)
	if _, err := conn.ExecContext(background, "PRAGMA busy_timeout = 100"); err != nil {
		return
	}
	_, _ = conn.ExecContext(background, "PRAGMA wal_checkpoint(TRUNCATE)")
	_, _ = conn.ExecContext(background, fmt.Sprintf("PRAGMA busy_timeout = %d", s.busy.Milliseconds()))
}
