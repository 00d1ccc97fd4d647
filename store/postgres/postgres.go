// Package postgres keeps sagas in PostgreSQL, for services that run on several
// machines or whose sagas must outlive one.
//
//	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
//	…
//	st, err := postgres.New(pool, nil)
//	…
//	defer st.Close()
//	if err := st.Migrate(ctx); err != nil { // or print MigrationSQL and let an operator run it
//		…
//	}
//	engine, err := saga.New(saga.Config{Store: st})
//
// # Schema
//
// All tables live in a schema of their own, "saga" unless [Config] says
// otherwise, and every statement names it: search_path plays no part. Nothing
// is migrated unless [Store.Migrate] is called; any number of processes may
// call it at once. A store whose schema does not fit returns a
// [*store.SchemaError] from the first call of any method, which for an engine
// is its start; [Store.CheckSchema] asks at once. Within a major version of
// this library migrations only add, and each says how old a library may be
// that works on it, so that a rolling deploy may migrate first.
//
// The database must be encoded in UTF8 and the server be PostgreSQL 15 or
// newer.
//
// # Connections
//
// A step holds no connection while user code runs, so a pool of as many
// connections as an engine has workers never makes one wait (see
// [Store.PoolSize]). Besides the pool the store opens, when it first needs
// them, up to 2 connections of its own for lease renewal, the sweep, the clock
// and cells, so that none of these ever waits behind steps, and up to 2 for
// people and their tools: the lists ([Store.Attempts], [Store.Audit],
// [Store.Stalled], [Store.ForResource], [Store.List] and [Store.Count]) and
// [Store.Delete]. They are configured like the pool's.
//
// The store works with pgx's exec modes cache_statement (pgx's default), exec
// and simple_protocol, and behind a PgBouncer that pools transactions: add
// default_query_exec_mode=exec to the DSN for that. It sets no startup
// parameters, takes no session locks and does not LISTEN.
//
// # Errors
//
// The errors are those that package store names. When ctx ends a call, the
// statement is cancelled on the server and the answer awaited for a few
// seconds, so that ctx's error from a write means that nothing was written. A
// write whose answer never came returns an error that is none of these, not
// even ctx's: its outcome is unknown. Deadlocks, lock time-outs and
// connections found dead before anything was sent are tried again, a few
// times, where nothing can have been written.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// A Config says how a [Store] uses its database. Its zero value is right.
type Config struct {
	// Schema holds the tables. It is 1 to 31 lower-case letters, digits and
	// underscores, does not begin with a digit nor with pg_. Defaults to
	// "saga".
	Schema string

	// LockTimeout is how long the server lets one statement wait for a lock;
	// the store tries three times. Defaults to 5 seconds.
	LockTimeout time.Duration

	// StatementTimeout is how long one statement may take. Defaults to 15
	// seconds.
	StatementTimeout time.Duration
}

// A Store keeps sagas in a schema of a PostgreSQL database. It is a
// [store.Store], a [store.Advancer], a [store.Deleter] and a [store.Querier],
// and has [store.Cells]; it is a [store.Binder] and a [store.Transactor] for
// transactions of pgx's and of database/sql. WithLock locks one row: executions do not wait for each
// other.
type Store struct {
	cfg    Config
	tables rows.Tables
	sql    statements

	pool    *pgxpool.Pool // for steps: the caller's, unless owned
	owned   bool
	control *pgxpool.Pool // for what must not wait behind steps
	listing *pgxpool.Pool // under lists, and for Delete; does not prepare, as bun writes arguments into the text
	lists   *bun.DB

	dbOnce sync.Once
	db     *sql.DB // over the pool, for RunTx

	checked atomic.Bool // the schema was found to fit
	id      atomic.Pointer[uuid.UUID]
	close   sync.Once
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Advancer = (*Store)(nil)
	_ store.Cells    = (*Store)(nil)
	_ store.Deleter  = (*Store)(nil)
	_ store.Querier  = (*Store)(nil)

	_ store.Binder     = (*Store)(nil)
	_ store.Transactor = (*Store)(nil)
)

// The connections that a store opens besides its pool.
const (
	controlConns = 2
	listingConns = 2
)

