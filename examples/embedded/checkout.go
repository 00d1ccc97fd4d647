package main

import (
	"context"
	"errors"

	"github.com/leveret-go/leveret/saga"
)

// Order is the state of a checkout.
type Order struct {
	Amount int    `json:"amount"`
	Charge string `json:"charge,omitempty"`
}

var checkout = saga.Definition[Order]{
	Name: "checkout",
	Steps: []saga.Step[Order]{
		{Name: "reserve", Execute: reserve, Compensate: release},
		{Name: "charge", Execute: charge, Compensate: refund, ErrorsInDoubt: true},
		{Name: "ship", Execute: ship},
	},
}

// The steps stand for calls of other services. A real one hands run.Key() over
// with the call, so that a repetition can be told.

func reserve(ctx context.Context, run *saga.Run[Order]) error {
	run.Logger().Info("stock reserved", "key", run.Key())
	return nil
}

func release(ctx context.Context, run *saga.Run[Order]) error {
	run.Logger().Info("stock released", "key", run.Key(), "of", run.ExecuteKey())
	return nil
}

func charge(ctx context.Context, run *saga.Run[Order]) error {
	run.State.Charge = "ch_" + run.Resource.ID
	return nil
}

func refund(ctx context.Context, run *saga.Run[Order]) error {
	run.State.Charge = ""
	return nil
}

func ship(ctx context.Context, run *saga.Run[Order]) error {
	if run.Resource.ID == "2" {
		return saga.Fail(errors.New("no courier goes there")) // at once, and undo the rest
	}
	return nil
}
