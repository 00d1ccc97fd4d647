package saga_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/sagatest"
	"github.com/leveret-go/leveret/store"
)

// A Trial is the state of a trial period of some service.
type Trial struct {
	Email   string
	Company bool
	EndsAt  time.Time
}

var trial = saga.Definition[Trial]{Name: "trial", Steps: []saga.Step[Trial]{
	{Name: "welcome", Execute: mail("welcome")},
	{Name: "tips", Wait: 3 * day, Execute: mail("tips")},
	{Name: "call", If: isCompany, WaitUntil: aWeekBefore, Execute: mail("shall we call you?")},
	{Name: "end", WaitUntil: theEnd, Execute: mail("your trial is over")},
}}

func isCompany(t Trial) bool        { return t.Company }
func aWeekBefore(t Trial) time.Time { return t.EndsAt.AddDate(0, 0, -7) }
func theEnd(t Trial) time.Time      { return t.EndsAt }

// mail is a step that sends a mail.
func mail(subject string) saga.Func[Trial] {
	return func(_ context.Context, run *saga.Run[Trial]) error {
		fmt.Printf("%s: mail to %s: %s\n", run.Now().Format("January 2"), run.State.Email, subject)
		return nil
	}
}

// Steps that wait for a duration, and until a time. The condition of one is
// false: it neither waits nor runs.
func ExampleStep_wait() {
	s := newPlayground()
	trials, err := saga.Register(s.engine, trial)
	check(err)
	defer s.run()()

	ctx := context.Background()
	state := Trial{Email: "ann@example.com", EndsAt: s.now().AddDate(0, 0, 14)}
	x, err := trials.Start(ctx, saga.Resource{Type: "account", ID: "ann"}, state, nil)
	check(err)

	s.pass(x.ID, 5*day)
	d, err := s.engine.Diagnose(ctx, x.ID)
	check(err)
	fmt.Println(d.Code, "until", d.Until.Format("January 2"))

	fmt.Println(s.pass(x.ID, 9*day).Status)
	// Output:
	// March 1: mail to ann@example.com: welcome
	// March 4: mail to ann@example.com: tips
	// waiting until March 15
	// March 15: mail to ann@example.com: your trial is over
	// completed
}

// Reschedule moves the time for which one execution waits.
func ExampleEngine_Reschedule() {
	s := newPlayground()
	trials, err := saga.Register(s.engine, trial)
	check(err)
	defer s.run()()

	state := Trial{Email: "bob@example.com", EndsAt: s.now().AddDate(0, 0, 14)}
	x, err := trials.Start(context.Background(), saga.Resource{Type: "account", ID: "bob"}, state, nil)
	check(err)
	s.pass(x.ID, 5*day)

	engine, ctx, id := s.engine, context.Background(), x.ID
	by := saga.By{Actor: "anna", Reason: "the customer asked for another week"}
	_, err = engine.Reschedule(ctx, id, state.EndsAt.AddDate(0, 0, 7), by)
	check(err)

	fmt.Println(s.pass(x.ID, 30*day).Status)
	// Output:
	// March 1: mail to bob@example.com: welcome
	// March 4: mail to bob@example.com: tips
	// March 22: mail to bob@example.com: your trial is over
	// completed
}

// An Offer is the state of an offer whose end may be moved.
type Offer struct {
	ValidUntil time.Time
}

// Extended says that an offer is valid until another time.
const Extended saga.Signal[time.Time] = "extended"

var offer = saga.Definition[Offer]{Name: "offer", Steps: []saga.Step[Offer]{
	{Name: "valid", Await: &saga.Await[Offer]{Signal: Extended, Until: validUntil}, Execute: extend},
	{Name: "withdraw", Execute: withdraw},
}}

func validUntil(o Offer) time.Time { return o.ValidUntil }

func extend(_ context.Context, run *saga.Run[Offer]) error {
	date, came, err := Extended.Receive(run)
	switch {
	case err != nil:
		return saga.Fail(err)
	case came:
		run.State.ValidUntil = date
		return saga.Snooze(0) // wait again, until the new date
	}
	return nil // the date has come
}

func withdraw(_ context.Context, run *saga.Run[Offer]) error {
	fmt.Println("withdrawn on", run.Now().Format("January 2"))
	return nil
}

// A date that the service moves: the step awaits the new date until the old one
// has come.
func ExampleAwait_until() {
	s := newPlayground()
	offers, err := saga.Register(s.engine, offer)
	check(err)
	defer s.run()()

	ctx := context.Background()
	x, err := offers.Start(ctx, saga.Resource{Type: "offer", ID: "7"}, Offer{ValidUntil: s.now().Add(10 * day)}, nil)
	check(err)
	s.pass(x.ID, 9*day)

	engine, id, newDate := s.engine, x.ID, s.now().Add(5*day)
	got, err := Extended.Send(ctx, engine, id, newDate, nil)
	check(err)
	fmt.Println(got)

	fmt.Println(s.pass(x.ID, 30*day).Status)
	// Output:
	// delivered
	// withdrawn on March 15
	// completed
}

// The whole saga has a deadline: what is not done by then is undone.
func ExampleDefinition_deadline() {
	s := newPlayground()
	say := func(what string) saga.Func[Order] {
		return func(_ context.Context, run *saga.Run[Order]) error {
			fmt.Println(run.Now().Format("15:04"), what)
			return nil
		}
	}
	busy := func(context.Context, *saga.Run[Order]) error { return errors.New("the courier does not answer") }

	delivery := saga.Definition[Order]{Name: "delivery", Deadline: 2 * time.Hour, Steps: []saga.Step[Order]{
		{Name: "reserve", Execute: say("reserve"), Compensate: say("release")},
		{Name: "courier", Execute: busy, Retry: saga.RetryPolicy{Attempts: saga.Unlimited}},
	}}

	deliveries, err := saga.Register(s.engine, delivery)
	check(err)
	defer s.run()()
	x, err := deliveries.Start(context.Background(), saga.Resource{Type: "order", ID: "4711"}, Order{}, nil)
	check(err)
	end := s.pass(x.ID, 3*time.Hour)
	fmt.Println(end.Status, "because of the", end.Reason)
	// Output:
	// 12:00 reserve
	// 14:00 release
	// compensated because of the deadline
}

// A test of waits: the clock jumps, and nothing sleeps.
func TestExampleTrialOfACompany(t *testing.T) {
	h := sagatest.New(t, nil)
	trials := sagatest.Register(h, trial)

	state := Trial{Email: "acme@example.com", Company: true, EndsAt: h.Now().AddDate(0, 0, 14)}
	x, err := trials.Start(t.Context(), saga.Resource{Type: "account", ID: "acme"}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Advance(7 * 24 * time.Hour)

	if got, want := h.Steps(x.ID), []string{"welcome", "tips", "call"}; !slices.Equal(got, want) {
		t.Errorf("after a week: %q, want %q", got, want)
	}
	h.Advance(7 * 24 * time.Hour)
	if got := h.Execution(x.ID).Status; got != store.StatusCompleted {
		t.Errorf("after two weeks: %s", got)
	}
}
