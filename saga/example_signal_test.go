package saga_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A Purchase is the state of a saga that waits for its payment.
type Purchase struct {
	Paid int
}

// A Payment is what the payment provider says.
type Payment struct {
	Cents int `json:"cents"`
}

// Paid says that a purchase was paid.
const Paid saga.Signal[Payment] = "paid"

var purchase = saga.Definition[Purchase]{
	Name: "purchase",
	Steps: []saga.Step[Purchase]{
		{Name: "invoice", Execute: sendInvoice, Compensate: voidInvoice},
		{Name: "payment", Await: &saga.Await[Purchase]{Signal: Paid, Timeout: 14 * day}, Execute: onPayment},
		{Name: "ship", Execute: shipPurchase},
	},
}

func onPayment(_ context.Context, run *saga.Run[Purchase]) error {
	p, came, err := Paid.Receive(run)
	if err != nil {
		return saga.Fail(err)
	}
	if !came {
		return saga.Fail(errors.New("not paid in two weeks")) // the invoice is voided
	}
	run.State.Paid = p.Cents
	return nil
}

func sendInvoice(context.Context, *saga.Run[Purchase]) error {
	fmt.Println("send invoice")
	return nil
}

func voidInvoice(context.Context, *saga.Run[Purchase]) error {
	fmt.Println("void invoice")
	return nil
}

func shipPurchase(_ context.Context, run *saga.Run[Purchase]) error {
	fmt.Println("ship, paid:", run.State.Paid)
	return nil
}

// webhook takes what the payment provider sends.
func webhook(engine *saga.Engine) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			ID      string
			Order   string
			Payment Payment
		}
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			http.Error(w, "not an event", http.StatusBadRequest)
			return
		}
		id := saga.IDFor(purchase.Name, event.Order)
		got, err := Paid.Send(r.Context(), engine, id, event.Payment, &saga.SignalOptions{Key: event.ID})
		switch {
		case errors.Is(err, saga.ErrInvalid):
			http.Error(w, "refused", http.StatusBadRequest)
		case err != nil: // the provider sends it again
			http.Error(w, "later", http.StatusServiceUnavailable)
		case got == saga.SignalUnknown:
			http.Error(w, "no such order, yet", http.StatusNotFound)
		}
	}
}

// A payment provider calls a webhook, and, as they do, calls it twice.
func ExampleSignal() {
	s := newPlayground()
	purchases, err := saga.Register(s.engine, purchase)
	check(err)
	defer s.run()()

	order := saga.Resource{Type: "order", ID: "4711"}
	x, err := purchases.Start(context.Background(), order, Purchase{}, &saga.StartOptions{ID: saga.IDFor(purchase.Name, order.ID)})
	check(err)
	s.pass(x.ID, 2*day)

	h := webhook(s.engine)
	for range 2 {
		body := bytes.NewBufferString(`{"id":"evt_1","order":"4711","payment":{"cents":4200}}`)
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest(http.MethodPost, "/paid", body))
		fmt.Println(w.Code)
		s.pass(x.ID, 0)
	}
	fmt.Println(s.pass(x.ID, 0).Status)

	late, err := purchases.Start(context.Background(), saga.Resource{Type: "order", ID: "4712"}, Purchase{}, nil)
	check(err)
	end := s.pass(late.ID, 15*day)
	fmt.Println(end.Status, "because:", end.Failure.Message)
	// Output:
	// send invoice
	// 200
	// ship, paid: 4200
	// 200
	// completed
	// send invoice
	// void invoice
	// compensated because: not paid in two weeks
}

// A signal that comes before the step is kept for it. One with the same key
// counts once.
func ExampleSignal_Send() {
	s := newPlayground()
	slow := purchase
	slow.Steps = []saga.Step[Purchase]{
		{Name: "pack", Wait: day, Execute: sendInvoice},
		purchase.Steps[1],
		purchase.Steps[2],
	}
	purchases, err := saga.Register(s.engine, slow)
	check(err)
	defer s.run()()
	started, err := purchases.Start(context.Background(), saga.Resource{Type: "order", ID: "4711"}, Purchase{}, nil)
	check(err)

	ctx, engine, id := context.Background(), s.engine, started.ID
	got, err := Paid.Send(ctx, engine, id, Payment{Cents: 4200}, &saga.SignalOptions{Key: "evt_1"})
	check(err)
	again, err := Paid.Send(ctx, engine, id, Payment{Cents: 4200}, &saga.SignalOptions{Key: "evt_1"})
	check(err)
	fmt.Println(got, again)

	fmt.Println(s.pass(id, day).Status)
	// Output:
	// buffered duplicate
	// send invoice
	// ship, paid: 4200
	// completed
}

// An Expense is the state of an expense that people approve.
type Expense struct {
	Cents   int
	Finance string // who
	Legal   string
}

// A Verdict is what somebody says of an expense.
type Verdict struct {
	Pay bool `json:"pay"`
}

// FinanceSays and LegalSays are the approvals of an expense.
const (
	FinanceSays saga.Signal[Verdict] = "finance"
	LegalSays   saga.Signal[Verdict] = "legal"
)

var expense = saga.Definition[Expense]{Name: "expense", Steps: []saga.Step[Expense]{
	{
		Name: "finance",
		Await: &saga.Await[Expense]{
			Signal: FinanceSays,
			Prompt: "Shall this expense be paid?",
			Choices: []saga.Choice{
				FinanceSays.Choice("Pay", Verdict{Pay: true}),
				FinanceSays.Choice("Refuse", Verdict{Pay: false}),
			},
		},
		Execute: onVerdict,
	},
	{Name: "pay", Execute: payExpense},
}}

