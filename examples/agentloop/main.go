// Command agentloop is a conversation that may take days: a model that is called
// in a loop, and a user who answers when he likes. It hears an unknown number of
// messages, keeps every answer of the model as soon as it has it, and holds
// nothing while it waits.
//
//	go run ./examples/agentloop
//
// Each message meets an engine of its own, as after a restart. In the second
// turn a call of the model fails: the next attempt does not repeat those before.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	st := memory.New() // in production: a database
	a := &agent{lines: make(chan string)}
	id := saga.IDFor(planTrip(a).Name, "ann/1")

	for n, message := range []string{"A weekend in Lisbon, please.", "400", "Yes!"} {
		err := process(ctx, st, a, func(engine *saga.Engine, trips *saga.Saga[Trip]) error {
			fmt.Println("user: ", message)
			err := hear(ctx, engine, trips, id, message, fmt.Sprint(n))
			if err == nil {
				fmt.Println("agent:", <-a.lines)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	x, err := st.Get(ctx, id)
	if err == nil {
		fmt.Println(x.Status)
	}
	return err
}

// hear hands a message over; the first one starts the conversation.
func hear(ctx context.Context, engine *saga.Engine, trips *saga.Saga[Trip], id uuid.UUID, message, key string) error {
	first := saga.StartSignal{Name: Said.SignalName(), Key: key, Payload: message}
	_, err := trips.Start(ctx, saga.Resource{Type: "user", ID: "ann"}, Trip{}, &saga.StartOptions{ID: id, Signals: []saga.StartSignal{first}})
	if errors.Is(err, store.ErrExists) {
		_, err = Said.Send(ctx, engine, id, message, &saga.SignalOptions{Key: key})
	}
	return err
}

// process is the life of one process: it works until f is done, and drains.
func process(ctx context.Context, st store.Store, a *agent, f func(*saga.Engine, *saga.Saga[Trip]) error) error {
	engine, err := saga.New(saga.Config{Store: st, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	trips, err := saga.Register(engine, planTrip(a))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- engine.Run(ctx) }()
	err = f(engine, trips)
	stop()
	return errors.Join(err, <-ran)
}
