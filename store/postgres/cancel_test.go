package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
)

// A pooler passes bytes on, and does to cancel requests what it is told.
type pooler struct {
	net.Listener
	target string
	all    sync.WaitGroup

	// onCancel is called with each cancel request, in a goroutine of its own. The
	// client is closed when it returns.
	onCancel func(client *net.TCPConn, request []byte)
}

func newPooler(t *testing.T, dsn string) (*pooler, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pooler{Listener: l, target: u.Host}
	t.Cleanup(func() {
		l.Close()
		p.all.Wait() // the store has been closed: so have its connections
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *pooler) serve() {
	p.all.Go(func() {
		for {
			client, err := p.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.carry(client.(*net.TCPConn)) })
		}
	})
}

func (p *pooler) carry(client *net.TCPConn) {
	defer client.Close()
	first := make([]byte, 1024)
	n, err := client.Read(first)
	if err != nil {
		return
	}
	if n >= 8 && bytes.Equal(first[4:8], []byte{4, 210, 22, 46}) { // 80877102
		p.onCancel(client, first[:n])
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if _, err := server.Write(first[:n]); err != nil {
		return
	}
	p.all.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close()
	})
	_, _ = io.Copy(client, server)
}

// pass sends a cancel request to the server and returns when the server is done with it.
func (p *pooler) pass(request []byte) error {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := server.Write(request); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, server)
	return err
}

// The connection of a cancel request stays until the server has closed it, also when the statement is
// answered before.
func TestCancelRequestIsNotCutShort(t *testing.T) {
	p, dsn := newPooler(t, testenv.Postgres(t))
	answered := make(chan struct{})
	cut := make(chan error, 1)
	p.onCancel = func(client *net.TCPConn, request []byte) {
		if err := p.pass(request); err != nil {
			t.Error(err)
		}
		<-answered
		_ = client.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, err := client.Read(make([]byte, 1)) // a time-out, unless it goes away
		cut <- err
	}
	p.serve()
	s := open(t, dsn, nil)
	conn, err := s.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ctx, cancel := context.WithCancel(t.Context())
	admin := newPool(t, dsn)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "SELECT pg_sleep(60)")
		done <- err
	}()
	sleeping(t, admin.QueryRow, true)
	cancel()
	sleeping(t, admin.QueryRow, false)
	close(answered)
	if err := <-cut; !isTimeout(err) {
		t.Errorf("the connection of the cancel request ended before the server closed it: %v", err)
	}
	if err := <-done; err == nil {
		t.Error("the statement was not cancelled")
	}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// sleeping waits until a statement sleeps, or none does.
func sleeping(t *testing.T, query func(ctx context.Context, sql string, args ...any) pgx.Row, want bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for got := !want; got != want; {
		err := query(ctx, `SELECT count(*) > 0 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event = 'PgSleep'`).Scan(&got)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A cancel request that is dropped is sent again.
func TestDroppedCancelRequestIsRepeated(t *testing.T) {
	direct := testenv.Postgres(t)
	p, dsn := newPooler(t, direct)
	var requests atomic.Int32
	p.onCancel = func(_ *net.TCPConn, request []byte) {
		if requests.Add(1) == 1 {
			return
		}
		if err := p.pass(request); err != nil {
			t.Error(err)
		}
	}
	p.serve()
	s, admin := migrated(t, dsn, &postgres.Config{LockTimeout: time.Minute}), newPool(t, direct)
	backend := func() (pid int) {
		if err := s.Pool().QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	x := create(t, s)
	before := backend()
	unlock := lockRow(t, admin, x.ID)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.WithLock(ctx, x.ID, func(*store.Execution) (store.Change, error) { return store.Change{}, store.ErrUnchanged })
		done <- err
	}()
	blocked(t, admin)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that of ctx", err)
	}
	if after := backend(); after != before {
		t.Error("the connection was cut")
	}
}
