package saga_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// Order is the state of a checkout: it is kept as JSON, and every step sees
// what the steps before it have written.
type Order struct {
	Amount int
	Charge string `json:",omitempty"`
}

var checkout = saga.Definition[Order]{Name: "checkout", Steps: []saga.Step[Order]{
	{Name: "reserve", Execute: reserve, Compensate: release},
	// A bank's error does not say that nothing was charged.
	{Name: "charge", Execute: charge, Compensate: refund, ErrorsInDoubt: true},
	{Name: "ship", Execute: ship},
}}

func charge(ctx context.Context, run *saga.Run[Order]) (err error) {
	run.State.Charge, err = bank.Charge(ctx, run.Key(), run.State.Amount)
	return err
}

func refund(ctx context.Context, run *saga.Run[Order]) error {
	return bank.Refund(ctx, run.Key(), run.ExecuteKey())
}

func Example() {
	engine, err := saga.New(saga.Config{Store: memory.New()})
	check(err)
	orders, err := saga.Register(engine, checkout)
	check(err)

	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- engine.Run(ctx) }() // works until ctx ends

	x, err := orders.Start(ctx, saga.Resource{Type: "order", ID: "4711"}, Order{Amount: 4200}, nil)
	check(err)
	end, err := engine.Wait(ctx, x.ID)
	check(err)
	fmt.Println(end.Status, "because:", end.Failure.Message)

	stop() // running steps settle, then Run returns
	check(<-ran)
	// Output:
	// reserve stock for order 4711
	// charge 4200
	// refund 4200
	// release stock
	// compensated because: no courier goes there
}

func reserve(ctx context.Context, run *saga.Run[Order]) error {
	fmt.Println("reserve stock for order", run.Resource.ID)
	return nil
}

func release(ctx context.Context, run *saga.Run[Order]) error {
	fmt.Println("release stock")
	return nil
}

func ship(ctx context.Context, run *saga.Run[Order]) error {
	return saga.Fail(errors.New("no courier goes there"))
}

// check ends an example that cannot go on.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A gateway is a participant: a service that a step calls. It knows every key it
// has seen, and answers a repetition without doing the work again.
type gateway struct {
	charges map[string]int // by the key of the charge
	refunds map[string]bool
}

var bank = newGateway()

func newGateway() *gateway {
	return &gateway{charges: map[string]int{}, refunds: map[string]bool{}}
}

func (g *gateway) Charge(_ context.Context, key string, amount int) (string, error) {
	if _, again := g.charges[key]; !again {
		g.charges[key] = amount
		fmt.Println("charge", amount)
	}
	return fmt.Sprintf("ch_%d", len(g.charges)), nil
}

// Refund gives back the charge that was made under a key, if there was one.
func (g *gateway) Refund(_ context.Context, key, charged string) error {
	amount, found := g.charges[charged]
	switch {
	case g.refunds[key]:
	case !found:
		fmt.Println("nothing to refund")
	default:
		fmt.Println("refund", amount)
	}
	g.refunds[key] = true
	return nil
}

// engineWith returns an engine on a memory store that knows one saga of these
// steps, named "demo".
func engineWith(steps ...saga.Step[Order]) (*saga.Engine, *saga.Saga[Order]) {
	return engineOn(saga.Config{Store: memory.New()}, steps...)
}

func engineOn(cfg saga.Config, steps ...saga.Step[Order]) (*saga.Engine, *saga.Saga[Order]) {
	cfg.Logger = slog.New(slog.DiscardHandler)
	engine, err := saga.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	demo, err := saga.Register(engine, saga.Definition[Order]{Name: "demo", Steps: steps})
	if err != nil {
		log.Fatal(err)
	}
	return engine, demo
}

func start(s *saga.Saga[Order]) uuid.UUID {
	x, err := s.Start(context.Background(), saga.Resource{Type: "order", ID: "1"}, Order{Amount: 10}, nil)
	if err != nil {
		log.Fatal(err)
	}
	return x.ID
}

// runToEnd runs an engine until an execution has ended, and prints its status.
func runToEnd(e *saga.Engine, id uuid.UUID) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	ran := make(chan error)
	go func() { ran <- e.Run(ctx) }()
	x, err := e.Wait(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	stop()
	if err := <-ran; err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Status)
}

func done(context.Context, *saga.Run[Order]) error { return nil }

// soon is a policy for examples: it waits for a millisecond, not for seconds.
var soon = saga.RetryPolicy{Attempts: 3, Initial: time.Millisecond, Max: time.Millisecond}

// A saga whose steps all succeed. An engine without a Publisher needs no
// transport: Run takes what is due from the store.
func Example_completed() {
	engine, demo := engineWith(
		saga.Step[Order]{Name: "price", Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			run.State.Amount *= 2
			return nil
		}},
		saga.Step[Order]{Name: "bill", Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			fmt.Println("bill", run.State.Amount)
			return nil
		}},
	)
	runToEnd(engine, start(demo))
	// Output:
	// bill 20
	// completed
}

