// Command embedded is a whole service in one process: sagas in a SQLite file, no
// broker. It starts a few checkouts, waits for them, and prints how they ended.
//
//	go run ./examples/embedded -db shop.db
//
// Run it again with the same file: the orders keep their executions, so nothing
// is done twice. Kill it half way: the next run goes on where it stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/sqlite"
)

func main() {
	db := flag.String("db", filepath.Join(os.TempDir(), "leveret-embedded.db"), "SQLite `file` of the sagas")
	orders := flag.Int("orders", 3, "`number` of orders to check out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *db, *orders); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, db string, orders int) error {
	st, err := sqlite.Open(ctx, db, nil) // creates and migrates the file
	if err != nil {
		return err
	}
	defer st.Close()

	// Exclusive: a second copy of this program is refused, and what a killed one
	// left open is taken over at once.
	engine, err := saga.New(saga.Config{Store: st, Exclusive: true})
	if err != nil {
		return err
	}
	checkout, err := saga.Register(engine, checkout)
	if err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- engine.Run(ctx) }()

	err = checkOut(ctx, engine, checkout, orders)
	stop()
	return errors.Join(err, <-ran) // before the store is closed
}

// checkOut starts a saga for each order, and waits for all of them.
func checkOut(ctx context.Context, engine *saga.Engine, checkout *saga.Saga[Order], orders int) error {
	var ids []uuid.UUID
	for n := range orders {
		// An id made from the order's number: to start it again is refused.
		order := fmt.Sprintf("%d", n+1)
		id := uuid.NewSHA1(uuid.NameSpaceOID, []byte("checkout/"+order))
		_, err := checkout.Start(ctx, saga.Resource{Type: "order", ID: order}, Order{Amount: 100 * (n + 1)}, &saga.StartOptions{ID: id})
		if err != nil && !errors.Is(err, store.ErrExists) {
			return err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		x, err := engine.Wait(ctx, id)
		if err != nil {
			return err
		}
		o, err := checkout.State(x)
		if err != nil {
			return err
		}
		fmt.Printf("order %s: %s, charge %q\n", x.Resource.ID, x.Status, o.Charge)
	}
	return nil
}
