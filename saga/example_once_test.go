package saga_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A Sync is the state of a copy of a customer's data to another system.
type Sync struct {
	Customer string
	Full     bool `json:",omitempty"`
}

var syncing = saga.Definition[Sync]{
	Name: "sync",
	Key:  func(_ saga.Resource, s Sync) string { return s.Customer },
	Steps: []saga.Step[Sync]{
		{Name: "export", Execute: report("export")},
		{Name: "import", Wait: time.Hour, Execute: report("import")},
	},
}

// report is a step that says what it does.
func report(what string) saga.Func[Sync] {
	return func(_ context.Context, run *saga.Run[Sync]) error {
		if run.State.Full {
			fmt.Println(what, "all of", run.State.Customer)
		} else {
			fmt.Println(what, run.State.Customer)
		}
		return nil
	}
}

// One execution for each customer at a time. A second start is refused, comes to
// the first one, or takes its place.
func ExampleDefinition_key() {
	s := newPlayground()
	syncs, err := saga.Register(s.engine, syncing)
	check(err)
	defer s.run()()

	ctx, customer := context.Background(), saga.Resource{Type: "customer", ID: "acme"}
	first, err := syncs.Start(ctx, customer, Sync{Customer: "acme"}, nil)
	check(err)
	s.settle(first.ID)

	_, err = syncs.Start(ctx, customer, Sync{Customer: "acme"}, nil)
	taken, isTaken := errors.AsType[*store.KeyTakenError](err)
	fmt.Println("refused:", isTaken, "the first one has the key:", taken.Execution == first.ID)

	same, err := syncs.Start(ctx, customer, Sync{Customer: "acme", Full: true}, &saga.StartOptions{OnConflict: saga.OnConflictExisting})
	check(err)
	fmt.Println("existing:", same.Existing, "with another state:", same.Differs)

	next, err := syncs.Start(ctx, customer, Sync{Customer: "acme", Full: true}, &saga.StartOptions{OnConflict: saga.OnConflictReplace})
	check(err)
	fmt.Println("replaces:", *next.Replaces == first.ID)

	fmt.Println(s.pass(next.ID, 2*time.Hour).Status, "and the first one:", s.settle(first.ID).Status)
	// Output:
	// export acme
	// refused: true the first one has the key: true
	// existing: true with another state: true
	// replaces: true
	// export all of acme
	// import all of acme
	// completed and the first one: cancelled
}

// What may start once for ever has an id that follows from a name of yours.
func ExampleIDFor() {
	s := newPlayground()
	syncs, err := saga.Register(s.engine, syncing)
	check(err)
	defer s.run()()

	ctx, customer := context.Background(), saga.Resource{Type: "customer", ID: "acme"}
	opts := &saga.StartOptions{ID: saga.IDFor(syncing.Name, "acme/2030-03")}
	x, err := syncs.Start(ctx, customer, Sync{Customer: "acme"}, opts)
	check(err)
	s.pass(x.ID, 2*time.Hour)

	_, err = syncs.Start(ctx, customer, Sync{Customer: "acme"}, opts)
	fmt.Println("once more:", errors.Is(err, store.ErrExists))
	// Output:
	// export acme
	// import acme
	// once more: true
}

// The execution that holds a key is found by it.
func ExampleEngine_Live() {
	s := newPlayground()
	syncs, err := saga.Register(s.engine, syncing)
	check(err)
	defer s.run()()

	ctx := context.Background()
	x, err := syncs.Start(ctx, saga.Resource{Type: "customer", ID: "acme"}, Sync{Customer: "acme"}, nil)
	check(err)
	s.settle(x.ID)

	live, err := s.engine.Live(ctx, "sync", "acme")
	check(err)
	fmt.Println(live.ID == x.ID, live.Status, "at", live.Step)

	s.pass(x.ID, 2*time.Hour)
	_, err = s.engine.Live(ctx, "sync", "acme")
	fmt.Println("afterwards:", errors.Is(err, store.ErrNotFound))
	// Output:
	// export acme
	// true waiting at import
	// import acme
	// afterwards: true
}

// A start for later, with words to find it by.
func ExampleStartOptions() {
	s := newPlayground()
	syncs, err := saga.Register(s.engine, syncing)
	check(err)
	defer s.run()()

	ctx, monday := context.Background(), s.now().Add(3*day)
	x, err := syncs.Start(ctx, saga.Resource{Type: "customer", ID: "acme"}, Sync{Customer: "acme"}, &saga.StartOptions{
		StartAfter: monday,
		Tags:       map[string]string{"region": "north", "reason": "move"},
	})
	check(err)

	found, err := s.engine.List(ctx, store.Filter{Tags: map[string]string{"region": "north"}}, store.Page{})
	check(err)
	fmt.Println(len(found.Executions), "found,", found.Executions[0].Status, "until", found.Executions[0].WakeAt.Format("January 2"))
	fmt.Println(s.pass(x.ID, 4*day).Status)
	// Output:
	// 1 found, waiting until March 4
	// export acme
	// import acme
	// completed
}

