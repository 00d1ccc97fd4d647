package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NewRabbit starts a RabbitMQ, without plugins, for this test alone. Every conf is one more line of
// its rabbitmq.conf, such as "heartbeat = 5", or, for what that file has no line for, a term of the
// application rabbit in its advanced.config, such as "{channel_tick_interval, 1000}".
func NewRabbit(t testing.TB, conf ...string) *Server {
	t.Helper()
	s, err := startRabbit(conf)
	return forTest(t, s, err)
}

func startRabbit(conf []string) (*Server, error) {
	server, err := findRabbit()
	if err != nil {
		return nil, err
	}
	epmd, err := findEpmd()
	if err != nil {
		return nil, err
	}
	return retry(func() (*Server, error) { return openRabbit(server, epmd, conf) })
}

func openRabbit(server, epmd string, conf []string) (*Server, error) {
	var ports [3]int
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		ports[i] = port
	}
	listen, dist, names := ports[0], ports[1], ports[2]
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	s := &Server{
		name:      "RabbitMQ",
		url:       fmt.Sprintf("amqp://guest:guest@%s/", address(listen)),
		folder:    f,
		ready:     func(ctx context.Context) error { return greet(ctx, address(listen)) },
		stop:      syscall.SIGTERM,
		immediate: syscall.SIGKILL,
	}
	env, err := configureRabbit(f, listen, dist, names, conf)
	if err != nil {
		f.close()
		return nil, err
	}
	s.launch = func() (*process, error) { return f.start("node", env, server) }
	if err := startEpmd(f, epmd, names); err != nil {
		f.close()
		return nil, err
	}
	if err := s.start(); err != nil {
		f.close()
		return nil, err
	}
	return s, nil
}

// configureRabbit writes the node's files and returns its environment, which keeps it off everything
// that belongs to the node of the machine.
func configureRabbit(f *folder, listen, dist, names int, conf []string) ([]string, error) {
	lines := []string{
		"listeners.tcp.1 = " + address(listen),
		"log.file.level = warning",
		"disk_free_limit.absolute = 50MB",
	}
	var terms []string
	for _, c := range conf {
		if strings.HasPrefix(c, "{") {
			terms = append(terms, c)
		} else {
			lines = append(lines, c)
		}
	}
	var failed error
	write := func(name, content string) string {
		path, err := f.write(name, content)
		failed = errors.Join(failed, err)
		return path
	}
	mkdir := func(name string) string {
		path, err := f.mkdir(name)
		failed = errors.Join(failed, err)
		return path
	}
	env := []string{
		"HOME=" + mkdir("home"), // of the cookie
		"LC_ALL=C.UTF-8",
		"ERL_EPMD_PORT=" + strconv.Itoa(names),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_CRASH_DUMP_SECONDS=0",
		"RABBITMQ_NODENAME=leveret" + strconv.Itoa(listen) + "@localhost",
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(dist),
		"RABBITMQ_CONF_ENV_FILE=" + write("rabbitmq-env.conf", ""),
		"RABBITMQ_CONFIG_FILE=" + write("rabbitmq.conf", strings.Join(lines, "\n")+"\n"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + write("advanced.config", "[{rabbit, ["+strings.Join(terms, ", ")+"]}].\n"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + write("enabled_plugins", "[].\n"),
		"RABBITMQ_MNESIA_BASE=" + mkdir("mnesia"),
		"RABBITMQ_LOG_BASE=" + mkdir("log"),
		"RABBITMQ_FEATURE_FLAGS_FILE=" + f.join("mnesia", "feature_flags"),
		"RABBITMQ_PID_FILE=" + f.join("pid"),
		// The script then becomes the node, instead of waiting for it and holding signals back.
		"RABBITMQ_ALLOW_INPUT=1",
		"RABBITMQ_SERVER_START_ARGS=-noinput",
		// Two schedulers that sleep when idle: the tests need the processor.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none" +
			" -kernel inet_dist_use_interface {127,0,0,1}",
	}
	return env, failed
}

// startEpmd starts the name service of the node and waits until it listens: a node that finds none
// would start one that outlives it.
func startEpmd(f *folder, epmd string, port int) error {
	p, err := f.start("epmd", nil, epmd, "-port", strconv.Itoa(port), "-address", "127.0.0.1")
	if err != nil {
		return err
	}
	up := poll(startDeadline, func() bool {
		if p.exited() {
			return true
		}
		conn, err := net.Dial("tcp", address(port))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if !up || p.exited() {
		return fmt.Errorf("epmd: %w\n%s", errExited, p.tail())
	}
	return nil
}

// greet sends the header of AMQP 0-9-1 and expects a method frame, the broker's connection.start.
func greet(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(5 * time.Second)
	}
	conn.SetDeadline(deadline)
	if _, err := conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	frame := make([]byte, 7)
	if _, err := conn.Read(frame); err != nil {
		return err
	}
	if frame[0] != 1 {
		return fmt.Errorf("the answer is %q, not a method frame", frame)
	}
	return nil
}

// findRabbit finds the script that starts a node, not the wrapper of the same name in Debian's PATH,
// which runs as the user of the machine's node only.
func findRabbit() (string, error) {
	var paths []string
	for _, pattern := range []string{
		"/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server",
		"/opt/rabbitmq/sbin/rabbitmq-server",
	} {
		found, _ := filepath.Glob(pattern)
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		return "", &missingError{"RabbitMQ", "rabbitmq-server", envAMQP}
	}
	return paths[0], nil
}

func findEpmd() (string, error) {
	if path, err := exec.LookPath("epmd"); err == nil {
		return path, nil
	}
	paths, _ := filepath.Glob("/usr/lib/erlang/erts-*/bin/epmd")
	paths = slices.DeleteFunc(paths, func(p string) bool { _, err := os.Stat(p); return err != nil })
	if len(paths) == 0 {
		return "", &missingError{"epmd, which RabbitMQ needs,", "erlang-base", envAMQP}
	}
	return paths[0], nil
}
