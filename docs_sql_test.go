package leveret_test

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
)

// The SQL of the deployment page fits the schema, and the rights that it grants
// are enough for an engine.
func TestSQLOfDeployment(t *testing.T) {
	dsn := testenv.Postgres(t)
	owner, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	if err := owner.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	role := strings.ReplaceAll(testenv.Prefix(t), "-", "_")
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
	}
	exec("CREATE ROLE " + role + " LOGIN PASSWORD 'shop'")
	defer exec("DROP OWNED BY " + role + "; DROP ROLE " + role)

	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(read(t, "docs/deployment.md"), -1)
	if len(blocks) < 3 {
		t.Fatal("docs/deployment.md lacks SQL")
	}
	made := 0
	for _, b := range blocks {
		if indexes := indexName.FindAllStringSubmatch(b[1], -1); indexes != nil {
			sameIndexes(t, conn, b[1], indexes)
			made += len(indexes)
			continue
		}
		exec(strings.ReplaceAll(b[1], "TO shop", "TO "+role))
	}
	if made == 0 {
		t.Error("docs/deployment.md makes no index")
	}

	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "shop")
	st, err := postgres.Open(t.Context(), u.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	runWithFailure(t, st)
}

var indexName = regexp.MustCompile(`CREATE INDEX CONCURRENTLY IF NOT EXISTS (\w+)`)

// sameIndexes checks that statements make the indexes that the migration makes.
func sameIndexes(t *testing.T, conn *pgx.Conn, statements string, names [][]string) {
	t.Helper()
	definition := func(name string) (text string) {
		t.Helper()
		err := conn.QueryRow(t.Context(), "SELECT indexdef FROM pg_indexes WHERE schemaname = 'saga' AND indexname = $1", name).Scan(&text)
		if err != nil {
			t.Fatalf("index %s: %v", name, err)
		}
		return text
	}
	want := map[string]string{}
	for _, name := range names {
		want[name[1]] = definition(name[1])
		if _, err := conn.Exec(t.Context(), "DROP INDEX saga."+name[1]); err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range strings.Split(strings.TrimSpace(statements), ";\n") {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
	}
	for name, text := range want {
		if got := definition(name); got != text {
			t.Errorf("the page makes %s\nand the migration %s", got, text)
		}
	}
}

// runWithFailure runs a saga that retries a step and is compensated.
func runWithFailure(t *testing.T, st store.Store) {
	t.Helper()
	type state struct{ N int }
	done := func(context.Context, *saga.Run[state]) error { return nil }
	engine, err := saga.New(saga.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	demo, err := saga.Register(engine, saga.Definition[state]{Name: "demo", Steps: []saga.Step[state]{
		{Name: "book", Execute: done, Compensate: done},
		{Name: "fly", Retry: saga.RetryPolicy{Attempts: 2, Initial: time.Millisecond}, Execute: func(context.Context, *saga.Run[state]) error {
			return errors.New("fog")
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- engine.Run(ctx) }()
	x, err := demo.Start(ctx, saga.Resource{Type: "trip", ID: "1"}, state{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	end, err := engine.Wait(ctx, x.ID)
	if err != nil {
		t.Fatal(err)
	}
	if end.Status != store.StatusCompensated {
		t.Errorf("status %s, want compensated", end.Status)
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
