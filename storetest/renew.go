package storetest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var renewal = store.Renewal{Now: base, Until: base.Add(time.Hour), DueAt: base.Add(2 * time.Hour)}

// renew prolongs leases and checks the answers.
func (e *env) renew(what string, leases []store.Lease, want ...store.LeaseState) {
	e.Helper()
	got, err := e.s.Renew(e.Context(), leases, renewal)
	e.ok(err)
	e.same(what, got, want)
}

func lease(x *store.Execution) store.Lease {
	l, _ := x.Lease()
	return l
}

// renewed says how an execution looks after Renew.
func renewed(x *store.Execution) *store.Execution {
	x = x.Clone()
	x.Attempt.LeaseUntil, x.DueAt = renewal.Until, &renewal.DueAt
	return x
}

var renewCases = []testCase{
	{
		name:    "RenewProlongs",
		promise: "For an open attempt with this token Renew sets LeaseUntil to r.Until and the execution's DueAt to r.DueAt. The revision does not change.",
		run: func(e *env) {
			full := e.full()
			full.Attempt.LeaseUntil, full.Request = *at(time.Microsecond), nil
			e.ok(e.s.Create(e.Context(), full))
			plain := e.create(opened)
			e.renew("answers", []store.Lease{lease(full), lease(plain)}, store.LeaseHeld, store.LeaseHeld)
			e.same("the first", e.get(full.ID), renewed(full))
			e.same("the second", e.get(plain.ID), renewed(plain))
			var none []store.Lease
			e.renew("answers to no lease", none)
		},
	},
	{
		name:    "RenewCutsTimes",
		promise: "Finer digits of a time handed in are cut off (not rounded).",
		run: func(e *env) {
			x := e.create(opened)
			r := store.Renewal{Now: renewal.Now, Until: renewal.Until.Add(999), DueAt: renewal.DueAt.Add(999)}
			_, err := e.s.Renew(e.Context(), []store.Lease{lease(x)}, r)
			e.ok(err)
			e.same("Get", e.get(x.ID), renewed(x))
		},
	},
	{
		name:    "RenewOfALapsedLease",
		promise: "Renew sets OfferedAt to nil if the old LeaseUntil was before or at r.Now (the lease had lapsed, but nobody took it).",
		run: func(e *env) {
			for _, c := range []struct {
				until  time.Duration
				lapsed bool
			}{{-time.Hour, true}, {0, true}, {time.Microsecond, false}, {time.Minute, false}} {
				x := e.create(opened, func(x *store.Execution) {
					x.Attempt.LeaseUntil, x.OfferedAt = *at(c.until), at(-time.Second)
				})
				e.renew("answer", []store.Lease{lease(x)}, store.LeaseHeld)
				want := renewed(x)
				if c.lapsed {
					want.OfferedAt = nil
				}
				e.same("with a lease until "+c.until.String(), e.get(x.ID), want)
			}
		},
	},
	{
		name:    "RenewComparesTheWholeToken",
		promise: "A lease belongs to the open attempt of its execution only when its whole token is equal: step, direction, epoch, number and worker; else LeaseLost, and nothing is written.",
		run: func(e *env) {
			x := e.create(opened)
			was := e.stored(x.ID)
			v := reflect.TypeFor[store.Lease]()
			for i := range v.NumField() {
				l := lease(x)
				f := reflect.ValueOf(&l).Elem().Field(i)
				switch f.Kind() {
				case reflect.String:
					f.SetString(f.String() + "x")
				case reflect.Int:
					f.SetInt(f.Int() + 1)
				default:
					f.Set(reflect.ValueOf(uuid.Must(uuid.NewV7())))
				}
				e.renew("with another "+v.Field(i).Name, []store.Lease{l}, store.LeaseLost)
			}
			l := lease(x)
			l.Worker = "W1"
			e.renew("with a worker of another case", []store.Lease{l}, store.LeaseLost)
			e.untouched("Renew", x.ID, was)
			l = lease(x)
			e.update(x.ID, func(x *store.Execution) store.Change {
				x.Attempt = nil
				return store.Change{}
			})
			was = e.stored(x.ID)
			e.renew("without an open attempt", []store.Lease{l}, store.LeaseLost)
			e.renew("of no worker, without an open attempt", []store.Lease{{Execution: x.ID, Step: x.Step, Direction: x.Direction}}, store.LeaseLost)
			e.untouched("Renew", x.ID, was)
		},
	},
	{
		name:    "RenewInterrupts",
		promise: "Renew answers LeaseInterrupted when the execution has a pending request whose Turn is not empty, else LeaseHeld; both are prolonged.",
		run: func(e *env) {
			for turn, want := range map[store.Turn]store.LeaseState{
				store.TurnCompensate: store.LeaseInterrupted,
				store.TurnCancel:     store.LeaseInterrupted,
				store.TurnNone:       store.LeaseHeld,
			} {
				x := e.create(opened, func(x *store.Execution) {
					x.Request = &store.Request{Turn: turn, Halt: true, Actor: "ann", Reason: "because", At: base}
				})
				e.renew("with a request to turn "+string(turn), []store.Lease{lease(x)}, want)
				e.same("after it", e.get(x.ID), renewed(x))
			}
		},
	},
	{
		name:    "RenewNotesProgress",
		promise: "For an open attempt with this token Renew sets its Progress to that in r, if there is one, else leaves it as it is.",
		run: func(e *env) {
			list := []*store.Execution{e.create(opened), e.create(opened), e.create(opened, func(x *store.Execution) {
				x.Request = &store.Request{Turn: store.TurnCancel, Actor: "ann", Reason: "because", At: base}
			})}
			leases := []store.Lease{lease(list[0]), lease(list[1]), lease(list[2])}
			for i, progress := range [][]*store.Progress{
				{{Done: 1, At: *at(1)}, nil, {Done: 2, Total: 3, Note: "two of three", At: base.Add(1999)}},
				nil,
				{nil, {Done: 1<<63 - 1, Total: 1<<63 - 1, Note: awkward, At: base}, nil},
				{{}, {Done: 4, At: base.Add(-anHour)}, {Done: 5, Note: strings.Repeat("n", store.MaxNote), At: base}},
				{nil, nil, nil},
			} {
				r := renewal
				r.Progress = progress
				got, err := e.s.Renew(e.Context(), leases, r)
				e.ok(err)
				e.same("answers", got, []store.LeaseState{store.LeaseHeld, store.LeaseHeld, store.LeaseInterrupted})
				for j, x := range list {
					list[j] = renewed(x)
					if progress != nil && progress[j] != nil {
						list[j].Attempt.Progress = progress[j].Clone()
						spoil(&progress[j]) // a copy was to be taken
					}
					e.same(fmt.Sprintf("execution %d after renewal %d", j, i), e.get(x.ID), list[j])
				}
			}
		},
	},
	{
		name:    "RenewOfLostNotesNothing",
		promise: "Renew answers LeaseLost, and writes nothing, when the token is not that of the open attempt: no progress either.",
		run: func(e *env) {
			x := e.create(opened, func(x *store.Execution) { x.Attempt.Progress = &store.Progress{Done: 1, At: base} })
			was := e.stored(x.ID)
			stale := lease(x)
			stale.Worker = "w2"
			r := renewal
			r.Progress = []*store.Progress{{Done: 9, Note: "late", At: base}, {Done: 8, At: base}}
			got, err := e.s.Renew(e.Context(), []store.Lease{stale, {Execution: uuid.New(), Step: "pay"}}, r)
			e.ok(err)
			e.same("answers", got, []store.LeaseState{store.LeaseLost, store.LeaseLost})
			e.untouched("Renew", x.ID, was)
		},
	},
	{
		name:    "ProgressGoesWithTheAttempt",
		promise: "Progress is what the step last said of its progress: it is the open attempt's, and gone with it.",
		run: func(e *env) {
			x := e.create(opened)
			r := renewal
			r.Progress = []*store.Progress{{Done: 9, At: base}}
			_, err := e.s.Renew(e.Context(), []store.Lease{lease(x)}, r)
			e.ok(err)
			x = e.update(x.ID, func(x *store.Execution) store.Change {
				if x.Attempt.Progress == nil {
					e.Errorf("fn is not shown the progress")
				}
				x.Attempt = nil
				return store.Change{}
			})
			e.same("after the attempt was closed", e.get(x.ID), x)
			x = e.update(x.ID, func(x *store.Execution) store.Change {
				opened(x)
				return store.Change{}
			})
			if x.Attempt.Progress != nil {
				e.Errorf("the next attempt has the progress of the one before")
			}
			e.same("after the next attempt was opened", e.get(x.ID), x)
		},
	},
	{
		name:    "RenewPassesLocked",
		promise: "Renew answers LeaseLocked, without waiting and without prolonging, when the row is locked; a store with a single writer waits and never answers LeaseLocked.",
		run: func(e *env) {
			x, y := e.create(opened), e.create(opened)
			was := e.stored(x.ID)
			both := []store.Lease{lease(x), lease(y)}
			release := e.hold(x.ID, nil)
			if e.opts.SingleWriter {
				e.waits("Renew", func(ctx context.Context) error { _, err := e.s.Renew(ctx, both, renewal); return err })
			} else {
				noted := renewal
				noted.Progress = []*store.Progress{{Done: 1, At: base}, nil}
				e.soon("Renew", func(ctx context.Context) error {
					got, err := e.s.Renew(ctx, both, noted)
					e.same("while the first was locked", got, []store.LeaseState{store.LeaseLocked, store.LeaseHeld})
					return err
				})
				e.same("the one not locked", e.get(y.ID), renewed(y))
			}
			release()
			e.untouched("Renew of a locked execution", x.ID, was)
			e.renew("after the lock", both, store.LeaseHeld, store.LeaseHeld)
		},
	},
	{
		name:    "RenewAnswersInOrder",
		promise: "Renew answers for each lease, in the order given. The same lease given twice gets the same answer twice.",
		run: func(e *env) {
			var held, lost, interrupted []store.Lease
			for range 3 {
				held = append(held, lease(e.create(opened)))
				lost = append(lost, store.Lease{Execution: uuid.Must(uuid.NewV7()), Step: "pay", Direction: store.DirectionExecute, Number: 1, Worker: "w1"})
				interrupted = append(interrupted, lease(e.create(opened, func(x *store.Execution) {
					x.Request = &store.Request{Turn: store.TurnCancel, At: base}
				})))
			}
			h, l, i := store.LeaseHeld, store.LeaseLost, store.LeaseInterrupted
			stale := held[0]
			stale.Number = 9
			e.renew("answers",
				[]store.Lease{held[2], lost[0], interrupted[1], held[0], held[2], lost[0], stale, interrupted[0], interrupted[1], held[1], lost[2]},
				h, l, i, h, h, l, l, i, i, h, l)
		},
	},
}
