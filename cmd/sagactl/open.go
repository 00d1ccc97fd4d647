package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
	"github.com/leveret-go/leveret/store/sqlite"
)

const brokerPatience = 5 * time.Second

// A session is an engine on the store, with the broker where one was named.
type session struct {
	*saga.Engine
	broker *amqp.Broker
	store  interface {
		store.Store
		Close() error
	}
}

// redactor hides what definitions say, by the outlines that workers left in the
// store.
func (s *session) redactor(ctx context.Context) (*saga.Redactor, error) {
	outlines, err := s.StoredOutlines(ctx)
	if err != nil {
		return nil, err
	}
	return saga.NewRedactor(outlines...), nil
}

// with opens the store for f. The engine runs nothing and publishes nothing:
// what an act makes due the workers find in the store.
func (c *call) with(ctx context.Context, f func(s *session) error) error {
	return c.session(ctx, "", f)
}

// withBroker also opens the broker, if one is named: to see queues, and to
// publish again.
func (c *call) withBroker(ctx context.Context, f func(s *session) error) error {
	return c.session(ctx, c.amqpURL(), f)
}

func (c *call) session(ctx context.Context, url string, f func(s *session) error) error {
	s := &session{}
	if err := c.openStore(ctx, s); err != nil {
		return err
	}
	defer s.close(ctx, c)
	cfg := saga.Config{Store: s.store, Worker: "sagactl", Logger: slog.New(slog.DiscardHandler), Now: c.now}
	if url != "" {
		broker, err := c.openBroker(ctx)
		if err != nil {
			return err
		}
		s.broker, cfg.Publisher = broker, broker
	}
	var err error
	if s.Engine, err = saga.New(cfg); err != nil {
		return err
	}
	return f(s)
}

// close waits until the pointers of what was done are with the broker. That
// they are not is no failure: workers find the executions in the store.
func (s *session) close(ctx context.Context, c *call) {
	if s.broker != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), brokerPatience)
		defer cancel()
		if err := s.broker.Close(ctx); err != nil {
			c.note("pointers may be lost; workers find their executions in the store: %v", err)
		}
	}
	if err := s.store.Close(); err != nil {
		c.note("close the store: %v", err)
	}
}

func (c *call) storeAddress() string { return c.setting("store", "LEVERET_STORE") }
func (c *call) amqpURL() string      { return c.setting("amqp", "LEVERET_AMQP") }

func isPostgres(address string) bool {
	return strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://")
}

func (c *call) openStore(ctx context.Context, s *session) error {
	address := c.storeAddress()
	switch {
	case address == "":
		return usage("no store: give -store or LEVERET_STORE, a postgres://… URL or the path of an SQLite file")
	case isPostgres(address):
		st, err := c.openPostgres(ctx, address)
		if err != nil {
			return err
		}
		s.store = st
		return nil
	}
	file, err := sqliteFile(address)
	if err != nil {
		return err
	}
	// Opening would create it: a typing error is no new store.
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no file %q; sagactl migrate makes one", file)
	}
	st, err := c.openSQLite(ctx, file)
	if err != nil {
		return err
	}
	s.store = st
	return nil
}

func sqliteFile(address string) (string, error) {
	file := strings.TrimPrefix(address, "sqlite:")
	switch {
	case file == "", file == ":memory:", strings.Contains(address, "://"), strings.HasPrefix(file, "file:"):
		return "", usage("-store is neither a postgres://… URL nor the path of an SQLite file")
	}
	return file, nil
}

func (c *call) openSQLite(ctx context.Context, file string) (*sqlite.Store, error) {
	return sqlite.Open(ctx, file, &sqlite.Config{TablePrefix: c.String("table-prefix")})
}

func (c *call) postgresConfig() *postgres.Config { return &postgres.Config{Schema: c.String("schema")} }

func (c *call) openPostgres(ctx context.Context, address string) (*postgres.Store, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, usage("-store is no URL like postgres://user:password@host:5432/database")
	}
	q := u.Query()
	for k, v := range map[string]string{"connect_timeout": "10", "pool_max_conns": "4", "application_name": "sagactl"} {
		if !q.Has(k) {
			q.Set(k, v)
		}
	}
	u.RawQuery = q.Encode()
	return postgres.Open(ctx, u.String(), c.postgresConfig())
}

// amqpConfig is that of the broker the service uses.
func (c *call) amqpConfig(needed bool) (amqp.Config, error) {
	cfg := amqp.Config{
		Prefix: c.setting("prefix", "LEVERET_PREFIX"), Queues: amqp.Queues(c.String("queues")), Name: "sagactl",
		Topology: amqp.Skip, Timeout: brokerPatience, Logger: slog.New(slog.DiscardHandler),
	}
	address := c.amqpURL()
	if address == "" {
		if needed {
			return cfg, usage("no broker: give -amqp or LEVERET_AMQP, an amqp://user:password@host:5672/vhost URL")
		}
		return cfg, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Host == "" {
		return cfg, usage("-amqp is no URL like amqp://user:password@host:5672/vhost")
	}
	cfg.URLs = []string{address}
	return cfg, nil
}

func (c *call) openBroker(ctx context.Context) (*amqp.Broker, error) {
	cfg, err := c.amqpConfig(true)
	if err != nil {
		return nil, err
	}
	b, err := amqp.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	if err := b.Ready(wait); err != nil {
		c.note("the broker cannot be reached: %v", err)
	}
	return b, nil
}

func (c *call) openAdmin(ctx context.Context) (*amqp.Admin, error) {
	cfg, err := c.amqpConfig(true)
	if err != nil {
		return nil, err
	}
	cfg.Commands = c.Bool("commands")
	return amqp.OpenAdmin(ctx, cfg)
}
