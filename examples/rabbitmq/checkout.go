package main

import (
	"context"
	"errors"

	"github.com/leveret-go/leveret/saga"
)

// checkoutName is all that a starter knows of the saga, besides its state.
const checkoutName = saga.Name[Order]("checkout")

// Order is the state of a checkout.
type Order struct {
	Amount int    `json:"amount"`
	Charge string `json:"charge,omitempty"`
}

// The steps stand for calls of other services. A real one hands run.Key() over
// with the call, so that a repetition can be told.
var checkout = saga.Definition[Order]{
	Name: checkoutName,
	Steps: []saga.Step[Order]{
		{
			Name: "charge",
			Execute: func(ctx context.Context, run *saga.Run[Order]) error {
				run.State.Charge = "ch_" + run.Resource.ID
				return nil
			},
			Compensate: func(ctx context.Context, run *saga.Run[Order]) error {
				run.State.Charge = ""
				return nil
			},
		},
		{
			Name: "ship",
			Execute: func(ctx context.Context, run *saga.Run[Order]) error {
				if run.Resource.ID == "2" {
					return saga.Fail(errors.New("no courier goes there"))
				}
				return nil
			},
		},
	},
}
