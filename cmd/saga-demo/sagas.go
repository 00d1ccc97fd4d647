package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
)

// The partitions: shop is what customers wait for, office what can wait.
const (
	shop   = "shop"
	office = "office"
)

// An order is the state of all three sagas. Chance travels with it, so that all
// workers simulate the same faults.
type order struct {
	Chance chance `json:"chance"`
	Cents  int    `json:"cents"`

	// What the services answered, by step.
	Receipts map[string]string `json:"receipts,omitempty"`
}

// A line is a saga of the demo: which services it calls, in order. Every call
// has an undo, and the name of a step is that of its service.
type line struct {
	name      saga.Name[order]
	partition string
	services  []string
	retry     saga.RetryPolicy
}

var retry = saga.RetryPolicy{Attempts: 6, Initial: 100 * time.Millisecond, Max: time.Second}

// lines are the sagas of the demo, the most frequent first.
func lines() []line {
	return []line{
		{name: "checkout", partition: shop, retry: retry, services: []string{"stock", "payment", "courier", "receipt"}},
		{name: "restock", partition: office, retry: retry, services: []string{"supplier", "warehouse"}},
		{name: "signup", partition: office, retry: retry, services: []string{"account", "voucher", "welcome"}},
	}
}

// lineOf returns which saga the n-th one of a run is: three in five are
// checkouts.
func lineOf(n int) line {
	l := lines()
	switch n % 5 {
	case 1:
		return l[1]
	case 3:
		return l[2]
	}
	return l[0]
}

// callTimeout ends a call that hangs.
const callTimeout = 2 * time.Second

// definition returns the saga whose steps call the services.
func (l line) definition(s *services) saga.Definition[order] {
	d := saga.Definition[order]{Name: l.name, Partition: l.partition}
	for _, service := range l.services {
		d.Steps = append(d.Steps, saga.Step[order]{
			Name:            service,
			Timeout:         callTimeout,
			Retry:           l.retry,
			CompensateRetry: saga.RetryPolicy{Attempts: 30, Initial: l.retry.Initial, Max: l.retry.Max},
			Execute: func(ctx context.Context, run *saga.Run[order]) error {
				receipt, err := s.call(ctx, requestOf(&run.Call, service, run.State.Chance))
				if err != nil {
					return err
				}
				if run.State.Receipts == nil {
					run.State.Receipts = map[string]string{}
				}
				run.State.Receipts[service] = receipt
				return nil
			},
			Compensate: func(ctx context.Context, run *saga.Run[order]) error {
				_, err := s.call(ctx, requestOf(&run.Call, service, run.State.Chance))
				return err
			},
		})
	}
	return d
}

// A planned saga is one of a run, known before it is started.
type planned struct {
	Execution uuid.UUID
	Order     string
	Saga      string
}

// demoSpace is the name space of the ids of executions.
var demoSpace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://github.com/leveret-go/leveret/cmd/saga-demo"))

// planRun lists the sagas of a run. It is the same list each time, ids
// included, so that a starter that died can be started again.
func planRun(run string, n int) []planned {
	plan := make([]planned, n)
	for i := range plan {
		plan[i] = planned{
			Order:     fmt.Sprintf("%s-%05d", run, i+1),
			Saga:      string(lineOf(i).name),
			Execution: uuid.NewSHA1(demoSpace, fmt.Appendf(nil, "%s/%d", run, i)),
		}
	}
	return plan
}

// stateOf returns the state that the n-th saga of a run starts with.
func stateOf(n int, o options) order {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%d", o.seed, n)
	return order{
		Chance: chance{Seed: h.Sum64(), Fail: o.fail},
		Cents:  500 + int(h.Sum64()%20_000),
	}
}
