package testenv

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

func TestMain(m *testing.M) {
	if os.Getenv("LEVERET_TESTENV_VICTIM") != "" {
		os.Exit(victim())
	}
	os.Exit(m.Run())
}

func TestPostgresGivesEachCallAnEmptyDatabase(t *testing.T) {
	a, b := Postgres(t), Postgres(t)
	if a == b {
		t.Fatalf("two calls gave the same database %s", a)
	}
	if err := execute(a, "CREATE TABLE hare (id int)"); err != nil {
		t.Fatal(err)
	}
	if err := execute(b, "SELECT id FROM hare"); err == nil {
		t.Error("a table of one database is in the other")
	}
}

func TestPostgresDropsTheDatabase(t *testing.T) {
	var dsn string
	t.Run("user", func(t *testing.T) {
		dsn = Postgres(t)
		conn := connect(t, dsn)
		if _, err := conn.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
	})
	if err := execute(dsn, "SELECT 1"); err == nil {
		t.Error("the database is still there after its test")
	}
}

func TestPostgresNeedsNoURL(t *testing.T) {
	server, err := pgx.ParseConfig(Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(envPostgres, fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=postgres sslmode=disable",
		server.Host, server.Port, server.User, server.Password))
	conn := connect(t, Postgres(t))
	var name string
	if err := conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(name, "leveret_test_") {
		t.Errorf("connected to database %q, want one of the test", name)
	}
}

func TestWithDatabase(t *testing.T) {
	for _, row := range []struct{ dsn, want string }{
		{"postgres://u:p@h:1/a?sslmode=disable", "postgres://u:p@h:1/x?sslmode=disable"},
		{"postgresql://h/a", "postgresql://h/x"},
		{"postgres://h?dbname=a&sslmode=disable", "postgres://h/x?sslmode=disable"},
		{"host=h dbname=a", "host=h dbname=a dbname=x"},
	} {
		if got := withDatabase(row.dsn, "x"); got != row.want {
			t.Errorf("withDatabase(%q) = %q, want %q", row.dsn, got, row.want)
		}
	}
}

