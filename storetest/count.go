package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/leveret-go/leveret/store"
)

// groups counts as a Querier does: the rule itself.
func groups(list []*store.Execution, by []store.Dimension) []store.CountGroup {
	if len(by) == 0 {
		return []store.CountGroup{{N: int64(len(list))}}
	}
	index := map[string]int{}
	var all []store.CountGroup
	for _, x := range list {
		var values []string
		for _, d := range by {
			values = append(values, d.Value(x))
		}
		key := strings.Join(values, "\x00")
		i, ok := index[key]
		if !ok {
			i = len(all)
			index[key] = i
			all = append(all, store.CountGroup{Values: values})
		}
		all[i].N++
	}
	slices.SortFunc(all, func(a, b store.CountGroup) int {
		return cmp.Or(-cmp.Compare(a.N, b.N), slices.Compare(a.Values, b.Values))
	})
	return all
}

func (e *env) count(q store.Querier, f store.Filter, by []store.Dimension, most int) *store.Counts {
	e.Helper()
	n, err := q.Count(e.Context(), f, by, most)
	e.ok(err)
	if n == nil {
		e.Fatalf("Count returned no counts and no error")
	}
	return n
}

// counts checks what a Count of the population finds.
func (e *env) counts(q store.Querier, what string, f store.Filter, by ...store.Dimension) {
	e.Helper()
	want := groups(matching(f, e.population()), by)
	e.same(what, e.count(q, f, by, 0), &store.Counts{Groups: want})
}

var countCases = []testCase{
	{
		name:    "CountAll",
		promise: "Without a dimension Count counts in one group, which is there even when it counts 0.",
		run: func(e *env) {
			q := querier(e)
			e.counts(q, "all", store.Filter{})
			e.counts(q, "none", store.Filter{Sagas: []string{"unknown"}})
			got := e.count(q, store.Filter{Sagas: []string{"unknown"}}, store.Dimensions, 0)
			e.same("none, by every dimension", got, &store.Counts{})
		},
	},
	{
		name:    "CountByOneDimension",
		promise: "Count counts the executions that f selects, in groups of equal values of the given dimensions. Groups are ordered by their count, descending, then by their values.",
		run: func(e *env) {
			q := querier(e)
			for _, d := range store.Dimensions {
				e.counts(q, "by "+string(d), store.Filter{}, d)
				e.counts(q, "the unfinished by "+string(d), store.Filter{Unfinished: true}, d)
			}
		},
	},
	{
		name:    "CountByTwoDimensions",
		promise: "CountGroup.Values has one value for each dimension asked for, in that order: every two of them, and all.",
		run: func(e *env) {
			q := querier(e)
			for _, a := range store.Dimensions {
				for _, b := range store.Dimensions {
					if a != b {
						e.counts(q, fmt.Sprintf("by %s and %s", a, b), store.Filter{}, a, b)
					}
				}
			}
			all := slices.Clone(store.Dimensions)
			e.counts(q, "by every dimension", store.Filter{}, all...)
			slices.Reverse(all)
			e.counts(q, "by every dimension, backwards", store.Filter{Unfinished: true}, all...)
		},
	},
	{
		name:    "CountErrorClasses",
		promise: `ByErrorClass: "" for none.`,
		run: func(e *env) {
			q := querier(e)
			var want int64
			for _, x := range e.population() {
				if x.Failure == nil || x.Failure.Class == "" {
					want++
				}
			}
			var got []int64
			for _, g := range e.count(q, store.Filter{}, []store.Dimension{store.ByErrorClass}, 0).Groups {
				if g.Values[0] == "" {
					got = append(got, g.N)
				}
			}
			e.same("of no class", got, []int64{want})
		},
	},
	{
		name:    "CountByFilters",
		promise: "Count counts the executions that f selects. Filter.Matches is the rule.",
		run: func(e *env) {
			q := querier(e)
			for _, field := range fragments(e.population()) {
				for _, part := range field {
					what, f := combined(part)
					e.counts(q, what, f)
				}
			}
			fieldsTogether(e.population(), 2, 1, func(what string, f store.Filter) {
				e.counts(q, what+", by status and saga", f, store.ByStatus, store.BySaga)
			})
		},
	},
	{
		name:    "CountIsTruncated",
		promise: "At most most executions are counted, so that it takes a bounded time: if there are more Counts.Truncated is set.",
		run: func(e *env) {
			q := querier(e)
			f := store.Filter{Unfinished: true}
			list := matching(f, e.population())
			for _, by := range [][]store.Dimension{nil, {store.BySaga}, store.Dimensions} {
				whole := map[string]int64{}
				for _, g := range groups(list, by) {
					whole[fmt.Sprintf("%q", g.Values)] = g.N
				}
				for _, most := range []int{1, 2, 10, len(list) - 1, len(list), len(list) + 1, store.MaxCount} {
					got := e.count(q, f, by, most)
					var sum int64
					for _, g := range got.Groups {
						sum += g.N
						if n := whole[fmt.Sprintf("%q", g.Values)]; g.N > n {
							e.Errorf("counting %d by %v: %d have %q, want at most %d", most, by, g.N, g.Values, n)
						}
					}
					if !slices.IsSortedFunc(got.Groups, func(a, b store.CountGroup) int {
						return cmp.Or(-cmp.Compare(a.N, b.N), slices.Compare(a.Values, b.Values))
					}) {
						e.Errorf("counting %d by %v: the groups are not in order", most, by)
					}
					if want := int64(min(most, len(list))); sum != want || got.Truncated != (most < len(list)) {
						e.Errorf("counting %d of %d by %v: counted %d, truncated %v", most, len(list), by, sum, got.Truncated)
					}
				}
			}
		},
	},
	{
		name:    "CountIsRefused",
		promise: "ValidateCount is the rule: a dimension there is not or that is given twice, and a most below 0 or above MaxCount are ErrInvalid; 0 is the default.",
		run: func(e *env) {
			q := querier(e)
			for _, by := range [][]store.Dimension{{"worker"}, {""}, {store.BySaga, store.BySaga}, {store.BySaga, store.ByStep, store.BySaga}} {
				_, err := q.Count(e.Context(), store.Filter{}, by, 0)
				e.is(err, store.ErrInvalid)
			}
			for _, most := range []int{-1, store.MaxCount + 1} {
				_, err := q.Count(e.Context(), store.Filter{}, nil, most)
				e.is(err, store.ErrInvalid)
			}
		},
	},
}
