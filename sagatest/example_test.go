package sagatest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/sagatest"
	"github.com/leveret-go/leveret/store"
)

// An Order is the state of the saga under test.
type Order struct {
	Cents  int    `json:"cents"`
	Charge string `json:"charge,omitempty"`
}

// A bank is what the saga talks to: a fake that knows keys, as the real one
// does.
type bank struct{ charged, refunded map[string]int }

func newBank() *bank { return &bank{charged: map[string]int{}, refunded: map[string]int{}} }

func (b *bank) charge(ctx context.Context, run *saga.Run[Order]) error {
	if run.State.Cents <= 0 {
		return saga.Fail(errors.New("nothing to charge"))
	}
	b.charged[run.Key()] = run.State.Cents
	run.State.Charge = run.Key()
	return nil
}

func (b *bank) refund(ctx context.Context, run *saga.Run[Order]) error {
	if cents, ok := b.charged[run.ExecuteKey()]; ok {
		b.refunded[run.Key()] = cents
	}
	return nil
}

// checkoutSaga is the saga under test.
func checkoutSaga(b *bank) saga.Definition[Order] {
	courier := func(ctx context.Context, run *saga.Run[Order]) error { return nil }
	return saga.Definition[Order]{Name: "checkout", Steps: []saga.Step[Order]{
		{Name: "charge", Execute: b.charge, Compensate: b.refund},
		{Name: "courier", Execute: courier},
	}}
}

// A saga that fails undoes what it did.
func TestExampleRefund(t *testing.T) {
	b := newBank()
	h := sagatest.New(t, nil)
	checkout := sagatest.Register(h, checkoutSaga(b))
	h.At("courier").Fail(saga.Fail(errors.New("no courier is free")))

	x, err := checkout.Start(t.Context(), saga.Resource{Type: "order", ID: "4711"}, Order{Cents: 1999}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Drain()

	if got := h.Execution(x.ID).Status; got != store.StatusCompensated {
		t.Errorf("status %s, want compensated", got)
	}
	want := []string{"charge", "courier failed", "undo charge"}
	if got := h.Steps(x.ID); !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
	if len(b.refunded) != 1 {
		t.Errorf("refunds %v", b.refunded)
	}
}

// A worker that dies after it has charged the card charges it only once.
func TestExampleCrash(t *testing.T) {
	b := newBank()
	h := sagatest.New(t, nil)
	checkout := sagatest.Register(h, checkoutSaga(b))
	h.At("charge").CrashAfter()

	x, err := checkout.Start(t.Context(), saga.Resource{Type: "order", ID: "4711"}, Order{Cents: 1999}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Drain()

	want := []string{"charge abandoned", "charge", "courier"}
	if got := h.Steps(x.ID); !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
	if len(b.charged) != 1 {
		t.Errorf("charges %v, want one key", b.charged)
	}
	if got := sagatest.State(h, checkout, x.ID); got.Charge == "" {
		t.Errorf("state %+v, want the charge in it", got)
	}
}

// One step alone needs no engine.
func ExampleNewRun() {
	b := newBank()
	id := uuid.MustParse("018f0000-0000-7000-8000-000000000001")
	run := sagatest.NewRun(Order{Cents: 1999}, &sagatest.RunConfig{Call: saga.Call{Execution: id, Step: "charge"}})
	err := b.charge(context.Background(), run)
	fmt.Println(err, run.State.Charge)

	undo := sagatest.NewRun(run.State, &sagatest.RunConfig{Call: saga.Call{
		Execution: id, Step: "charge", Direction: store.DirectionCompensate,
	}})
	err = b.refund(context.Background(), undo)
	fmt.Println(err, b.refunded)

	fmt.Println(b.charge(context.Background(), sagatest.NewRun(Order{}, nil)))
	// Output:
	// <nil> 018f0000-0000-7000-8000-000000000001/charge/execute
	// <nil> map[018f0000-0000-7000-8000-000000000001/charge/compensate:1999]
	// nothing to charge
}