func TestAMQPAnswers(t *testing.T) {
	conn, err := amqp091.Dial(AMQP(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestPrefixIsUniqueAndPlain(t *testing.T) {
	t.Run("Ünusual name/with 100 %, and a length that would not fit anywhere", func(t *testing.T) {
		a, b := Prefix(t), Prefix(t)
		if a == b {
			t.Errorf("two calls gave %q", a)
		}
		if len(a) > 48 || strings.Trim(a, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("Prefix = %q, want at most 48 lower case letters, digits and dashes", a)
		}
	})
}

func TestPgBouncerPoolsByTransaction(t *testing.T) {
	dsn := Postgres(t)
	if err := execute(dsn, "CREATE TABLE hare (id int)"); err != nil {
		t.Fatal(err)
	}
	pooled := PgBouncer(t, dsn)
	servers := map[uint32]bool{}
	for range 6 { // clients at the same time, more than there are connections to the server
		cfg, err := pgx.ParseConfig(pooled)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		var pid uint32
		if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM (SELECT count(*) FROM hare) h").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		servers[pid] = true
	}
	if len(servers) > 4 {
		t.Errorf("6 idle clients hold %d connections to the server, want at most 4", len(servers))
	}
}

func TestPostgresSurvivesItsEnds(t *testing.T) {
	t.Parallel()
	s := NewPostgres(t)
	if err := execute(s.URL(), "CREATE TABLE hare (id int)"); err != nil {
		t.Fatal(err)
	}
	var fsync string
	if err := connect(t, s.URL()).QueryRow(t.Context(), "SHOW fsync").Scan(&fsync); err != nil {
		t.Fatal(err)
	}
	if fsync != "on" {
		t.Errorf("fsync is %s, want on", fsync)
	}
	for i, way := range []struct {
		name string
		end  func(testing.TB)
	}{{"Kill", s.Kill}, {"StopImmediate", s.StopImmediate}, {"Stop", s.Stop}} {
		conn := connect(t, s.URL()) // a session that is open when it happens
		if _, err := conn.Exec(t.Context(), "INSERT INTO hare VALUES ($1)", i); err != nil {
			t.Fatal(err)
		}
		way.end(t)
		if err := execute(s.URL(), "SELECT 1"); err == nil {
			t.Fatalf("the server answers after %s", way.name)
		}
		if pids := living(s.folder.path); len(pids) > 0 {
			t.Errorf("processes %v go on after %s", pids, way.name)
		}
		s.Start(t)
		var rows int
		if err := connect(t, s.URL()).QueryRow(t.Context(), "SELECT count(*) FROM hare").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if rows != i+1 {
			t.Errorf("%d rows are left after %s, want %d", rows, way.name, i+1)
		}
	}
}

func TestRabbitSurvivesItsEnds(t *testing.T) {
	t.Parallel()
	s := NewRabbit(t, "heartbeat = 7")
	conn, err := amqp091.Dial(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if got, want := conn.Config.Heartbeat, 7*time.Second; got != want {
		t.Errorf("the heartbeat is %v, want the configured %v", got, want)
	}
	// Stop comes first: a confirm says that a message is on disk, but not that the
	// declaration of its queue is, which a broker killed right after it may forget.
	for _, way := range []struct {
		name string
		end  func(testing.TB)
	}{{"Stop", s.Stop}, {"Kill", s.Kill}} {
		publish(t, s.URL(), way.name)
		way.end(t)
		if conn, err := net.Dial("tcp", host(t, s.URL())); err == nil {
			conn.Close()
			t.Fatalf("the broker listens after %s", way.name)
		}
		s.Start(t)
		if got := consume(t, s.URL()); got != way.name {
			t.Errorf("the queue holds %q after %s, want %q", got, way.name, way.name)
		}
	}
}

func TestServerThatEndedByItselfIsNamed(t *testing.T) {
	s, err := startPostgres(shared)
	need(t, err)
	if err := syscall.Kill(s.running.pid, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if !poll(30*time.Second, s.running.exited) {
		t.Fatal("it goes on")
	}
	if err := s.close(); err == nil || !strings.Contains(err.Error(), "PostgreSQL had ended by itself") {
		t.Errorf("got error %v, want one that says so", err)
	}
}

func TestServersEndWithTheirTest(t *testing.T) {
	var path, addr string
	t.Run("user", func(t *testing.T) {
		s := NewPostgres(t)
		path, addr = s.folder.path, host(t, s.URL())
	})
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("the server listens after its test")
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the folder is there after its test: %v", err)
	}
	if pids := living(path); len(pids) > 0 {
		t.Errorf("processes %v go on after the test", pids)
	}
}

func TestKilledTestLeavesNothing(t *testing.T) {
	t.Parallel()
	_, err := findPostgres("postgres")
	need(t, err)
	_, err = findRabbit()
	need(t, err)

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "LEVERET_TESTENV_VICTIM=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe() // open for as long as the victim is to live
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()

	var paths []string
	lines := bufio.NewScanner(out)
	for len(paths) < 2 && lines.Scan() {
		paths = append(paths, lines.Text())
	}
	if len(paths) < 2 {
		t.Fatal("the victim started no servers")
	}
	for _, path := range paths {
		if len(living(path)) == 0 {
			t.Fatalf("nothing runs in %s", path)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if !poll(30*time.Second, func() bool {
			_, err := os.Stat(path)
			return os.IsNotExist(err) && len(living(path)) == 0
		}) {
			t.Errorf("processes %v go on in %s after the test was killed", living(path), path)
		}
	}
}

// victim starts servers, says where, and waits to be killed.
func victim() int {
	postgres, err := startPostgres(shared)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer postgres.close()
	rabbit, err := startRabbit(nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer rabbit.close()
	fmt.Printf("%s\n%s\n", postgres.folder.path, rabbit.folder.path)
	io.Copy(io.Discard, os.Stdin)
	return 0
}

func TestMissingServiceSkipsOrFails(t *testing.T) {
	missing := &missingError{"PostgreSQL", "postgresql", envPostgres}
	for _, row := range []struct {
		require string
		err     error
		want    string
	}{
		{"", nil, ""},
		{"", missing, "skip"},
		{"1", missing, "fatal"},
		{"", errExited, "fatal"},
	} {
		t.Setenv(envRequire, row.require)
		r := &recorder{TB: t}
		need(r, row.err)
		if !strings.HasPrefix(r.said, row.want) || row.want == "" && r.said != "" {
			t.Errorf("need(%v) with %s=%q: %q, want %q", row.err, envRequire, row.require, r.said, row.want)
		}
	}
}

// recorder notes how a test would have ended.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Skipf(format string, args ...any) { r.note("skip", format, args...) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.note("fatal", format, args...)
}

func (r *recorder) note(how, format string, args ...any) {
	if r.said == "" { // need goes on where a real Skipf would not
		r.said = how + ": " + fmt.Sprintf(format, args...)
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func host(t *testing.T, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// publish leaves a message in a durable queue and waits for the broker's word that it is safe.
func publish(t *testing.T, server, body string) {
	t.Helper()
	ch := channel(t, server)
	if _, err := ch.QueueDeclare("hare", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirm("", "hare", true, false,
		amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := confirm.WaitContext(t.Context()); !ok || err != nil {
		t.Fatalf("the message is not confirmed: %v", err)
	}
}

// consume takes the message out of the queue.
func consume(t *testing.T, server string) string {
	t.Helper()
	d, ok, err := channel(t, server).Get("hare", true)
	if !ok || err != nil {
		t.Fatalf("the queue holds no message: %v", err)
	}
	return string(d.Body)
}

func channel(t *testing.T, server string) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
