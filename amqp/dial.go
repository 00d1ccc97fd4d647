package amqp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// A socket bounds each write. Without that amqp091 blocks for as long as the
// peer does not read, with locks held that its own Close needs.
type socket struct {
	net.Conn
	timeout time.Duration
}

func (s *socket) Write(b []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return 0, err
	}
	return s.Conn.Write(b)
}

// A dialer makes connections to one of several nodes.
type dialer struct {
	cfg  *Config
	role string
	urls []string // shuffled
	next int      // the one to try first: the last that answered
}

func newDialer(cfg *Config, role string) *dialer {
	d := &dialer{cfg: cfg, role: role, urls: slices.Clone(cfg.URLs)}
	rand.Shuffle(len(d.urls), func(i, j int) { d.urls[i], d.urls[j] = d.urls[j], d.urls[i] })
	return d
}

// dial tries each URL once.
func (d *dialer) dial(ctx context.Context) (*session, error) {
	var errs []error
	for range d.urls {
		s, err := d.dialOne(ctx, d.urls[d.next])
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
		d.next = (d.next + 1) % len(d.urls)
	}
	return nil, errors.Join(errs...)
}

func (d *dialer) dialOne(ctx context.Context, url string) (*session, error) {
	cfg := amqp091.Config{
		Heartbeat: d.cfg.Heartbeat,
		// Fresh ones for each dial: amqp091 writes into both.
		Properties: amqp091.Table{
			"product":         "leveret",
			"platform":        "Go",
			"connection_name": d.cfg.connectionName(d.role),
		},
	}
	if d.cfg.TLS != nil {
		cfg.TLSClientConfig = d.cfg.TLS.Clone()
	}
	where := redacted(url)
	if d.cfg.Auth != nil {
		actx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
		user, password, err := d.cfg.Auth(actx)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("amqp: credentials for %s: %w", where, err)
		}
		cfg.SASL = []amqp091.Authentication{&amqp091.PlainAuth{Username: user, Password: password}}
	}

	sock := &socket{timeout: d.cfg.Timeout}
	release := func() bool { return true }
	cfg.Dial = func(network, addr string) (net.Conn, error) {
		nd := net.Dialer{Timeout: d.cfg.Timeout, KeepAlive: 30 * time.Second}
		c, err := nd.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		// For the handshake; amqp091 clears it afterwards.
		if err := c.SetDeadline(time.Now().Add(d.cfg.Timeout)); err != nil {
			c.Close()
			return nil, err
		}
		sock.Conn = c
		release = context.AfterFunc(ctx, func() { c.Close() })
		return sock, nil
	}
	conn, err := amqp091.DialConfig(url, cfg)
	release()
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		if sock.Conn != nil {
			sock.Conn.Close()
		}
		return nil, refused(fmt.Errorf("amqp: connect to %s: %w", where, err))
	}
	return newSession(conn, sock, where), nil
}

// redacted returns where a URL leads to, without credentials and parameters.
func redacted(url string) string {
	u, err := amqp091.ParseURI(url)
	if err != nil {
		return "an invalid URL"
	}
	return fmt.Sprintf("%s://%s vhost %q", u.Scheme, net.JoinHostPort(u.Host, strconv.Itoa(u.Port)), u.Vhost)
}
