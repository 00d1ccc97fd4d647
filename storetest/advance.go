package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

func advancer(e *env) store.Advancer {
	e.Helper()
	return ability[store.Advancer](e, "Advancer")
}

var advanceCases = []testCase{
	{
		name:    "AdvanceWrites",
		promise: "Advance writes x and c in one transaction if the stored revision is still x.Revision. The revision rises by one, in the store and in x.",
		run: func(e *env) {
			a := advancer(e)
			x := e.create()
			for i := range 3 {
				x.Step, x.Tries = "ship", i
				want := x.Clone()
				want.Revision++
				e.ok(a.Advance(e.Context(), x, store.Change{Audit: []store.AuditEntry{entry(x.ID, "act")}}))
				e.same("x after Advance", x, want)
				e.same("Get after Advance", e.get(x.ID), want)
			}
			if n := len(e.audit(x.ID)); n != 3 {
				e.Errorf("%d audit entries, want 3", n)
			}
		},
	},
	{
		name:    "AdvanceReplaces",
		promise: "Advance writes x: every field of it, from zero to set and back.",
		run: func(e *env) {
			a := advancer(e)
			x := e.empty()
			e.ok(e.s.Create(e.Context(), x))
			for _, y := range []*store.Execution{e.full(), e.full(), e.empty()} {
				e.ok(a.Advance(e.Context(), become(y, x), store.Change{}))
				e.same("after Advance", e.get(x.ID), y)
				x = y
			}
		},
	},
	{
		name:    "AdvanceConflicts",
		promise: "Advance returns ErrConflict, having written nothing, if the stored revision is not x.Revision or the row is gone.",
		run: func(e *env) {
			a := advancer(e)
			x := e.create()
			e.update(x.ID, func(*store.Execution) store.Change { return store.Change{} })
			was := e.stored(x.ID)
			y := e.execution()
			for _, revision := range []int64{0, 1, 3} {
				old := x.Clone()
				old.Revision, old.Step = revision, "ship"
				e.is(a.Advance(e.Context(), old, store.Change{
					Attempts: []store.Attempt{closed(x.ID, "pay", 1)},
					Audit:    []store.AuditEntry{entry(x.ID, "act")},
					Create:   []*store.Execution{y},
				}), store.ErrConflict)
				if old.Revision != revision {
					e.Errorf("x.Revision is %d after a conflict, want %d as before", old.Revision, revision)
				}
				e.untouched("Advance", x.ID, was)
				e.absent(y.ID)
			}
			gone := e.execution()
			gone.Revision = 1
			e.is(a.Advance(e.Context(), gone, store.Change{}), store.ErrConflict)
			e.absent(gone.ID)
		},
	},
	{
		name:    "AdvanceAfterWake",
		promise: "The revision of a woken execution rises by one, so that a write based on an older copy conflicts.",
		run: func(e *env) {
			a := advancer(e)
			x, y := e.create(), e.create(opened)
			e.update(x.ID, func(*store.Execution) store.Change {
				return store.Change{Wake: []store.Wake{{ID: y.ID, At: base}}}
			})
			e.is(a.Advance(e.Context(), y, store.Change{}), store.ErrConflict)
		},
	},
	{
		name:    "AdvanceEqualsWithLock",
		promise: "The outcome of Advance is the same as that of a WithLock whose fn returns x and c.",
		run: func(e *env) {
			a := advancer(e)
			var got [2]struct {
				Itself, Created, Woken record
			}
			key := 0
			for i := range got {
				e.n = 0 // the same values for both
				full := e.full()
				created := e.full()
				var attempt store.Attempt
				e.fill(&attempt)
				var audit store.AuditEntry
				e.fill(&audit)

				x := e.create(opened)
				woken := e.create(func(x *store.Execution) { x.DueAt, x.OfferedAt = at(time.Hour), at(0) })
				e.record(x.ID, closed(x.ID, "pay", 1))
				x = e.get(x.ID)
				become(full, x)
				for _, y := range []*store.Execution{full, created} { // ids are never the same twice
					y.RerunOf, y.RerunAs, y.Follows, y.ReplacedBy, y.ContinuedAs = &uuid.UUID{1}, &uuid.UUID{2}, &uuid.UUID{3}, &uuid.UUID{4}, &uuid.UUID{5}
				}
				created.Parent.Execution, created.Continues = uuid.UUID{6}, &uuid.UUID{7}
				attempt.Execution, audit.Execution = x.ID, x.ID
				late := closed(x.ID, "pay", 1)
				late.Late, late.LateStatus = true, store.AttemptFailed
				for _, y := range []*store.Execution{full, created} {
					key++
					y.Key, y.Saga = "k", e.tag+string(rune('a'+key)) // one key each
				}
				c := store.Change{
					Attempts: []store.Attempt{late, attempt}, Audit: []store.AuditEntry{audit},
					Create: []*store.Execution{created}, Wake: []store.Wake{{ID: woken.ID, At: base}},
				}
				if i == 0 {
					e.ok(a.Advance(e.Context(), full, c))
				} else {
					e.update(x.ID, func(x *store.Execution) store.Change {
						*x = *full
						return c
					})
				}
				got[i].Itself, got[i].Created, got[i].Woken = e.stored(x.ID), e.stored(created.ID), e.stored(woken.ID)
				for _, r := range []*record{&got[i].Itself, &got[i].Created, &got[i].Woken} {
					r.Execution.ID, r.Execution.Saga = uuid.Nil, ""
					for j := range r.Attempts {
						r.Attempts[j].Execution = uuid.Nil
					}
					for j := range r.Audit {
						r.Audit[j].Execution = uuid.Nil
					}
				}
			}
			e.same("by Advance (got) and by WithLock (want)", got[0], got[1])
		},
	},
	{
		name:    "AdvanceOverClaimAndRenewal",
		promise: "DueAt, OfferedAt and the lease are written as x has them, although ClaimDue and Renew may have changed them since x was read.",
		run: func(e *env) {
			a := advancer(e)
			x := e.create(opened)
			_, err := e.s.ClaimDue(e.Context(), store.DueQuery{Now: base, Hold: time.Hour, Limit: 1, Partition: e.tag})
			e.ok(err)
			lease, _ := x.Lease()
			_, err = e.s.Renew(e.Context(), []store.Lease{lease}, renewal)
			e.ok(err)
			noted := renewal
			noted.Progress = []*store.Progress{{Done: 1, At: base}}
			_, err = e.s.Renew(e.Context(), []store.Lease{lease}, noted)
			e.ok(err)
			x.DueAt, x.OfferedAt = at(5*time.Second), at(6*time.Second)
			e.ok(a.Advance(e.Context(), x, store.Change{}))
			e.same("after Advance", e.get(x.ID), x)
		},
	},
	{
		name:    "AdvanceIsRefused",
		promise: "Nothing is written when the execution or the Change is refused: ErrInvalid, ErrExists or *KeyTakenError, from Advance as from WithLock.",
		run: func(e *env) {
			a := advancer(e)
			holder := e.create(func(x *store.Execution) { x.Key = "k" })
			x := e.create(func(x *store.Execution) { x.Key = "k"; x.Status = store.StatusFailed })
			was := e.stored(x.ID)
			y := e.execution()
			try := func(what string, status store.Status, c store.Change, change func(*store.Execution)) error {
				z := x.Clone()
				z.Step, z.Status = "ship", status
				change(z)
				c.Audit = append(c.Audit, entry(x.ID, "act"))
				err := a.Advance(e.Context(), z, c)
				if z.Revision != x.Revision {
					e.Errorf("%s: x.Revision is %d although nothing was written", what, z.Revision)
				}
				e.untouched(what, x.ID, was)
				e.absent(y.ID)
				return err
			}
			none := func(*store.Execution) {}
			e.is(try("a bad state", store.StatusFailed, store.Change{}, func(x *store.Execution) { x.State = []byte(`[]`) }), store.ErrInvalid)
			e.is(try("a bad text", store.StatusFailed, store.Change{}, func(x *store.Execution) { x.Reason = "\x00" }), store.ErrInvalid)
			e.is(try("an attempt of another", store.StatusFailed, store.Change{Attempts: []store.Attempt{closed(holder.ID, "pay", 1)}}, none), store.ErrInvalid)
			e.is(try("creating what exists", store.StatusFailed, store.Change{Create: []*store.Execution{y, holder.Clone()}}, none), store.ErrExists)
			used := entry(x.ID, "act")
			used.Request = "r"
			x = e.update(x.ID, func(*store.Execution) store.Change { return store.Change{Audit: []store.AuditEntry{used}} })
			was = e.stored(x.ID)
			e.is(try("a request that was used", store.StatusFailed, store.Change{Audit: []store.AuditEntry{used}, Create: []*store.Execution{y}}, none), store.ErrRequestUsed)
			e.keyTaken(try("a key that is taken", store.StatusRunning, store.Change{Create: []*store.Execution{y}}, none), x.Saga, "k", holder.ID)
			e.free(x.ID)
		},
	},
	{
		name:    "AdvanceRace",
		promise: "Of simultaneous Advances based on one revision exactly one succeeds, and the others return ErrConflict.",
		run: func(e *env) {
			a := advancer(e)
			x := e.create()
			e.one(race(func(i int) error {
				y := x.Clone()
				y.Tries = i + 1
				return a.Advance(e.Context(), y, store.Change{Audit: []store.AuditEntry{entry(x.ID, "act")}})
			}), func(err error) bool { return errors.Is(err, store.ErrConflict) })
			if got, n := e.get(x.ID), len(e.audit(x.ID)); got.Revision != 2 || n != 1 {
				e.Errorf("revision %d and %d audit entries, want 2 and 1", got.Revision, n)
			}
		},
	},
	{
		name:    "AdvanceWaitsForLock",
		promise: "Advance waits for a lock held by WithLock, until its ctx ends.",
		run: func(e *env) {
			a := advancer(e)
			x := e.create()
			was := e.stored(x.ID)
			release := e.hold(x.ID, nil)
			e.waits("Advance of a locked execution", func(ctx context.Context) error {
				y := x.Clone()
				y.Step = "ship"
				return a.Advance(ctx, y, store.Change{})
			})
			release()
			e.untouched("an Advance that waited in vain", x.ID, was)
			x.Step = "ship"
			e.soon("Advance", func(ctx context.Context) error { return a.Advance(ctx, x, store.Change{}) })
		},
	},
}
