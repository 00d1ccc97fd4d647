// Command rabbitmq is a service of several processes: sagas in PostgreSQL, their
// pointers over RabbitMQ. Start the services with the compose.yaml of this
// repository, then:
//
//	go run ./examples/rabbitmq migrate
//	go run ./examples/rabbitmq work &
//	go run ./examples/rabbitmq start
//
// Any number of workers and starters may run at once, and be killed at will.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/postgres"
)

const workers = 10

func main() {
	dsn := flag.String("postgres", "postgres://leveret:leveret@localhost:5432/leveret", "`DSN` of the database")
	url := flag.String("amqp", "amqp://leveret:leveret@localhost:5672/", "`URL` of the broker")
	prefix := flag.String("prefix", "shop", "`prefix` of exchanges and queues, one for each database")
	orders := flag.Int("orders", 3, "`number` of orders to check out")
	flag.Parse()
	// SIGTERM is what an orchestrator sends before it kills.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var err error
	switch flag.Arg(0) {
	case "migrate":
		err = migrate(ctx, *dsn)
	case "work":
		err = work(ctx, *dsn, *url, *prefix)
	case "start":
		err = start(ctx, *dsn, *url, *prefix, *orders)
	default:
		err = errors.New("usage: rabbitmq [flags] migrate | work | start")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// migrate is a step of its own, before the new build is rolled out.
func migrate(ctx context.Context, dsn string) error {
	st, err := postgres.Open(ctx, dsn, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	return st.Migrate(ctx)
}

// work runs steps until it is told to end.
func work(ctx context.Context, dsn, url, prefix string) error {
	pool, err := openPool(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	st, err := postgres.New(pool, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	broker, err := amqp.Open(ctx, amqp.Config{URLs: []string{url}, Prefix: prefix, Name: "shop-worker"})
	if err != nil {
		return err
	}
	defer closeBroker(broker)

	engine, err := saga.New(saga.Config{Store: st, Publisher: broker})
	if err != nil {
		return err
	}
	if _, err := saga.Register(engine, checkout); err != nil {
		return err
	}
	consumer, err := amqp.NewConsumer(broker, engine, amqp.ConsumerConfig{
		Workers: map[string]int{"default": workers}, // by partition
	})
	if err != nil {
		return err
	}
	return engine.Run(ctx, consumer) // drains when ctx ends
}

// start needs neither the steps nor a running engine.
func start(ctx context.Context, dsn, url, prefix string, orders int) error {
	st, err := postgres.Open(ctx, dsn, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	broker, err := amqp.Open(ctx, amqp.Config{URLs: []string{url}, Prefix: prefix, Name: "shop-web"})
	if err != nil {
		return err
	}
	defer closeBroker(broker)

	engine, err := saga.New(saga.Config{Store: st, Publisher: broker})
	if err != nil {
		return err
	}
	checkout, err := saga.Declare(engine, checkoutName, nil)
	if err != nil {
		return err
	}

	var ids []uuid.UUID
	for n := range orders {
		x, err := checkout.Start(ctx, saga.Resource{Type: "order", ID: fmt.Sprint(n + 1)}, Order{Amount: 100 * (n + 1)}, nil)
		if err != nil {
			return err
		}
		ids = append(ids, x.ID)
	}
	for _, id := range ids { // for show: a web server answers, and looks later
		x, err := engine.Wait(ctx, id)
		if err != nil {
			return err
		}
		fmt.Printf("order %s: %s\n", x.Resource.ID, x.Status)
	}
	return nil
}

// openPool opens as many connections as there are workers, so that none waits.
func openPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = workers
	return pgxpool.NewWithConfig(ctx, cfg)
}

func closeBroker(b *amqp.Broker) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		log.Print(err) // pointers that were under way: their executions come due again
	}
}
