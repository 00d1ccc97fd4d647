package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

const (
	// cancelPause is how long a connection rests after a cancel request, which
	// the server may still be about to deliver: it must not hit the next
	// statement.
	cancelPause = 100 * time.Millisecond
	// cancelAgain is how long the answer to a cancelled statement is awaited
	// before it is cancelled once more. PgBouncer drops the request of a
	// client that waits for a server, and so does PostgreSQL between two
	// statements of a batch.
	cancelAgain = time.Second
)

// cancelOnServer makes the end of a ctx cancel the statement rather than cut
// the connection.
func cancelOnServer(c *pgconn.PgConn) ctxwatch.Handler { return &canceller{conn: c} }

// A canceller is what pgconn.CancelRequestContextWatcherHandler is, but lets a
// request come to its end when the statement is answered before: PgBouncer
// 1.18 ends itself, and with it every connection, when a client goes away whose
// request it is passing on.
type canceller struct {
	conn  *pgconn.PgConn
	ended chan struct{}
}

// HandleCancel cancels the statement, and cuts the connection when that has
// not been answered within a second.
func (h *canceller) HandleCancel(context.Context) {
	limit := time.Now().Add(time.Second)
	_ = h.conn.Conn().SetDeadline(limit)
	h.ended = make(chan struct{})
	go func() {
		defer close(h.ended)
		ctx, cancel := context.WithDeadline(context.Background(), limit)
		defer cancel()
		_ = h.conn.CancelRequest(ctx) // else the deadline ends it
		pause(cancelPause)
	}()
}

// HandleUnwatchAfterCancel returns when the request has ended.
func (h *canceller) HandleUnwatchAfterCancel() {
	<-h.ended
	_ = h.conn.Conn().SetDeadline(time.Time{})
}

func pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}
