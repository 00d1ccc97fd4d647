package saga_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/leveret-go/leveret/saga"
)

// What a build lacks for the executions there are is found before it is deployed.
func ExampleCheck() {
	s := newPlayground()
	parcels, err := saga.Register(s.engine, parcel)
	check(err)
	defer s.run()()
	ctx := context.Background()
	x, err := parcels.Start(ctx, saga.Resource{Type: "parcel", ID: "7"}, Parcel{Address: "2 Side Street"}, nil)
	check(err)
	fmt.Println(s.settle(x.ID).Status) // the courier does not know that address

	build2 := saga.Definition[Parcel]{
		Name: "parcel",
		Steps: []saga.Step[Parcel]{
			{Name: "print-label", Was: []string{"label"}, Execute: printLabel},
			{Name: "pickup", Execute: orderPickup},
		},
		Removed: []saga.Step[Parcel]{{Name: "weigh"}},
	}
	report, err := saga.Check(ctx, s.store, build2.Outline())
	check(err)
	fmt.Println(report.Checked, "checked,", len(report.Problems), "problems")

	build3 := build2
	build3.Steps = build2.Steps[:1] // and nothing in Removed
	report, err = saga.Check(ctx, s.store, build3.Outline())
	check(err)
	for _, p := range report.Problems {
		fmt.Println(p.Sentence)
	}
	// Output:
	// halted
	// 1 checked, 0 problems
	// 1 execution of saga "parcel" version 1 will come to step "pickup", which the build lacks
}

// Several versions are registered side by side; an execution stays on its own.
func ExampleDefinition_version() {
	s := newPlayground()
	engine := s.engine
	version1 := parcel
	version2 := saga.Definition[Parcel]{Name: "parcel", Version: 2, Steps: []saga.Step[Parcel]{{Name: "pickup", Execute: orderPickup}}}
	check(engine.RegisterAll(version1, version2))
	for _, o := range engine.Outlines() {
		fmt.Println(o.Saga, o.Version, len(o.Steps), "steps")
	}
	// Output:
	// parcel 1 2 steps
	// parcel 2 1 steps
}

// writeOutlines is what a service's own flag may do, for sagactl check.
func writeOutlines(engine *saga.Engine) {
	check(json.NewEncoder(os.Stdout).Encode(engine.Outlines()))
}

var _ = writeOutlines
