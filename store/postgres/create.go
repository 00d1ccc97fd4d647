package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// Create inserts an execution; see [store.Store]. It is one round trip.
func (s *Store) Create(ctx context.Context, x *store.Execution) error {
	if err := x.Validate(); err != nil {
		return err
	}
	text, values, err := s.insertion(x)
	if err != nil {
		return opaque("create", err)
	}
	err = s.run(ctx, "create", s.pool, writing, func(ctx context.Context, c *pgx.Conn) error {
		for range maxVanished {
			n, err := s.execLimited(ctx, c, text, values)
			if n == 1 || err != nil {
				return err
			}
			if err := s.inTheWay(ctx, c, x); err != nil {
				return err
			}
		}
		return errVanished
	})
	if err == nil {
		x.Revision = 1
	}
	return err
}

// insertion returns the statement that inserts x, and its values. It affects
// one row, or none when something is in the way.
func (s *Store) insertion(x *store.Execution) (string, []any, error) {
	r, err := rows.FromExecution(x)
	if err != nil {
		return "", nil, err
	}
	r.Revision = 1
	text := s.sql.insert
	if r.Tags != nil {
		text = s.sql.insertTagged
	}
	return text, r.Values(rows.PlainValue), nil
}

// inTheWay returns why x could not be inserted, and nil when that is gone.
func (s *Store) inTheWay(ctx context.Context, c conn, x *store.Execution) error {
	var id uuid.UUID
	err := c.QueryRow(ctx, s.sql.conflict, x.ID.String(), x.Saga, x.Key).Scan(&id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case id == x.ID:
		return store.ErrExists
	case !x.HoldsKey():
		return nil // the id was in the way, and is gone
	}
	return &store.KeyTakenError{Saga: x.Saga, Key: x.Key, Execution: id}
}

// inTheWayOfKey returns who else holds x's key, and nil when nobody does.
func (s *Store) inTheWayOfKey(ctx context.Context, c conn, x *store.Execution) error {
	var id uuid.UUID
	err := c.QueryRow(ctx, s.sql.holder, x.Saga, x.Key, x.ID.String()).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &store.KeyTakenError{Saga: x.Saga, Key: x.Key, Execution: id}
}

// Get returns an execution as last committed; see [store.Store].
func (s *Store) Get(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
	var x *store.Execution
	err := s.run(ctx, "get", s.pool, reading, func(ctx context.Context, c *pgx.Conn) error {
		var err error
		x, err = scanOne(c.QueryRow(ctx, s.sql.get, id.String()))
		return err
	})
	return x, err
}

// scanOne reads the columns of an execution, and ErrNotFound from no row.
func scanOne(row pgx.Row) (*store.Execution, error) {
	var r rows.Execution
	err := row.Scan(r.Dest()...)
	if errors.Is(err, sql.ErrNoRows) { // which pgx.ErrNoRows is too
		return nil, store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return r.Store()
}

// execLimited executes one statement that may wait for a lock, in one round
// trip with its time-outs: what is sent in one batch is one transaction.
func (s *Store) execLimited(ctx context.Context, c *pgx.Conn, text string, values []any) (affected int64, err error) {
	b := &pgx.Batch{}
	b.Queue(s.sql.limits)
	b.Queue(text, values...)
	br := c.SendBatch(ctx, b)
	defer func() { err = closed(br, err) }()
	if _, err := br.Exec(); err != nil {
		return 0, err
	}
	tag, err := br.Exec()
	return tag.RowsAffected(), err
}

// closed ends a batch. What went wrong first is the cause of the rest.
func closed(br pgx.BatchResults, err error) error {
	if end := br.Close(); err == nil {
		err = end
	}
	return err
}
