package saga_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leveret-go/leveret/saga"
)

// A Report is the state of a saga that writes one.
type Report struct{ Until time.Time }

// reportOf says what to start: the occurrence is all that it gets to know.
func reportOf(at time.Time) (saga.Resource, Report) {
	return saga.Resource{Type: "report", ID: at.Format("2006-01-02 15:04")}, Report{Until: at}
}

// Schedules start sagas by the clock: each occurrence once, in whatever process.
func ExampleEngine_Schedules() {
	s := newPlayground()
	engine := s.engine
	written := make(chan string)
	reports, err := saga.Register(engine, saga.Definition[Report]{Name: "report", Steps: []saga.Step[Report]{{
		Name: "write", Execute: func(_ context.Context, run *saga.Run[Report]) error {
			written <- run.Resource.ID
			return nil
		},
	}}})
	check(err)

	err = engine.Schedules("reports",
		reports.Schedule(saga.Schedule[Report]{
			Name: "daily", Cron: "0 9 * * 1-5", TimeZone: "Europe/Berlin", Input: reportOf,
		}),
		reports.Schedule(saga.Schedule[Report]{
			Name: "hourly", Every: time.Hour, CatchUp: saga.CatchUpSkip, Input: reportOf,
		}),
	)
	check(err)
	defer s.run()()

	ctx := context.Background()
	for list, err := engine.ScheduleList(ctx); len(list) == 0; list, err = engine.ScheduleList(ctx) {
		check(err) // until Run has put them into the store
	}
	list, err := engine.ScheduleList(ctx)
	check(err)
	for _, sc := range list {
		fmt.Println(sc.Key(), sc.Next.Format("Mon 15:04"))
	}

	err = engine.Pause(ctx, saga.Scope{Schedule: "reports/daily"}, saga.By{Actor: "anna", Reason: "the warehouse moves"})
	check(err)
	s.move(time.Hour)
	fmt.Println(<-written)
	// Output:
	// reports/daily Mon 08:00
	// reports/hourly Fri 13:00
	// 2030-03-01 13:00
}