// A Subscription is the state of one period of a subscription.
type Subscription struct{ Period int }

var subscription = saga.Definition[Subscription]{
	Name: "subscription",
	Key:  func(r saga.Resource, _ Subscription) string { return r.ID },
	Steps: []saga.Step[Subscription]{
		{Name: "charge", Execute: func(_ context.Context, run *saga.Run[Subscription]) error {
			fmt.Println(run.Now().Format("January 2: charge period"), run.State.Period)
			return nil
		}},
		{Name: "renew", Wait: 30 * day, Execute: func(_ context.Context, run *saga.Run[Subscription]) error {
			if run.State.Period++; run.State.Period > 3 {
				return nil // it ends
			}
			return saga.ContinueAsNew("the next period")
		}},
	},
}

// A subscription that renews itself: each period is an execution of its own, and
// all of them have the key.
func ExampleContinueAsNew() {
	s := newPlayground()
	subscriptions, err := saga.Register(s.engine, subscription)
	check(err)
	defer s.run()()

	ctx := context.Background()
	x, err := subscriptions.Start(ctx, saga.Resource{Type: "customer", ID: "ann"}, Subscription{Period: 1}, nil)
	check(err)
	id := x.ID
	for range 3 {
		end := s.pass(id, 30*day)
		if end.ContinuedAs != nil {
			id = *end.ContinuedAs
			s.settle(id)
		}
		fmt.Println(end.Status)
	}
	// Output:
	// March 1: charge period 1
	// March 31: charge period 2
	// completed
	// April 30: charge period 3
	// completed
	// completed
}

// Many starts at once: each one says for itself what became of it.
func ExampleSaga_StartMany() {
	s := newPlayground()
	syncs, err := saga.Register(s.engine, syncing)
	check(err)

	var items []saga.StartItem[Sync]
	for _, customer := range []string{"acme", "", "bolt"} { // a blank key is refused
		items = append(items, saga.StartItem[Sync]{Resource: saga.Resource{Type: "customer", ID: customer}, State: Sync{Customer: customer}})
	}
	for i, r := range syncs.StartMany(context.Background(), items) {
		fmt.Printf("%q: started: %v, refused: %v\n", items[i].State.Customer, r.Started != nil, errors.Is(r.Err, saga.ErrInvalid))
	}
	// Output:
	// "acme": started: true, refused: false
	// "": started: false, refused: true
	// "bolt": started: true, refused: false
}

// At most one sync of a region is at work at a time; the others wait for their
// turn, without an attempt.
func ExampleDefinition_maxActive() {
	s := newPlayground()
	d := syncing
	d.MaxActivePerGroup, d.Group = 1, func(r saga.Resource, _ Sync) string { return r.Type }
	syncs, err := saga.Register(s.engine, d)
	check(err)
	defer s.run()()

	ctx := context.Background()
	a, err := syncs.Start(ctx, saga.Resource{Type: "north", ID: "1"}, Sync{Customer: "acme"}, nil)
	check(err)
	s.reaches(a.ID, "import")
	b, err := syncs.Start(ctx, saga.Resource{Type: "north", ID: "2"}, Sync{Customer: "bolt"}, nil)
	check(err)
	why, err := s.engine.Diagnose(ctx, b.ID)
	check(err)
	fmt.Println(why.Sentence)

	s.pass(a.ID, time.Hour)
	s.reaches(b.ID, "import")
	// Output:
	// export acme
	// it waits for its turn: only so many executions of saga "sync" in group "north" are active at a time.
	// import acme
	// export bolt
}

// Two sagas share what a bank allows: ten calls a second.
func ExampleBudget() {
	s := newPlayground()
	_ = saga.Config{Budgets: map[string]saga.Budget{"bank": {Rate: 10, Burst: 20}}}
	_ = saga.Step[Order]{Name: "charge", Execute: charge, Compensate: refund, Budget: "bank"}
	_, err := saga.Register(s.engine, saga.Definition[Order]{Name: "pay", Steps: []saga.Step[Order]{
		{Name: "charge", Execute: charge, Budget: "bank"},
	}})
	fmt.Println(err != nil) // this engine has no such budget
	// Output:
	// true
}
