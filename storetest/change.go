package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var changeCases = []testCase{
	{
		name:    "ChangeIsRefused",
		promise: "Attempts of another execution than the written one, and ones with status running, are ErrInvalid; Change.Validate is the rule.",
		run: func(e *env) {
			x, y := e.create(), e.create()
			was := e.stored(x.ID)
			running := closed(x.ID, "pay", 1)
			running.Status = store.AttemptRunning
			invalid := e.execution()
			invalid.Saga = ""
			for name, c := range map[string]store.Change{
				"an attempt of another":      {Attempts: []store.Attempt{closed(x.ID, "pay", 1), closed(y.ID, "pay", 1)}},
				"a running attempt":          {Attempts: []store.Attempt{running}},
				"an audit entry of another":  {Audit: []store.AuditEntry{entry(x.ID, "halt"), entry(y.ID, "halt")}},
				"an audit entry without act": {Audit: []store.AuditEntry{entry(x.ID, "")}},
				"a wake of itself":           {Wake: []store.Wake{{ID: x.ID, At: base}}},
				"a wake of no id":            {Wake: []store.Wake{{At: base}}},
				"an invalid creation":        {Create: []*store.Execution{e.execution(), invalid}},
			} {
				_, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
					x.Step = "ship"
					return c, nil
				})
				if err == nil {
					e.Errorf("WithLock took %s", name)
				} else {
					e.is(err, store.ErrInvalid)
				}
				e.untouched("WithLock with "+name, x.ID, was)
				for _, created := range c.Create {
					e.absent(created.ID)
				}
			}
			if n := len(e.attempts(y.ID)) + len(e.audit(y.ID)); n > 0 {
				e.Errorf("%d entries of another execution were written", n)
			}
		},
	},
	{
		name:    "ChangeCreates",
		promise: "Create are executions to insert, as by Store.Create, in the same transaction.",
		run: func(e *env) {
			x := e.create()
			full, plain := e.full(), e.execution(func(x *store.Execution) { x.Revision = 9 })
			wantFull, wantPlain := full.Clone(), plain.Clone()
			wantFull.Revision, wantPlain.Revision = 1, 1
			e.update(x.ID, func(x *store.Execution) store.Change {
				x.Step = "ship"
				return store.Change{Create: []*store.Execution{full, plain}}
			})
			e.same("the first", e.get(full.ID), wantFull)
			e.same("the second", e.get(plain.ID), wantPlain)
			if got := e.get(x.ID); got.Step != "ship" {
				e.Errorf("the execution itself was not written")
			}
		},
	},
	{
		name:    "ChangeCreateFails",
		promise: "If one cannot be inserted, nothing of the whole transaction is written.",
		run: func(e *env) {
			x, y := e.create(), e.create()
			holder := e.create(func(x *store.Execution) { x.Key = "k" })
			wasX, wasY := e.stored(x.ID), e.stored(y.ID)
			fresh := e.execution()
			try := func(what string, last *store.Execution) error {
				_, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
					x.Step = "ship"
					return store.Change{
						Attempts: []store.Attempt{closed(x.ID, "pay", 1)},
						Audit:    []store.AuditEntry{entry(x.ID, "halt")},
						Create:   []*store.Execution{fresh, last},
						Wake:     []store.Wake{{ID: y.ID, At: base.Add(-time.Hour)}},
					}, nil
				})
				e.untouched("creating "+what, x.ID, wasX)
				e.untouched("the execution to wake, when creating "+what, y.ID, wasY)
				e.absent(fresh.ID)
				e.free(x.ID)
				return err
			}
			e.is(try("what exists", holder.Clone()), store.ErrExists)
			e.is(try("one id twice", fresh.Clone()), store.ErrExists)
			taken := e.execution(func(x *store.Execution) { x.Key = "k" })
			e.keyTaken(try("what has a key that is taken", taken), taken.Saga, "k", holder.ID)
			e.absent(taken.ID)
		},
	},
	{
		name:    "ChangeWakes",
		promise: "For each execution to wake that is neither finished nor halted the revision rises by one and, unless an attempt is open, DueAt becomes At if it was nil or later, and OfferedAt nil.",
		run: func(e *env) {
			early, late := at(-time.Hour), at(time.Hour)
			for name, c := range map[string]struct {
				status store.Status
				due    *time.Time
				open   bool
				want   *time.Time
			}{
				"due later":                    {store.StatusRunning, late, false, at(0)},
				"due earlier":                  {store.StatusRunning, early, false, early},
				"due at that time":             {store.StatusRunning, at(0), false, at(0)},
				"waiting without a deadline":   {store.StatusWaiting, nil, false, at(0)},
				"compensating":                 {store.StatusCompensating, late, false, at(0)},
				"with an open attempt":         {store.StatusRunning, late, true, late},
				"with an open attempt, no due": {store.StatusRunning, nil, true, nil},
			} {
				x := e.create()
				y := e.create(func(y *store.Execution) {
					y.Status, y.DueAt, y.OfferedAt = c.status, c.due, at(-time.Minute)
					if c.open {
						opened(y)
					}
				})
				e.update(x.ID, func(*store.Execution) store.Change {
					return store.Change{Wake: []store.Wake{{ID: y.ID, At: base.Add(999)}}}
				})
				y.DueAt = c.want
				y.Revision++
				if !c.open {
					y.OfferedAt = nil
				}
				e.same(name, e.get(y.ID), y)
			}
		},
	},
	{
		name:    "ChangeWakesOnlyWhatCanGoOn",
		promise: "Other executions to wake, finished, halted or unknown ones, are passed over.",
		run: func(e *env) {
			x := e.create()
			c := store.Change{Wake: []store.Wake{{ID: uuid.Must(uuid.NewV7()), At: base}}}
			was := map[uuid.UUID]record{}
			for _, status := range store.Statuses() {
				if status.Finished() || status == store.StatusHalted {
					y := e.create(func(y *store.Execution) { y.Status, y.DueAt, y.OfferedAt = status, nil, at(0) })
					was[y.ID] = e.stored(y.ID)
					c.Wake = append(c.Wake, store.Wake{ID: y.ID, At: base})
				}
			}
			last := e.create(func(y *store.Execution) { y.DueAt = nil })
			c.Wake = append(c.Wake, store.Wake{ID: last.ID, At: base})
			e.update(x.ID, func(*store.Execution) store.Change { return c })
			for id, was := range was {
				e.untouched("waking a "+string(was.Execution.Status)+" execution", id, was)
			}
			if got := e.get(last.ID); got.DueAt == nil {
				e.Errorf("the one that could be woken was not")
			}
		},
	},
	{
		name:    "WakeWaitsForLock",
		promise: "Rows to wake are locked: a write that wakes an execution waits for the lock of that, until its ctx ends.",
		run: func(e *env) {
			x, y := e.create(), e.create()
			was := e.stored(x.ID)
			wake := func(ctx context.Context) error {
				_, err := e.s.WithLock(ctx, x.ID, func(x *store.Execution) (store.Change, error) {
					x.Step = "ship"
					return store.Change{Wake: []store.Wake{{ID: y.ID, At: base.Add(-time.Hour)}}}, nil
				})
				return err
			}
			release := e.hold(y.ID, func(y *store.Execution) (store.Change, error) {
				y.Tries = 5
				return store.Change{}, nil
			})
			e.waits("waking a locked execution", wake)
			e.untouched("the write that waited in vain", x.ID, was)
			release()
			e.soon("waking", wake)
			got := e.get(y.ID)
			if got.Tries != 5 || got.Revision != 3 || !got.DueAt.Equal(*at(-time.Hour)) {
				e.Errorf("got tries %d, revision %d, due %v; want both writes", got.Tries, got.Revision, got.DueAt)
			}
		},
	},
	{
		name:    "WakesOfEachOther",
		promise: "A deadlock with another transaction is an error and nothing is written.",
		run: func(e *env) {
			list := []*store.Execution{e.create(), e.create()}
			var both sync.WaitGroup
			both.Add(2)
			errs := make([]error, 2)
			var done sync.WaitGroup
			for i, x := range list {
				done.Go(func() {
					ctx, cancel := context.WithTimeout(e.Context(), e.patience/2)
					defer cancel()
					_, errs[i] = e.s.WithLock(ctx, x.ID, func(x *store.Execution) (store.Change, error) {
						if !e.opts.SingleWriter { // of those one is inside at a time
							both.Done()
							both.Wait()
						}
						return store.Change{
							Audit: []store.AuditEntry{entry(x.ID, "wake")},
							Wake:  []store.Wake{{ID: list[1-i].ID, At: base}},
						}, nil
					})
				})
			}
			_ = e.finish("two writes that wake each other's executions", func() error { done.Wait(); return nil })
			wrote := 0
			for i, err := range errs {
				if err == nil {
					wrote++
				}
				if got := len(e.audit(list[i].ID)); (got == 1) != (err == nil) {
					e.Errorf("a write that returned error %v wrote %d audit entries", err, got)
				}
				if errors.Is(err, context.DeadlineExceeded) {
					e.Errorf("the deadlock was ended by the ctx alone")
				}
			}
			for _, x := range list {
				if got := e.get(x.ID); got.Revision != int64(1+wrote) {
					e.Errorf("revision %d after %d writes of both executions", got.Revision, wrote)
				}
			}
		},
	},
	{
		name:    "ChangeIsAtomic",
		promise: "The changed execution and the Change are written in one transaction.",
		run: func(e *env) {
			const rounds = 25
			x := e.create(func(x *store.Execution) { x.Resource.ID = e.tag + "-atomic" })
			done := make(chan error, 1)
			go func() {
				for range rounds {
					if _, err := e.s.WithLock(e.Context(), x.ID, func(y *store.Execution) (store.Change, error) {
						y.Tries++
						return store.Change{
							Attempts: []store.Attempt{closed(y.ID, "pay", y.Tries)},
							Audit:    []store.AuditEntry{entry(y.ID, "act")},
							Create:   []*store.Execution{e.execution(func(z *store.Execution) { z.Resource = x.Resource })},
						}, nil
					}); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			for finished := false; !finished && !e.Failed(); {
				select {
				case err := <-done:
					e.ok(err)
					finished = true
				default:
				}
				// What is read after the execution is at least as new.
				n := e.get(x.ID).Tries
				list, err := e.s.ForResource(e.Context(), x.Resource, 10*rounds)
				e.ok(err)
				if a, b, c := len(e.attempts(x.ID)), len(e.audit(x.ID)), len(list)-1; a < n || b < n || c < n {
					e.Errorf("after write %d was seen there were %d attempts, %d audit entries and %d created executions", n, a, b, c)
				}
			}
		},
	},
	{
		name:    "SameState",
		promise: "SameState is the writer's promise that the State of the execution and its Initial are byte for byte what is stored, so that they need not be written again.",
		run: func(e *env) {
			x := e.create(func(x *store.Execution) {
				x.State, x.Initial = []byte(` {"a" : "\u0000"}`), []byte(` {"b" : "\ud83d"}`)
			})
			want := e.update(x.ID, func(x *store.Execution) store.Change {
				x.Step = "ship"
				return store.Change{SameState: true}
			})
			e.same("what WithLock returned", want.State, x.State)
			e.same("what WithLock returned", want.Initial, x.Initial)
			x.Step, x.Revision = "ship", 2
			e.same("with SameState", e.get(x.ID), x)
			if a, ok := store.As[store.Advancer](e.s); ok {
				x.Step = "pay"
				e.ok(a.Advance(e.Context(), x, store.Change{SameState: true}))
				e.same("by Advance with SameState", e.get(x.ID), x)
			}
			for _, c := range []struct{ state, initial json.RawMessage }{
				{[]byte(`{"b":2}`), nil}, {[]byte(`{"b":2}`), []byte(`{"c":3}`)}, {[]byte(`{"d":4}`), []byte(`{"c":3}`)}, {[]byte(`{}`), nil},
			} {
				x := e.update(x.ID, func(x *store.Execution) store.Change {
					x.State, x.Initial = c.state, c.initial
					return store.Change{}
				})
				e.same("without SameState", e.get(x.ID).State, c.state)
				e.same("without SameState", e.get(x.ID).Initial, c.initial)
				e.update(x.ID, func(x *store.Execution) store.Change { return store.Change{SameState: true} })
				e.same("with SameState after that", e.get(x.ID).State, c.state)
				e.same("with SameState after that", e.get(x.ID).Initial, c.initial)
			}
		},
	},
}
