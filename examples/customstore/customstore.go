// Package customstore shows how to write a store of one's own: a small one, over
// database/sql and a SQLite file, that keeps the whole contract of package
// store. To use a database that Leveret has no store for, begin with a copy.
//
//	s, err := customstore.Open(ctx, "sagas.db")
//	engine, err := saga.New(saga.Config{Store: s})
//
// The way to a store is this:
//
//   - Keep an execution as one value, here as JSON, and beside it only what the
//     database has to search for: the start key, the resource, the parent, the
//     due time, the time of the last progress and what is waited for. What is
//     JSON already (the state, the state at the start, the checkpoint, payloads)
//     stays out of that value: it is kept byte for byte, and a JSON encoder would
//     rewrite it.
//   - Let Validate of package store decide what is refused, before anything is
//     written. Then every store refuses the same.
//   - Put every write into one transaction, and let only Commit make it seen.
//     A deferred Rollback gives the lock back when fn fails or panics.
//   - Lock. This store has a single writer: the one connection of the pool for
//     writes is the lock of all rows, and a ctx ends the wait for it. A database
//     with row locks takes them in WithLock (SELECT … FOR UPDATE), and passes
//     locked rows over in ClaimDue and Renew (SKIP LOCKED).
//   - Read from elsewhere: readers never wait for the writer.
//   - Let an index say which requests of people were carried out: the second
//     entry of the audit trail with the same request fails, and with it all of
//     its transaction.
//   - Prove it: the test of this package is one call of storetest.Run.
//
// It leaves out the optional abilities; package storetest lists them, and what
// an engine does without. It may be opened by several processes;
// one that waits for the writer of another one waits up to five seconds,
// whatever its ctx says.
package customstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"

	_ "modernc.org/sqlite" // registers the driver
)

const schema = `
CREATE TABLE IF NOT EXISTS identity (one INTEGER PRIMARY KEY CHECK (one = 1), id BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS executions (
	id BLOB PRIMARY KEY, body TEXT NOT NULL, state BLOB NOT NULL, initial BLOB, checkpoint BLOB,
	saga TEXT NOT NULL, key TEXT, partition TEXT NOT NULL, type TEXT NOT NULL, resource TEXT NOT NULL,
	parent BLOB, parent_step TEXT, due INTEGER, progress INTEGER, gate TEXT
);
CREATE UNIQUE INDEX IF NOT EXISTS executions_key ON executions (saga, key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS executions_due ON executions (due, id) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS executions_progress ON executions (progress, id) WHERE progress IS NOT NULL;
CREATE INDEX IF NOT EXISTS executions_waiting ON executions (saga, gate, progress, id) WHERE gate IS NOT NULL;
CREATE INDEX IF NOT EXISTS executions_parent ON executions (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX IF NOT EXISTS executions_resource ON executions (type, resource, id);
CREATE TABLE IF NOT EXISTS attempts (
	seq INTEGER PRIMARY KEY AUTOINCREMENT, execution BLOB NOT NULL,
	step TEXT NOT NULL, direction TEXT NOT NULL, epoch INTEGER NOT NULL, number INTEGER NOT NULL,
	body TEXT NOT NULL, UNIQUE (execution, step, direction, epoch, number)
);
CREATE TABLE IF NOT EXISTS audit (
	seq INTEGER PRIMARY KEY AUTOINCREMENT, execution BLOB NOT NULL, request TEXT NOT NULL, body TEXT NOT NULL, detail BLOB
);
CREATE INDEX IF NOT EXISTS audit_execution ON audit (execution, seq);
CREATE UNIQUE INDEX IF NOT EXISTS audit_request ON audit (execution, request) WHERE request <> '';
`

// A Store keeps executions in a SQLite file. It has a single writer: a lock on
// one execution blocks all other writes, and ClaimDue and Renew wait for it.
type Store struct {
	id      uuid.UUID
	writers *sql.DB // of one connection, which is the lock
	readers *sql.DB
}

