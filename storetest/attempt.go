package storetest

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var attemptCases = []testCase{
	{
		name:    "AttemptsInOrder",
		promise: "Attempts returns the attempts of an execution in the order in which they were opened: the recorded ones in the order in which they were first written.",
		run: func(e *env) {
			x := e.create()
			want := []store.Attempt{closed(x.ID, "pay", 3), closed(x.ID, "ship", 1), closed(x.ID, "pay", 2), closed(x.ID, "address", 9)}
			want[2].StartedAt = base.Add(-time.Hour)
			e.record(x.ID, want[0])
			e.record(x.ID, want[1:3]...)
			e.record(x.ID, want[0], want[3]) // the first one is known already
			e.same("Attempts", e.attempts(x.ID), want)
		},
	},
	{
		name:    "AttemptsShowTheOpenOne",
		promise: "Then the open one, if any, put together from the execution's row with status running.",
		run: func(e *env) {
			x := e.create(opened)
			want, _ := x.OpenAttempt()
			e.same("of the open attempt alone", e.attempts(x.ID), []store.Attempt{want})

			first := closed(x.ID, "pay", 1)
			x = e.update(x.ID, func(x *store.Execution) store.Change {
				x.Step, x.Direction, x.Epoch = "ship", store.DirectionCompensate, 2
				x.Attempt = &store.OpenAttempt{Number: 4, Worker: "w2", StartedAt: *at(time.Hour), LeaseUntil: *at(2 * time.Hour), TimeoutAt: at(3 * time.Hour)}
				return store.Change{Attempts: []store.Attempt{first}}
			})
			want, _ = x.OpenAttempt()
			e.same("after another was opened", e.attempts(x.ID), []store.Attempt{first, want})

			e.update(x.ID, func(x *store.Execution) store.Change {
				x.Attempt = nil
				want.Status, want.FinishedAt = store.AttemptInterrupted, at(time.Hour)
				return store.Change{Attempts: []store.Attempt{want}}
			})
			e.same("after all were closed", e.attempts(x.ID), []store.Attempt{first, want})
		},
	},
	{
		name:    "AttemptsAtOneMoment",
		promise: "Both are read at one moment: an attempt is never missing, nor twice.",
		run: func(e *env) {
			const rounds = 25
			x := e.create(opened)
			done := make(chan error, 1)
			go func() {
				for range rounds {
					if _, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
						a := closed(x.ID, x.Step, x.Attempt.Number)
						next := *x.Attempt
						next.Number++
						x.Attempt = &next
						return store.Change{Attempts: []store.Attempt{a}}, nil
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
				list := e.attempts(x.ID)
				for i, a := range list {
					if a.Number != i+1 || (a.Status == store.AttemptRunning) != (i == len(list)-1) {
						e.Errorf("attempt %d of %d has number %d and is %s", i+1, len(list), a.Number, a.Status)
					}
				}
				if finished && len(list) != rounds+1 {
					e.Errorf("got %d attempts, want %d", len(list), rounds+1)
				}
			}
		},
	},
	{
		name:    "AttemptsOfUnknown",
		promise: "Unknown id: none, no error (Attempts and Audit).",
		run: func(e *env) {
			id := uuid.Must(uuid.NewV7())
			if n := len(e.attempts(id)) + len(e.audit(id)); n != 0 {
				e.Errorf("got %d entries", n)
			}
			x := e.create()
			if n := len(e.attempts(x.ID)) + len(e.audit(x.ID)); n != 0 {
				e.Errorf("got %d entries of a new execution", n)
			}
		},
	},
	{
		name:    "AttemptsBelongToOne",
		promise: "Attempts and Audit return those of one execution.",
		run: func(e *env) {
			x, y := e.create(), e.create()
			for _, z := range []*store.Execution{x, y} {
				e.update(z.ID, func(z *store.Execution) store.Change {
					return store.Change{Attempts: []store.Attempt{closed(z.ID, "pay", 1)}, Audit: []store.AuditEntry{entry(z.ID, "halt")}}
				})
			}
			e.same("Attempts", e.attempts(x.ID), []store.Attempt{closed(x.ID, "pay", 1)})
			e.same("Audit", e.audit(x.ID), []store.AuditEntry{entry(x.ID, "halt")})
			e.same("Attempts", e.attempts(y.ID), []store.Attempt{closed(y.ID, "pay", 1)})
		},
	},
	{
		name:    "AttemptIsKept",
		promise: "A closed attempt is inserted with every field as it was given, set and zero.",
		run: func(e *env) {
			x := e.create()
			var full store.Attempt
			e.fill(&full)
			full.Execution = x.ID
			zero := store.Attempt{Execution: x.ID, Direction: store.DirectionExecute, Status: store.AttemptFailed}
			e.record(x.ID, full, zero)
			e.same("Attempts", e.attempts(x.ID), []store.Attempt{full, zero})
		},
	},
	{
		name:    "AttemptIsKnownByItsKey",
		promise: "An attempt that is not known by its key (execution, step, direction, epoch, number) is inserted.",
		run: func(e *env) {
			x := e.create()
			list := []store.Attempt{closed(x.ID, "pay", 1)}
			for _, change := range []func(*store.Attempt){
				func(a *store.Attempt) { a.Step = "ship" },
				func(a *store.Attempt) { a.Direction = store.DirectionCompensate },
				func(a *store.Attempt) { a.Epoch = 1 },
				func(a *store.Attempt) { a.Number = 2 },
			} {
				a := closed(x.ID, "pay", 1)
				change(&a)
				list = append(list, a)
			}
			e.record(x.ID, list...)
			e.same("Attempts", e.attempts(x.ID), list)
			again := closed(x.ID, "pay", 1)
			again.Worker = "another worker"
			e.record(x.ID, again)
			e.same("Attempts", e.attempts(x.ID), list)
		},
	},
	{
		name:    "ClosedAttemptIsNotRewritten",
		promise: "An attempt that is known keeps everything as it was; a closed attempt's status is never rewritten.",
		run: func(e *env) {
			x := e.create()
			was := closed(x.ID, "pay", 1)
			was.Status = store.AttemptAbandoned
			e.record(x.ID, was)
			var a store.Attempt
			e.fill(&a)
			a.Execution, a.Step, a.Direction, a.Epoch, a.Number = x.ID, was.Step, was.Direction, was.Epoch, was.Number
			a.Status, a.Late, a.LateStatus = store.AttemptSucceeded, false, ""
			e.record(x.ID, a)
			e.same("Attempts", e.attempts(x.ID), []store.Attempt{was})
		},
	},
	{
		name:    "LateResultIsTakenOnce",
		promise: "With one exception: when its LateStatus is still empty, Late and LateStatus are taken over, once.",
		run: func(e *env) {
			x := e.create()
			want := closed(x.ID, "pay", 1)
			want.Status = store.AttemptAbandoned
			e.record(x.ID, want)
			late := func(status store.AttemptStatus) {
				a := closed(x.ID, "pay", 1)
				a.Late, a.LateStatus = status != "", status
				e.record(x.ID, a)
			}
			want.Late, want.LateStatus = true, store.AttemptFailed
			late(store.AttemptFailed)
			e.same("after the first late result", e.attempts(x.ID), []store.Attempt{want})
			late(store.AttemptSucceeded)
			e.same("after the second late result", e.attempts(x.ID), []store.Attempt{want})
			late("")
			e.same("after a write without a late result", e.attempts(x.ID), []store.Attempt{want})
		},
	},
	{
		name:    "AuditIsKept",
		promise: "Audit returns what was done to an execution, with every field as it was given, set and zero.",
		run: func(e *env) {
			x := e.create()
			var full store.AuditEntry
			e.fill(&full)
			full.Execution, full.After = x.ID, store.StatusCompensating
			zero := store.AuditEntry{Execution: x.ID, Act: "act", Before: store.StatusRunning, After: store.StatusRunning}
			want := []store.AuditEntry{full, zero}
			e.update(x.ID, func(*store.Execution) store.Change { return store.Change{Audit: want} })
			e.same("Audit", e.audit(x.ID), want)
		},
	},
	{
		name:    "AuditInOrder",
		promise: "Audit entries are appended, in this order, and returned in the order in which they were written.",
		run: func(e *env) {
			x := e.create()
			var want []store.AuditEntry
			for i := range 3 {
				list := []store.AuditEntry{entry(x.ID, fmt.Sprintf("z%d", 9-i)), entry(x.ID, fmt.Sprintf("a%d", i)), entry(x.ID, "same"), entry(x.ID, "same")}
				list[1].At = base.Add(-time.Duration(i) * time.Hour)
				want = append(want, list...)
				e.update(x.ID, func(*store.Execution) store.Change { return store.Change{Audit: list} })
			}
			e.same("Audit", e.audit(x.ID), want)
		},
	},
}
