package amqp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
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
	where := redacted(url)
	u, err := amqp091.ParseURI(url)
	if err != nil {
		return nil, fmt.Errorf("amqp: connect to %s", where)
	}
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
	cfg.Dial = func(string, string) (net.Conn, error) {
		nd := net.Dialer{Timeout: d.cfg.Timeout, KeepAlive: 30 * time.Second}
		c, err := nd.DialContext(ctx, "tcp", net.JoinHostPort(u.Host, strconv.Itoa(u.Port)))
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
		return d.secured(ctx, sock, u)
	}
	// What the broker says is filtered behind TLS, so TLS is not amqp091's matter.
	plain := url
	if u.Scheme == "amqps" {
		plain = "amqp" + url[len("amqps"):]
	}
	conn, err := amqp091.DialConfig(plain, cfg)
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

// secured speaks TLS over a socket if the URL says so, and filters what comes.
func (d *dialer) secured(ctx context.Context, sock *socket, u amqp091.URI) (net.Conn, error) {
	if u.Scheme != "amqps" {
		return newFiltered(sock), nil
	}
	cfg, err := d.tlsConfig(u)
	if err != nil {
		return nil, err
	}
	c := tls.Client(sock, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return newFiltered(c), nil
}

// tlsConfig returns the configuration for one connection: that of the Broker,
// else what the URL says.
func (d *dialer) tlsConfig(u amqp091.URI) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.ServerName}
	switch {
	case d.cfg.TLS != nil:
		cfg = d.cfg.TLS.Clone()
	default:
		if u.CACertFile != "" {
			pem, err := os.ReadFile(u.CACertFile)
			if err != nil {
				return nil, fmt.Errorf("cacertfile: %w", err)
			}
			cfg.RootCAs = x509.NewCertPool()
			if !cfg.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("cacertfile: no certificate in %s", u.CACertFile)
			}
		}
		if u.CertFile != "" && u.KeyFile != "" {
			pair, err := tls.LoadX509KeyPair(u.CertFile, u.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("certfile, keyfile: %w", err)
			}
			cfg.Certificates = []tls.Certificate{pair}
		}
	}
	setDefault(&cfg.ServerName, u.Host) // the clone's: the next host has another name
	return cfg, nil
}

// redacted returns where a URL leads to, without credentials and parameters.
func redacted(url string) string {
	u, err := amqp091.ParseURI(url)
	if err != nil {
		return "an invalid URL"
	}
	return fmt.Sprintf("%s://%s vhost %q", u.Scheme, net.JoinHostPort(u.Host, strconv.Itoa(u.Port)), u.Vhost)
}
