package testenv

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// NewPostgres starts a PostgreSQL for this test alone. It runs with fsync, so that a test of a crash
// tests what production has. Its URL is of the database "postgres", which is empty.
func NewPostgres(t testing.TB) *Server {
	t.Helper()
	s, err := startPostgres(durable)
	return forTest(t, s, err)
}

// durability is what a PostgreSQL does for its data.
type durability bool

const (
	durable durability = true
	shared  durability = false // thrown away after any crash, so not worth a disk's time
)

func startPostgres(d durability) (*Server, error) {
	initdb, err := findPostgres("initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := findPostgres("postgres")
	if err != nil {
		return nil, err
	}
	return retry(func() (*Server, error) { return openPostgres(initdb, postgres, d) })
}

func openPostgres(initdb, postgres string, d durability) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	data := f.join("data")
	argv := []string{
		postgres, "-D", data, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=",
		"-c", "max_connections=300",
		"-c", "max_wal_size=256MB",
		"-c", "jit=off",
		// In the data folder: a kill then leaves nothing in /dev/shm.
		"-c", "dynamic_shared_memory_type=mmap",
	}
	if d == shared {
		argv = append(argv, "-c", "fsync=off", "-c", "full_page_writes=off")
	}
	s := &Server{
		name:      "PostgreSQL",
		url:       fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", address(port)),
		folder:    f,
		launch:    func() (*process, error) { return f.start("data", nil, argv...) },
		stop:      syscall.SIGINT,
		immediate: syscall.SIGQUIT,
	}
	s.ready = func(ctx context.Context) error { return query(ctx, s.url) }
	if err := f.run("data", nil, initdb, "-D", data, "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"); err != nil {
		f.close()
		return nil, err
	}
	if err := s.start(); err != nil {
		f.close()
		return nil, err
	}
	return s, nil
}

// query asks the server something.
func query(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var one int
	return conn.QueryRow(ctx, "SELECT 1").Scan(&one)
}

// findPostgres finds a program of PostgreSQL. Debian keeps the server's out of PATH, a folder for
// each version; the newest is taken.
func findPostgres(program string) (string, error) {
	best, version := "", 0.0
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	for _, path := range paths {
		v, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(filepath.Dir(path))), 64)
		if best == "" || v > version {
			best, version = path, v
		}
	}
	if best != "" {
		return best, nil
	}
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return "", &missingError{"PostgreSQL", "postgresql", envPostgres}
}

// withDatabase returns the DSN, a URL or keywords and values, with another database.
func withDatabase(dsn, name string) string {
	if u, err := url.Parse(dsn); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		u.Path = "/" + name
		q := u.Query()
		for _, key := range []string{"database", "dbname"} { // either would win over the path
			q.Del(key)
		}
		u.RawQuery = q.Encode()
		return u.String()
	}
	return dsn + " dbname=" + name // the last one counts
}
