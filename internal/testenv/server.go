package testenv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startDeadline bounds the start of a server. It is generous: a loaded machine needs many seconds.
const startDeadline = 90 * time.Second

// errExited is in the chain when a server ended instead of becoming ready.
var errExited = errors.New("it ended while it was starting")

// A Server is a PostgreSQL or a RabbitMQ of one test, made by [NewPostgres] or [NewRabbit]. It ends
// with the test. Port and data stay the same over restarts.
//
// Its methods may be called concurrently; they run one after the other. A method that cannot do what
// it says fails the test.
type Server struct {
	name      string
	url       string
	folder    *folder
	launch    func() (*process, error)
	ready     func(ctx context.Context) error
	stop      syscall.Signal // asks for an orderly end
	immediate syscall.Signal // asks for an end without ceremony

	mu      sync.Mutex
	running *process // nil while stopped
}

// URL returns where the server listens, with user and password: the DSN of the database "postgres",
// or an amqp:// URL. It is the same before and after a restart.
func (s *Server) URL() string { return s.url }

// Start starts a stopped server and returns when it answers: PostgreSQL a query, after its recovery;
// RabbitMQ the header of the protocol.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends all processes of the server with SIGKILL, as a crash does, and returns when they are
// gone. What the server had told its clients to be durable is there after [Server.Start].
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.end(t, syscall.SIGKILL)
}

// Stop shuts the server down in order and returns when it has ended: PostgreSQL ends its sessions and
// writes a checkpoint (mode fast), RabbitMQ closes its connections.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.end(t, s.stop)
}

// StopImmediate ends the server at once and returns when it has ended. PostgreSQL tells its clients
// (57P02) and recovers at the next start (mode immediate). RabbitMQ has no such mode: this is Kill.
func (s *Server) StopImmediate(t testing.TB) {
	t.Helper()
	s.end(t, s.immediate)
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return fmt.Errorf("testenv: start %s: it is running", s.name)
	}
	p, err := s.launch()
	if err != nil {
		return fmt.Errorf("testenv: start %s: %w", s.name, err)
	}
	var last error
	exited := false
	poll(startDeadline, func() bool {
		if exited = p.exited(); exited {
			return true
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		last = s.ready(ctx)
		return last == nil
	})
	switch {
	case exited:
		p.sweep() // what it started may outlive it
		return fmt.Errorf("testenv: start %s: %w\n%s", s.name, errExited, p.tail())
	case last != nil:
		p.end(syscall.SIGKILL)
		return fmt.Errorf("testenv: start %s: not ready after %v: %w\n%s", s.name, startDeadline, last, p.tail())
	}
	s.running = p
	return nil
}

func (s *Server) end(t testing.TB, sig syscall.Signal) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		t.Fatalf("testenv: %s is not running", s.name)
	}
	if err := s.running.end(sig); err != nil {
		t.Fatalf("testenv: end %s: %v", s.name, err)
	}
	s.running = nil
}

// close ends the server for good and removes its folder. Its error says that the server had ended by itself
// before, which is what tests then trip over in strange ways.
func (s *Server) close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil && s.running.exited() {
		err = fmt.Errorf("testenv: %s had ended by itself\n%s", s.name, s.running.tail())
	}
	s.folder.close()
	if s.running != nil {
		s.running.exited()
		s.running = nil
	}
	return err
}

// retry calls open again, with other ports, when a server ended at once: another process may have
// taken a port between the choice and the bind.
func retry(open func() (*Server, error)) (*Server, error) {
	var s *Server
	var err error
	for range 3 {
		if s, err = open(); !errors.Is(err, errExited) {
			break
		}
	}
	return s, err
}

// forTest turns a start into a server of one test.
func forTest(t testing.TB, s *Server, err error) *Server {
	t.Helper()
	need(t, err)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
