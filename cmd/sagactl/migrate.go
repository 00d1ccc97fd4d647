package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
)

// migrate brings the store's schema to the version of this build.
func migrate(ctx context.Context, c *call) error {
	address := c.storeAddress()
	if c.Bool("print") {
		return c.printMigration(ctx, address)
	}
	switch {
	case c.IsSet("from"):
		return usage("-from goes with -print")
	case address == "":
		return usage("no store: give -store or LEVERET_STORE, a postgres://… URL or the path of an SQLite file")
	case !isPostgres(address):
		file, err := sqliteFile(address)
		if err != nil {
			return err
		}
		st, err := c.openSQLite(ctx, file) // which migrates
		if err != nil {
			return err
		}
		return errors.Join(c.migrated(), st.Close())
	}
	if err := c.canConfirm(); err != nil {
		return err
	}
	st, err := c.openPostgres(ctx, address)
	if err != nil {
		return err
	}
	defer st.Close()
	err = st.CheckSchema(ctx)
	if old, ok := errors.AsType[*store.SchemaError](err); ok && old.Code != store.SchemaTooNew {
		err = c.confirm(ctx, func(c *call) {
			fmt.Fprintf(c.stdout, "The schema has version %d, this build wants %d.\n", old.Have, old.Want)
		},
			"migrate it?")
	}
	if err != nil {
		return err
	}
	if err := st.Migrate(ctx); err != nil {
		return err
	}
	return c.migrated()
}

func (c *call) migrated() error {
	if c.json() {
		return c.document(map[string]bool{"migrated": true})
	}
	fmt.Fprintln(c.stdout, "The schema is that of this build.")
	return nil
}

// printMigration prints SQL for PostgreSQL: from -from, or from the version
// that the store has.
func (c *call) printMigration(ctx context.Context, address string) error {
	from := c.Int("from")
	if from < 0 {
		return usage("-from is negative")
	}
	if address != "" && !isPostgres(address) {
		return usage("-print is for PostgreSQL; a file is migrated when it is opened")
	}
	var st *postgres.Store
	if address == "" || c.IsSet("from") {
		// A pool connects when it is first used: never.
		pool, err := pgxpool.New(ctx, "postgres://localhost/")
		if err != nil {
			return err
		}
		defer pool.Close()
		if st, err = postgres.New(pool, c.postgresConfig()); err != nil {
			return err
		}
	} else {
		var err error
		if st, err = c.openPostgres(ctx, address); err != nil {
			return err
		}
		err = st.CheckSchema(ctx)
		switch e, ok := errors.AsType[*store.SchemaError](err); {
		case err == nil:
			st.Close()
			fmt.Fprintln(c.stdout, "-- There is nothing to migrate.")
			return nil
		case !ok || e.Code == store.SchemaTooNew:
			st.Close()
			return err
		default:
			from = e.Have
		}
	}
	defer st.Close()
	sql := st.MigrationSQL(from)
	if sql == "" {
		sql = "-- There is nothing to migrate."
	}
	fmt.Fprintln(c.stdout, strings.TrimRight(sql, "\n"))
	return nil
}
