package storetest

import (
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// requested is an audit entry of a request.
func requested(id uuid.UUID, request string) store.AuditEntry {
	en := entry(id, "act")
	en.Request, en.Digest = request, "digest"
	return en
}

// ways returns the ways to write a Change with an execution: WithLock, and
// Advance where the store has it.
func (e *env) ways() map[string]func(id uuid.UUID, c store.Change) error {
	ways := map[string]func(id uuid.UUID, c store.Change) error{
		"WithLock": func(id uuid.UUID, c store.Change) error {
			_, err := e.s.WithLock(e.Context(), id, func(x *store.Execution) (store.Change, error) {
				x.Tries++
				return c, nil
			})
			return err
		},
	}
	if a, ok := store.As[store.Advancer](e.s); ok {
		ways["Advance"] = func(id uuid.UUID, c store.Change) error {
			x := e.get(id)
			was := x.Revision
			x.Tries++
			err := a.Advance(e.Context(), x, c)
			if err != nil && x.Revision != was {
				e.Errorf("x.Revision is %d after error %v, want %d as before", x.Revision, err, was)
			}
			return err
		}
	}
	return ways
}

var requestCases = []testCase{
	{
		name:    "RequestIsUsedOnce",
		promise: `When the execution already has an audit entry with the same Request, which is not "", nothing of the whole transaction is written, and the error is ErrRequestUsed.`,
		run: func(e *env) {
			for name, write := range e.ways() {
				x, woken := e.create(), e.create(func(x *store.Execution) { x.DueAt = at(time.Hour) })
				e.ok(write(x.ID, store.Change{Audit: []store.AuditEntry{requested(x.ID, "r"), entry(x.ID, "act")}}))
				was, wasWoken := e.stored(x.ID), e.stored(woken.ID)
				created := e.execution()
				again := requested(x.ID, "r")
				again.Act, again.Digest = "other", "another"
				for _, c := range []store.Change{
					{Audit: []store.AuditEntry{requested(x.ID, "r")}},
					{
						Attempts: []store.Attempt{closed(x.ID, "pay", 1)},
						Audit:    []store.AuditEntry{entry(x.ID, "act"), requested(x.ID, "new"), again},
						Create:   []*store.Execution{created},
						Wake:     []store.Wake{{ID: woken.ID, At: base}},
						Erase:    true,
					},
				} {
					e.is(write(x.ID, c), store.ErrRequestUsed)
					e.untouched(name+" with a request that was used", x.ID, was)
					e.untouched(name+" with a request that was used: the one to wake", woken.ID, wasWoken)
					e.absent(created.ID)
					e.free(x.ID)
				}
				e.ok(write(x.ID, store.Change{Audit: []store.AuditEntry{requested(x.ID, "new")}})) // it was not used up
			}
		},
	},
	{
		name:    "RequestsDiffer",
		promise: `An execution has at most one entry with a Request: other executions may have it too, and any number of entries have none. Requests are compared to the byte.`,
		run: func(e *env) {
			for _, write := range e.ways() {
				x, y := e.create(), e.create()
				var want []store.AuditEntry
				for _, request := range []string{"r", "R", "r ", "", "", " r", "é", "e\u0301", awkward, "%", "r%"} {
					en := requested(x.ID, request)
					want = append(want, en)
					e.ok(write(x.ID, store.Change{Audit: []store.AuditEntry{en, entry(x.ID, "act")}}))
					want = append(want, entry(x.ID, "act"))
				}
				e.same("Audit", e.audit(x.ID), want)
				e.ok(write(y.ID, store.Change{Audit: []store.AuditEntry{requested(y.ID, "r")}}))
				z := e.execution()
				e.ok(write(y.ID, store.Change{Create: []*store.Execution{z}, Audit: []store.AuditEntry{requested(y.ID, "s")}}))
				e.ok(write(z.ID, store.Change{Audit: []store.AuditEntry{requested(z.ID, "r"), requested(z.ID, "s")}}))
			}
		},
	},
	{
		name:    "RequestRace",
		promise: "Of simultaneous writes with one Request exactly one succeeds, and the others return ErrRequestUsed.",
		run: func(e *env) {
			x := e.create()
			e.one(race(func(i int) error {
				_, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
					x.Tries++
					return store.Change{Audit: []store.AuditEntry{requested(x.ID, "r")}}, nil
				})
				return err
			}), func(err error) bool { return errors.Is(err, store.ErrRequestUsed) })
			if got, n := e.get(x.ID), len(e.audit(x.ID)); got.Tries != 1 || got.Revision != 2 || n != 1 {
				e.Errorf("%d tries, revision %d and %d audit entries, want 1, 2 and 1", got.Tries, got.Revision, n)
			}
		},
	},
	{
		name:    "EraseEmpties",
		promise: "Erase empties what earlier transactions recorded in people's words: of the execution's attempts the failure's message (its class stays), stack and reason, of its audit entries reason and detail. Attempts and Audit of this Change are written after that.",
		run: func(e *env) {
			for name, write := range e.ways() {
				x, other := e.create(opened), e.create()
				full := func(id uuid.UUID, n int) (a store.Attempt, en store.AuditEntry) {
					e.fill(&a)
					e.fill(&en)
					a.Execution, a.Number, a.LateStatus, en.Execution = id, n, "", id
					return a, en
				}
				var attempts []store.Attempt
				var audit []store.AuditEntry
				for n := range 2 { // in transactions of their own
					a, en := full(x.ID, n)
					plain, word := closed(x.ID, "plain", n), entry(x.ID, "act")
					word.Reason = ""
					attempts, audit = append(attempts, a, plain), append(audit, en, word)
					e.ok(write(x.ID, store.Change{Attempts: []store.Attempt{a, plain}, Audit: []store.AuditEntry{en, word}}))
				}
				a, en := full(other.ID, 0)
				e.ok(write(other.ID, store.Change{Attempts: []store.Attempt{a}, Audit: []store.AuditEntry{en}}))
				wasOther, want := e.stored(other.ID), e.stored(x.ID)

				// One of the new attempts is a late result of a known one.
				last, lastEntry := full(x.ID, 9)
				late := attempts[0].Clone()
				late.Late, late.LateStatus = true, store.AttemptFailed
				e.ok(write(x.ID, store.Change{
					Erase: true, Attempts: []store.Attempt{late, last}, Audit: []store.AuditEntry{lastEntry},
				}))
				for i := range attempts {
					attempts[i].Stack, attempts[i].Reason = "", ""
					if attempts[i].Failure != nil {
						attempts[i].Failure = &store.Failure{Class: attempts[i].Failure.Class, Step: attempts[i].Failure.Step}
					}
				}
				for i := range audit {
					audit[i].Reason, audit[i].Detail = "", nil
				}
				attempts[0].Late, attempts[0].LateStatus = true, store.AttemptFailed
				open, _ := x.OpenAttempt()
				want.Execution.Revision++
				want.Execution.Tries++
				want.Attempts, want.Audit = append(attempts, last, open), append(audit, lastEntry)
				e.same("after an erasing "+name, e.stored(x.ID), want)
				e.untouched("another one", other.ID, wasOther)
				e.is(write(x.ID, store.Change{Audit: []store.AuditEntry{requested(x.ID, audit[0].Request)}}), store.ErrRequestUsed)
			}
		},
	},
	{
		name:    "EraseFails",
		promise: "Erase is part of the transaction: when nothing of that is written, nothing is erased.",
		run: func(e *env) {
			for name, write := range e.ways() {
				x, exists := e.create(), e.create()
				var a store.Attempt
				e.fill(&a)
				a.Execution = x.ID
				e.ok(write(x.ID, store.Change{Attempts: []store.Attempt{a}, Audit: []store.AuditEntry{entry(x.ID, "act")}}))
				was := e.stored(x.ID)
				e.is(write(x.ID, store.Change{Erase: true, Create: []*store.Execution{exists.Clone()}}), store.ErrExists)
				e.untouched(name+" that failed", x.ID, was)
			}
		},
	},
}
