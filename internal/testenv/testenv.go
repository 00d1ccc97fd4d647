// Package testenv gives tests a PostgreSQL and a RabbitMQ of their own: private servers on free
// ports, with their own folders and their own epmd, never the ones of the machine.
//
//	func TestCreate(t *testing.T) {
//		pool, err := pgxpool.New(t.Context(), testenv.Postgres(t)) // an empty database
//		…
//	}
//
//	func TestDeliver(t *testing.T) {
//		conn, err := amqp091.Dial(testenv.AMQP(t))
//		prefix := testenv.Prefix(t) // of every exchange and queue the test declares
//		…
//	}
//
// [Postgres] and [AMQP] share one server among all tests of a process, started by the first test
// that asks. The command in cmd/testenv (make test) starts both once for a whole go test ./... and
// passes them on in LEVERET_TEST_POSTGRES and LEVERET_TEST_AMQP; set these yourself to test against
// servers of your own. [NewPostgres] and [NewRabbit] start servers that one test may kill and
// restart.
//
// A server ends with the process that started it, however that process ended: a keeper, a small
// shell script at the other end of a pipe, stops the server and removes its folder when the pipe
// closes.
//
// Where a service is missing, and cannot be started, the test is skipped with a sentence that says
// how to get it. With LEVERET_REQUIRE_SERVICES=1 it fails instead.
//
// Servers can be started on Linux only; elsewhere the two variables have to be set.
package testenv

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	envPostgres = "LEVERET_TEST_POSTGRES"
	envAMQP     = "LEVERET_TEST_AMQP"
	envRequire  = "LEVERET_REQUIRE_SERVICES"
)

// The servers shared by the tests of this process. They are package state because go test gives no
// narrower place that lives as long as they must: until the process ends and its keepers notice.
var (
	sharedPostgres = sync.OnceValues(func() (*Server, error) { return startPostgres(shared) })
	sharedRabbit   = sync.OnceValues(func() (*Server, error) { return startRabbit(nil) })
)

// Postgres returns the DSN of a new, empty database, which is dropped at the end of the test
// together with the connections that are left to it.
//
// The server is the one of LEVERET_TEST_POSTGRES, whose user must be allowed to create databases,
// or the process' own. It does not fsync: a test that kills a server uses [NewPostgres].
func Postgres(t testing.TB) string {
	t.Helper()
	server := os.Getenv(envPostgres)
	if server == "" {
		s, err := sharedPostgres()
		need(t, err)
		server = s.URL()
	}
	name := "leveret_test_" + unique()
	if err := execute(server, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatalf("testenv: create a database: %v", err)
	}
	t.Cleanup(func() {
		if err := execute(server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("testenv: drop the database: %v", err)
		}
	})
	return withDatabase(server, name)
}

// AMQP returns the URL of the RabbitMQ that is shared by all tests: the one of LEVERET_TEST_AMQP, or
// the process' own. Tests keep apart by naming everything they declare with a [Prefix].
func AMQP(t testing.TB) string {
	t.Helper()
	if url := os.Getenv(envAMQP); url != "" {
		return url
	}
	s, err := sharedRabbit()
	need(t, err)
	return s.URL()
}

// Prefix returns a name no other test has, not even an earlier run of the same one: lower case
// letters, digits and dashes, at most 48 bytes, with a hint of the test's name in it.
func Prefix(t testing.TB) string {
	var b strings.Builder
	for _, r := range strings.ToLower(t.Name()) {
		switch {
		case b.Len() == 28:
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case r == '/':
			b.WriteByte('-')
		}
	}
	return "t-" + b.String() + "-" + unique()
}

// Services are the servers shared by several test processes.
type Services struct {
	// Env holds the variables, as KEY=value, that make a process use the servers.
	Env []string

	// Missing holds a sentence for every service that is not there and cannot be started.
	Missing []string

	servers []*Server
}

// Up starts a PostgreSQL and a RabbitMQ. It starts none for which the environment names a server
// already. On an error nothing is left running.
func Up() (*Services, error) {
	type start struct {
		env string
		run func() (*Server, error)
	}
	type result struct {
		start
		server *Server
		err    error
	}
	starts := []start{
		{envPostgres, func() (*Server, error) { return startPostgres(shared) }},
		{envAMQP, func() (*Server, error) { return startRabbit(nil) }},
	}
	results := make(chan result, len(starts))
	waiting := 0
	for _, s := range starts {
		if os.Getenv(s.env) != "" {
			continue
		}
		waiting++
		go func() {
			server, err := s.run()
			results <- result{s, server, err}
		}()
	}

	up := &Services{}
	var failed error
	for range waiting {
		r := <-results
		var missing *missingError
		switch {
		case errors.As(r.err, &missing):
			up.Missing = append(up.Missing, missing.Error())
		case r.err != nil:
			failed = errors.Join(failed, r.err)
		default:
			up.servers = append(up.servers, r.server)
			up.Env = append(up.Env, r.env+"="+r.server.URL())
		}
	}
	if failed != nil {
		return nil, errors.Join(failed, up.Close())
	}
	return up, nil
}

// Close stops the servers and removes their folders. Its error names those that had ended by themselves.
func (s *Services) Close() (err error) {
	for _, server := range s.servers {
		err = errors.Join(err, server.close())
	}
	return err
}

// Required reports whether a missing service is a failure.
func Required() bool { return os.Getenv(envRequire) == "1" }

// missingError says which service is missing and how to get it.
type missingError struct {
	service string // "PostgreSQL"
	pkg     string // its package in Debian
	env     string // the variable that names one; empty if there is none
}

func (e *missingError) Error() string {
	s := fmt.Sprintf("%s is not installed; make test installs it on Debian, or: apt-get install %s", e.service, e.pkg)
	if e.env != "" {
		s += "; or name a server in " + e.env
	}
	return s
}

// need ends the test unless err is nil: it skips it where a service is missing and may be.
func need(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if missing := (*missingError)(nil); errors.As(err, &missing) && !Required() {
		t.Skipf("skipped: %v", missing)
	}
	t.Fatalf("testenv: %v", err)
}

// execute runs one statement on a connection of its own.
func execute(dsn, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// unique returns 16 random hexadecimal digits.
func unique() string {
	b := make([]byte, 8)
	rand.Read(b)
	return hex.EncodeToString(b)
}
