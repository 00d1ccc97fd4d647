package testenv

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// PgBouncer starts a PgBouncer for this test in front of the server of a DSN, and returns the DSN of
// the same database through it. It pools by transaction: every transaction may run on another of its
// 4 connections to the server, so neither prepared statements, LISTEN nor SET outlive one.
//
// Call it after [Postgres], so that it ends before the database is dropped.
func PgBouncer(t testing.TB, dsn string) string {
	t.Helper()
	program, err := findPgBouncer()
	need(t, err)
	target, err := pgx.ParseConfig(dsn)
	need(t, err)
	s, err := retry(func() (*Server, error) { return openPgBouncer(program, target) })
	return forTest(t, s, err).URL()
}

func openPgBouncer(program string, target *pgx.ConnConfig) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	login := fmt.Sprintf("host=%s port=%d user=%s", target.Host, target.Port, target.User)
	if target.Password != "" {
		login += " password=" + target.Password
	}
	conf, err := f.write("pgbouncer.ini", fmt.Sprintf(`[databases]
* = %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 300
`, login, port))
	if err != nil {
		f.close()
		return nil, err
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(target.User),
		Host:     address(port),
		Path:     "/" + target.Database,
		RawQuery: "sslmode=disable",
	}
	s := &Server{
		name:      "PgBouncer on port " + strconv.Itoa(port),
		url:       u.String(),
		folder:    f,
		launch:    func() (*process, error) { return f.start("pgbouncer", nil, program, conf) },
		stop:      syscall.SIGINT,
		immediate: syscall.SIGTERM,
	}
	s.ready = func(ctx context.Context) error { return queryPlainly(ctx, s.url) }
	if err := s.start(); err != nil {
		f.close()
		return nil, err
	}
	return s, nil
}

// queryPlainly is query without a prepared statement, whose name a pooled connection might have
// already.
func queryPlainly(ctx context.Context, dsn string) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "SELECT 1")
	return err
}

func findPgBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &missingError{"PgBouncer", "pgbouncer", ""}
}
