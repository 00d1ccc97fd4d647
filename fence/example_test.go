package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/leveret-go/leveret/fence"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "stock")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "stock.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE stock (hares INTEGER); INSERT INTO stock VALUES (10)"); err != nil {
		log.Fatal(err)
	}
	if err := fence.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}

	// change is what the participant does for a call: in one transaction.
	change := func(key, executeKey string, by int) (fence.Verdict, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return "", err
		}
		defer tx.Rollback()
		verdict, err := fence.Pass(ctx, tx, key, executeKey)
		if err != nil {
			return verdict, err
		}
		if verdict == fence.First {
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET hares = hares + ?", by); err != nil {
				return "", err
			}
		}
		return verdict, tx.Commit() // Noop as well: it refuses the effect from now on
	}
	say := func(what, key, executeKey string, by int) {
		verdict, err := change(key, executeKey, by)
		if err != nil && !errors.Is(err, fence.ErrRefused) {
			log.Fatal(err)
		}
		var hares int
		if err := db.QueryRowContext(ctx, "SELECT hares FROM stock").Scan(&hares); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-14s %-6s %2d hares\n", what, verdict, hares)
	}

	say("reserve", "order-1/execute", "order-1/execute", -1)
	say("reserve again", "order-1/execute", "order-1/execute", -1)
	say("release", "order-1/compensate", "order-1/execute", +1)
	say("release again", "order-1/compensate/2", "order-1/execute", +1)
	say("release early", "order-2/compensate", "order-2/execute", +1)
	say("reserve late", "order-2/execute", "order-2/execute", -1)
	// Output:
	// reserve        first   9 hares
	// reserve again  repeat  9 hares
	// release        first  10 hares
	// release again  repeat 10 hares
	// release early  noop   10 hares
	// reserve late   refuse 10 hares
}
