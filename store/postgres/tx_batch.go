package postgres

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A sqlBatch sends the statements of a batch over database/sql, each when its
// result is asked for. As in a real batch, none is sent after one that failed.
type sqlBatch struct {
	ctx   context.Context
	conn  sqlConn
	queue []*pgx.QueuedQuery
	err   error
}

func (b *sqlBatch) next() (*pgx.QueuedQuery, error) {
	if b.err != nil {
		return nil, b.err
	}
	if len(b.queue) == 0 {
		return nil, errors.New("the batch has no more statements")
	}
	q := b.queue[0]
	b.queue = b.queue[1:]
	return q, nil
}

// Exec sends the next statement.
func (b *sqlBatch) Exec() (pgconn.CommandTag, error) {
	q, err := b.next()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := b.conn.Exec(b.ctx, q.SQL, q.Arguments...)
	b.err = err
	return tag, err
}

// QueryRow sends the next statement, whose one row is then scanned.
func (b *sqlBatch) QueryRow() pgx.Row { return sqlBatchRow{b} }

type sqlBatchRow struct{ b *sqlBatch }

func (r sqlBatchRow) Scan(dest ...any) error {
	q, err := r.b.next()
	if err != nil {
		return err
	}
	r.b.err = r.b.conn.QueryRow(r.b.ctx, q.SQL, q.Arguments...).Scan(dest...)
	return r.b.err
}

// Query is not used.
func (b *sqlBatch) Query() (pgx.Rows, error) { return nil, errors.ErrUnsupported }

// Tx returns nil: no batch of ours begins a transaction.
func (b *sqlBatch) Tx() pgx.Tx { return nil }

// Close sends what is left.
func (b *sqlBatch) Close() error {
	for b.err == nil && len(b.queue) > 0 {
		_, _ = b.Exec()
	}
	return b.err
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
