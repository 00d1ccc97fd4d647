package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leveret-go/leveret/store"
)

// Benchmark measures what an engine asks of a store most: creating, changing
// under lock, advancing, renewing 100 leases, and claiming 100 due executions,
// one caller at a time and several at once (sub-benchmarks ending in
// Parallel). newStore is called once for each, and leaves the closing to
// b.Cleanup.
func Benchmark(b *testing.B, newStore func(b *testing.B) store.Store) {
	run := func(name string, prepare func(e *env) func(x *store.Execution) error) {
		setup := func(b *testing.B) (*env, func(x *store.Execution) error) {
			b.ReportAllocs()
			e := newEnv(b, newStore(b), &Options{})
			return e, prepare(e)
		}
		b.Run(name, func(b *testing.B) {
			e, f := setup(b)
			x := e.create(opened)
			for b.Loop() {
				if err := f(x); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"Parallel", func(b *testing.B) {
			e, f := setup(b)
			const most = 256 // as many executions as goroutines can ask for
			var list []*store.Execution
			for range most {
				list = append(list, e.create(opened))
			}
			var next atomic.Int32
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				x := list[int(next.Add(1)-1)%most] // each caller has its own
				for pb.Next() {
					if err := f(x); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}

	run("Create", func(e *env) func(*store.Execution) error {
		return func(x *store.Execution) error {
			y := e.execution()
			y.Key = y.ID.String()
			return e.s.Create(e.Context(), y)
		}
	})
	run("Get", func(e *env) func(*store.Execution) error {
		return func(x *store.Execution) error {
			_, err := e.s.Get(e.Context(), x.ID)
			return err
		}
	})
	run("WithLock", func(e *env) func(*store.Execution) error {
		return func(x *store.Execution) error {
			_, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
				return step(x), nil
			})
			return err
		}
	})
	run("Advance", func(e *env) func(*store.Execution) error {
		a := advancer(e)
		return func(x *store.Execution) error { return a.Advance(e.Context(), x, step(x)) }
	})
	run("Renew100", func(e *env) func(*store.Execution) error {
		var leases []store.Lease
		for range 100 {
			leases = append(leases, lease(e.create(opened)))
		}
		return func(*store.Execution) error {
			_, err := e.s.Renew(e.Context(), leases, renewal)
			return err
		}
	})
	run("ClaimDue100", func(e *env) func(*store.Execution) error {
		for range 2000 {
			e.create()
		}
		var n atomic.Int64
		q := store.DueQuery{Hold: time.Second, Limit: 100, Partition: e.tag}
		return func(*store.Execution) error {
			// Hold makes those that were claimed due again, later than others.
			q := q
			q.Now = base.Add(time.Duration(n.Add(1)) * time.Hour)
			list, err := e.s.ClaimDue(e.Context(), q)
			if err == nil && len(list) > q.Limit {
				err = fmt.Errorf("claimed %d, want at most %d", len(list), q.Limit)
			}
			return err
		}
	})
}

// step does to an execution what the end of a step does: it closes the open
// attempt and opens the next.
func step(x *store.Execution) store.Change {
	a := closed(x.ID, x.Step, x.Attempt.Number)
	next := *x.Attempt
	next.Number++
	x.Attempt, x.Ledger[0].Opens = &next, next.Number
	return store.Change{Attempts: []store.Attempt{a}, SameState: true}
}
