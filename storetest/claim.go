package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// claim takes due executions of the case's partition.
func (e *env) claim(q store.DueQuery) []*store.Execution {
	e.Helper()
	if q.Partition == "" {
		q.Partition = e.tag
	}
	list, err := e.s.ClaimDue(e.Context(), q)
	e.ok(err)
	return list
}

func ids(list []*store.Execution) []uuid.UUID {
	var ids []uuid.UUID
	for _, x := range list {
		ids = append(ids, x.ID)
	}
	return ids
}

var claimCases = []testCase{
	{
		name:    "ClaimDueHolds",
		promise: "ClaimDue sets their DueAt to q.Now + q.Hold, and their OfferedAt to q.Now where it is nil; and returns them as they are after that. Nothing else changes, the revision neither.",
		run: func(e *env) {
			full := e.full()
			full.DueAt, full.OfferedAt = at(-time.Second), at(-time.Minute)
			e.ok(e.s.Create(e.Context(), full))
			plain := e.create()
			now := base.Add(time.Second)
			got := e.claim(store.DueQuery{Now: now.Add(999), Hold: time.Minute, Limit: 10})
			full.DueAt, plain.DueAt = at(61*time.Second), at(61*time.Second)
			plain.OfferedAt = &now
			e.same("what ClaimDue returned", got, []*store.Execution{full, plain})
			e.same("the one offered before", e.get(full.ID), full)
			e.same("the one not offered before", e.get(plain.ID), plain)
		},
	},
	{
		name:    "ClaimDueInOrder",
		promise: "ClaimDue takes at most q.Limit executions, those due longest first (then by id).",
		run: func(e *env) {
			var want []*store.Execution
			for i := range 12 {
				want = append(want, e.execution(func(x *store.Execution) { x.DueAt = at(-time.Duration(i/3) * time.Second) }))
			}
			for _, i := range []int{4, 11, 0, 7, 2, 9, 5, 1, 10, 3, 8, 6} {
				e.ok(e.s.Create(e.Context(), want[i]))
			}
			slices.SortFunc(want, func(a, b *store.Execution) int {
				if c := a.DueAt.Compare(*b.DueAt); c != 0 {
					return c
				}
				return bytes.Compare(a.ID[:], b.ID[:])
			})
			for i := 0; i < len(want); i += 5 {
				n := min(5, len(want)-i)
				got := e.claim(store.DueQuery{Now: base, Hold: time.Hour, Limit: 5})
				e.same("ids", ids(got), ids(want[i:i+n]))
			}
			if got := e.claim(store.DueQuery{Now: base, Hold: time.Hour, Limit: 5}); len(got) > 0 {
				e.Errorf("%d were claimed twice", len(got))
			}
		},
	},
	{
		name:    "ClaimDueTakesWhatIsDue",
		promise: "ClaimDue takes executions whose DueAt is at or before q.Now.",
		run: func(e *env) {
			long, now, later := e.create(), e.create(), e.create()
			set := func(x *store.Execution, due *time.Time) {
				e.update(x.ID, func(x *store.Execution) store.Change {
					x.DueAt = due
					return store.Change{}
				})
			}
			set(long, at(-1000*time.Hour))
			set(now, at(0))
			set(later, at(time.Microsecond))
			for _, status := range store.Statuses() {
				x := e.create(func(x *store.Execution) { x.Status = status })
				set(x, nil) // finished, halted, or waiting without a deadline
			}
			got := ids(e.claim(store.DueQuery{Now: base, Hold: time.Hour, Limit: 100}))
			e.same("due then", got, []uuid.UUID{long.ID, now.ID})
			got = ids(e.claim(store.DueQuery{Now: base.Add(time.Microsecond), Hold: time.Hour, Limit: 100}))
			e.same("due a microsecond later", got, []uuid.UUID{later.ID})
			set(later, at(0))
			got = ids(e.claim(store.DueQuery{Now: base, Limit: 100}))
			e.same("made due again", got, []uuid.UUID{later.ID})
			got = ids(e.claim(store.DueQuery{Now: base, Limit: 100}))
			e.same("held for no time", got, []uuid.UUID{later.ID})
		},
	},
	{
		name:    "ClaimDueOfAPartition",
		promise: `DueQuery.Partition: only executions of that partition; "": all.`,
		fresh:   true,
		run: func(e *env) {
			var want []uuid.UUID
			for i, p := range []string{e.tag, e.tag + "2", e.tag[1:], "T" + e.tag[1:]} {
				x := e.create(func(x *store.Execution) { x.Partition = p; x.DueAt = at(time.Duration(i) * time.Microsecond) })
				want = append(want, x.ID)
			}
			got, err := e.s.ClaimDue(e.Context(), store.DueQuery{Now: base.Add(time.Second), Limit: 10, Partition: e.tag})
			e.ok(err)
			e.same("one partition", ids(got), want[:1])
			got, err = e.s.ClaimDue(e.Context(), store.DueQuery{Now: base.Add(time.Second), Limit: 10})
			e.ok(err)
			e.same("all partitions", ids(got), append(want[1:], want[0]))
			// It moves with the execution.
			e.update(want[1], func(x *store.Execution) store.Change {
				x.Partition = e.tag
				x.DueAt = at(0)
				return store.Change{}
			})
			got, err = e.s.ClaimDue(e.Context(), store.DueQuery{Now: base, Limit: 10, Partition: e.tag})
			e.ok(err)
			e.same("after one changed its partition", ids(got), want[1:2])
		},
	},
	{
		name:    "ClaimDuePassesPaused",
		promise: "NotPartitions and NotSagas are paused: their executions are passed over and stay due. Of the others at most q.Limit are taken, those due longest first.",
		fresh:   true,
		run: func(e *env) {
			paused := []string{e.tag + awkward, "it's", "", "unknown"}
			create := func(i int, saga, partition string) *store.Execution {
				return e.create(func(x *store.Execution) {
					x.Saga, x.Partition, x.DueAt = saga, partition, at(time.Duration(i)*time.Microsecond)
				})
			}
			var others, bySaga, byPartition []uuid.UUID
			was := map[uuid.UUID]record{}
			for i := range 6 {
				// The paused ones are due longest.
				for _, p := range paused[:2] {
					bySaga = append(bySaga, create(i, p, e.tag).ID)
					byPartition = append(byPartition, create(i, e.tag, p).ID)
				}
				others = append(others, create(100+i, e.tag, e.tag).ID, create(200+i, "It's", e.tag+"2").ID)
			}
			for _, id := range slices.Concat(bySaga, byPartition) {
				was[id] = e.stored(id)
			}
			slices.SortFunc(others, func(a, b uuid.UUID) int { return e.get(a).DueAt.Compare(*e.get(b).DueAt) })
			q := store.DueQuery{Now: base.Add(time.Second), Hold: time.Hour, Limit: 5, NotPartitions: paused, NotSagas: paused}
			var got []uuid.UUID
			for range 4 {
				list, err := e.s.ClaimDue(e.Context(), q)
				e.ok(err)
				if len(list) > q.Limit {
					e.Errorf("%d were claimed, want at most %d", len(list), q.Limit)
				}
				got = append(got, ids(list)...)
			}
			e.same("what is not paused", got, others)
			for id, was := range was {
				e.untouched("ClaimDue of what is paused", id, was)
			}
			claim := func(what string, want []uuid.UUID, change func(q *store.DueQuery)) {
				e.Helper()
				q := store.DueQuery{Now: q.Now, Hold: time.Hour, Limit: 100}
				change(&q)
				list, err := e.s.ClaimDue(e.Context(), q)
				e.ok(err)
				got := ids(list)
				for _, x := range list {
					if x.OfferedAt == nil || !x.OfferedAt.Equal(q.Now) {
						e.Errorf("%s: OfferedAt is %v, want the time of the claim", what, x.OfferedAt)
					}
				}
				slices.SortFunc(got, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
				slices.SortFunc(want, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
				e.same(what, got, want)
			}
			var its []uuid.UUID
			for i, id := range bySaga {
				if i%2 == 1 {
					its = append(its, id)
				}
			}
			claim("the sagas of one partition, of which one is paused", its, func(q *store.DueQuery) {
				q.Partition, q.NotSagas = e.tag, paused[:1]
			})
			many := make([]string, store.MaxFilter)
			for i := range many {
				many[i] = fmt.Sprintf("%s%d", e.tag, i+10)
			}
			many[7] = e.tag
			claim("one partition, with many paused sagas", nil, func(q *store.DueQuery) {
				q.Partition, q.NotSagas, q.NotPartitions = paused[0], many, many[:7]
			})
			claim("with many paused partitions", byPartition, func(q *store.DueQuery) { q.NotPartitions, q.NotSagas = many, many[:7] })
			var rest []uuid.UUID
			for i, id := range bySaga {
				if i%2 == 0 {
					rest = append(rest, id)
				}
			}
			claim("after nothing is paused any more", rest, func(*store.DueQuery) {})
		},
	},
	{
		name:    "ClaimDueOnce",
		promise: "Of any number of simultaneous callers each execution goes to exactly one.",
		run: func(e *env) {
			const total = 60
			for range total {
				e.create()
			}
			var mu sync.Mutex
			claimed := map[uuid.UUID]int{}
			take := func() (int, error) {
				list, err := e.s.ClaimDue(e.Context(), store.DueQuery{Now: base, Hold: time.Hour, Limit: 7, Partition: e.tag})
				mu.Lock()
				defer mu.Unlock()
				for _, x := range list {
					claimed[x.ID]++
				}
				return len(list), err
			}
			for _, err := range race(func(int) error {
				for {
					if n, err := take(); n == 0 || err != nil {
						return err
					}
				}
			}) {
				e.ok(err)
			}
			// Each that was passed over meanwhile has stayed due.
			for {
				n, err := take()
				e.ok(err)
				if n == 0 {
					break
				}
			}
			for id, n := range claimed {
				if n != 1 {
					e.Errorf("execution %s was claimed %d times", id, n)
				}
			}
			if len(claimed) != total {
				e.Errorf("%d of %d executions were claimed", len(claimed), total)
			}
		},
	},
	{
		name:    "ClaimDuePassesLocked",
		promise: "Rows locked by WithLock are passed over and stay due; a store with a single writer waits instead.",
		run: func(e *env) {
			locked, next := e.create(), e.create(func(x *store.Execution) { x.DueAt = at(time.Second) })
			q := store.DueQuery{Now: base.Add(time.Second), Hold: time.Hour, Limit: 1, Partition: e.tag}
			release := e.hold(locked.ID, nil)
			if e.opts.SingleWriter {
				e.waits("ClaimDue", func(ctx context.Context) error { _, err := e.s.ClaimDue(ctx, q); return err })
				release()
				e.same("after the lock", ids(e.claim(q)), []uuid.UUID{locked.ID})
				return
			}
			e.soon("ClaimDue", func(ctx context.Context) error {
				got, err := e.s.ClaimDue(ctx, q)
				e.same("while the first was locked", ids(got), []uuid.UUID{next.ID})
				return err
			})
			release()
			e.same("after the lock", ids(e.claim(q)), []uuid.UUID{locked.ID})
		},
	},
	{
		name:    "ClaimDueRefuses",
		promise: "A Limit below 1, a negative Hold, and excluded names that are too many or no texts are ErrInvalid.",
		run: func(e *env) {
			x := e.create()
			was := e.stored(x.ID)
			many, nul, bytes := make([]string, store.MaxFilter+1), []string{"a\x00b"}, []string{"a\xffb"}
			for _, q := range []store.DueQuery{
				{Limit: 0}, {Limit: -1}, {Limit: 1, Hold: -1},
				{Limit: 1, NotPartitions: many}, {Limit: 1, NotPartitions: nul}, {Limit: 1, NotPartitions: bytes},
				{Limit: 1, NotSagas: many}, {Limit: 1, NotSagas: nul}, {Limit: 1, NotSagas: bytes},
			} {
				q.Now, q.Partition = base, e.tag
				_, err := e.s.ClaimDue(e.Context(), q)
				e.is(err, store.ErrInvalid)
			}
			e.untouched("ClaimDue", x.ID, was)
		},
	},
}
