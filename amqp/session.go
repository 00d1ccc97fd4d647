package amqp

import (
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// A session is one connection, from its handshake to its end. It never
// reconnects: a channel of it, and a delivery of such a channel, can only speak
// to the connection they came from. So an acknowledgement that comes too late
// fails, instead of meeting another message under the same number.
type session struct {
	conn    *amqp091.Connection
	sock    *socket
	where   string
	began   time.Time
	blocked atomic.Bool

	changed atomic.Pointer[func()] // called when blocked changes
	once    sync.Once
	err     error         // why it ended; read after dead
	dead    chan struct{} // closed when it has ended
}

func newSession(conn *amqp091.Connection, sock *socket, where string) *session {
	s := &session{conn: conn, sock: sock, where: where, began: time.Now(), dead: make(chan struct{})}
	// Buffered, and read until the end: a listener that does not read stalls
	// the connection.
	closes := conn.NotifyClose(make(chan *amqp091.Error, 1))
	blocks := conn.NotifyBlocked(make(chan amqp091.Blocking, 8))
	go s.watch(closes, blocks)
	return s
}

func (s *session) watch(closes <-chan *amqp091.Error, blocks <-chan amqp091.Blocking) {
	for {
		select {
		case b, ok := <-blocks:
			if !ok {
				blocks = nil
				continue
			}
			s.blocked.Store(b.Active)
			if f := s.changed.Load(); f != nil {
				(*f)()
			}
		case e := <-closes:
			if e == nil {
				s.end(amqp091.ErrClosed)
			} else {
				s.end(e)
			}
			return
		case <-s.dead:
			return
		}
	}
}

func (s *session) end(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.dead)
	})
}

// kill closes the socket. All that waits for the broker returns.
func (s *session) kill() { s.sock.Conn.Close() }

// close ends the session, politely if that takes no longer than within.
func (s *session) close(within time.Duration) {
	t := time.AfterFunc(within, s.kill)
	defer t.Stop()
	_ = s.conn.CloseDeadline(time.Now().Add(within))
	s.kill()
	s.end(amqp091.ErrClosed)
}

// rpc calls f, which asks the broker something. amqp091 would wait for an answer
// for ever; when there is none in time, the socket is closed.
func (s *session) rpc(f func() error) error {
	t := time.AfterFunc(s.sock.timeout, s.kill)
	defer t.Stop()
	return f()
}

func (s *session) channel() (ch *amqp091.Channel, err error) {
	err = s.rpc(func() error {
		ch, err = s.conn.Channel()
		return err
	})
	return ch, err
}

// with calls f with a channel of its own: the broker closes a channel on which
// something is refused.
func (s *session) with(f func(ch *amqp091.Channel) error) error {
	ch, err := s.channel()
	if err != nil {
		return err
	}
	defer func() { _ = s.rpc(ch.Close) }()
	return s.rpc(func() error { return f(ch) })
}
