package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// awkward is a text that quoting, templates and placeholders have got wrong
// before, within the limit of a name.
const awkward = "ä🦊 'a' \"b\" `c` {{schema}} {{s}} ? $1 :n @p \\ \\u0000 \\x %_ %s -- ; \t\r\n \u2028\ufeff"

var valueCases = []testCase{
	{
		name:    "ExecutionIsKept",
		promise: "A value that was stored compares equal to what is read back: every field of an execution, set and zero.",
		run: func(e *env) {
			for _, x := range []*store.Execution{e.full(), e.empty()} {
				want := x.Clone()
				want.Revision = 1
				e.ok(e.s.Create(e.Context(), x))
				e.same("after Create", e.get(x.ID), want)
			}
		},
	},
	{
		name:    "ExecutionIsReplaced",
		promise: "The changed execution is written as fn leaves it: every field of it, from zero to set and back.",
		run: func(e *env) {
			x := e.empty()
			e.ok(e.s.Create(e.Context(), x))
			for _, y := range []*store.Execution{e.full(), e.full(), e.empty()} {
				e.update(x.ID, func(x *store.Execution) store.Change {
					*x = *become(y, x.Clone()).Clone()
					return store.Change{}
				})
				y.Revision++
				e.same("after WithLock", e.get(x.ID), y)
			}
		},
	},
	{
		name:    "TimesAreMicroseconds",
		promise: "Times are kept as whole microseconds in UTC: finer digits are cut off (not rounded), and a monotonic reading is dropped.",
		run: func(e *env) {
			fine := time.Date(2026, 3, 4, 5, 6, 7, 123456999, time.FixedZone("", 5*3600+1800))
			x := e.full()
			each(x, func(_ string, t *time.Time) { *t = fine })
			x.UpdatedAt = time.Now()
			want := x.Clone()
			want.Revision = 1
			e.ok(e.s.Create(e.Context(), x))
			got := e.get(x.ID)
			e.same("Get", got, want)
			if !got.CreatedAt.Equal(fine.Truncate(time.Microsecond)) {
				e.Errorf("%v came back as %v", fine, got.CreatedAt)
			}
			each(got, func(path string, t *time.Time) {
				if t.Location() != time.UTC {
					e.Errorf("%s came back in %v, want UTC", path, t.Location())
				}
			})
		},
	},
	{
		name:    "TimesAreKept",
		promise: "A nil *time.Time stays nil, and the zero time and those of the years 1 to 9999 stay what they are.",
		run: func(e *env) {
			for _, moment := range []time.Time{
				{},
				time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC),
				time.Date(1582, 10, 10, 1, 2, 3, 4000, time.UTC),
				time.Unix(0, 0).UTC(),
				time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC),
				time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC),
			} {
				x := e.full()
				each(x, func(_ string, t *time.Time) { *t = moment })
				want := x.Clone()
				want.Revision = 1
				e.ok(e.s.Create(e.Context(), x))
				e.same(fmt.Sprint(moment), e.get(x.ID), want)
			}
			x := e.execution()
			x.CreatedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
			e.is(e.s.Create(e.Context(), x), store.ErrInvalid)
			x.CreatedAt = time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC)
			e.is(e.s.Create(e.Context(), x), store.ErrInvalid)
		},
	},
	{
		name:    "TextsAreKept",
		promise: "Texts that are valid UTF-8 without NUL and within the limits come back exactly, whatever is in them.",
		run: func(e *env) {
			x, n := e.full(), 0
			fields(x, reflect.String, func(path string, v reflect.Value) {
				if plain(v) {
					n++
					v.SetString(fmt.Sprintf("%s%d", awkward, n))
				}
			})
			x.Key += e.tag
			want := x.Clone()
			want.Revision = 1
			e.ok(e.s.Create(e.Context(), x))
			e.same("Create", e.get(x.ID), want)
			list, err := e.s.ForResource(e.Context(), x.Resource, 1)
			e.ok(err)
			e.same("ForResource", list, []*store.Execution{want})

			var a store.Attempt
			e.fill(&a)
			var entry store.AuditEntry
			e.fill(&entry)
			for _, p := range []any{&a, &entry} {
				fields(p, reflect.String, func(path string, v reflect.Value) {
					if plain(v) {
						n++
						v.SetString(fmt.Sprintf("%s%d", awkward, n))
					}
				})
			}
			a.Execution, entry.Execution = x.ID, x.ID
			e.update(x.ID, func(x *store.Execution) store.Change {
				x.Attempt = nil
				return store.Change{Attempts: []store.Attempt{a}, Audit: []store.AuditEntry{entry}}
			})
			e.same("Attempts", e.attempts(x.ID), []store.Attempt{a})
			e.same("Audit", e.audit(x.ID), []store.AuditEntry{entry})
		},
	},
	{
		name:    "LongTextsAreKept",
		promise: "Texts up to the limits come back exactly: messages, stacks and reasons of 64 KiB.",
		run: func(e *env) {
			long := strings.Repeat(awkward, store.MaxMessage/len(awkward)+1)[:store.MaxMessage-4]
			long = strings.ToValidUTF8(long, "") + "\\n'"
			name, text := strings.Repeat("n", store.MaxName), strings.Repeat("t", store.MaxText)
			x := e.create(func(x *store.Execution) {
				x.Saga, x.Step, x.Ledger[0].Name = name, name, name
				x.Resource, x.Key, x.TraceParent = store.Resource{Type: text, ID: text}, e.tag+text[len(e.tag):], text
				x.Reason = long
				x.Failure = &store.Failure{Class: text, Message: long, Step: name}
				x.Cause = &store.Failure{Class: text, Message: long, Step: name}
				x.ReasonBy = text
				x.Request = &store.Request{Halt: true, Actor: text, Reason: long, At: base}
				opened(x)
				x.Attempt.Progress = &store.Progress{Note: strings.Repeat("n", store.MaxNote), At: base}
			})
			e.same("Get", e.get(x.ID), x)
			a := closed(x.ID, name, 1)
			a.Worker, a.Stack, a.Reason = text, long, long
			a.Failure = &store.Failure{Class: text, Message: long, Step: name}
			en := entry(x.ID, name)
			en.Actor, en.Reason, en.Request, en.Digest = text, long, text, name
			e.update(x.ID, func(x *store.Execution) store.Change {
				x.Attempt = nil
				return store.Change{Attempts: []store.Attempt{a}, Audit: []store.AuditEntry{en}}
			})
			e.same("Attempts", e.attempts(x.ID), []store.Attempt{a})
			e.same("Audit", e.audit(x.ID), []store.AuditEntry{en})
		},
	},
	{
		name:    "TextsAreRefused",
		promise: "Texts must be valid UTF-8 without NUL and within the limits, and words one of those there are: else ErrInvalid, and nothing is written.",
		run: func(e *env) {
			old := e.create()
			was := e.stored(old.ID)
			e.badTexts(func() any { return e.full() }, func(what string, p any) {
				x := p.(*store.Execution)
				e.refused(what, old, x)
			})
			e.untouched("writes with bad texts", old.ID, was)
		},
	},
	{
		name:    "TextsOfChangesAreRefused",
		promise: "Change.Validate is the rule: texts of attempts and audit entries that are not valid UTF-8 without NUL and within the limits are ErrInvalid, and nothing is written.",
		run: func(e *env) {
			old := e.create()
			was := e.stored(old.ID)
			e.badTexts(func() any {
				a := new(store.Attempt)
				e.fill(a)
				a.Execution = old.ID
				return a
			}, func(what string, p any) {
				e.refusedChange(what, old, store.Change{Attempts: []store.Attempt{*p.(*store.Attempt)}})
			})
			e.badTexts(func() any {
				en := new(store.AuditEntry)
				e.fill(en)
				en.Execution = old.ID
				return en
			}, func(what string, p any) {
				e.refusedChange(what, old, store.Change{Audit: []store.AuditEntry{*p.(*store.AuditEntry)}})
			})
			e.untouched("writes with bad texts", old.ID, was)
		},
	},
	{
		name:    "NumbersAreKept",
		promise: "Numbers must not be negative and must fit in 32 bits; those of a progress in 64 bits.",
		run: func(e *env) {
			const most = 1<<31 - 1
			x := e.full()
			x.Attempt.Progress.Done, x.Attempt.Progress.Total = 1<<63-1, 1<<63-2
			fields(x, reflect.Int, func(_ string, v reflect.Value) { v.SetInt(most) })
			want := x.Clone()
			want.Revision = 1
			e.ok(e.s.Create(e.Context(), x))
			e.same("Get", e.get(x.ID), want)
			for _, bad := range []int64{-1, most + 1} {
				n := 0
				fields(e.full(), reflect.Int, func(string, reflect.Value) { n++ })
				for i := range n {
					x, j := e.full(), 0
					var what string
					fields(x, reflect.Int, func(path string, v reflect.Value) {
						if j == i {
							what = path
							v.SetInt(bad)
						}
						j++
					})
					if err := e.s.Create(e.Context(), x); err == nil {
						e.Errorf("Create took %s %d", what, bad)
					} else {
						e.is(err, store.ErrInvalid)
					}
				}
			}
		},
	},
	{
		name:    "RequiredFields",
		promise: "Execution.Validate is the rule: no id, saga, partition, status or direction is ErrInvalid.",
		run: func(e *env) {
			for name, change := range map[string]func(*store.Execution){
				"id":          func(x *store.Execution) { x.ID = uuid.Nil },
				"saga":        func(x *store.Execution) { x.Saga = "" },
				"partition":   func(x *store.Execution) { x.Partition = "" },
				"status":      func(x *store.Execution) { x.Status = "" },
				"direction":   func(x *store.Execution) { x.Direction = "" },
				"ledger name": func(x *store.Execution) { x.Ledger[1].Name = "" },
				"state":       func(x *store.Execution) { x.State = nil },
			} {
				if err := e.s.Create(e.Context(), e.execution(change)); err == nil {
					e.Errorf("Create took an execution without %s", name)
				} else {
					e.is(err, store.ErrInvalid)
				}
			}
		},
	},
}

// badTexts calls try with values of which one text is bad.
func (e *env) badTexts(value func() any, try func(what string, p any)) {
	n := 0
	fields(value(), reflect.String, func(string, reflect.Value) { n++ })
	for i := range n {
		for _, bad := range []string{"a\x00b", "a\xffb", strings.Repeat("x", store.MaxMessage+1)} {
			p, j := value(), 0
			var what string
			fields(p, reflect.String, func(path string, v reflect.Value) {
				if j == i {
					what = fmt.Sprintf("%s %.5q", path, bad)
					v.SetString(bad)
				}
				j++
			})
			try(what, p)
		}
	}
}

// each calls f for every time in x that is not a nil pointer.
func each(x *store.Execution, f func(path string, t *time.Time)) {
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if t, ok := v.Addr().Interface().(*time.Time); ok {
			f(path, t)
			return
		}
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		case reflect.Pointer:
			if !v.IsNil() {
				walk(path, v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
		}
	}
	walk("", reflect.ValueOf(x).Elem())
}
