package storetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// RunQueries proves that the stores made by newStore keep the contract of
// [store.Querier]: what [store.Filter.Matches] says of a few hundred generated
// executions is what they find and count. A store that is no Querier is
// skipped, loudly, unless Options.Require has "Querier". Nil opts are zero
// Options. What [Run] says of newStore holds here too.
func RunQueries(t *testing.T, newStore func(t *testing.T) store.Store, opts *Options) {
	runCases(t, slices.Concat(queryCases, countCases, statisticsCases), newStore, opts)
}

func querier(e *env) store.Querier {
	e.Helper()
	return ability[store.Querier](e, "Querier")
}

// list reads one page.
func (e *env) list(q store.Querier, f store.Filter, p store.Page) *store.List {
	e.Helper()
	l, err := q.List(e.Context(), f, p)
	e.ok(err)
	if l == nil {
		e.Fatalf("List returned no list and no error")
	}
	return l
}

// pages reads all pages, calling between after each but the last.
func (e *env) pages(q store.Querier, f store.Filter, p store.Page, between func()) []*store.Execution {
	e.Helper()
	var all []*store.Execution
	for range 10_000 {
		l := e.list(q, f, p)
		if limit := p.Limit; limit > 0 && len(l.Executions) > limit {
			e.Errorf("a page of %d has %d", limit, len(l.Executions))
		}
		all = append(all, l.Executions...)
		if l.Next == nil {
			return all
		}
		p.After = *l.Next
		if between != nil {
			between()
		}
	}
	e.Fatalf("the pages do not end")
	return nil
}

// selected checks that got are the executions wanted, in order.
func (e *env) selected(what string, got, want []*store.Execution) {
	e.Helper()
	has := func(list []*store.Execution, x *store.Execution) bool {
		return slices.ContainsFunc(list, func(y *store.Execution) bool { return x.ID == y.ID })
	}
	for _, x := range want {
		if !has(got, x) {
			e.Errorf("%s: %s is missing", what, about(x))
			return
		}
	}
	for _, x := range got {
		if !has(want, x) {
			e.Errorf("%s: %s is not to be selected", what, about(x))
			return
		}
	}
	e.same(what, ids(got), ids(want))
}

// about names an execution of the population by what can be asked for.
func about(x *store.Execution) string {
	words := []string{"the", string(x.Status), "execution", x.ID.String(), "of saga", cut(x.Saga), "at", cut(x.Step), "in", cut(x.Partition)}
	if x.Failure != nil {
		words = append(words, "with", x.Failure.Class)
	}
	return strings.Join(words, " ")
}

// selects checks what a filter selects of the population.
func (e *env) selects(q store.Querier, what string, f store.Filter) {
	e.Helper()
	want := matching(f, e.population())
	e.selected(what, e.list(q, f, store.Page{Limit: store.MaxPage}).Executions, want)
}

