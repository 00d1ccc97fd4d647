package storetest

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

func outboxOf(e *env) store.Outbox {
	e.Helper()
	return ability[store.Outbox](e, "Outbox")
}

// late is after all that is recorded.
var late = base.AddDate(100, 0, 0)

// events claims events, without holding them.
func (e *env) events(o store.Outbox) []store.StatusEvent {
	e.Helper()
	list, err := o.ClaimEvents(e.Context(), store.EventQuery{Now: late, Limit: 1000})
	e.ok(err)
	return list
}

// eventful makes an execution record events, at a time.
func eventful(at time.Duration) func(*store.Execution) {
	return func(x *store.Execution) { x.Events, x.UpdatedAt = true, base.Add(at) }
}

// sortEvents orders as ClaimEvents does.
func sortEvents(list []store.StatusEvent) {
	slices.SortFunc(list, func(a, b store.StatusEvent) int {
		return cmp.Or(a.At.Compare(b.At), bytes.Compare(a.Execution[:], b.Execution[:]), cmp.Compare(a.Revision, b.Revision))
	})
}

var outboxCases = []testCase{
	{
		name:    "EventsAreRecorded",
		promise: "Of an execution whose Events is true, every write that creates it, changes its Status, or makes Events true records one StatusEvent. StatusEventOf is the rule.",
		fresh:   true,
		run: func(e *env) {
			o := outboxOf(e)
			var want []store.StatusEvent
			wants := func(old, x *store.Execution) {
				if v := store.StatusEventOf(old, x); v != nil {
					want = append(want, *v)
				}
			}
			x := e.full()
			e.ok(e.s.Create(e.Context(), x))
			wants(nil, x)
			plain := e.create(opened)
			for i, change := range []func(x *store.Execution) store.Change{
				func(x *store.Execution) store.Change { x.Status = store.StatusRunning; return store.Change{} },
				func(x *store.Execution) store.Change { x.Step = "ship"; return store.Change{} },
				func(x *store.Execution) store.Change {
					x.Events, x.Status = false, store.StatusHalted
					return store.Change{}
				},
				func(x *store.Execution) store.Change { x.Events = true; return store.Change{} },
				func(x *store.Execution) store.Change {
					x.Status, x.Failure = store.StatusFailed, nil
					return store.Change{Create: []*store.Execution{e.execution(eventful(0)), e.execution()}}
				},
				func(x *store.Execution) store.Change {
					x.Status, x.Failure = store.StatusRunning, &store.Failure{Class: "c", Message: "m", Step: "pay"}
					return store.Change{Wake: []store.Wake{{ID: plain.ID, At: base}}}
				},
			} {
				old := e.get(x.ID)
				var created []*store.Execution
				x = e.update(x.ID, func(x *store.Execution) store.Change {
					x.UpdatedAt = base.Add(time.Duration(i+1) * time.Hour)
					c := change(x)
					created = c.Create
					return c
				})
				wants(old, x)
				for _, y := range created {
					wants(nil, e.get(y.ID))
				}
			}
			if a, ok := store.As[store.Advancer](e.s); ok {
				for i, status := range []store.Status{store.StatusWaiting, store.StatusWaiting, store.StatusCompleted} {
					old, y := e.get(x.ID), e.get(x.ID)
					y.Status, y.UpdatedAt = status, base.Add(time.Duration(i+100)*time.Hour)
					e.ok(a.Advance(e.Context(), y, store.Change{}))
					wants(old, y)
				}
			}
			sortEvents(want)
			e.same("ClaimEvents", e.events(o), want)
		},
	},
	{
		name:    "EventsAreOfTheTransaction",
		promise: "A StatusEvent is recorded in the same transaction: what is not written records none.",
		fresh:   true,
		run: func(e *env) {
			o := outboxOf(e)
			x := e.create(eventful(0))
			want := e.events(o)
			e.is(e.s.Create(e.Context(), x.Clone()), store.ErrExists)
			boom := errors.New("no")
			for _, fail := range []error{store.ErrUnchanged, boom} {
				_, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
					x.Status = store.StatusFailed
					return store.Change{}, fail
				})
				if fail == boom {
					e.is(err, boom)
				}
			}
			_, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
				x.Status = store.StatusFailed
				return store.Change{Create: []*store.Execution{e.execution(eventful(0)), x.Clone()}}, nil
			})
			if err == nil {
				e.Errorf("an execution was created twice")
			}
			if a, ok := store.As[store.Advancer](e.s); ok {
				y := x.Clone()
				y.Revision, y.Status = 7, store.StatusFailed
				e.is(a.Advance(e.Context(), y, store.Change{}), store.ErrConflict)
			}
			e.same("ClaimEvents", e.events(o), want)
		},
	},
	{
		name:    "ClaimEventsHolds",
		promise: "ClaimEvents takes at most q.Limit events that have not been held until after q.Now, the oldest first (by At, Execution, Revision), holds them until q.Now + q.Hold, and returns them.",
		fresh:   true,
		run: func(e *env) {
			o := outboxOf(e)
			for _, i := range []int{3, 1, 1, 0, 2} {
				e.create(eventful(time.Duration(i) * time.Second))
			}
			all := e.events(o)
			sorted := slices.Clone(all)
			sortEvents(sorted)
			e.same("the order", all, sorted)
			claim := func(now time.Duration, hold time.Duration, limit int, want []store.StatusEvent) {
				e.Helper()
				list, err := o.ClaimEvents(e.Context(), store.EventQuery{Now: late.Add(now), Hold: hold, Limit: limit})
				e.ok(err)
				e.same("ClaimEvents", list, want)
			}
			claim(0, time.Minute, 2, all[:2])
			claim(0, time.Hour, 2, all[2:4])
			claim(time.Minute-time.Microsecond, time.Hour, 9, all[4:])
			claim(time.Minute, time.Hour, 9, all[:2])
			claim(time.Minute, time.Hour, 9, nil)
			for _, q := range []store.EventQuery{{Now: late}, {Now: late, Limit: 1, Hold: -1}} {
				_, err := o.ClaimEvents(e.Context(), q)
				e.is(err, store.ErrInvalid)
			}
		},
	},
	{
		name:    "ClaimEventsRace",
		promise: "Of any number of simultaneous callers each event goes to exactly one.",
		fresh:   true,
		run: func(e *env) {
			o := outboxOf(e)
			for range 40 {
				e.create(eventful(0))
			}
			var mu sync.Mutex
			taken := map[store.EventID]int{}
			for _, err := range race(func(int) error {
				for {
					list, err := o.ClaimEvents(e.Context(), store.EventQuery{Now: late, Hold: time.Hour, Limit: 3})
					if err != nil || len(list) == 0 {
						return err
					}
					mu.Lock()
					for i := range list {
						taken[list[i].ID()]++
					}
					mu.Unlock()
				}
			}) {
				e.ok(err)
			}
			for id, n := range taken {
				if n != 1 {
					e.Errorf("event %v went to %d callers", id, n)
				}
			}
			if len(taken) != 40 {
				e.Errorf("%d of 40 events were taken", len(taken))
			}
		},
	},
	{
		name:    "EventsAreRemoved",
		promise: "RemoveEvents removes events; those that are not there are passed over. OldestEvent returns the At of the oldest event that has not been removed, whether it is held or not; nil when there is none.",
		fresh:   true,
		run: func(e *env) {
			o := outboxOf(e)
			oldest := func(want *time.Time) {
				e.Helper()
				at, err := o.OldestEvent(e.Context())
				e.ok(err)
				e.same("OldestEvent", at, want)
			}
			oldest(nil)
			for i := range 4 {
				e.create(eventful(time.Duration(i) * time.Second))
			}
			all := e.events(o)
			oldest(at(0))
			e.ok(o.RemoveEvents(e.Context(), nil))
			e.ok(o.RemoveEvents(e.Context(), []store.EventID{
				all[0].ID(), all[2].ID(), {Execution: all[1].Execution, Revision: 2}, {Execution: uuid.Must(uuid.NewV7()), Revision: 1},
			}))
			e.same("what is left", e.events(o), []store.StatusEvent{all[1], all[3]})
			_, err := o.ClaimEvents(e.Context(), store.EventQuery{Now: late, Hold: time.Hour, Limit: 9})
			e.ok(err)
			oldest(at(time.Second))
			e.ok(o.RemoveEvents(e.Context(), []store.EventID{all[1].ID(), all[3].ID()}))
			oldest(nil)
			e.same("the end", e.events(o), []store.StatusEvent(nil))
		},
	},
	{
		name:    "EventsOutliveTheirExecution",
		promise: "An event stays when its execution is deleted.",
		fresh:   true,
		run: func(e *env) {
			o, d := outboxOf(e), ability[store.Deleter](e, "Deleter")
			x := e.create(eventful(0), func(x *store.Execution) { x.Status, x.DueAt, x.FinishedAt = store.StatusCompleted, nil, at(0) })
			was := e.events(o)
			gone, err := d.Delete(e.Context(), []store.Version{{ID: x.ID, Revision: x.Revision}})
			e.ok(err)
			e.same("Delete", gone, []bool{true})
			e.same("ClaimEvents", e.events(o), was)
			if len(was) != 1 {
				e.Errorf("%d events", len(was))
			}
		},
	},
}
