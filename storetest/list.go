package storetest

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

func (e *env) stalled(q store.StalledQuery) []*store.Execution {
	e.Helper()
	list, err := e.s.Stalled(e.Context(), q)
	e.ok(err)
	return list
}

var listCases = []testCase{
	{
		name:    "Stalled",
		promise: "Stalled returns unfinished executions (halted and waiting ones too) whose ProgressAt is strictly before q.ProgressBefore, ordered by (ProgressAt, ID).",
		fresh:   true,
		run: func(e *env) {
			var want []*store.Execution
			for i, status := range store.Statuses() {
				x := e.create(func(x *store.Execution) { x.Status = status; x.ProgressAt = *at(-time.Duration(i) * time.Second) })
				e.create(func(x *store.Execution) { x.Status = status; x.ProgressAt = *at(time.Microsecond) })
				if !status.Finished() {
					want = append(want, x)
				}
			}
			slices.Reverse(want)
			got := e.stalled(store.StalledQuery{ProgressBefore: base.Add(time.Microsecond), Limit: 100})
			e.same("Stalled", got, want)
			got = e.stalled(store.StalledQuery{ProgressBefore: base.Add(-3 * time.Second), Limit: 100})
			e.same("before the oldest", got, []*store.Execution(nil))

			// It follows the changes.
			e.update(want[0].ID, func(x *store.Execution) store.Change {
				x.ProgressAt = base
				return store.Change{}
			})
			e.update(want[1].ID, func(x *store.Execution) store.Change {
				x.Status = store.StatusCompleted
				return store.Change{}
			})
			got = e.stalled(store.StalledQuery{ProgressBefore: base, Limit: 100})
			e.same("after progress", got, want[2:3])
		},
	},
	{
		name:    "StalledInPages",
		promise: "At most q.Limit, beginning after q.After. Ids are ordered by their 16 bytes.",
		fresh:   true,
		run: func(e *env) {
			var want []*store.Execution
			for i := range 17 {
				x := e.execution(func(x *store.Execution) { x.ID = uuid.New(); x.ProgressAt = *at(time.Duration(i%3) * time.Microsecond) })
				e.ok(e.s.Create(e.Context(), x))
				want = append(want, x)
			}
			slices.SortFunc(want, func(a, b *store.Execution) int {
				if c := a.ProgressAt.Compare(b.ProgressAt); c != 0 {
					return c
				}
				return bytes.Compare(a.ID[:], b.ID[:])
			})
			for limit := 1; limit <= 18; limit++ {
				var got []*store.Execution
				q := store.StalledQuery{ProgressBefore: base.Add(time.Second), Limit: limit}
				for {
					page := e.stalled(q)
					if len(page) > limit {
						e.Errorf("a page of %d has %d", limit, len(page))
					}
					got = append(got, page...)
					if len(page) < limit || len(got) > len(want) {
						break
					}
					last := page[len(page)-1]
					q.After = &store.StalledCursor{ProgressAt: last.ProgressAt, ID: last.ID}
				}
				e.same("all pages", ids(got), ids(want))
			}
			// The place need not be that of an execution.
			got := e.stalled(store.StalledQuery{
				ProgressBefore: base.Add(time.Second), Limit: 1,
				After: &store.StalledCursor{ProgressAt: base.Add(-time.Hour), ID: uuid.Max},
			})
			e.same("after a place before all", ids(got), ids(want[:1]))
		},
	},
	{
		name:    "ListsAreWhole",
		promise: "Stalled and ForResource return executions as Get does: every field of them, set and zero.",
		fresh:   true,
		run: func(e *env) {
			full, empty := e.full(), e.empty()
			full.Resource, full.ProgressAt = store.Resource{Type: "order", ID: e.tag}, base
			empty.Resource, empty.ProgressAt, empty.Status = full.Resource, base, store.StatusRunning
			for _, x := range []*store.Execution{full, empty} {
				e.ok(e.s.Create(e.Context(), x))
			}
			want := []*store.Execution{full, empty}
			slices.SortFunc(want, newestFirst)
			list, err := e.s.ForResource(e.Context(), full.Resource, 10)
			e.ok(err)
			e.same("ForResource", list, want)
			slices.Reverse(want)
			e.same("Stalled", e.stalled(store.StalledQuery{ProgressBefore: base.Add(time.Second), Limit: 10}), want)
		},
	},
	{
		name:    "ForResource",
		promise: "ForResource returns the executions of one resource (both Type and ID equal, to the byte).",
		run: func(e *env) {
			r := store.Resource{Type: "Order%_", ID: e.tag + "é 1"}
			create := func(r store.Resource) *store.Execution {
				return e.create(func(x *store.Execution) { x.Resource = r })
			}
			want := []*store.Execution{create(r)}
			create(store.Resource{Type: strings.ToLower(r.Type), ID: r.ID})
			create(store.Resource{Type: r.Type, ID: strings.ToUpper(r.ID)})
			create(store.Resource{Type: r.Type, ID: r.ID + " "})
			create(store.Resource{Type: r.Type, ID: " " + r.ID})
			create(store.Resource{Type: "OrderXX", ID: r.ID})
			create(store.Resource{Type: r.Type, ID: e.tag + "e\u0301 1"})
			create(store.Resource{Type: r.Type})
			create(store.Resource{ID: r.ID})
			create(store.Resource{Type: r.ID, ID: r.Type})
			moved := create(r)
			e.update(moved.ID, func(x *store.Execution) store.Change {
				x.Resource = store.Resource{}
				return store.Change{}
			})
			list, err := e.s.ForResource(e.Context(), r, 100)
			e.ok(err)
			e.same("ForResource", list, want)
			list, err = e.s.ForResource(e.Context(), store.Resource{Type: "nothing", ID: e.tag}, 100)
			e.ok(err)
			e.same("of a resource without any", ids(list), []uuid.UUID(nil))
		},
	},
	{
		name:    "ForResourceNewestFirst",
		promise: "ForResource returns the newest id first, at most limit, whatever the status.",
		run: func(e *env) {
			var want []*store.Execution
			for i := range 9 {
				x := e.execution(func(x *store.Execution) { x.ID = uuid.New(); x.Status = store.Statuses()[i] })
				e.ok(e.s.Create(e.Context(), x))
				want = append(want, x)
			}
			slices.SortFunc(want, func(a, b *store.Execution) int { return bytes.Compare(b.ID[:], a.ID[:]) })
			for _, limit := range []int{1, 4, 9, 100} {
				list, err := e.s.ForResource(e.Context(), want[0].Resource, limit)
				e.ok(err)
				e.same("ForResource", list, want[:min(limit, len(want))])
			}
		},
	},
	{
		name:    "LimitsAreRefused",
		promise: "A limit below 1: ErrInvalid, from ForResource and Stalled.",
		run: func(e *env) {
			for _, limit := range []int{0, -1} {
				_, err := e.s.ForResource(e.Context(), store.Resource{Type: "order", ID: e.tag}, limit)
				e.is(err, store.ErrInvalid)
				_, err = e.s.Stalled(e.Context(), store.StalledQuery{ProgressBefore: base, Limit: limit})
				e.is(err, store.ErrInvalid)
			}
		},
	},
}
