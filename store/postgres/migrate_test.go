package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
)

func TestEightProcessesMigrateAtOnce(t *testing.T) {
	for name, mode := range map[string]string{"direct": "", "pgbouncer": "exec"} {
		t.Run(name, func(t *testing.T) {
			dsn := testenv.Postgres(t)
			if mode != "" {
				dsn = with(testenv.PgBouncer(t, dsn), "default_query_exec_mode", mode)
			}
			var ids sync.Map
			var all sync.WaitGroup
			for range 8 {
				s := open(t, dsn, nil)
				all.Go(func() {
					if err := s.Migrate(t.Context()); err != nil {
						t.Errorf("Migrate: %v", err)
						return
					}
					id, err := s.ID(t.Context())
					if err != nil {
						t.Errorf("ID: %v", err)
					}
					ids.Store(id, true)
				})
			}
			all.Wait()
			n := 0
			ids.Range(func(_, _ any) bool { n++; return true })
			if n != 1 {
				t.Errorf("%d store ids, want 1", n)
			}
		})
	}
}

func wantSchemaError(t *testing.T, err error, want store.SchemaError) {
	t.Helper()
	got, ok := errors.AsType[*store.SchemaError](err)
	if !ok {
		t.Fatalf("got %v, want a SchemaError", err)
	}
	if *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

func TestSchemaIsCheckedAtFirstUse(t *testing.T) {
	dsn := testenv.Postgres(t)
	pool := newPool(t, dsn)
	s := open(t, dsn, nil)
	missing := store.SchemaError{Code: store.SchemaMissing, Want: postgres.Newest}
	wantSchemaError(t, s.CheckSchema(t.Context()), missing)
	_, err := s.ID(t.Context())
	wantSchemaError(t, err, missing)
	wantSchemaError(t, s.Create(t.Context(), execution()), missing)
	_, err = s.Attempts(t.Context(), execution().ID)
	wantSchemaError(t, err, missing)

	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Errorf("after Migrate: %v", err)
	}

	newer := func(version, floor int) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), `INSERT INTO saga.migrations VALUES ($1, 'later', $2, now())`, version, floor); err != nil {
			t.Fatal(err)
		}
	}
	newer(postgres.Newest+1, postgres.Newest)
	if err := open(t, dsn, nil).Create(t.Context(), execution()); err != nil {
		t.Errorf("a newer schema that supports this library: %v", err)
	}
	newer(postgres.Newest+5, postgres.Newest+3)
	tooNew := store.SchemaError{Code: store.SchemaTooNew, Have: postgres.Newest + 5, Want: postgres.Newest + 3}
	s = open(t, dsn, nil)
	wantSchemaError(t, s.Create(t.Context(), execution()), tooNew)
	wantSchemaError(t, s.Migrate(t.Context()), tooNew)
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		have, floor, want int
		code              store.SchemaCode
	}{
		{0, 0, 3, store.SchemaMissing},
		{2, 1, 3, store.SchemaTooOld},
		{3, 3, 3, ""},
		{4, 3, 3, ""},
		{5, 4, 3, store.SchemaTooNew},
	} {
		var code store.SchemaCode
		if e, ok := errors.AsType[*store.SchemaError](postgres.Fits(c.have, c.floor, c.want)); ok {
			code = e.Code
		}
		if code != c.code {
			t.Errorf("schema %d with floor %d, library %d: got %q, want %q", c.have, c.floor, c.want, code, c.code)
		}
	}
}

func TestOperatorsRunTheSQLThemselves(t *testing.T) {
	dsn := testenv.Postgres(t)
	s := open(t, dsn, &postgres.Config{Schema: "ops"})
	sql := s.MigrationSQL(0)
	if got := s.MigrationSQL(postgres.Newest); got != "" {
		t.Errorf("from the newest version: %q", got)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Errorf("CheckSchema: %v", err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate: %v", err)
	}
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err == nil {
		t.Error("the same SQL ran twice")
	}
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Errorf("after it ran twice: %v", err)
	}
}

// A role that may not create schemas can migrate one that was made for it.
func TestMigrateInASchemaMadeByAnother(t *testing.T) {
	dsn := testenv.Postgres(t)
	admin := newPool(t, dsn)
	role := fmt.Sprintf("plain_%d", time.Now().UnixNano())
	for _, sql := range []string{
		"CREATE ROLE " + role + " LOGIN PASSWORD 'x'",
		"CREATE SCHEMA saga AUTHORIZATION " + role,
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = admin.Exec(ctx, "DROP SCHEMA saga CASCADE")
		if _, err := admin.Exec(ctx, "DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "x")
	s, err := postgres.Open(t.Context(), u.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 2 {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Create(t.Context(), execution()); err != nil {
		t.Error(err)
	}
}

func TestDatabaseMustBeUTF8(t *testing.T) {
	dsn := testenv.Postgres(t)
	admin := newPool(t, dsn)
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE leveret_latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP DATABASE leveret_latin1 WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/leveret_latin1"
	if err := open(t, u.String(), nil).Migrate(t.Context()); err == nil {
		t.Error("a LATIN1 database was migrated")
	}
}

func TestConfigIsChecked(t *testing.T) {
	config, err := pgxpool.ParseConfig("postgres://nowhere.invalid/x")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, cfg := range []postgres.Config{
		{Schema: "Saga"}, {Schema: "a-b"}, {Schema: `x"; DROP`}, {Schema: "pg_saga"}, {Schema: "1a"},
		{LockTimeout: -1}, {StatementTimeout: time.Microsecond},
	} {
		if _, err := postgres.New(pool, &cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	if _, err := postgres.New(nil, nil); err == nil {
		t.Error("a nil pool was taken")
	}
	s, err := postgres.New(pool, &postgres.Config{Schema: "user"}) // a reserved word
	if err != nil {
		t.Fatal(err)
	}
	if s.MigrationSQL(0) == "" {
		t.Error("no SQL without a server")
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}
