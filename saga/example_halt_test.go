package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A Parcel is the state of a parcel on its way.
type Parcel struct {
	Address string `json:"address"`
	Label   string `json:"label,omitempty"`
}

var parcel = saga.Definition[Parcel]{
	Name: "parcel",
	Steps: []saga.Step[Parcel]{
		{Name: "label", Execute: printLabel},
		{Name: "pickup", Execute: orderPickup},
	},
	Classify: classify,
}

// classify says what the errors of the courier mean, for all steps.
func classify(err error) error {
	switch {
	case errors.Is(err, errNoSuchPlace): // trying again does not help, and giving up would be too much
		return saga.NoEffect(saga.Halt("the courier does not know the address"))
	case errors.Is(err, errForbidden):
		return saga.Fail(err)
	}
	return err // tried again
}

func printLabel(_ context.Context, run *saga.Run[Parcel]) (err error) {
	run.State.Label, err = courier.Label(run.State.Address)
	return err
}

func orderPickup(_ context.Context, run *saga.Run[Parcel]) error {
	fmt.Println("pick up", run.State.Label)
	return nil
}

// A fakeCourier delivers to one place only.
type fakeCourier struct{}

var (
	courier        fakeCourier
	errNoSuchPlace = errors.New("no such place")
	errForbidden   = errors.New("forbidden goods")
)

func (fakeCourier) Label(address string) (string, error) {
	if address != "1 Main Street" {
		return "", errNoSuchPlace
	}
	return "label for " + address, nil
}

// A person corrects the state of a halted execution, and lets it go on.
func ExampleEngine_EditState() {
	s := newPlayground()
	parcels, err := saga.Register(s.engine, parcel)
	check(err)
	defer s.run()()
	x, err := parcels.Start(context.Background(), saga.Resource{Type: "parcel", ID: "9"}, Parcel{Address: "1 Mian Street"}, nil)
	check(err)
	s.settle(x.ID)

	engine, ctx := s.engine, context.Background()
	halted, err := engine.List(ctx, store.Filter{Attention: []store.Attention{store.AttentionHalted}}, store.Page{})
	check(err)
	for _, x := range halted.Executions {
		fmt.Println(x.Resource.Type, x.Resource.ID, "halted at", x.Step+":", x.Reason)

		state, err := parcels.State(x)
		check(err)
		state.Address = "1 Main Street"
		edited, err := json.Marshal(state)
		check(err)
		by := saga.By{Actor: "anna", Reason: "a typing error, I called the customer"}
		_, err = engine.EditState(ctx, x.ID, edited, by, &saga.ActOptions{IfRevision: x.Revision})
		check(err)
		_, err = engine.Resume(ctx, x.ID, by, nil)
		check(err)
	}

	fmt.Println(s.settle(x.ID).Status)
	trail, err := engine.Audit(ctx, x.ID)
	check(err)
	for _, a := range trail {
		fmt.Println(a.Act, "by", a.Actor, string(a.Detail))
	}
	// Output:
	// parcel 9 halted at label: the courier does not know the address
	// pick up label for 1 Main Street
	// completed
	// edit_state by anna {"diff":[{"path":"/address","from":"1 Mian Street","to":"1 Main Street"}]}
	// resume by anna
}
