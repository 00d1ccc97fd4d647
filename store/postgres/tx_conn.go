package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leveret-go/leveret/store/internal/rows"
)

// A conn is where statements go: a connection, or a transaction of a caller's.
type conn interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// A txConn is a transaction of a caller's.
type txConn interface {
	conn
	find(ctx context.Context, sql string, args ...any) (rows.Found, error)
}

// pgxConn is one of pgx's.
type pgxConn struct{ pgx.Tx }

func (c pgxConn) find(ctx context.Context, text string, args ...any) (rows.Found, error) {
	found, err := c.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return pgxFound{found}, nil
}

type pgxFound struct{ pgx.Rows }

func (f pgxFound) Close() error {
	f.Rows.Close()
	return f.Err()
}

// sqlConn is one of database/sql's. What is sent as a batch over pgx is here a
// statement after the other.
type sqlConn struct{ tx *sql.Tx }

func (c sqlConn) find(ctx context.Context, text string, args ...any) (rows.Found, error) {
	return c.tx.QueryContext(ctx, text, args...)
}

func (c sqlConn) Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error) {
	result, err := c.tx.ExecContext(ctx, text, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return tagOf(result), nil
}

func (c sqlConn) QueryRow(ctx context.Context, text string, args ...any) pgx.Row {
	return c.tx.QueryRowContext(ctx, text, args...)
}

func (c sqlConn) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return &sqlBatch{ctx: ctx, conn: c, queue: b.QueuedQueries}
}

// tagOf returns a command tag that has the number of rows.
func tagOf(result sql.Result) pgconn.CommandTag {
	n, err := result.RowsAffected()
	if err != nil { // of a command that has none
		n = 0
	}
	return pgconn.NewCommandTag("SQL " + itoa(n))
}
