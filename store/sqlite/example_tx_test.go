package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/sqlite"
)

// A Booking is the state of a saga that keeps its books in the same file.
type Booking struct{ Seat string }

// shop opens a store with a table of the shop's own, and an engine on it.
func shop(steps ...saga.Step[Booking]) (*sqlite.Store, *saga.Engine, *saga.Saga[Booking], func()) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "leveret-")
	check(err)
	st, err := sqlite.Open(ctx, filepath.Join(dir, "shop.db"), nil)
	check(err)
	_, err = st.DB().ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY); CREATE TABLE seats (seat TEXT, key TEXT)")
	check(err)
	engine, err := saga.New(saga.Config{Store: st, Logger: slog.New(slog.DiscardHandler)})
	check(err)
	bookings, err := saga.Register(engine, saga.Definition[Booking]{Name: "booking", Steps: steps})
	check(err)
	return st, engine, bookings, func() {
		check(st.Close())
		check(os.RemoveAll(dir))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// The order and its saga are there together, or neither is.
func ExampleTx() {
	st, engine, bookings, end := shop(saga.Step[Booking]{Name: "book", Execute: func(context.Context, *saga.Run[Booking]) error { return nil }})
	defer end()
	ctx, db := context.Background(), st.DB()

	order := func(id string, spoiled bool) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", id); err != nil {
			return err
		}
		unit := engine.InTx(sqlite.Tx(tx))
		opts := &saga.StartOptions{ID: saga.IDFor(bookings.Name(), id)}
		if _, err := bookings.StartTx(ctx, unit, saga.Resource{Type: "order", ID: id}, Booking{}, opts); err != nil {
			return err
		}
		if spoiled {
			return errors.New("changed my mind")
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		return unit.Publish(ctx) // tells workers at once; without it the sweep finds it
	}
	for id, spoiled := range map[string]bool{"1": false, "2": true} {
		_ = order(id, spoiled)
	}
	for _, id := range []string{"1", "2"} {
		_, err := engine.Get(ctx, saga.IDFor(bookings.Name(), id))
		fmt.Println("order", id, "started:", !errors.Is(err, store.ErrNotFound))
	}
	// Output:
	// order 1 started: true
	// order 2 started: false
}

// What a step writes into the store's own database is there exactly once.
func ExampleInTx() {
	tries := 0
	book := sqlite.InTx(func(ctx context.Context, run *saga.Run[Booking], tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO seats VALUES (?, ?)", run.State.Seat, run.Key()); err != nil {
			return err
		}
		if tries++; tries == 1 {
			return saga.RetryAfter(0, errors.New("the printer is out of paper")) // what was written is rolled back
		}
		return nil
	})
	st, engine, bookings, done := shop(saga.Step[Booking]{Name: "book", ExecuteTx: book})
	defer done()

	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- engine.Run(ctx) }()
	x, err := bookings.Start(ctx, saga.Resource{Type: "order", ID: "1"}, Booking{Seat: "12A"}, nil)
	check(err)
	end, err := engine.Wait(ctx, x.ID)
	check(err)
	stop()
	check(<-ran)

	var rows int
	check(st.DB().QueryRow("SELECT count(*) FROM seats").Scan(&rows))
	fmt.Println(end.Status, "after", tries, "tries, rows:", rows)
	// Output:
	// completed after 2 tries, rows: 1
}