// New returns a store on a pool, which stays the caller's: it must be open as
// long as the store is used, and Close does not close it. New connects to
// nothing. Call [Store.Close] when the store is no longer used.
func New(pool *pgxpool.Pool, cfg *Config) (*Store, error) {
	if pool == nil {
		return nil, errors.New("postgres: pool is nil")
	}
	s := &Store{pool: pool}
	if cfg != nil {
		s.cfg = *cfg
	}
	if s.cfg.Schema == "" {
		s.cfg.Schema = "saga"
	}
	if s.cfg.LockTimeout == 0 {
		s.cfg.LockTimeout = 5 * time.Second
	}
	if s.cfg.StatementTimeout == 0 {
		s.cfg.StatementTimeout = 15 * time.Second
	}
	s.tables = rows.Tables{Schema: s.cfg.Schema}
	if err := s.tables.Validate(); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if strings.HasPrefix(s.cfg.Schema, "pg_") {
		return nil, fmt.Errorf("postgres: schema %q: names with pg_ are the server's own", s.cfg.Schema)
	}
	if s.cfg.LockTimeout < time.Millisecond || s.cfg.StatementTimeout < time.Millisecond {
		return nil, errors.New("postgres: a time-out is below 1 ms")
	}
	s.sql.build(s.tables, s.cfg)

	var err error
	if s.control, err = sidePool(pool, controlConns, func(*pgx.ConnConfig) {}); err != nil {
		return nil, fmt.Errorf("postgres: pool for renewal: %w", err)
	}
	s.listing, err = sidePool(pool, listingConns, func(c *pgx.ConnConfig) {
		if c.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
			c.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
	})
	if err != nil {
		s.control.Close()
		return nil, fmt.Errorf("postgres: pool for lists: %w", err)
	}
	s.lists = bun.NewDB(stdlib.OpenDBFromPool(s.listing), pgdialect.New())
	return s, nil
}

// Open connects to a database and returns a store on a pool of its own, which
// Close closes. The DSN is what [pgxpool.ParseConfig] takes; its pool_max_conns
// should be the number of the engine's workers. Open does not look at the
// schema, so that [Store.Migrate] can make it.
func Open(ctx context.Context, dsn string, cfg *Config) (*Store, error) {
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err) // pgx leaves the password out
	}
	pc.ConnConfig.BuildContextWatcherHandler = cancelOnServer
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, failed(ctx, "open", err)
	}
	s, err := New(pool, cfg)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

// sidePool returns a small pool that is configured like another one and
// connects when it is first used.
func sidePool(pool *pgxpool.Pool, conns int32, change func(*pgx.ConnConfig)) (*pgxpool.Pool, error) {
	c := pool.Config()
	c.MaxConns, c.MinConns, c.MinIdleConns = conns, 0, 0
	c.ConnConfig.BuildContextWatcherHandler = cancelOnServer
	change(c.ConnConfig)
	return pgxpool.NewWithConfig(context.Background(), c)
}

// Close closes what the store opened: its own few connections, and the pool if
// it is from [Open]. It waits for calls under way.
func (s *Store) Close() error {
	var err error
	s.close.Do(func() {
		err = s.lists.Close()
		if s.dbOnce.Do(func() {}); s.db != nil {
			err = errors.Join(err, s.db.Close())
		}
		s.listing.Close()
		s.control.Close()
		if s.owned {
			s.pool.Close()
		}
	})
	if err != nil {
		return fmt.Errorf("postgres: close: %w", err)
	}
	return nil
}

// PoolSize returns how many connections there are at most for the steps of an
// engine: a step needs one at its start and one at its end, for as long as a
// statement takes. An engine with more workers than that warns, because its
// steps may wait for each other.
func (s *Store) PoolSize() int { return int(s.pool.Stat().MaxConns()) }

// ID returns the identity of this store, made by the first migration; see
// [store.Store]. It is read once.
func (s *Store) ID(ctx context.Context) (uuid.UUID, error) {
	if id := s.id.Load(); id != nil {
		return *id, nil
	}
	var id uuid.UUID
	err := s.run(ctx, "id", s.control, reading, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, s.sql.id).Scan(&id)
	})
	if err != nil {
		return uuid.Nil, err
	}
	s.id.Store(&id)
	return id, nil
}

// Now returns the server's clock; see [store.Store].
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.run(ctx, "now", s.control, reading, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	})
	if err != nil {
		return time.Time{}, err
	}
	return store.Micros(now), nil
}
