package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

// A Config sets up a [Broker]. URLs is required; the zero value of every other
// field is right for most services.
type Config struct {
	// URLs of the broker's nodes: amqp://user:password@host:5672/vhost, or
	// amqps:// for TLS. They are tried in random order, each time until one
	// answers. What is special in a URL must be percent-encoded in user,
	// password and virtual host; amqp://host/ means the virtual host "/". No
	// password is ever logged or part of an error.
	URLs []string

	// Prefix of the names of exchanges and queues: lower case letters, digits,
	// '.', '_' and '-', at most 100. Defaults to "saga". Services that share a
	// prefix share the store.
	Prefix string

	// Topology says who declares exchanges and queues: Declare (the default),
	// Verify or Skip.
	Topology Topology

	// Queues is the type of the queues: Classic (the default) or Quorum.
	Queues Queues

	// Commands says that the prefix has a queue for commands: [Declarations] and an
	// [Admin] count it in. A [Consumer] with Commands declares it in any case.
	Commands bool

	// TLS is used for amqps URLs, a clone of it for each connection. Nil: what
	// the URL says (cacertfile, certfile, keyfile), else the system's roots.
	TLS *tls.Config

	// Auth, if not nil, is asked for user and password at each connection, in
	// place of those of the URLs: for credentials that change.
	Auth func(ctx context.Context) (user, password string, err error)

	// Name of the service, shown in the broker's list of connections and in
	// the messages. Defaults to "leveret". At most 100 bytes.
	Name string

	// Window is how many pointers may be unconfirmed at once, and how many more
	// may be queued behind them. Beyond that Publish returns ErrBusy. Defaults
	// to 256; at most 65536.
	Window int

	// Heartbeat is how often both sides show that they live; a peer that hangs
	// is noticed within three of them. Defaults to 10 seconds; at least 1, in
	// whole seconds. A heartbeat in the URL wins.
	Heartbeat time.Duration

	// Timeout bounds each exchange with the broker: a connection with its
	// handshake, a declaration, a write. Then the socket is closed and another
	// connection made. Defaults to 10 seconds.
	Timeout time.Duration

	// Reconnect is the longest wait between two tries to connect, or to consume,
	// while the broker is away. The first try comes after 50 to 100 ms; each
	// wait is twice the one before, and a random half to all of this in the
	// end, so that the processes of a service do not come back at the same
	// moment. Defaults to 2 seconds: consumers are back that long after the
	// broker answers, at the latest, and a thousand processes make it about
	// 1,500 connections a second until then. 100 milliseconds to an hour.
	Reconnect time.Duration

	// Logger gets connections at info, trouble at warn (the same one at most
	// once a minute), and what only a person can mend at error. Defaults to
	// slog.Default().
	Logger *slog.Logger
}

// A Topology says who declares exchanges and queues.
type Topology string

const (
	// Declare: each session declares what it uses. What exists as it should be
	// is left alone.
	Declare Topology = "declare"
	// Verify: nothing is declared; a session in which something is missing is
	// an error that says so. Arguments of queues cannot be verified.
	Verify Topology = "verify"
	// Skip: what is needed is taken to be there.
	Skip Topology = "skip"
)

// Queues is a type of queues.
type Queues string

const (
	// Classic queues live on one node.
	Classic Queues = "classic"
	// Quorum queues are replicated over a cluster.
	Quorum Queues = "quorum"
)

var (
	prefixRule    = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)
	partitionRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
)

func (cfg *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: amqp: Config."+format, append([]any{saga.ErrInvalid}, args...)...))
	}
	if len(cfg.URLs) == 0 {
		bad("URLs is required")
	}
	for i, url := range cfg.URLs {
		u, err := amqp091.ParseURI(url)
		switch {
		case err != nil: // quotes parts of the URL, perhaps of the password
			bad("URLs[%d] is not amqp://user:password@host:port/vhost; what is special in user, password and vhost must be percent-encoded", i)
		case strings.Contains(u.Host, ","):
			bad("URLs[%d] names several hosts; give one URL for each", i)
		case cfg.TLS != nil && u.Scheme != "amqps":
			bad("URLs[%d] is not an amqps URL, but TLS is set", i)
		}
	}
	if cfg.Prefix != "" && !prefixRule.MatchString(cfg.Prefix) {
		bad("Prefix %q must match %s", cfg.Prefix, prefixRule)
	}
	switch cfg.Topology {
	case "", Declare, Verify, Skip:
	default:
		bad("Topology %q is none of declare, verify, skip", cfg.Topology)
	}
	switch cfg.Queues {
	case "", Classic, Quorum:
	default:
		bad("Queues %q is neither classic nor quorum", cfg.Queues)
	}
	if len(cfg.Name) > 100 || !utf8.ValidString(cfg.Name) {
		bad("Name must be valid UTF-8 of at most 100 bytes")
	}
	if cfg.Window < 0 || cfg.Window > 65536 {
		bad("Window is %d, want 0 to 65536", cfg.Window)
	}
	if h := cfg.Heartbeat; h != 0 && (h < time.Second || h > time.Hour || h%time.Second != 0) {
		bad("Heartbeat is %v, want whole seconds up to an hour", h)
	}
	if d := cfg.Timeout; d != 0 && (d < 10*time.Millisecond || d > time.Hour) {
		bad("Timeout is %v, want 10ms to 1h", d)
	}
	if d := cfg.Reconnect; d != 0 && (d < retryFirst || d > time.Hour) {
		bad("Reconnect is %v, want %v to 1h", d, retryFirst)
	}
	return errors.Join(errs...)
}

func (cfg *Config) fill() {
	setDefault(&cfg.Prefix, "saga")
	setDefault(&cfg.Topology, Declare)
	setDefault(&cfg.Queues, Classic)
	setDefault(&cfg.Name, "leveret")
	setDefault(&cfg.Window, 256)
	setDefault(&cfg.Heartbeat, 10*time.Second)
	setDefault(&cfg.Timeout, 10*time.Second)
	setDefault(&cfg.Reconnect, 2*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// connectionName tells the connections of processes apart.
func (cfg *Config) connectionName(role string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%s/%s:%d", cfg.Name, role, host, os.Getpid())
}
