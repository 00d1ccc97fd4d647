// Package sqlite keeps sagas in one SQLite file: for services that run on one
// machine and want their sagas to outlive the process without a database
// server. It needs no cgo.
//
//	s, err := sqlite.Open(ctx, "/var/lib/shop/sagas.db", nil)
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	engine, err := saga.New(saga.Config{Store: s})
//
// # What it promises
//
// Several processes on one machine may use one file at once. [Store] has all
// of [store.Store], and [store.Advancer], [store.Cells], [store.Querier],
// [store.Deleter] and [store.Exclusiver].
//
// By default a write that has returned survives a crash of the process, of the
// system and a loss of power, as far as the disk keeps its own promises: it is
// synced before it is acknowledged. With [Normal] it survives a crash of the
// process only; a loss of power may take the last writes back, those of all
// executions alike, but never leaves one half done.
//
// # One writer
//
// SQLite has a single writer. A [Store.WithLock] on one execution therefore
// keeps every other write of all processes waiting, those on other executions
// too; [Store.ClaimDue] and [Store.Renew] wait rather than pass locked rows
// over, and Renew never answers [store.LeaseLocked]. Writes of one process are
// served in the order in which they came. Reads ([Store.Get], the lists) never
// wait for a writer. Every wait ends when its ctx does.
//
// # The file
//
// The database is the file, and beside it, while it is open and after a crash,
// the files with -wal and -shm at the end of their names: they belong together,
// and a copy of the first alone is not a backup (use VACUUM INTO, on a
// connection of your own). The file with .lock at its end is that of
// [Store.Exclusive]; it is never removed. All are created with the
// permissions that the process's umask leaves of 0644: anybody who may read
// the file can read the state of all sagas, so set a umask, or a directory,
// that suits them.
//
// The file must be on a local disk: WAL needs shared memory, and file locks of
// network file systems do not hold what they promise. Open refuses NFS and SMB
// where it can tell. Do not open the file by other means in the same process,
// not even to read it: on POSIX systems closing any descriptor of a file drops
// all locks that the process holds on it.
//
// Tables and indexes have names that begin with [Config.TablePrefix], so the
// file may hold other tables as well. Times are INTEGERs, microseconds since
// 1970 UTC; JSON is TEXT, byte for byte as it came.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// Synchronous says what a commit waits for.
type Synchronous string

// The modes.
const (
	Full   Synchronous = "full"   // until the disk has it
	Normal Synchronous = "normal" // until the operating system has it
)

// Config says how to open a file. Its zero value is right for most.
type Config struct {
	// TablePrefix begins the names of all tables and indexes: at most 31
	// lower-case letters, digits and underscores, not beginning with a digit
	// or sqlite_. Two prefixes in one file are two stores. Defaults to
	// "saga_".
	TablePrefix string

	// Synchronous says what a write waits for. Defaults to Full.
	Synchronous Synchronous

	// BusyTimeout is how long a write waits for the writer of another process
	// when its ctx leaves it more time than that; then it fails, having
	// written nothing. Writers of this process queue up for as long as their
	// ctx says. Defaults to 10 seconds.
	BusyTimeout time.Duration

	// Readers is how many reads may go on at once. Defaults to 4.
	Readers int
}

// A Store keeps executions in a file. Its methods may be called from any
// number of goroutines. Open makes one; the zero value is of no use.
type Store struct {
	path    string // absolute, without symbolic links
	id      uuid.UUID
	busy    time.Duration
	tables  rows.Tables
	writer  *sql.DB // one connection
	readers *sql.DB
	bun     *bun.DB // over readers
	statements

	commits  atomic.Int64
	walLimit int64

	mu        sync.Mutex
	exclusive *os.File // held open, and thereby locked
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Advancer   = (*Store)(nil)
	_ store.Cells      = (*Store)(nil)
	_ store.Querier    = (*Store)(nil)
	_ store.Deleter    = (*Store)(nil)
	_ store.Exclusiver = (*Store)(nil)
	_ store.Binder     = (*Store)(nil)
	_ store.Transactor = (*Store)(nil)
)

// Open opens the file at path, a plain file name and no URI, creates it when
// there is none (its directory must exist), and migrates its schema to the
// version of this library. A nil cfg is the zero Config. Any number of
// processes may open a file at once: one of them migrates, the others wait.
//
// A schema that a newer library has migrated is used as it is, unless that
// library's migrations say that this one cannot: then, and with nothing
// changed, the error is a [*store.SchemaError].
//
// An in-memory database is refused: use package store/memory.
func Open(ctx context.Context, path string, cfg *Config) (*Store, error) {
	s, err := open(ctx, path, cfg)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open: %w", err)
	}
	return s, nil
}

