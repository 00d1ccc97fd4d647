package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// acquireTimeout ends the wait for a connection where ctx has no deadline.
	acquireTimeout = 30 * time.Second
	// answerGrace is how long the answer to a statement is awaited after ctx
	// is done.
	answerGrace = 5 * time.Second
)

// A kind of call says what may be tried again.
type kind int

const (
	writing   kind = iota // after an error that proves that nothing was written
	reading               // that, and after a lost connection
	repeating             // writes, but may be done twice: as reading
)

// run calls fn with a connection, again after errors where that is safe, and
// translates the error. fn must leave no transaction open.
func (s *Store) run(ctx context.Context, op string, pool *pgxpool.Pool, k kind, fn func(context.Context, *pgx.Conn) error) error {
	c, err := s.take(ctx, op, pool, k, fn)
	if err != nil {
		return err
	}
	c.Release()
	return nil
}

// take is run, but hands over the connection.
func (s *Store) take(ctx context.Context, op string, pool *pgxpool.Pool, k kind, fn func(context.Context, *pgx.Conn) error) (*pgxpool.Conn, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	translate := failed
	if k == reading {
		translate = failedRead
	}
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("postgres: %s: %w", op, err)
		}
		c, err := acquire(ctx, pool)
		if err != nil {
			return nil, translate(ctx, op, &unsentError{err})
		}
		err = s.call(ctx, c.Conn(), true, func(ctx context.Context) error { return fn(ctx, c.Conn()) })
		if err == nil {
			return c, nil
		}
		lost := c.Conn().IsClosed()
		s.rollback(ctx, c)
		_, unsent := errors.AsType[*unsentError](err)
		again := rolledBack(err) || lost && (unsent || k != writing)
		if try == maxTries || named(err) || ctx.Err() != nil || !again {
			return nil, translate(ctx, op, err)
		}
	}
}

func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	if _, ok := ctx.Deadline(); ok {
		return pool.Acquire(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	c, err := pool.Acquire(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no connection within %v (the pool has %d at most): %w", acquireTimeout, pool.Stat().MaxConns(), err)
	}
	return c, err
}

// call runs fn, which talks to the server over c. When ctx is done the
// statement is cancelled on the server, if cancel says so, again until it is
// answered, and the answer awaited a little longer: only a connection that does not answer then is cut.
// So the answer tells what happened to a write, which it would not if ctx cut
// the connection, as pgx's pools do by default.
func (s *Store) call(ctx context.Context, c *pgx.Conn, cancel bool, fn func(context.Context) error) error {
	// No statement outlives this, even when the network swallows everything.
	run, cut := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StatementTimeout+2*answerGrace)
	defer cut()
	if ctx.Done() == nil {
		return fn(run)
	}
	answered, ended := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		grace, done := context.WithTimeout(run, answerGrace)
		defer done()
		var again <-chan time.Time
		if cancel {
			select {
			case <-answered:
				return
			default:
			}
			tick := time.NewTicker(cancelAgain)
			defer tick.Stop()
			again = tick.C
			defer pause(cancelPause)
			_ = c.PgConn().CancelRequest(grace) // else the grace ends it
		}
		for {
			select {
			case <-answered:
				return
			case <-again:
				_ = c.PgConn().CancelRequest(grace)
			case <-grace.Done():
				cut()
				return
			}
		}
	})
	err := fn(run)
	close(answered)
	if !stop() {
		<-ended
	}
	return err
}

// rollback ends the transaction on c, if there is one, and releases c. A
// connection that cannot is closed, which ends it too.
func (s *Store) rollback(ctx context.Context, c *pgxpool.Conn) {
	defer c.Release()
	if c.Conn().IsClosed() || c.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerGrace)
	defer cancel()
	_, _ = c.Conn().Exec(short, "ROLLBACK") // Release closes what is still in a transaction
}
