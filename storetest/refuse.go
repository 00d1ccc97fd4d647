package storetest

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// refused checks that no writer takes x: Create, WithLock, Advance, and
// Change.Create of both. The execution old is what they try to write it over.
func (e *env) refused(what string, old, x *store.Execution) {
	e.Helper()
	check := func(writer string, err error) {
		e.Helper()
		if err == nil {
			e.Errorf("%s took %s", writer, what)
		} else {
			e.is(err, store.ErrInvalid)
		}
	}
	check("Create", e.s.Create(e.Context(), x.Clone()))
	e.absent(x.ID)
	create := store.Change{Create: []*store.Execution{x}}
	over := x.Clone()
	over.ID, over.CreatedAt, over.Revision = old.ID, old.CreatedAt, old.Revision
	_, err := e.s.WithLock(e.Context(), old.ID, func(y *store.Execution) (store.Change, error) {
		*y = *over.Clone()
		return store.Change{}, nil
	})
	check("WithLock", err)
	if x.CreatedAt.Year() < 10_000 && x.CreatedAt.Year() > 0 { // else it is the row's own that is wrong
		_, err = e.s.WithLock(e.Context(), old.ID, func(*store.Execution) (store.Change, error) { return create, nil })
		check("WithLock that creates", err)
		e.absent(x.ID)
	}
	if a, ok := store.As[store.Advancer](e.s); ok {
		check("Advance", a.Advance(e.Context(), over, store.Change{}))
		check("Advance that creates", a.Advance(e.Context(), old.Clone(), create))
		e.absent(x.ID)
	}
}

// refusedChange checks that no writer takes c with the execution old.
func (e *env) refusedChange(what string, old *store.Execution, c store.Change) {
	e.Helper()
	_, err := e.s.WithLock(e.Context(), old.ID, func(x *store.Execution) (store.Change, error) {
		x.Step = "ship"
		return c, nil
	})
	if err == nil {
		e.Errorf("WithLock took %s", what)
	} else {
		e.is(err, store.ErrInvalid)
	}
	if a, ok := store.As[store.Advancer](e.s); ok {
		x := old.Clone()
		x.Step = "ship"
		if err := a.Advance(e.Context(), x, c); err == nil {
			e.Errorf("Advance took %s", what)
		} else {
			e.is(err, store.ErrInvalid)
		}
	}
}

var refuseCases = []testCase{
	{
		name:    "ValuesAreRefused",
		promise: "Execution.Validate is the rule: what is too long, negative, of an unknown word or of no time is ErrInvalid, from every writer, and nothing is written.",
		run: func(e *env) {
			old := e.create()
			was := e.stored(old.ID)
			late := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
			text, name := strings.Repeat("t", store.MaxText+1), strings.Repeat("n", store.MaxName+1)
			for what, change := range map[string]func(x *store.Execution){
				"a negative progress":     func(x *store.Execution) { x.Attempt.Progress.Done = -1 },
				"a negative total":        func(x *store.Execution) { x.Attempt.Progress.Total = -1 },
				"a long note":             func(x *store.Execution) { x.Attempt.Progress.Note = strings.Repeat("n", store.MaxNote+1) },
				"a progress too late":     func(x *store.Execution) { x.Attempt.Progress.At = late },
				"a long worker":           func(x *store.Execution) { x.Attempt.Worker = text },
				"a turn there is not":     func(x *store.Execution) { x.Turn = "around" },
				"a long reason_by":        func(x *store.Execution) { x.ReasonBy = text },
				"a long class of a cause": func(x *store.Execution) { x.Cause.Class = text },
				"a long cause":            func(x *store.Execution) { x.Cause.Message = strings.Repeat("m", store.MaxMessage+1) },
				"a long step of a cause":  func(x *store.Execution) { x.Cause.Step = name },
				"a rerun of no id":        func(x *store.Execution) { x.RerunOf = new(uuid.UUID) },
				"a rerun as no id":        func(x *store.Execution) { x.RerunAs = new(uuid.UUID) },
				"erased too late":         func(x *store.Execution) { x.ErasedAt = &late },
				"a long saga":             func(x *store.Execution) { x.Saga = name },
				"a long key":              func(x *store.Execution) { x.Key = text },
			} {
				x := e.full()
				change(x)
				e.refused(what, old, x)
			}
			e.untouched("writes with bad values", old.ID, was)
		},
	},
	{
		name:    "ValuesOfChangesAreRefused",
		promise: "Change.Validate is the rule: a request or a digest that is too long, and a request that two entries of one Change have, are ErrInvalid, and nothing is written.",
		run: func(e *env) {
			old := e.create()
			was := e.stored(old.ID)
			for what, change := range map[string]func(en *store.AuditEntry){
				"a long request": func(en *store.AuditEntry) { en.Request = strings.Repeat("r", store.MaxText+1) },
				"a long digest":  func(en *store.AuditEntry) { en.Digest = strings.Repeat("d", store.MaxName+1) },
				"a request twice": func(en *store.AuditEntry) {
					en.Request = "r"
				},
			} {
				first, second := entry(old.ID, "act"), entry(old.ID, "act")
				first.Request = "r"
				change(&second)
				e.refusedChange(what, old, store.Change{Audit: []store.AuditEntry{first, second}})
			}
			e.untouched("writes with bad changes", old.ID, was)
		},
	},
	{
		name:    "RenewalsAreRefused",
		promise: "Renewal.Validate is the rule: a progress too many or too few, a bad one, and times that cannot be stored are ErrInvalid, and nothing is written.",
		run: func(e *env) {
			x, y := e.create(opened), e.create(opened)
			was, wasY := e.stored(x.ID), e.stored(y.ID)
			late := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
			good := store.Progress{Done: 1, At: base}
			bad := func(change func(p *store.Progress)) func(r *store.Renewal) {
				p := good
				change(&p)
				return func(r *store.Renewal) { r.Progress = []*store.Progress{&good, &p} }
			}
			for what, change := range map[string]func(r *store.Renewal){
				"a progress too few":        func(r *store.Renewal) { r.Progress = []*store.Progress{&good} },
				"no progress at all":        func(r *store.Renewal) { r.Progress = []*store.Progress{} },
				"a progress too many":       func(r *store.Renewal) { r.Progress = []*store.Progress{&good, nil, nil} },
				"a negative progress":       bad(func(p *store.Progress) { p.Done = -1 }),
				"a negative total":          bad(func(p *store.Progress) { p.Total = -1 }),
				"a note with NUL":           bad(func(p *store.Progress) { p.Note = "a\x00b" }),
				"a note that is no UTF-8":   bad(func(p *store.Progress) { p.Note = "a\xffb" }),
				"a long note":               bad(func(p *store.Progress) { p.Note = strings.Repeat("n", store.MaxNote+1) }),
				"a progress too late":       bad(func(p *store.Progress) { p.At = late }),
				"a lease until too late":    func(r *store.Renewal) { r.Until = late },
				"an execution due too late": func(r *store.Renewal) { r.DueAt = late },
				"a now too late":            func(r *store.Renewal) { r.Now = late },
			} {
				r := renewal
				change(&r)
				if _, err := e.s.Renew(e.Context(), []store.Lease{lease(x), lease(y)}, r); err == nil {
					e.Errorf("Renew took %s", what)
				} else {
					e.is(err, store.ErrInvalid)
				}
			}
			e.untouched("Renew", x.ID, was)
			e.untouched("Renew", y.ID, wasY)
		},
	},
}