func open(ctx context.Context, path string, cfg *Config) (*Store, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if err := c.fill(); err != nil {
		return nil, err
	}
	all, err := migrations()
	if err != nil {
		return nil, err
	}
	path, err = resolve(path)
	if err != nil {
		return nil, err
	}
	if err := checkFilesystem(filepath.Dir(path)); err != nil {
		return nil, err
	}

	s := &Store{path: path, busy: c.BusyTimeout, tables: rows.Tables{Prefix: c.TablePrefix}, walLimit: walLimit}
	if s.writer, err = sql.Open("sqlite", s.dsn("_txlock=immediate", "_pragma=synchronous("+string(c.Synchronous)+")")); err != nil {
		return nil, err
	}
	s.writer.SetMaxOpenConns(1)
	if s.readers, err = sql.Open("sqlite", s.dsn("_pragma=query_only(1)")); err != nil {
		s.writer.Close()
		return nil, err
	}
	s.readers.SetMaxOpenConns(c.Readers)
	s.readers.SetMaxIdleConns(c.Readers)
	s.bun = bun.NewDB(s.readers, sqlitedialect.New())

	if err := s.start(ctx, all); err != nil {
		s.Close()
		return nil, s.cause(ctx, err)
	}
	return s, nil
}

func (c *Config) fill() error {
	var faults []error
	if c.TablePrefix == "" {
		c.TablePrefix = "saga_"
	}
	if err := (rows.Tables{Prefix: c.TablePrefix}).Validate(); err != nil {
		faults = append(faults, err)
	}
	if strings.HasPrefix(c.TablePrefix, "sqlite_") {
		faults = append(faults, errors.New("table prefix sqlite_ is SQLite's own"))
	}
	switch c.Synchronous {
	case "":
		c.Synchronous = Full
	case Full, Normal:
	default:
		faults = append(faults, fmt.Errorf("synchronous %q is neither full nor normal", c.Synchronous))
	}
	switch {
	case c.BusyTimeout == 0:
		c.BusyTimeout = 10 * time.Second
	case c.BusyTimeout < time.Millisecond || c.BusyTimeout > 24*time.Hour:
		faults = append(faults, fmt.Errorf("busy timeout %s is not between a millisecond and a day", c.BusyTimeout))
	}
	switch {
	case c.Readers == 0:
		c.Readers = 4
	case c.Readers < 0 || c.Readers > 1000:
		faults = append(faults, fmt.Errorf("%d readers are not between 1 and 1000", c.Readers))
	}
	return errors.Join(faults...)
}

// resolve returns the one name that all processes have for the file, so that
// they use the same lock file.
func resolve(path string) (string, error) {
	switch {
	case path == "" || path == ":memory:" || strings.HasPrefix(path, "file:") && strings.Contains(path, "mode=memory"):
		return "", errors.New("a database in memory has one connection and no second process; use package store/memory")
	case strings.HasPrefix(path, "file:"):
		return "", errors.New("the path is a URI; give a plain file name")
	case strings.ContainsRune(path, 0):
		return "", errors.New("the path contains NUL")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		var dir string
		if dir, err = filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			resolved = filepath.Join(dir, filepath.Base(path))
		}
	}
	return resolved, err
}

func (s *Store) dsn(parameters ...string) string {
	path := filepath.ToSlash(s.path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive letter
	}
	u := url.URL{Scheme: "file", Path: path}
	u.RawQuery = fmt.Sprintf("_busy_timeout=%d&", s.busy.Milliseconds()) + strings.Join(parameters, "&")
	return u.String()
}

// start makes the file ready for use.
func (s *Store) start(ctx context.Context, all []migration) error {
	if err := s.enterWAL(ctx); err != nil {
		return err
	}
	var err error
	if s.id, err = migrate(ctx, s.writer, s.tables, all); err != nil {
		return err
	}
	return s.prepare(ctx)
}

// enterWAL switches the file to WAL, which it then stays in. SQLite answers
// busy at once, whatever the busy timeout, when two connections switch at the
// same moment.
func (s *Store) enterWAL(ctx context.Context) error {
	deadline := time.Now().Add(s.busy)
	for {
		var mode string
		err := s.writer.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
		switch {
		case err == nil && mode == "wal":
			return nil
		case err == nil:
			return fmt.Errorf("the file system cannot hold a database in WAL mode (it is in mode %s)", mode)
		case !isBusy(err) || time.Now().After(deadline):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Close closes the file and ends the lock of [Store.Exclusive]. Calls under
// way fail or finish; later ones fail. The last process to close a file folds
// the -wal file back into it.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Readers first: the writer's close checkpoints, if nobody else is there.
	err := errors.Join(s.readers.Close(), s.writer.Close())
	if s.exclusive != nil {
		err = errors.Join(err, s.exclusive.Close())
		s.exclusive = nil
	}
	if err != nil {
		return fmt.Errorf("sqlite: close: %w", err)
	}
	return nil
}

// DB returns the connection that this store writes with, for transactions that
// write to other tables of the same file. There is but one, and
// transactions on it begin IMMEDIATE: while one is open, or rows of a query are
// not closed, every write of this store, and of other processes, waits. So keep
// them short, and call no method of this store that writes from inside: it
// would wait for the transaction until its own ctx ends. Reading this
// store's tables is allowed, their shape is not promised; writing them,
// changing PRAGMAs or the pool's limits, and closing it is not.
func (s *Store) DB() *sql.DB { return s.writer }

// ID returns the identity of this store; see [store.Store].
func (s *Store) ID(ctx context.Context) (uuid.UUID, error) { return s.id, ctx.Err() }

// Now returns this process's clock; see [store.Store]. All processes on the
// file are on one machine, and so have one clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return store.Micros(time.Now()), ctx.Err()
}