// Open opens the store in the file at path, which it creates if there is none.
func Open(ctx context.Context, path string) (*Store, error) {
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"
	writers, err := sql.Open("sqlite", dsn+"&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("customstore: open: %w", err)
	}
	writers.SetMaxOpenConns(1)
	readers, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("customstore: open: %w", err), writers.Close())
	}
	s := &Store{writers: writers, readers: readers}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("customstore: open: %w", err), s.Close())
	}
	return s, nil
}

func (s *Store) prepare(ctx context.Context) error {
	id := uuid.New()
	return s.write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, schema); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO identity VALUES (1, ?)`, id[:]); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT id FROM identity`).Scan(&s.id)
	})
}

// Close closes the file.
func (s *Store) Close() error { return errors.Join(s.writers.Close(), s.readers.Close()) }

// ID implements [store.Store].
func (s *Store) ID(ctx context.Context) (uuid.UUID, error) { return s.id, ctx.Err() }

// Now implements [store.Store] with the clock of the process.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return store.Micros(time.Now()), ctx.Err()
}

// Create implements [store.Store].
func (s *Store) Create(ctx context.Context, x *store.Execution) error {
	if err := x.Validate(); err != nil {
		return err
	}
	if err := s.write(ctx, func(tx *sql.Tx) error { return insert(ctx, tx, x) }); err != nil {
		return err
	}
	x.Revision = 1
	return nil
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
	x, err := load(ctx, s.readers, id)
	return x, end(ctx, err)
}

// WithLock implements [store.Store].
func (s *Store) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (written *store.Execution, err error) {
	err = s.write(ctx, func(tx *sql.Tx) error {
		old, err := load(ctx, tx, id)
		if err != nil {
			return err
		}
		x := old.Clone()
		c, err := fn(x)
		if errors.Is(err, store.ErrUnchanged) {
			written = old
			return nil
		}
		if err != nil {
			return fnError{err}
		}
		if err := store.ValidateUpdate(old, x, &c); err != nil {
			return err
		}
		x = x.Clone() // fn may have kept parts of it
		x.Revision++
		if c.Erase {
			x.Tags = nil
		}
		written = x
		return apply(ctx, tx, x, c)
	})
	if err != nil {
		return nil, err
	}
	return written, nil
}

// Live implements [store.Store].
func (s *Store) Live(ctx context.Context, saga, key string) (*store.Execution, error) {
	list, err := find(ctx, s.readers, `saga = ? AND key = ?`, saga, key) // the column is NULL where the key is not held
	if err == nil && len(list) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, end(ctx, err)
	}
	return list[0], nil
}

// Children implements [store.Store].
func (s *Store) Children(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	list, err := find(ctx, s.readers, `parent = ? AND id > ? AND (? = '' OR parent_step = ?) ORDER BY id LIMIT ?`,
		q.Parent[:], q.After[:], q.Step, q.Step, q.Limit)
	return list, end(ctx, err)
}

// Attempts implements [store.Store].
func (s *Store) Attempts(ctx context.Context, id uuid.UUID) (list []store.Attempt, err error) {
	// One transaction is one moment.
	tx, err := s.readers.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, end(ctx, err)
	}
	defer tx.Rollback()
	list, err = bodies[store.Attempt](ctx, tx, `SELECT body FROM attempts WHERE execution = ? ORDER BY seq`, id[:])
	if err != nil {
		return nil, end(ctx, err)
	}
	x, err := load(ctx, tx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, end(ctx, err)
	}
	if open, ok := x.OpenAttempt(); ok {
		list = append(list, open)
	}
	return list, nil
}

// Audit implements [store.Store].
func (s *Store) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	list, err := trail(ctx, s.readers, id)
	return list, end(ctx, err)
}

// Stalled implements [store.Store].
func (s *Store) Stalled(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	where, args := `progress < ?`, []any{micros(q.ProgressBefore)}
	if q.After != nil {
		where, args = where+` AND (progress, id) > (?, ?)`, append(args, micros(q.After.ProgressAt), q.After.ID[:])
	}
	if q.Saga != "" {
		where, args = where+` AND saga = ?`, append(args, q.Saga)
	}
	if q.Gate != "" {
		where, args = where+` AND gate = ?`, append(args, q.Gate)
	}
	list, err := find(ctx, s.readers, where+` ORDER BY progress, id LIMIT ?`, append(args, q.Limit)...)
	return list, end(ctx, err)
}

