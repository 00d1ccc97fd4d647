package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/leveret-go/leveret/fence"
	"github.com/leveret-go/leveret/saga"
)

// Order is the state of a checkout.
type Order struct {
	Amount int    `json:"amount"`
	Charge string `json:"charge,omitempty"`
}

// client is the saga's side of the call.
type client struct {
	url  string
	http *http.Client
}

func (c *client) checkout() saga.Definition[Order] {
	return saga.Definition[Order]{
		Name: "checkout",
		Steps: []saga.Step[Order]{
			{
				Name: "charge", Execute: c.charge, Compensate: c.refund,
				Retry: saga.RetryPolicy{Attempts: 2, Initial: 10 * time.Millisecond},
			},
			{Name: "ship", Execute: ship},
		},
	}
}

func (c *client) charge(ctx context.Context, run *saga.Run[Order]) error {
	status, answer, err := c.post(ctx, run, "charge")
	switch {
	case err != nil:
		return saga.Unknown(err) // nobody knows whether the request got there
	case status == http.StatusOK:
		run.State.Charge = answer
		return nil
	case status == http.StatusConflict:
		return saga.Fail(saga.NoEffect(errors.New(answer))) // nor will there be one: it is undone
	case status == http.StatusPaymentRequired:
		return saga.Fail(errors.New(answer)) // an earlier attempt's request may still be on its way
	default:
		return saga.Unknown(fmt.Errorf("charge: status %d", status))
	}
}

// refund need not know whether there was a charge: the participant does.
func (c *client) refund(ctx context.Context, run *saga.Run[Order]) error {
	status, _, err := c.post(ctx, run, "refund")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("refund: status %d", status)
	}
	return err
}

func (c *client) post(ctx context.Context, run *saga.Run[Order], what string) (status int, answer string, err error) {
	body, err := json.Marshal(run.State)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/orders/"+run.Resource.ID+"/"+what, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	fence.SetCall(req.Header, run)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func ship(_ context.Context, run *saga.Run[Order]) error {
	if run.Resource.ID == "2" {
		return saga.Fail(errors.New("no courier goes there"))
	}
	return nil
}
