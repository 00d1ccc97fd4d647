package main

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A verdict is what a comparison of the sagas with the services' ledger found.
type verdict struct {
	violations  []string // sagas and ledger do not agree
	needsPerson []string // an undo failed: what it leaves is known, and agrees
}

// A net is what an order has had of one service.
type net struct{ done, undone int }

func (n net) left() int { return n.done - n.undone }

// check compares each saga of a run with the effects on its order:
//
//   - completed: every service did its work exactly once, and undid nothing;
//   - compensated, failed or cancelled: nothing is left of any service;
//   - compensation_failed: what is left is what the execution's ledger says,
//     and a person is needed;
//   - anything else has not ended.
//
// Executions that are missing from xs were not found in the store.
func check(sagas []line, plan []planned, xs map[uuid.UUID]*saga.Execution, effects []effect) verdict {
	var v verdict
	nets := map[string]map[string]net{} // order, service
	for _, e := range effects {
		if e.State != stateDone {
			continue
		}
		if nets[e.Order] == nil {
			nets[e.Order] = map[string]net{}
		}
		n := nets[e.Order][e.Service]
		if e.Kind == string(store.DirectionCompensate) {
			n.undone++
		} else {
			n.done++
		}
		nets[e.Order][e.Service] = n
	}
	for _, p := range plan {
		l := sagas[slices.IndexFunc(sagas, func(l line) bool { return string(l.name) == p.Saga })]
		v.checkOne(l, p, xs[p.Execution], nets[p.Order])
	}
	return v
}

func (v *verdict) checkOne(l line, p planned, x *saga.Execution, nets map[string]net) {
	bad := func(format string, args ...any) {
		v.violations = append(v.violations, fmt.Sprintf("%s %s: ", p.Saga, p.Order)+fmt.Sprintf(format, args...))
	}
	if x == nil {
		bad("was never started")
		if len(nets) > 0 {
			bad("has effects all the same")
		}
		return
	}
	for service, n := range nets {
		if !slices.Contains(l.services, service) {
			bad("%s was called, which is none of its services", service)
		}
		if n.done > 1 {
			bad("%s did its work %d times", service, n.done)
		}
		if n.undone > n.done {
			bad("%s undid %d times what it did %d times", service, n.undone, n.done)
		}
	}
	if !x.Status.Finished() {
		bad("has not ended: %s at step %s", x.Status, x.Step)
		return
	}
	for _, service := range l.services {
		n := nets[service]
		switch {
		case x.Status == store.StatusCompleted:
			if n.done == 0 {
				bad("is completed, but %s did nothing", service)
			}
			if n.undone > 0 {
				bad("is completed, but %s undid its work", service)
			}
		case x.Status == store.StatusCompensationFailed:
			v.checkAgainstLedger(x, service, n, bad)
		case n.left() > 0:
			bad("is %s, but the work of %s was not undone", x.Status, service)
		}
	}
	if x.Status == store.StatusCompensationFailed {
		why := "an undo failed"
		if x.Failure != nil {
			why = fmt.Sprintf("undo of %s: %s", x.Failure.Step, x.Failure.Message)
		}
		v.needsPerson = append(v.needsPerson, fmt.Sprintf("%s %s: %s", p.Saga, p.Order, why))
	}
}

// checkAgainstLedger compares what is left of a service with what the execution
// knows of its step.
func (v *verdict) checkAgainstLedger(x *saga.Execution, service string, n net, bad func(string, ...any)) {
	e := x.Entry(service)
	if e == nil {
		bad("has no step %s", service)
		return
	}
	least, most := 0, 0
	switch {
	case e.Stray:
		most = 1 // nobody knows: that is why a person is needed
	case e.Status == store.StepDone:
		least, most = 1, 1
		if e.Round > 0 {
			least = 0 // an undo was tried, and its answer may have been lost
		}
	case e.Status == store.StepInDoubt:
		most = 1
	}
	if left := n.left(); left < least || left > most {
		bad("needs a person, and is wrong about %s: the step is %s, what is left of it is %d", service, e.Status, left)
	}
}