// When a step is given up, what was done is undone, the last step first. A step
// that has nothing to undo is passed over.
func Example_compensation() {
	say := func(what string) saga.Func[Order] {
		return func(context.Context, *saga.Run[Order]) error { fmt.Println(what); return nil }
	}
	engine, demo := engineWith(
		saga.Step[Order]{Name: "hotel", Execute: say("book hotel"), Compensate: say("cancel hotel")},
		saga.Step[Order]{Name: "mail", Execute: say("send mail")},
		saga.Step[Order]{Name: "flight", Execute: say("book flight"), Compensate: say("cancel flight")},
		saga.Step[Order]{Name: "car", Retry: soon, Compensate: say("cancel car"),
			Execute: func(ctx context.Context, run *saga.Run[Order]) error {
				fmt.Println("book car, attempt", run.Attempt)
				return errors.New("no car left") // an ordinary error: no effect is left
			}},
	)
	runToEnd(engine, start(demo))
	// Output:
	// book hotel
	// send mail
	// book flight
	// book car, attempt 1
	// book car, attempt 2
	// book car, attempt 3
	// cancel flight
	// cancel hotel
	// compensated
}

// The key is the same for every attempt: the gateway tells the repetition, and
// charges once.
func ExampleCall_Key() {
	pay := newGateway()
	lost := true
	engine, demo := engineWith(saga.Step[Order]{
		Name: "charge", Retry: soon,
		Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			fmt.Println("attempt", run.Attempt)
			if _, err := pay.Charge(ctx, run.Key(), run.State.Amount); err != nil {
				return err
			}
			if lost { // the answer, the first time
				lost = false
				return saga.Unknown(errors.New("connection reset"))
			}
			return nil
		},
	})
	runToEnd(engine, start(demo))
	// Output:
	// attempt 1
	// charge 10
	// attempt 2
	// completed
}

// A compensation finds what was done by the key it was done under, not by the
// state: what a lost attempt wrote there is gone.
func ExampleCall_ExecuteKey() {
	call := saga.Call{
		Execution: uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057"),
		Step:      "charge", Direction: store.DirectionCompensate,
	}
	fmt.Println(call.Key())
	fmt.Println(call.ExecuteKey())
	fmt.Println(call.Key("deposit"), "names one of several effects")
	// Output:
	// 01890a5d-ac96-774b-bcce-b302099a8057/charge/compensate
	// 01890a5d-ac96-774b-bcce-b302099a8057/charge/execute
	// 01890a5d-ac96-774b-bcce-b302099a8057/charge/compensate:deposit names one of several effects
}

// Skip: there was nothing to do, so there is nothing to undo.
func ExampleSkip() {
	engine, demo := engineWith(
		saga.Step[Order]{Name: "discount",
			Execute: func(ctx context.Context, run *saga.Run[Order]) error {
				return saga.Skip("no voucher")
			},
			Compensate: func(context.Context, *saga.Run[Order]) error { panic("never called") },
		},
		saga.Step[Order]{Name: "ship", Execute: ship},
	)
	runToEnd(engine, start(demo))
	// Output: failed
}

// Complete: the saga is done early; the steps after this one are not run.
func ExampleComplete() {
	engine, demo := engineWith(
		saga.Step[Order]{Name: "check", Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			return saga.Complete("already paid")
		}},
		saga.Step[Order]{Name: "charge", Execute: charge},
	)
	runToEnd(engine, start(demo))
	// Output: completed
}

// RetryAfter: the other side said how long to wait.
func ExampleRetryAfter() {
	engine, demo := engineWith(saga.Step[Order]{
		Name: "call", Retry: saga.RetryPolicy{Attempts: 2, Initial: time.Hour},
		Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			fmt.Println("attempt", run.Attempt)
			if run.Attempt == 1 {
				return saga.RetryAfter(time.Millisecond, errors.New("429 too many requests"))
			}
			return nil
		},
	})
	runToEnd(engine, start(demo))
	// Output:
	// attempt 1
	// attempt 2
	// completed
}

// Snooze: not yet. It costs no attempt of the policy, and keeps the state.
func ExampleSnooze() {
	engine, demo := engineWith(saga.Step[Order]{
		Name: "settlement", Retry: saga.RetryPolicy{Attempts: 1},
		Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			run.State.Amount--
			if run.State.Amount > 7 {
				return saga.Snooze(time.Millisecond)
			}
			fmt.Println("settled after", run.Attempt, "looks")
			return nil
		},
	})
	runToEnd(engine, start(demo))
	// Output:
	// settled after 3 looks
	// completed
}

// Halt: a person has to look. The execution waits, for as long as it takes,
// until somebody resumes it; the same step then runs again.
func ExampleHalt() {
	halted := make(chan saga.Event, 1)
	checked := false
	engine, demo := engineOn(saga.Config{
		Store: memory.New(),
		Observe: func(_ context.Context, e saga.Event) {
			if e.Kind == saga.EventHalted {
				halted <- e
			}
		},
	}, saga.Step[Order]{Name: "charge", Execute: func(ctx context.Context, run *saga.Run[Order]) error {
		if !checked {
			return saga.Halt("looks like fraud")
		}
		fmt.Println("charge", run.State.Amount)
		return nil
	}})
	id := start(demo)
	go func() {
		fmt.Println("halted:", (<-halted).Reason)
		checked = true
		by := saga.By{Actor: "anna", Reason: "called the customer"}
		if _, err := engine.Resume(context.Background(), id, by, nil); err != nil {
			log.Fatal(err)
		}
	}()
	runToEnd(engine, id)

	trail, err := engine.Audit(context.Background(), id)
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range trail {
		fmt.Printf("%s by %s: %s\n", a.Act, a.Actor, a.Reason)
	}
	// Output:
	// halted: looks like fraud
	// charge 10
	// completed
	// resume by anna: called the customer
}

