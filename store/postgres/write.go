package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// A write is a changed execution and its Change, ready to be sent.
type write struct {
	x        *store.Execution // as at its old revision
	state    bool             // has changed, or the initial one
	key      bool             // may conflict with another execution's
	erase    bool             // what was recorded before
	attempts []store.Attempt  // each key once
	audit    []store.AuditEntry
	wake     []store.Wake // in the order of their ids
	create   []*store.Execution
}

func newWrite(x *store.Execution, c *store.Change) *write {
	w := &write{x: x, attempts: mergeAttempts(c.Attempts), audit: c.Audit, create: c.Create, erase: c.Erase}
	if len(c.Wake) > 0 {
		w.wake = slices.Clone(c.Wake)
		slices.SortStableFunc(w.wake, func(a, b store.Wake) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	}
	return w
}

// newAdvance validates x and c and returns what writes them over x's revision.
func newAdvance(x *store.Execution, c *store.Change) (*write, error) {
	checked := x
	if c.SameState {
		checked = stateless(x)
	}
	if err := checked.Validate(); err != nil {
		return nil, err
	}
	if err := c.Validate(x.ID); err != nil {
		return nil, err
	}
	w := newWrite(x, c)
	w.state = !c.SameState
	return w, nil
}

// newUpdate validates x and c and returns what writes them over old, whose lock
// is held. It gives x the state of old if c says that it is the same.
func newUpdate(old, x *store.Execution, c *store.Change) (*write, error) {
	if c.SameState {
		x.State, x.Initial = old.State, old.Initial
	}
	w := newWrite(x, c)
	w.state = !sameState(x, old)
	w.key = x.HoldsKey() && !(old.HoldsKey() && old.Key == x.Key && old.Saga == x.Saga)
	checked := x
	if !w.state {
		checked = stateless(x)
	}
	if err := store.ValidateUpdate(old, checked, c); err != nil {
		return nil, err
	}
	return w, nil
}

// mergeAttempts makes one of attempts with the same key, because one statement
// cannot write a row twice: the first stays, with what came late after it.
func mergeAttempts(attempts []store.Attempt) []store.Attempt {
	if len(attempts) < 2 {
		return attempts
	}
	merged := make([]store.Attempt, 0, len(attempts))
	for _, a := range attempts {
		i := slices.IndexFunc(merged, func(m store.Attempt) bool {
			return m.Number == a.Number && m.Step == a.Step && m.Direction == a.Direction && m.Epoch == a.Epoch
		})
		switch {
		case i < 0:
			merged = append(merged, a)
		case merged[i].LateStatus == "":
			merged[i].Late, merged[i].LateStatus = a.Late, a.LateStatus
		}
	}
	return merged
}

// plain reports whether one statement can do it all. It sees one moment, and
// so cannot erase before it inserts.
func (w *write) plain() bool {
	return !w.erase && len(w.wake) == 0 && len(w.create) == 0 && len(w.attempts) <= maxShape && len(w.audit) <= maxShape
}

// statement returns the text and values that write everything of a plain
// write, and of another one the execution alone.
func (s *Store) statement(w *write) (string, []any, error) {
	r, err := rows.FromExecution(w.x)
	if err != nil {
		return "", nil, err
	}
	r.Revision++
	sh := shape{rare: r.Rare(), state: w.state, erase: w.erase}
	values := r.UpdateValues(rows.PlainValue)
	if sh.rare {
		values = append(values, r.RareValues(rows.PlainValue)...)
	}
	if w.state {
		values = append(values, r.StateValues()...)
	}
	values = append(values, w.x.ID.String(), w.x.Revision)
	if w.plain() {
		sh.attempts, sh.audit = len(w.attempts), len(w.audit)
		for i := range w.attempts {
			values = append(values, rows.FromAttempt(&w.attempts[i]).Values(rows.PlainValue)...)
		}
		for i := range w.audit {
			values = append(values, rows.FromAudit(&w.audit[i]).Values(rows.PlainValue)...)
		}
	}
	return s.sql.write(sh), values, nil
}

// execute writes w inside the transaction on c, which the caller ends: commits
// on nil, else rolls back, or takes back. ErrConflict when the execution is not
// at its revision. After nil there is a savepoint leveret.
func (s *Store) execute(ctx context.Context, c conn, w *write) error {
	for range maxVanished {
		pending, err := s.executeOnce(ctx, c, w)
		if keyViolation(err) {
			if err := takeBack(ctx, c); err != nil {
				return err
			}
			if err := s.inTheWayOfKey(ctx, c, w.x); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, k := range w.releasing() {
			if err := s.wake(ctx, c, k); err != nil {
				return err
			}
		}
		for _, x := range pending {
			if err := s.createPending(ctx, c, x); err != nil {
				return err
			}
		}
		return nil
	}
	return errVanished
}

// takeBack undoes what was done since the savepoint leveret, and removes it. It is
// no batch, as that may begin with preparing, which a failed transaction refuses.
func takeBack(ctx context.Context, c conn) error {
	_, err := c.Exec(ctx, "ROLLBACK TO SAVEPOINT leveret; RELEASE SAVEPOINT leveret")
	return err
}

// executeOnce does so in one round trip and returns the executions that it
// could not create.
func (s *Store) executeOnce(ctx context.Context, c conn, w *write) (pending []*store.Execution, err error) {
	text, values, err := s.statement(w)
	if err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	b.Queue("SAVEPOINT leveret")
	b.Queue(text, values...)
	if w.erase {
		b.Queue(s.sql.eraseAttempts, w.x.ID.String())
		b.Queue(s.sql.eraseAudit, w.x.ID.String())
	}
	if !w.plain() {
		for i := range w.attempts {
			b.Queue(s.sql.attempt, rows.FromAttempt(&w.attempts[i]).Values(rows.PlainValue)...)
		}
		for i := range w.audit {
			b.Queue(s.sql.audit, rows.FromAudit(&w.audit[i]).Values(rows.PlainValue)...)
		}
	}
	wake, create := w.wake, w.create
	if w.releasing() != nil {
		wake, create, pending = nil, nil, w.create
	}
	for _, k := range wake {
		b.Queue(s.sql.wake, k.ID.String(), store.Micros(k.At))
	}
	before := b.Len()
	for _, x := range create {
		text, values, err := s.insertion(x)
		if err != nil {
			return nil, err
		}
		b.Queue(text, values...)
	}

	br := c.SendBatch(ctx, b)
	defer func() { err = closed(br, err) }()
	if _, err := br.Exec(); err != nil {
		return nil, err
	}
	var written int64
	if err := br.QueryRow().Scan(&written); err != nil {
		return nil, requestUsed(err)
	}
	if written == 0 {
		return nil, store.ErrConflict
	}
	for i := 2; i < b.Len(); i++ {
		tag, err := br.Exec()
		if err != nil {
			return nil, requestUsed(err)
		}
		if i >= before && tag.RowsAffected() == 0 {
			pending = append(pending, w.create[i-before])
		}
	}
	return pending, nil
}

// releasing returns what to wake if any of that may take a key. It is done one by
// one then, with what is to be created after it: an execution that cannot have
// its key is found out of that statement alone.
func (w *write) releasing() []store.Wake {
	if slices.ContainsFunc(w.wake, func(k store.Wake) bool { return k.Release }) {
		return w.wake
	}
	return nil
}

// wake wakes one execution, and gives it its key or says who holds that.
func (s *Store) wake(ctx context.Context, c conn, k store.Wake) error {
	if !k.Release {
		_, err := c.Exec(ctx, s.sql.wake, k.ID.String(), store.Micros(k.At))
		return err
	}
	for range maxVanished {
		b := &pgx.Batch{}
		b.Queue("SAVEPOINT leveret_release")
		b.Queue(s.sql.release, k.ID.String(), store.Micros(k.At))
		err := c.SendBatch(ctx, b).Close()
		if !keyViolation(err) {
			return err
		}
		if _, err := c.Exec(ctx, "ROLLBACK TO SAVEPOINT leveret_release"); err != nil {
			return err
		}
		var taken store.KeyTakenError
		err = c.QueryRow(ctx, s.sql.opponent, k.ID.String()).Scan(&taken.Execution, &taken.Saga, &taken.Key)
		if err == nil {
			return &taken
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return errVanished
}

// createPending creates what met a conflict, or says which.
func (s *Store) createPending(ctx context.Context, c conn, x *store.Execution) error {
	text, values, err := s.insertion(x)
	if err != nil {
		return err
	}
	for range maxVanished {
		if err := s.inTheWay(ctx, c, x); err != nil {
			return err
		}
		tag, err := c.Exec(ctx, text, values...)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 1 {
			return nil
		}
	}
	return errVanished
}

// commit ends the transaction on c. Its error leaves the outcome open, and so
// it takes no notice of the end of ctx, but for a limit.
func (s *Store) commit(ctx context.Context, c *pgx.Conn) error {
	return s.call(ctx, c, false, func(ctx context.Context) error {
		tag, err := c.Exec(ctx, "COMMIT")
		if err != nil {
			return err
		}
		return committed(tag.String())
	})
}

func committed(tag string) error {
	if tag != "COMMIT" {
		return fmt.Errorf("COMMIT ended in %s", tag)
	}
	return nil
}

func created(c *store.Change) {
	for _, x := range c.Create {
		x.Revision = 1
	}
}

// stateless returns x with a state that is valid for sure, and no initial one,
// to validate the rest of it.
func stateless(x *store.Execution) *store.Execution {
	y := *x
	y.State, y.Initial = json.RawMessage("{}"), nil
	return &y
}

func sameState(x, y *store.Execution) bool {
	return bytes.Equal(x.State, y.State) && bytes.Equal(x.Initial, y.Initial) && (x.Initial == nil) == (y.Initial == nil)
}

// Advance writes x and c if the revision is unchanged; see [store.Advancer].
// It is one round trip, and two more when c creates, wakes or erases.
func (s *Store) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	w, err := newAdvance(x, &c)
	if err != nil {
		return err
	}
	if w.plain() {
		err = s.advance(ctx, w)
	} else {
		err = s.advanceInTx(ctx, w)
	}
	if err != nil {
		return err
	}
	x.Revision++
	created(&c)
	return nil
}

func (s *Store) advance(ctx context.Context, w *write) error {
	text, values, err := s.statement(w)
	if err != nil {
		return opaque("advance", err)
	}
	return s.run(ctx, "advance", s.pool, writing, func(ctx context.Context, c *pgx.Conn) error {
		for range maxVanished {
			written, err := s.advanceOnce(ctx, c, text, values)
			switch {
			case keyViolation(err):
				if err := s.inTheWayOfKey(ctx, c, w.x); err != nil {
					return err
				}
			case err != nil:
				return err
			case written == 0:
				return store.ErrConflict
			default:
				return nil
			}
		}
		return errVanished
	})
}

func (s *Store) advanceOnce(ctx context.Context, c *pgx.Conn, text string, values []any) (written int64, err error) {
	b := &pgx.Batch{}
	b.Queue(s.sql.limits)
	b.Queue(text, values...)
	br := c.SendBatch(ctx, b)
	defer func() { err = closed(br, err) }()
	if _, err := br.Exec(); err != nil {
		return 0, err
	}
	err = br.QueryRow().Scan(&written)
	return written, requestUsed(err)
}

func (s *Store) advanceInTx(ctx context.Context, w *write) error {
	c, err := s.take(ctx, "advance", s.pool, writing, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(begin)
		b.Queue(s.sql.limitsTx)
		if err := c.SendBatch(ctx, b).Close(); err != nil {
			return &unsentError{err}
		}
		return s.execute(ctx, c, w)
	})
	if err != nil {
		return err
	}
	defer s.rollback(ctx, c)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("postgres: advance: %w", err)
	}
	if err := s.commit(ctx, c.Conn()); err != nil {
		return opaque("advance: commit", err)
	}
	return nil
}

// WithLock changes an execution under its row lock; see [store.Store]. It is
// two round trips: BEGIN and SELECT … FOR NO KEY UPDATE, then the write and
// COMMIT; one or two more when the write creates or wakes executions, erases,
// or takes a start key. The lock is given back when this process or its connection
// dies, and by the server when fn takes longer than twice the statement
// time-out.
func (s *Store) WithLock(ctx context.Context, id uuid.UUID, fn func(x *store.Execution) (store.Change, error)) (*store.Execution, error) {
	var old *store.Execution
	c, err := s.take(ctx, "lock", s.pool, reading, func(ctx context.Context, c *pgx.Conn) error {
		var err error
		old, err = s.lock(ctx, c, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer s.rollback(ctx, c) // after a commit it only releases

	x := old.Clone()
	change, err := fn(x)
	if errors.Is(err, store.ErrUnchanged) {
		return old, nil
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("postgres: lock: %w", err)
	}
	w, err := newUpdate(old, x, &change)
	if err != nil {
		return nil, err
	}
	if err := s.writeLocked(ctx, c.Conn(), w); err != nil {
		return nil, err
	}
	created(&change)
	y := x.Clone()
	y.Revision++
	if change.Erase {
		y.Tags = nil
	}
	return y, nil
}

func (s *Store) lock(ctx context.Context, c *pgx.Conn, id uuid.UUID) (x *store.Execution, err error) {
	b := &pgx.Batch{}
	b.Queue(begin)
	b.Queue(s.sql.limitsTx)
	b.Queue(s.sql.lock, id.String())
	br := c.SendBatch(ctx, b)
	defer func() { err = closed(br, err) }()
	for range 2 {
		if _, err := br.Exec(); err != nil {
			return nil, err
		}
	}
	return scanOne(br.QueryRow())
}

// writeLocked writes and commits.
func (s *Store) writeLocked(ctx context.Context, c *pgx.Conn, w *write) error {
	if w.plain() && !w.key {
		// It waits for nobody, as the lock is held: so the end of ctx, which
		// would leave the outcome open, is not for it.
		err := s.call(ctx, c, false, func(ctx context.Context) error { return s.writeAndCommit(ctx, c, w) })
		if err != nil && !named(err) {
			return opaque("lock: write", err)
		}
		return err
	}
	err := s.call(ctx, c, true, func(ctx context.Context) error { return s.execute(ctx, c, w) })
	if err != nil {
		if ctx.Err() != nil && !named(err) { // nothing of it was committed
			return fmt.Errorf("postgres: lock: write: %w", ctx.Err())
		}
		return failed(ctx, "lock: write", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("postgres: lock: %w", err)
	}
	if err := s.commit(ctx, c); err != nil {
		return opaque("lock: commit", err)
	}
	return nil
}

func (s *Store) writeAndCommit(ctx context.Context, c *pgx.Conn, w *write) (err error) {
	text, values, err := s.statement(w)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(text, values...)
	b.Queue("COMMIT")
	br := c.SendBatch(ctx, b)
	defer func() { err = closed(br, err) }()
	var written int64
	if err := br.QueryRow().Scan(&written); err != nil {
		return requestUsed(err)
	}
	tag, err := br.Exec()
	if err != nil {
		return err
	}
	if written == 0 {
		return errors.New("the row changed under its lock")
	}
	return committed(tag.String())
}
