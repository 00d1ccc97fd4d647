package saga_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A Move is the state of a customer's move to another plan.
type Move struct{ Customer string }

func step(name string, err error) saga.Func[Move] {
	return func(context.Context, *saga.Run[Move]) error {
		fmt.Println(name)
		return err
	}
}

// Before its pivot a saga is undone when it fails, after it it only goes forward:
// it waits for a person rather than take back what the customer has been told.
func ExampleStep_pivot() {
	s := newPlayground()
	moves, err := saga.Register(s.engine, saga.Definition[Move]{Name: "move", Steps: []saga.Step[Move]{
		{Name: "reserve", Execute: step("reserve", nil), Compensate: step("release", nil)},
		{Name: "confirm", Execute: step("confirm", nil), Pivot: true},
		{Name: "notify", Execute: step("notify", errors.New("no answer")), Retry: saga.RetryPolicy{Attempts: 1}},
	}})
	check(err)
	defer s.run()()

	ctx := context.Background()
	x, err := moves.Start(ctx, saga.Resource{Type: "customer", ID: "ann"}, Move{}, nil)
	check(err)
	fmt.Println(s.settle(x.ID).Status)

	by := saga.By{Actor: "anna", Reason: "the customer changed her mind"}
	_, err = s.engine.Cancel(ctx, x.ID, by, nil)
	fmt.Println("past the pivot:", errors.Is(err, saga.ErrPastPivot))
	// Output:
	// reserve
	// confirm
	// notify
	// halted
	// past the pivot: true
}

// A Trip books its parts by sagas of their own.
type Trip struct{ Parts []string }

// A Part is one thing to book.
type Part struct {
	What    string
	Booking string
}

const partName saga.Name[Part] = "part"

var trip = saga.Definition[Trip]{Name: "trip", Steps: []saga.Step[Trip]{
	{
		Name: "parts",
		Children: &saga.Children[Trip]{Start: func(_ context.Context, run *saga.Run[Trip]) (list []saga.Child, err error) {
			for _, what := range run.State.Parts {
				list = append(list, partName.Child(what, run.Resource, Part{What: what}))
			}
			return list, nil
		}},
		// runs when all have completed
		Execute: func(_ context.Context, run *saga.Run[Trip]) error {
			for _, what := range run.State.Parts {
				part, err := partName.Result(run, what)
				if err != nil {
					return saga.Fail(err)
				}
				fmt.Println("booked:", part.State.Booking)
			}
			return nil
		},
	},
	{Name: "pay", Execute: func(_ context.Context, run *saga.Run[Trip]) error {
		return saga.Fail(errors.New("the card is declined"))
	}},
}}

var partSteps = []saga.Step[Part]{{
	Name: "book",
	Execute: func(_ context.Context, run *saga.Run[Part]) error {
		run.State.Booking = "B-" + run.State.What
		return nil
	},
	Compensate: func(context.Context, *saga.Run[Part]) error { return nil },
}}

// A step that starts other sagas and waits for them. When the saga turns around
// they are compensated.
func ExampleChildren() {
	s := newPlayground()
	_, err := saga.Register(s.engine, saga.Definition[Part]{Name: partName, Steps: partSteps})
	check(err)
	trips, err := saga.Register(s.engine, trip)
	check(err)
	defer s.run()()

	ctx := context.Background()
	x, err := trips.Start(ctx, saga.Resource{Type: "trip", ID: "7"}, Trip{Parts: []string{"flight", "hotel"}}, nil)
	check(err)
	end, err := s.engine.Wait(ctx, x.ID)
	check(err)
	fmt.Println("trip:", end.Status)

	parts, err := s.engine.Count(ctx, store.Filter{Parents: []uuid.UUID{x.ID}}, []store.Dimension{store.ByStatus}, 0)
	check(err)
	fmt.Println("parts:", parts.Groups)
	// Output:
	// booked: B-flight
	// booked: B-hotel
	// trip: compensated
	// parts: [{[compensated] 2}]
}
