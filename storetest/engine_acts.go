package storetest

import (
	"slices"
	"testing"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// runPlans plans every act on executions that stand halted, from the desk of
// somebody who does not know the saga, does it twice under one request, and
// compares what was planned with what happened.
func runPlans(t *testing.T, s store.Store) {
	w := newWorld(t, s)
	defer w.close()
	p, desk := w.process(nil, nil), w.desk()
	for _, act := range saga.Acts() {
		id := w.start(p, trip{Halts: true})
		w.until(id, func(x *store.Execution) bool { return x.Status == store.StatusHalted })
		plan, err := desk.Plan(t.Context(), id, act, nil)
		if err != nil {
			t.Fatalf("plan %s: %v", act, err)
		}
		by := saga.By{Actor: "storetest", Reason: "to see", Request: "once"}
		opts := &saga.ActOptions{IfRevision: plan.Revision}
		if _, err := desk.Act(t.Context(), id, act, by, opts); (err != nil) != (plan.Refused != nil) {
			t.Errorf("%s: planned to be refused with %v, was refused with %v", act, plan.Refused, err)
			continue
		}
		if plan.Refused != nil {
			continue
		}
		if act == saga.ActHalt { // it was halted before
			if plan.EndsAs != store.StatusHalted || len(plan.Steps) > 0 {
				t.Errorf("halt of a halted one is planned as %+v", plan)
			}
			if _, err := desk.Compensate(t.Context(), id, saga.By{Actor: "storetest", Reason: "to end it"}, nil); err != nil {
				t.Fatal(err)
			}
			w.end(id)
			continue
		}
		x := w.end(id)
		if x.Status != plan.EndsAs {
			t.Errorf("%s: ends %s, planned %s", act, x.Status, plan.EndsAs)
		}
		attempts, err := s.Attempts(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range plan.Steps {
			if !slices.ContainsFunc(attempts, func(a store.Attempt) bool {
				return a.Step == step.Name && a.Direction == step.Direction && a.Epoch > 0 && a.Status == store.AttemptSucceeded
			}) {
				t.Errorf("%s: %s of %s was planned and did not happen", act, step.Direction, step.Name)
			}
		}
		if _, err := desk.Act(t.Context(), id, act, by, nil); err != nil {
			t.Errorf("%s again, with its request: %v", act, err)
		}
		trail, err := s.Audit(t.Context(), id)
		if err != nil || len(trail) != 1 || trail[0].Act != string(act) || trail[0].Request != "once" {
			t.Errorf("%s: audit trail %+v, %v; want one entry", act, trail, err)
		}
	}
}
