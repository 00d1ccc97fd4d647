package amqp_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/memory"
)

// A service that takes commands of services in other languages, too.
func ExampleConsumerConfig_commands() {
	ctx := context.Background()
	broker, err := amqp.Open(ctx, amqp.Config{URLs: []string{"amqp://leveret:secret@rabbit/"}})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := saga.New(saga.Config{Store: memory.New(), Publisher: broker})
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := amqp.NewConsumer(broker, engine, amqp.ConsumerConfig{
		Workers:  map[string]int{"default": 10},
		Commands: 2,
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Print(engine.Run(ctx, consumer))
}

// A service that starts sagas and works on them.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	broker, err := amqp.Open(ctx, amqp.Config{
		URLs: []string{"amqp://leveret:secret@rabbit-1/", "amqp://leveret:secret@rabbit-2/"},
		Name: "shop",
	})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := saga.New(saga.Config{Store: memory.New(), Publisher: broker})
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := amqp.NewConsumer(broker, engine, amqp.ConsumerConfig{
		Workers: map[string]int{"default": 10, "reports": 2},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := engine.Run(ctx, consumer); err != nil { // until interrupted
		log.Print(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := broker.Close(ctx); err != nil {
		log.Print(err)
	}
}
