package storetest

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/leveret-go/leveret/store"
)

var copyCases = []testCase{
	{
		name:    "CopiesIn",
		promise: "Executions go in as copies: the store sees no later changes of the caller's value, down to slices, maps and pointers.",
		run: func(e *env) {
			x := e.full()
			e.ok(e.s.Create(e.Context(), x))
			want := x.Clone()
			spoil(x)
			e.same("after the argument of Create was changed", e.get(x.ID), want)

			var kept *store.Execution
			attempts := []store.Attempt{closed(x.ID, "pay", 1)}
			attempts[0].Failure = &store.Failure{Class: "c", Message: "m", Step: "pay"}
			entries := []store.AuditEntry{entry(x.ID, "halt")}
			entries[0].Detail = []byte(`{"a": 1}`)
			created := e.full()
			e.update(x.ID, func(x *store.Execution) store.Change {
				kept = x
				x.Reason = "changed"
				return store.Change{Attempts: attempts, Audit: entries, Create: []*store.Execution{created}}
			})
			was, wasCreated := e.stored(x.ID), e.stored(created.ID)
			spoil(kept)
			spoil(&attempts)
			spoil(&entries)
			spoil(created)
			e.untouched("after fn's argument and what it returned were changed", x.ID, was)
			e.untouched("after what fn created was changed", created.ID, wasCreated)

			if a, ok := store.As[store.Advancer](e.s); ok {
				x := e.get(x.ID)
				e.ok(a.Advance(e.Context(), x, store.Change{}))
				was := e.stored(x.ID)
				spoil(x)
				e.untouched("after the argument of Advance was changed", x.ID, was)
			}
		},
	},
	{
		name:    "CopiesOut",
		promise: "Executions come out as copies: changing what was returned changes nothing in the store.",
		run: func(e *env) {
			x := e.full()
			x.Status, x.DueAt = store.StatusRunning, at(0)
			e.ok(e.s.Create(e.Context(), x))
			a := closed(x.ID, "pay", 1)
			a.Failure = &store.Failure{Class: "c", Message: "m", Step: "pay"}
			written := e.update(x.ID, func(*store.Execution) store.Change {
				halt := entry(x.ID, "halt")
				halt.Detail = []byte(`{"a": 1}`)
				return store.Change{Attempts: []store.Attempt{a}, Audit: []store.AuditEntry{halt}}
			})
			was := e.stored(x.ID)
			check := func(what string, list ...*store.Execution) {
				e.Helper()
				for _, x := range list {
					spoil(x)
				}
				e.untouched("after the result of "+what+" was changed", x.ID, was)
			}
			check("WithLock", written)
			check("Get", e.get(x.ID))
			unchanged, err := e.s.WithLock(e.Context(), x.ID, func(*store.Execution) (store.Change, error) {
				return store.Change{}, store.ErrUnchanged
			})
			e.ok(err)
			check("WithLock without a change", unchanged)
			list, err := e.s.ForResource(e.Context(), x.Resource, 10)
			e.ok(err)
			check("ForResource", list...)
			attempts, audit := e.attempts(x.ID), e.audit(x.ID)
			spoil(&attempts)
			spoil(&audit)
			check("Attempts and Audit")
			list, err = e.s.ClaimDue(e.Context(), store.DueQuery{Now: base, Limit: 10, Partition: e.tag})
			e.ok(err)
			was = e.stored(x.ID)
			check("ClaimDue", list...)
		},
	},
}

// spoil changes everything that is reached through pointers and slices from
// what p points at.
func spoil(p any) { spoilValue(reflect.ValueOf(p).Elem(), false) }

func spoilValue(v reflect.Value, shared bool) {
	switch x := v.Interface().(type) {
	case time.Time:
		if shared {
			v.SetZero()
		}
		return
	case json.RawMessage:
		for i := range x {
			x[i] = '!'
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			spoilValue(v.Field(i), shared)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			spoilValue(v.Elem(), true)
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoilValue(v.Index(i), true)
		}
	case reflect.String:
		if shared {
			v.SetString("spoilt")
		}
	default:
		if shared {
			v.SetZero()
		}
	}
}
