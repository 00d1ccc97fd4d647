package saga_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/memory"
)

// A Letter is the state of a delivery.
type Letter struct {
	To    string `json:"to"`
	Price int    `json:"price,omitempty"`
}

// toLog is an EventPublisher: it tells a log of what happens, in the place of a
// message broker of its own.
type toLog struct{}

func (toLog) PublishEvents(_ context.Context, events []saga.StatusEvent) error {
	for _, e := range events {
		fmt.Printf("%s %s: %s\n", e.Saga, e.Resource.ID, e.Status)
	}
	return nil
}

// Other services hear of every change of an execution's status.
func ExampleEventPublisher() {
	st := memory.New()
	engine, err := saga.New(saga.Config{Store: st, Events: toLog{}})
	check(err)
	letters, err := saga.Register(engine, saga.Definition[Letter]{Name: "letter", Events: true, Steps: []saga.Step[Letter]{
		{Name: "send", Execute: func(context.Context, *saga.Run[Letter]) error { return saga.Halt("no such town") }},
	}})
	check(err)
	x, err := letters.Start(context.Background(), saga.Resource{Type: "letter", ID: "17"}, Letter{To: "Atlantis"}, nil)
	check(err)

	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- engine.Run(ctx) }()
	for x.Status = ""; x.Status != "halted"; {
		x.Execution, err = engine.Get(ctx, x.ID)
		check(err)
	}
	_, err = engine.Cancel(ctx, x.ID, saga.By{Actor: "ann", Reason: "sunk"}, nil)
	check(err)
	for untold := &x.CreatedAt; untold != nil; { // what is untold is told later, by any process
		untold, err = st.OldestEvent(ctx)
		check(err)
	}
	stop()
	check(<-ran)
	// Output:
	// letter 17: running
	// letter 17: halted
	// letter 17: cancelled
}

// A command is what a service in another language sends as a message.
func ExampleEngine_Command() {
	engine, err := saga.New(saga.Config{Store: memory.New()})
	check(err)
	_, err = saga.Register(engine, saga.Definition[Letter]{Name: "letter", Steps: []saga.Step[Letter]{
		{Name: "send", Execute: func(context.Context, *saga.Run[Letter]) error { return nil }},
	}})
	check(err)

	for _, body := range []string{
		`{"command": "start", "saga": "letter", "resource": {"type": "letter", "id": "17"}, "state": {"to": "Oslo"}}`,
		`{"command": "start", "saga": "letter", "resource": {"type": "letter", "id": "17"}, "state": {"to": "Oslo"}}`,
		`{"command": "start", "saga": "letter", "state": {"too": "Oslo"}}`,
		`{"command": "cancel", "saga": "letter", "key": "18", "actor": "shop", "reason": "not wanted"}`,
	} {
		a, err := engine.Command(context.Background(), saga.CommandMessage{ID: "4f0c", Body: []byte(body)})
		check(err)
		fmt.Println(a.Command, a.Status, a.Code, a.Repeated)
	}
	// Output:
	// start done  false
	// start done  true
	// start refused invalid false
	// cancel refused unknown_execution false
}

// The JSON Schema of a state is made of its type.
func ExampleOutline_schema() {
	outline := saga.Definition[Letter]{Name: "letter"}.Outline()
	var schema struct{ Properties map[string]json.RawMessage }
	check(json.Unmarshal(outline.Schema, &schema))
	fmt.Println(string(schema.Properties["to"]), string(schema.Properties["price"]))
	// Output: {"type":"string"} {"type":"integer"}
}