// ForResource implements [store.Store].
func (s *Store) ForResource(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
	if limit < 1 {
		return nil, fmt.Errorf("%w: limit is below 1", store.ErrInvalid)
	}
	list, err := find(ctx, s.readers, `type = ? AND resource = ? ORDER BY id DESC LIMIT ?`, r.Type, r.ID, limit)
	return list, end(ctx, err)
}

// ClaimDue implements [store.Store].
func (s *Store) ClaimDue(ctx context.Context, q store.DueQuery) (claimed []*store.Execution, err error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	now := store.Micros(q.Now)
	lists := [3]string{}
	for i, names := range [][]string{q.NotPartitions, q.NotSagas, q.Sagas} {
		list, err := json.Marshal(append([]string{}, names...)) // [] for none, not null
		if err != nil {
			return nil, err
		}
		lists[i] = string(list)
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		claimed, err = find(ctx, tx, `due <= ? AND (? = '' OR partition = ?)
			AND partition NOT IN (SELECT value FROM json_each(?)) AND saga NOT IN (SELECT value FROM json_each(?))
			AND (? OR saga IN (SELECT value FROM json_each(?)))
			ORDER BY due, id LIMIT ?`,
			micros(now), q.Partition, q.Partition, lists[0], lists[1], q.Sagas == nil, lists[2], q.Limit)
		for _, x := range claimed {
			due, offered := store.Micros(now.Add(q.Hold)), now
			x.DueAt = &due
			if x.OfferedAt == nil {
				x.OfferedAt = &offered
			}
			if err == nil {
				err = save(ctx, tx, x)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if err := r.Validate(len(leases)); err != nil {
		return nil, err
	}
	states := make([]store.LeaseState, len(leases))
	err := s.write(ctx, func(tx *sql.Tx) error {
		for i, l := range leases {
			states[i] = store.LeaseLost
			x, err := load(ctx, tx, l.Execution)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if have, ok := x.Lease(); !ok || have != l {
				continue
			}
			if !x.Attempt.LeaseUntil.After(store.Micros(r.Now)) {
				x.OfferedAt = nil
			}
			x.Attempt.LeaseUntil, x.DueAt = r.Until, &r.DueAt
			if r.Progress != nil && r.Progress[i] != nil {
				x.Attempt.Progress = r.Progress[i]
			}
			if err := save(ctx, tx, x.Clone()); err != nil { // Clone cuts the times
				return err
			}
			states[i] = store.LeaseHeld
			if x.Request != nil && x.Request.Turn != store.TurnNone {
				states[i] = store.LeaseInterrupted
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}

// write runs f in a transaction that has the lock of all rows.
func (s *Store) write(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.writers.BeginTx(ctx, nil)
	if err != nil {
		return end(ctx, err)
	}
	defer tx.Rollback() // after a panic too; nothing after Commit
	if err := f(tx); err != nil {
		return end(ctx, err)
	}
	return end(ctx, tx.Commit())
}

// An fnError is what the function given to WithLock returned. It goes to the
// caller as it is, also when ctx is done.
type fnError struct{ error }

// end returns what a method returns for err: the ctx's own error where that
// ended the call, which a driver may tell in words of its own.
func end(ctx context.Context, err error) error {
	if fe, ok := errors.AsType[fnError](err); ok {
		return fe.error
	}
	_, taken := errors.AsType[*store.KeyTakenError](err)
	switch {
	case err == nil, taken, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrExists), errors.Is(err, store.ErrInvalid),
		errors.Is(err, store.ErrRequestUsed):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("customstore: %w", err)
}

// apply writes an execution that exists, and a Change.
func apply(ctx context.Context, tx *sql.Tx, x *store.Execution, c store.Change) error {
	if err := save(ctx, tx, x); err != nil {
		return err
	}
	if c.Erase {
		if err := erase(ctx, tx, x.ID); err != nil {
			return err
		}
	}
	for i := range c.Attempts {
		if err := record(ctx, tx, c.Attempts[i].Clone()); err != nil {
			return err
		}
	}
	for i := range c.Audit {
		if err := note(ctx, tx, c.Audit[i].Clone()); err != nil {
			return err
		}
	}
	for _, y := range c.Create {
		if err := insert(ctx, tx, y); err != nil {
			return err
		}
	}
	for _, w := range c.Wake {
		y, err := load(ctx, tx, w.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if y.Status.Finished() || y.Status == store.StatusHalted && !w.Release {
			continue
		}
		y.Revision++
		if w.Release {
			y.Follows = nil
		}
		if y.Attempt == nil && y.Status != store.StatusHalted {
			if at := store.Micros(w.At); y.DueAt == nil || y.DueAt.After(at) {
				y.DueAt = &at
			}
			y.OfferedAt = nil
		}
		if err := save(ctx, tx, y); err != nil {
			return err
		}
	}
	return nil
}

// record inserts an attempt, or adds to a known one what came late.
func record(ctx context.Context, tx *sql.Tx, a store.Attempt) error {
	const key = ` WHERE execution = ? AND step = ? AND direction = ? AND epoch = ? AND number = ?`
	args := []any{a.Execution[:], a.Step, a.Direction, a.Epoch, a.Number}
	known, err := bodies[store.Attempt](ctx, tx, `SELECT body FROM attempts`+key, args...)
	if err != nil {
		return err
	}
	statement := `INSERT INTO attempts (body, execution, step, direction, epoch, number) VALUES (?, ?, ?, ?, ?, ?)`
	if len(known) > 0 {
		if known[0].LateStatus != "" {
			return nil
		}
		known[0].Late, known[0].LateStatus = a.Late, a.LateStatus
		a, statement = known[0], `UPDATE attempts SET body = ?`+key
	}
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, statement, slices.Concat([]any{string(body)}, args)...)
	return err
}

// note appends an entry to the audit trail of its execution.
func note(ctx context.Context, tx *sql.Tx, entry store.AuditEntry) error {
	detail := []byte(entry.Detail)
	entry.Detail = nil
	body, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, `INSERT INTO audit (execution, request, body, detail) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		entry.Execution[:], entry.Request, string(body), detail)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = store.ErrRequestUsed
	}
	return err
}

// erase empties what was recorded of an execution in people's words.
func erase(ctx context.Context, tx *sql.Tx, id uuid.UUID) error {
	for _, statement := range []string{
		`UPDATE attempts SET body = json_set(body, '$.Stack', '', '$.Reason', '') WHERE execution = ?`,
		`UPDATE attempts SET body = json_set(body, '$.Failure.message', '') WHERE execution = ? AND body ->> '$.Failure' IS NOT NULL`,
		`UPDATE audit SET body = json_set(body, '$.Reason', ''), detail = NULL WHERE execution = ?`,
	} {
		if _, err := tx.ExecContext(ctx, statement, id[:]); err != nil {
			return err
		}
	}
	return nil
}

// insert writes a new execution with revision 1.
func insert(ctx context.Context, tx *sql.Tx, x *store.Execution) error {
	result, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO executions (id, body, state, saga, partition, type, resource) VALUES (?, '', '', '', '', '', '')`, x.ID[:])
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return store.ErrExists
	}
	y := x.Clone()
	y.Revision = 1
	return save(ctx, tx, y)
}

// save writes an execution over its row: all of it, and the columns to search.
func save(ctx context.Context, tx *sql.Tx, x *store.Execution) error {
	var key, parent, parentStep, due, progress, gate any // NULL
	if x.HoldsKey() {
		key = x.Key
		var holder uuid.UUID
		err := tx.QueryRowContext(ctx, `SELECT id FROM executions WHERE saga = ? AND key = ? AND id <> ?`, x.Saga, x.Key, x.ID[:]).Scan(&holder)
		if err == nil {
			return &store.KeyTakenError{Saga: x.Saga, Key: x.Key, Execution: holder}
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	if x.DueAt != nil {
		due = micros(*x.DueAt)
	}
	if !x.Status.Finished() {
		progress = micros(x.ProgressAt)
	}
	if x.Status == store.StatusWaiting && x.Gate != nil && !x.Gate.Open {
		gate = x.Gate.Kind
	}
	if x.Parent != nil {
		parent, parentStep = x.Parent.Execution[:], x.Parent.Step
	}
	encoded, err := encode(x)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE executions SET body = ?, state = ?, initial = ?, checkpoint = ?, saga = ?, key = ?,
		partition = ?, type = ?, resource = ?, parent = ?, parent_step = ?, due = ?, progress = ?, gate = ? WHERE id = ?`,
		encoded, []byte(x.State), []byte(x.Initial), []byte(x.Checkpoint), x.Saga, key,
		x.Partition, x.Resource.Type, x.Resource.ID, parent, parentStep, due, progress, gate, x.ID[:])
	return err
}

// A body is what an execution's row keeps as one value.
type body struct {
	store.Execution
	Payloads [][]byte // byte for byte: those of the gate's choices, and of the inbox
}

func encode(x *store.Execution) (string, error) {
	b := body{Execution: *x.Clone()}
	b.State, b.Initial, b.Checkpoint = nil, nil, nil
	for _, p := range payloads(&b.Execution) {
		b.Payloads = append(b.Payloads, *p)
		*p = nil
	}
	encoded, err := json.Marshal(b)
	return string(encoded), err
}

func decode(encoded []byte) (*store.Execution, error) {
	b := new(body)
	if err := json.Unmarshal(encoded, b); err != nil {
		return nil, err
	}
	for i, p := range payloads(&b.Execution) {
		*p = b.Payloads[i]
	}
	return &b.Execution, nil
}

// payloads lists where x has JSON that is not its own, always in the same order.
func payloads(x *store.Execution) (list []*json.RawMessage) {
	if x.Gate != nil {
		for i := range x.Gate.Choices {
			list = append(list, &x.Gate.Choices[i].Payload)
		}
	}
	for i := range x.Inbox {
		list = append(list, &x.Inbox[i].Payload)
	}
	return list
}

func micros(t time.Time) int64 { return store.Micros(t).UnixMicro() }

// A querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// load reads an execution, or returns ErrNotFound.
func load(ctx context.Context, q querier, id uuid.UUID) (*store.Execution, error) {
	list, err := find(ctx, q, `id = ?`, id[:])
	if err == nil && len(list) == 0 {
		return nil, store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// find reads the executions that a condition selects.
func find(ctx context.Context, q querier, where string, args ...any) ([]*store.Execution, error) {
	rows, err := q.QueryContext(ctx, `SELECT body, state, initial, checkpoint FROM executions WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []*store.Execution
	for rows.Next() {
		var body, state, initial, checkpoint []byte
		if err := rows.Scan(&body, &state, &initial, &checkpoint); err != nil {
			return nil, err
		}
		x, err := decode(body)
		if err != nil {
			return nil, err
		}
		x.State, x.Initial, x.Checkpoint = state, initial, checkpoint
		list = append(list, x)
	}
	return list, rows.Err()
}

// bodies reads values kept as JSON.
func bodies[T any](ctx context.Context, q querier, query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		var body []byte
		var v T
		if err := rows.Scan(&body); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(body, &v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

// trail reads the audit trail of an execution.
func trail(ctx context.Context, q querier, id uuid.UUID) ([]store.AuditEntry, error) {
	rows, err := q.QueryContext(ctx, `SELECT body, detail FROM audit WHERE execution = ? ORDER BY seq`, id[:])
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []store.AuditEntry
	for rows.Next() {
		var body, detail []byte
		var entry store.AuditEntry
		if err := rows.Scan(&body, &detail); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(body, &entry); err != nil {
			return nil, err
		}
		entry.Detail = detail
		list = append(list, entry)
	}
	return list, rows.Err()
}