func onVerdict(_ context.Context, run *saga.Run[Expense]) error {
	v, _, err := FinanceSays.Receive(run)
	if err != nil {
		return saga.Fail(err)
	}
	if !v.Pay {
		return saga.Fail(errors.New("refused"))
	}
	run.State.Finance = run.Received()[0].Actor
	return nil
}

func payExpense(_ context.Context, run *saga.Run[Expense]) error {
	fmt.Println("pay", run.State.Cents, "approved by", run.State.Finance)
	return nil
}

// A question to a person: what to ask and the answers are stored with the
// execution, so any tool can show them, without the service's code.
func ExampleAwait_choices() {
	s := newPlayground()
	expenses, err := saga.Register(s.engine, expense)
	check(err)
	defer s.run()()
	x, err := expenses.Start(context.Background(), saga.Resource{Type: "expense", ID: "12"}, Expense{Cents: 9900}, nil)
	check(err)
	s.pass(x.ID, day)

	engine, ctx := s.engine, context.Background()
	open, err := engine.List(ctx, store.Filter{Statuses: []store.Status{store.StatusWaiting}}, store.Page{})
	check(err)
	for _, x := range open.Executions {
		if x.Gate == nil || x.Gate.Prompt == "" {
			continue
		}
		fmt.Println(x.Resource.Type, x.Resource.ID, "asks:", x.Gate.Prompt)
		for _, c := range x.Gate.Choices {
			fmt.Println("-", c.Label)
		}

		// Anna takes the first one.
		answer, by := x.Gate.Choices[0], saga.By{Actor: "anna", Reason: "it was a good dinner"}
		_, err := engine.Signal(ctx, x.ID, answer.Signal, answer.Payload, &saga.SignalOptions{By: by})
		check(err)
	}

	fmt.Println(s.pass(x.ID, 0).Status)
	// Output:
	// expense 12 asks: Shall this expense be paid?
	// - Pay
	// - Refuse
	// pay 9900 approved by anna
	// completed
}

// Two people have to say yes, in any order.
func ExampleAwait_all() {
	s := newPlayground()

	both := saga.Step[Expense]{
		Name: "approvals",
		Await: &saga.Await[Expense]{
			Signals: []saga.AnySignal{FinanceSays, LegalSays},
			All:     true, // without it: the first one is enough
			Timeout: 7 * day,
		},
		Execute: func(_ context.Context, run *saga.Run[Expense]) error {
			finance, _, err := FinanceSays.Receive(run)
			if err != nil {
				return saga.Fail(err)
			}
			legal, came, err := LegalSays.Receive(run)
			if err != nil {
				return saga.Fail(err)
			}
			fmt.Println("finance:", finance.Pay, "legal:", came && legal.Pay)
			return nil
		},
	}

	expenses, err := saga.Register(s.engine, saga.Definition[Expense]{Name: "large-expense", Steps: []saga.Step[Expense]{both}})
	check(err)
	defer s.run()()
	x, err := expenses.Start(context.Background(), saga.Resource{Type: "expense", ID: "13"}, Expense{}, nil)
	check(err)
	s.pass(x.ID, day)
	for _, n := range []saga.Signal[Verdict]{LegalSays, FinanceSays} {
		_, err := n.Send(context.Background(), s.engine, x.ID, Verdict{Pay: true}, nil)
		check(err)
		s.pass(x.ID, day)
	}
	fmt.Println(s.pass(x.ID, 0).Status)

	// The deadline passes when one of them has come: Execute sees that one.
	x, err = expenses.Start(context.Background(), saga.Resource{Type: "expense", ID: "14"}, Expense{}, nil)
	check(err)
	s.pass(x.ID, day)
	_, err = FinanceSays.Send(context.Background(), s.engine, x.ID, Verdict{Pay: true}, nil)
	check(err)
	fmt.Println(s.pass(x.ID, 7*day).Status)
	// Output:
	// finance: true legal: true
	// completed
	// finance: true legal: false
	// completed
}

// BankIsBack says that the bank can be called again.
const BankIsBack saga.Signal[struct{}] = "bank-is-back"

// A step that has exhausted its attempts waits for a signal instead of being
// given up.
func ExampleStep_retryOnSignal() {
	s := newPlayground()
	up := false
	transfer := func(context.Context, *saga.Run[Order]) error {
		if !up {
			fmt.Println("the bank is down")
			return errors.New("the bank is down")
		}
		fmt.Println("transferred")
		return nil
	}

	step := saga.Step[Order]{Name: "transfer", Execute: transfer, Retry: soon, RetryOnSignal: BankIsBack}

	payouts, err := saga.Register(s.engine, saga.Definition[Order]{Name: "payout", Steps: []saga.Step[Order]{step}})
	check(err)
	defer s.run()()
	x, err := payouts.Start(context.Background(), saga.Resource{Type: "payout", ID: "1"}, Order{}, nil)
	check(err)
	fmt.Println(s.pass(x.ID, day).Status)

	up = true
	ctx, engine := context.Background(), s.engine
	waiting, err := engine.List(ctx, store.Filter{Sagas: []string{"payout"}, Statuses: []store.Status{store.StatusWaiting}}, store.Page{})
	check(err)
	for _, x := range waiting.Executions {
		_, err := BankIsBack.Send(ctx, engine, x.ID, struct{}{}, nil)
		check(err)
	}

	fmt.Println(s.pass(x.ID, 0).Status)
	// Output:
	// the bank is down
	// the bank is down
	// the bank is down
	// waiting
	// transferred
	// completed
}