var queryCases = []testCase{
	{
		name:    "ListAll",
		promise: "List returns the executions that f selects, newest first: by id, descending. The zero Filter selects all.",
		run: func(e *env) {
			q := querier(e)
			all := e.population()
			l := e.list(q, store.Filter{}, store.Page{Limit: store.MaxPage})
			e.same("List", l.Executions, all)
			if l.Next != nil {
				e.Errorf("there is a next page after all")
			}
		},
	},
	{
		name:    "ListIsWhole",
		promise: "List returns executions as Get does: every field of them, set and zero.",
		fresh:   true,
		run: func(e *env) {
			q := querier(e)
			for _, x := range []*store.Execution{e.full(), e.empty()} {
				e.ok(e.s.Create(e.Context(), x))
				l := e.list(q, store.Filter{IDs: []uuid.UUID{x.ID}}, store.Page{})
				e.same("List", l.Executions, []*store.Execution{x})
				spoil(l.Executions[0])
				e.same("Get after the result of List was changed", e.get(x.ID), x)
			}
		},
	},
	{
		name:    "ListByOneField",
		promise: "A Filter selects executions that satisfy the field that is set; in a list one value has to match. Filter.Matches is the rule.",
		run: func(e *env) {
			q := querier(e)
			for _, field := range fragments(e.population()) {
				for _, part := range field {
					what, f := combined(part)
					e.selects(q, what, f)
				}
			}
		},
	},
	{
		name:    "ListByTwoFields",
		promise: "A Filter selects executions that satisfy every field that is set: every two of them together.",
		run: func(e *env) {
			q := querier(e)
			fieldsTogether(e.population(), 2, 3, func(what string, f store.Filter) { e.selects(q, what, f) })
		},
	},
	{
		name:    "ListByThreeFields",
		promise: "A Filter selects executions that satisfy every field that is set: every three of them together.",
		run: func(e *env) {
			q := querier(e)
			fieldsTogether(e.population(), 3, 1, func(what string, f store.Filter) { e.selects(q, what, f) })
		},
	},
	{
		name:    "ListInPages",
		promise: "List.Next, if not nil, is the After of the next page; nil: there are no more. Page.After: only ids below this one.",
		run: func(e *env) {
			q := querier(e)
			all := e.population()
			for _, limit := range []int{7, 50, len(all) / 4, len(all) - 1, len(all), len(all) + 1, store.MaxPage} {
				calls := 1
				got := e.pages(q, store.Filter{}, store.Page{Limit: limit}, func() { calls++ })
				e.selected("all pages", got, all)
				if want := (len(all) + limit - 1) / limit; calls != want {
					e.Errorf("%d executions in pages of %d took %d pages, want %d", len(all), limit, calls, want)
				}
			}
			f := store.Filter{Statuses: []store.Status{store.StatusFailed}}
			e.selected("a filter in pages of one", e.pages(q, f, store.Page{Limit: 1}, nil), matching(f, all))
			for what, after := range map[string]uuid.UUID{
				"after the newest": all[0].ID, "after one in between": all[9].ID, "after the oldest": all[len(all)-1].ID,
				"after an id that none has": {0x80}, "after the highest id": uuid.Max, "from the newest": uuid.Nil,
			} {
				var want []*store.Execution
				for _, x := range all {
					if after == uuid.Nil || slices.Compare(x.ID[:], after[:]) < 0 {
						want = append(want, x)
					}
				}
				e.selected(what, e.list(q, store.Filter{}, store.Page{Limit: store.MaxPage, After: after}).Executions, want)
			}
		},
	},
	{
		name:    "ListPagesFitTogether",
		promise: "Pages fit together: an execution that was selected all the time is on exactly one of them, whatever is started or ends in between.",
		fresh:   true,
		run: func(e *env) {
			q := querier(e)
			start := func() *store.Execution {
				return e.create(func(x *store.Execution) { x.ID = uuid.New() })
			}
			var all []*store.Execution
			for range 90 {
				all = append(all, start())
			}
			slices.SortFunc(all, newestFirst)
			ended, n := map[uuid.UUID]bool{}, 0
			got := e.pages(q, store.Filter{Unfinished: true}, store.Page{Limit: 7}, func() {
				for _, x := range []*store.Execution{all[n], all[len(all)-1-n], start()} { // one seen, one not
					if ended[x.ID] || n > 30 {
						continue
					}
					ended[x.ID] = true
					e.update(x.ID, func(x *store.Execution) store.Change {
						x.Status, x.FinishedAt, x.DueAt = store.StatusCompleted, at(0), nil
						return store.Change{}
					})
				}
				for range 3 {
					start()
				}
				n++
			})
			times := map[uuid.UUID]int{}
			for _, x := range got {
				times[x.ID]++
			}
			for _, x := range all {
				if n := times[x.ID]; n != 1 && !ended[x.ID] || n > 1 {
					e.Errorf("an execution was on %d pages (it ended meanwhile: %v)", n, ended[x.ID])
				}
			}
		},
	},
	{
		name:    "ListLimits",
		promise: "Page.Limit 0: DefaultPage; at most MaxPage; else ErrInvalid.",
		run: func(e *env) {
			q := querier(e)
			all := e.population()
			l := e.list(q, store.Filter{}, store.Page{})
			e.selected("by default", l.Executions, all[:store.DefaultPage])
			if l.Next == nil {
				e.Errorf("there is no next page after the first %d of %d", store.DefaultPage, len(all))
			}
			for _, limit := range []int{-1, store.MaxPage + 1, 1 << 40} {
				_, err := q.List(e.Context(), store.Filter{}, store.Page{Limit: limit})
				e.is(err, store.ErrInvalid)
			}
		},
	},
	{
		name:    "QueriesAreRefused",
		promise: "Filter.Validate is the rule: ErrInvalid, from List and Count.",
		run: func(e *env) {
			q := querier(e)
			for what, f := range badFilters() {
				if _, err := q.List(e.Context(), f, store.Page{}); err == nil {
					e.Errorf("List took a filter with %s", what)
				} else {
					e.is(err, store.ErrInvalid)
				}
				if _, err := q.Count(e.Context(), f, nil, 0); err == nil {
					e.Errorf("Count took a filter with %s", what)
				} else {
					e.is(err, store.ErrInvalid)
				}
			}
		},
	},
	{
		name:    "FiltersAreLong",
		promise: "A field of a Filter takes MaxFilter values, in all lists at once, of texts as long as those that are stored.",
		run: func(e *env) {
			q := querier(e)
			want := e.population()[5]
			f := store.Filter{IDs: []uuid.UUID{want.ID}, Sagas: []string{want.Saga}, Steps: []string{want.Step}, Partitions: []string{want.Partition}, Keys: []string{want.Key}}
			class := ""
			if want.Failure != nil {
				class = want.Failure.Class
			}
			f.ErrorClasses = []string{class, strings.Repeat("c", store.MaxText)}
			for len(f.IDs) < store.MaxFilter {
				f.IDs = append([]uuid.UUID{uuid.New()}, f.IDs...)
			}
			for _, list := range []*[]string{&f.Sagas, &f.Steps, &f.Partitions, &f.ErrorClasses, &f.Keys} {
				for len(*list) < store.MaxFilter {
					*list = append([]string{uuid.NewString()}, *list...)
				}
			}
			e.selects(q, "a filter with as many values as can be", f)
			n, err := q.Count(e.Context(), f, store.Dimensions, 0)
			e.ok(err)
			if len(n.Groups) != 1 || n.Groups[0].N != 1 {
				e.Errorf("Count with that filter found %v, want one execution", n.Groups)
			}
		},
	},
	{
		name:    "QueriesFollowWrites",
		promise: "Get and the lists answer with what was last committed: List and Count too, at once after each write, and with the old row while another is being written.",
		fresh:   true,
		run: func(e *env) {
			q := querier(e)
			f := store.Filter{Sagas: []string{e.tag + "-saga"}, Statuses: []store.Status{store.StatusRunning}, Steps: []string{"pay"}}
			check := func(what string, want ...*store.Execution) {
				e.Helper()
				e.same(what+", List", e.list(q, f, store.Page{}).Executions, want)
				n, err := q.Count(e.Context(), f, nil, 0)
				e.ok(err)
				if len(n.Groups) != 1 || n.Groups[0].N != int64(len(want)) {
					e.Errorf("%s, Count: got %v, want %d", what, n.Groups, len(want))
				}
			}
			check("of nothing")
			x := e.create()
			check("after Create", x)
			release := e.hold(x.ID, func(x *store.Execution) (store.Change, error) {
				x.Status = store.StatusHalted
				return store.Change{}, nil
			})
			e.soon("queries while an execution is locked", func(ctx context.Context) error {
				l, err := q.List(ctx, f, store.Page{})
				if err == nil {
					e.selected("while it is locked", l.Executions, []*store.Execution{x})
					_, err = q.Count(ctx, f, store.Dimensions, 0)
				}
				return err
			})
			release()
			check("after it was halted")
			x = e.update(x.ID, func(x *store.Execution) store.Change {
				x.Status, x.DueAt = store.StatusRunning, at(0)
				return store.Change{}
			})
			check("after it was resumed", x)
			for _, claimed := range e.claim(store.DueQuery{Now: base, Hold: time.Minute, Limit: 1}) {
				x = claimed
			}
			check("after it was claimed", x)
			opened(x)
			x = e.update(x.ID, func(y *store.Execution) store.Change { *y = *x; return store.Change{} })
			e.renew("answer", []store.Lease{lease(x)}, store.LeaseHeld)
			x = renewed(x)
			check("after its lease was renewed", x)
			if a, ok := store.As[store.Advancer](e.s); ok {
				x.Step = "ship"
				e.ok(a.Advance(e.Context(), x, store.Change{}))
				check("after it was advanced")
			}
		},
	},
	{
		name:    "QueriesEnd",
		promise: "Every method honours ctx; the ctx's own error is returned where that ended the call: from List and Count too.",
		run: func(e *env) {
			q := querier(e)
			e.population()
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			_, err := q.List(ctx, store.Filter{}, store.Page{})
			e.is(err, context.Canceled)
			_, err = q.Count(ctx, store.Filter{}, store.Dimensions, 0)
			e.is(err, context.Canceled)
		},
	},
}