// Unknown: the effect may have happened. The step is in doubt, and if it is
// given up, its compensation runs, too.
func ExampleUnknown() {
	pay := newGateway()
	engine, demo := engineWith(saga.Step[Order]{
		Name: "charge", Retry: saga.RetryPolicy{Attempts: 1},
		Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			if _, err := pay.Charge(ctx, run.Key(), run.State.Amount); err != nil {
				return err
			}
			return saga.Unknown(errors.New("no answer")) // it was charged, but we cannot know
		},
		Compensate: func(ctx context.Context, run *saga.Run[Order]) error {
			fmt.Println("in doubt:", run.InDoubt)
			return pay.Refund(ctx, run.Key(), run.ExecuteKey())
		},
	})
	runToEnd(engine, start(demo))
	// Output:
	// charge 10
	// in doubt: true
	// refund 10
	// compensated
}

// NoEffect takes a step out of doubt: somebody has looked, and there is nothing.
func ExampleNoEffect() {
	engine, demo := engineWith(saga.Step[Order]{
		Name: "charge", Retry: soon,
		Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			if !run.InDoubt {
				return saga.Unknown(errors.New("no answer"))
			}
			fmt.Println("asked the gateway: it has no such charge")
			return saga.Fail(saga.NoEffect(errors.New("card refused")))
		},
		Compensate: func(context.Context, *saga.Run[Order]) error { panic("never called") },
	})
	runToEnd(engine, start(demo))
	// Output:
	// asked the gateway: it has no such charge
	// failed
}

// Events are told after the commit that made them true.
func ExampleConfig_observe() {
	engine, demo := engineOn(saga.Config{
		Store: memory.New(),
		Observe: func(_ context.Context, e saga.Event) {
			fmt.Println(e.Kind, e.Step)
		},
	},
		saga.Step[Order]{Name: "reserve", Execute: done, Compensate: done},
		saga.Step[Order]{Name: "ship", Execute: ship},
	)
	runToEnd(engine, start(demo))
	// Output:
	// saga.started reserve
	// saga.step.started reserve
	// saga.step.finished reserve
	// saga.step.started ship
	// saga.step.failed ship
	// saga.compensation_started ship
	// saga.step.started reserve
	// saga.step.finished reserve
	// saga.compensated reserve
	// compensated
}

// A process that only starts sagas needs no definition, no broker connection of
// a consumer, and no Run. The first worker that looks at the execution gives it
// its plan.
func ExampleDeclare() {
	shared := memory.New() // in production: a database that both can reach

	web, err := saga.New(saga.Config{Store: shared})
	if err != nil {
		log.Fatal(err)
	}
	demo, err := saga.Declare(web, saga.Name[Order]("demo"), nil)
	if err != nil {
		log.Fatal(err)
	}
	id := start(demo)

	worker, _ := engineOn(saga.Config{Store: shared}, saga.Step[Order]{
		Name: "bill",
		Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			fmt.Println("bill", run.State.Amount)
			return nil
		},
	})
	runToEnd(worker, id)
	// Output:
	// bill 10
	// completed
}

// A step may be renamed while executions are under way. They keep the plan, the
// names, and so the idempotency keys, with which they were started.
func ExampleStep_was() {
	shared := memory.New()
	_, before := engineOn(saga.Config{Store: shared}, saga.Step[Order]{Name: "bill", Execute: done})
	old := start(before)

	engine, after := engineOn(saga.Config{Store: shared}, saga.Step[Order]{
		Name: "charge", Was: []string{"bill"},
		Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			fmt.Println("run as", run.Step)
			return nil
		},
	})
	runToEnd(engine, old)
	runToEnd(engine, start(after))
	// Output:
	// run as bill
	// completed
	// run as charge
	// completed
}

// A failed saga had nothing to undo, and stands on the step that failed: Retry
// goes on exactly there.
func ExampleEngine_Retry() {
	up := false
	engine, demo := engineWith(saga.Step[Order]{
		Name: "bill",
		Execute: func(ctx context.Context, run *saga.Run[Order]) error {
			if !up {
				return saga.Fail(errors.New("billing is down"))
			}
			return nil
		},
	})
	id := start(demo)
	runToEnd(engine, id)

	up = true
	by := saga.By{Actor: "anna", Reason: "billing is up again"}
	if _, err := engine.Retry(context.Background(), id, by, nil); err != nil {
		log.Fatal(err)
	}
	runToEnd(engine, id)
	// Output:
	// failed
	// completed
}
