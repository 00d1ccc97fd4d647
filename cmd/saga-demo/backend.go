package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
	"github.com/leveret-go/leveret/store/postgres"
	"github.com/leveret-go/leveret/store/sqlite"
)

// A backend is a store of sagas, and beside it the ledger of the services.
type backend struct {
	store  store.Store
	ledger ledger
	where  string // for people; without a password
	// close closes both. keep says that a temporary file is worth a look.
	close func(keep bool) error
}

func openBackend(ctx context.Context, o options) (*backend, error) {
	switch file, isFile := strings.CutPrefix(o.store, "sqlite:"); {
	case o.store == "memory":
		return &backend{
			store: memory.New(), ledger: newMemoryLedger(), where: "memory",
			close: func(bool) error { return nil },
		}, nil
	case isFile:
		return openSQLite(ctx, file)
	case o.store == "":
		return openTemporary(ctx)
	}
	return openPostgres(ctx, o)
}

func openTemporary(ctx context.Context) (*backend, error) {
	dir, err := os.MkdirTemp("", "saga-demo-")
	if err != nil {
		return nil, err
	}
	b, err := openSQLite(ctx, filepath.Join(dir, "demo.db"))
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	b.where = "SQLite in " + dir
	closeFile := b.close
	b.close = func(keep bool) error {
		err := closeFile(keep)
		if !keep {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}
	return b, nil
}

func openSQLite(ctx context.Context, file string) (*backend, error) {
	st, err := sqlite.Open(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	// SQLite has a single writer: the ledger shares the store's connection.
	l, err := newSQLLedger(ctx, st.DB(), true, func() error { return nil })
	if err != nil {
		st.Close()
		return nil, err
	}
	return &backend{
		store: st, ledger: l, where: "SQLite, " + file,
		close: func(bool) error { return errors.Join(l.close(), st.Close()) },
	}, nil
}

func openPostgres(ctx context.Context, o options) (*backend, error) {
	open := func(conns int) (*pgxpool.Pool, error) {
		pc, err := pgxpool.ParseConfig(o.store)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(o.store, "pool_max_conns") {
			pc.MaxConns = int32(conns)
		}
		return pgxpool.NewWithConfig(ctx, pc)
	}
	pool, err := open(2 * o.workers) // a connection for each worker
	if err != nil {
		return nil, err
	}
	own, err := open(min(o.workers, 10))
	if err != nil {
		pool.Close()
		return nil, err
	}
	closers := []func(){own.Close, pool.Close}
	closeAll := func() {
		for _, c := range closers {
			c()
		}
	}
	st, err := postgres.New(pool, nil)
	if err == nil {
		closers = append([]func(){func() { _ = st.Close() }}, closers...)
		err = st.Migrate(ctx)
	}
	if err != nil {
		closeAll()
		return nil, err
	}
	db := stdlib.OpenDBFromPool(own)
	closers = append([]func(){func() { _ = db.Close() }}, closers...)
	l, err := newSQLLedger(ctx, db, false, db.Close)
	if err != nil {
		closeAll()
		return nil, err
	}
	cc := pool.Config().ConnConfig
	return &backend{
		store: st, ledger: l, where: fmt.Sprintf("PostgreSQL, database %s at %s", cc.Database, cc.Host),
		close: func(bool) error { closeAll(); return nil },
	}, nil
}