// badFilters returns filters that are refused, by what is wrong with them.
func badFilters() map[string]store.Filter {
	many := make([]string, store.MaxFilter+1)
	late := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	stalled, overdue := []store.Attention{store.AttentionStalled}, []store.Attention{store.AttentionHalted, store.AttentionOverdue}
	bad := map[string]store.Filter{
		"too many ids":            {IDs: make([]uuid.UUID, store.MaxFilter+1)},
		"too many sagas":          {Sagas: many},
		"too many steps":          {Steps: many},
		"too many partitions":     {Partitions: many},
		"too many error classes":  {ErrorClasses: many},
		"a status there is not":   {Statuses: []store.Status{store.StatusFailed, "paused"}},
		"no status":               {Statuses: []store.Status{""}},
		"an attention of no kind": {Attention: []store.Attention{"tired"}},
		"stalled at no time":      {Attention: stalled, StalledAfter: anHour},
		"overdue at no time":      {Attention: overdue, OverdueAfter: anHour},
		"a negative stalled age":  {Attention: stalled, At: base, StalledAfter: -1},
		"a negative overdue age":  {Attention: overdue, At: base, OverdueAfter: -1},
		"a time too late":         {At: late},
		"created too late":        {Created: store.Range{From: late}},
		"progress too late":       {Progress: store.Range{To: late}},
		"finished too late":       {Finished: store.Range{From: late}},
		"a part of no range":      {ResourceLike: "47"},
		"stuck at no time":        {StuckFor: anHour},
		"stuck for less than 0":   {StuckFor: -1, At: base},
		"failed in no direction":  {Failed: &store.FailedAttempt{Direction: "up"}},
		"failed too late":         {Failed: &store.FailedAttempt{Finished: store.Range{To: late}}},
	}
	for what, s := range map[string]string{
		"NUL": "a\x00b", "bytes that are no UTF-8": "a\xffb", "a text too long": strings.Repeat("x", store.MaxText+1),
	} {
		bad[what+" in a saga"] = store.Filter{Sagas: []string{"order", s}}
		bad[what+" in a step"] = store.Filter{Steps: []string{s}}
		bad[what+" in a partition"] = store.Filter{Partitions: []string{s}}
		bad[what+" in an error class"] = store.Filter{ErrorClasses: []string{s}}
		bad[what+" in a resource type"] = store.Filter{Resource: store.Resource{Type: s}}
		bad[what+" in a part of a resource"] = store.Filter{ResourceLike: s, Created: store.Range{From: base}}
		bad[what+" in a failed class"] = store.Filter{Failed: &store.FailedAttempt{Class: s}}
		bad[what+" in a failed step"] = store.Filter{Failed: &store.FailedAttempt{Step: s}}
		bad[what+" in a resource id"] = store.Filter{Resource: store.Resource{ID: s}}
	}
	return bad
}
