package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// attempted puts executions with a few hundred attempts into the store: of
// several sagas, steps and outcomes, each finished at a time of its own.
func (e *env) attempted() (all []*store.Execution, attempts []store.Attempt) {
	e.Helper()
	r := rand.New(rand.NewPCG(populationSeed, 7))
	sagas := []string{"order", "Order", "refund"}
	for n := range 60 {
		x := e.create(func(x *store.Execution) { x.ID = uuid.New(); x.Saga = sagas[n%3] })
		var list []store.Attempt
		for i := range 5 {
			a := closed(x.ID, []string{"pay", "ship", "Pay"}[r.IntN(3)], i+1)
			a.FinishedAt = at(time.Duration(n*5+i) * time.Second)
			a.StartedAt = a.FinishedAt.Add(-time.Duration(r.IntN(5000)) * time.Millisecond)
			if r.IntN(4) == 0 {
				a.Direction = store.DirectionCompensate
			}
			a.Status = []store.AttemptStatus{
				store.AttemptSucceeded, store.AttemptFailed, store.AttemptAbandoned, store.AttemptSkipped, store.AttemptInterrupted, store.AttemptSnoozed,
			}[r.IntN(6)]
			if a.Status == store.AttemptFailed {
				class := []string{"timeout", "Timeout", "declined"}[r.IntN(3)]
				a.Failure = &store.Failure{Class: class, Message: fmt.Sprintf("%s number %d", class, len(attempts)+i), Step: a.Step}
			}
			list = append(list, a)
		}
		e.update(x.ID, func(*store.Execution) store.Change { return store.Change{Attempts: list} })
		all, attempts = append(all, e.get(x.ID)), append(attempts, list...)
	}
	return all, attempts
}

// newestOf returns the newest attempts, at most most, and whether there are
// more.
func newestOf(list []store.Attempt, most int, which func(*store.Attempt) bool) ([]store.Attempt, bool) {
	var found []store.Attempt
	for _, a := range slices.Backward(list) {
		if which(&a) {
			found = append(found, a)
		}
	}
	return found[:min(most, len(found))], len(found) > most
}

func latencies(sagas map[uuid.UUID]string, list []store.Attempt) []store.Latency {
	took := map[[3]string][]time.Duration{}
	for _, a := range list {
		g := [3]string{sagas[a.Execution], a.Step, string(a.Direction)}
		took[g] = append(took[g], a.FinishedAt.Sub(a.StartedAt))
	}
	var out []store.Latency
	for g, all := range took {
		slices.Sort(all)
		// The shortest that at least p of a hundred did not exceed.
		at := func(p int) time.Duration {
			i := 0
			for (i+1)*100 < p*len(all) {
				i++
			}
			return all[i]
		}
		out = append(out, store.Latency{Saga: g[0], Step: g[1], Direction: store.Direction(g[2]), N: int64(len(all)),
			P50: at(50), P95: at(95), P99: at(99), Max: all[len(all)-1]})
	}
	slices.SortFunc(out, func(a, b store.Latency) int {
		return cmp.Or(cmp.Compare(a.Saga, b.Saga), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Direction, b.Direction))
	})
	return out
}

func failures(sagas map[uuid.UUID]string, list []store.Attempt) []store.FailureGroup {
	groups := map[[4]string][]store.Attempt{}
	for _, a := range list {
		g := [4]string{a.Failure.Class, sagas[a.Execution], a.Step, string(a.Direction)}
		groups[g] = append(groups[g], a)
	}
	var out []store.FailureGroup
	for g, all := range groups {
		seen := map[uuid.UUID]bool{}
		for _, a := range all {
			seen[a.Execution] = true
		}
		last := slices.MaxFunc(all, func(a, b store.Attempt) int {
			return cmp.Or(a.FinishedAt.Compare(*b.FinishedAt), bytes.Compare(a.Execution[:], b.Execution[:]))
		})
		out = append(out, store.FailureGroup{Class: g[0], Saga: g[1], Step: g[2], Direction: store.Direction(g[3]), N: int64(len(all)),
			Executions: int64(len(seen)), Last: *last.FinishedAt, Sample: last.Execution, Message: last.Failure.Message})
	}
	slices.SortFunc(out, func(a, b store.FailureGroup) int {
		return cmp.Or(-cmp.Compare(a.N, b.N), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Saga, b.Saga), cmp.Compare(a.Step, b.Step),
			cmp.Compare(a.Direction, b.Direction))
	})
	return out
}

// attemptQueries returns queries of what attempted made.
func attemptQueries() map[string]store.AttemptQuery {
	all := store.Range{From: base.Add(-time.Hour)}
	part := store.Range{From: base.Add(40 * time.Second), To: base.Add(200 * time.Second)}
	return map[string]store.AttemptQuery{
		"all":                 {Finished: all},
		"in a range":          {Finished: part},
		"in no time":          {Finished: store.Range{From: base, To: base}},
		"the newest 10":       {Finished: all, Most: 10},
		"the newest 40":       {Finished: part, Most: 40},
		"the newest of one":   {Finished: all, Most: 7, Filter: store.Filter{Sagas: []string{"order"}}},
		"of one saga":         {Finished: all, Filter: store.Filter{Sagas: []string{"order"}}},
		"of an unknown saga":  {Finished: all, Filter: store.Filter{Sagas: []string{"orde"}}},
		"of finished ones":    {Finished: all, Filter: store.Filter{Statuses: []store.Status{store.StatusCompleted}}},
		"of those that timed": {Finished: all, Filter: store.Filter{Failed: &store.FailedAttempt{Class: "timeout"}}},
	}
}

// asked returns the attempts that a query is about.
func asked(q store.AttemptQuery, all []*store.Execution, list []store.Attempt) []store.Attempt {
	return slices.DeleteFunc(slices.Clone(list), func(a store.Attempt) bool {
		x := all[slices.IndexFunc(all, func(x *store.Execution) bool { return x.ID == a.Execution })]
		return !q.Finished.Has(a.FinishedAt) || !q.Filter.Matches(x) || q.Filter.Failed != nil && !hasFailed(x, q.Filter.Failed, list)
	})
}

func hasFailed(x *store.Execution, f *store.FailedAttempt, list []store.Attempt) bool {
	return slices.ContainsFunc(list, func(a store.Attempt) bool { return a.Execution == x.ID && f.Matches(&a) })
}

func sagaOf(all []*store.Execution) map[uuid.UUID]string {
	sagas := map[uuid.UUID]string{}
	for _, x := range all {
		sagas[x.ID] = x.Saga
	}
	return sagas
}

// series is the rule of Series for q, which is filled.
func series(q store.SeriesQuery, all []*store.Execution) *store.Series {
	out := &store.Series{}
	if !q.Range.From.Before(q.Range.To) {
		return out
	}
	for t := time.UnixMicro((base.UnixMicro()/q.Bucket.Microseconds() - 1000) * q.Bucket.Microseconds()).UTC(); t.Before(q.Range.To); t = t.Add(q.Bucket) {
		if b := t.Add(q.Bucket); !b.After(q.Range.From) {
			continue
		}
		out.Buckets = append(out.Buckets, store.Bucket{At: t})
	}
	count := func(t *time.Time, add func(*store.Bucket)) {
		if t == nil || t.Before(q.Range.From) || !t.Before(q.Range.To) {
			return
		}
		for i := range out.Buckets {
			if b := &out.Buckets[i]; !t.Before(b.At) && t.Before(b.At.Add(q.Bucket)) {
				add(b)
			}
		}
	}
	for _, x := range all {
		count(&x.CreatedAt, func(b *store.Bucket) { b.Started++ })
		if x.Status.Finished() {
			count(x.FinishedAt, func(b *store.Bucket) { b.End(x.Status, 1) })
		}
	}
	return out
}

var statisticsCases = []testCase{
	{
		name:    "ListByFailedAttempts",
		promise: "Filter.Failed: what one of its attempts has to be. FailedAttempt.Matches is the rule; for Count too.",
		fresh:   true,
		run: func(e *env) {
			q := querier(e)
			all, attempts := e.attempted()
			slices.SortFunc(all, newestFirst)
			for what, f := range map[string]store.FailedAttempt{
				"any":                                {},
				"of a class":                         {Class: "timeout"},
				"of a class and a step":              {Class: "Timeout", Step: "pay"},
				"of a class, a step and a direction": {Class: "declined", Step: "ship", Direction: store.DirectionCompensate},
				"of a class in a range":              {Class: "timeout", Finished: store.Range{From: base.Add(10 * time.Second), To: base.Add(60 * time.Second)}},
				"at a step since":                    {Step: "Pay", Finished: store.Range{From: base.Add(250 * time.Second)}},
				"of an unknown class":                {Class: "time"},
			} {
				for _, sagas := range [][]string{nil, {"order"}} {
					filter := store.Filter{Failed: &f, Sagas: sagas}
					want := slices.DeleteFunc(slices.Clone(all), func(x *store.Execution) bool {
						return !filter.Matches(x) || !hasFailed(x, &f, attempts)
					})
					e.selected(what, e.list(q, filter, store.Page{Limit: store.MaxPage}).Executions, want)
					e.same(what+", Count", e.count(q, filter, nil, 0).Groups, groups(want, nil))
				}
			}
		},
	},
	{
		name:    "Longest",
		promise: "Longest returns the unfinished executions that f selects and that moved longest ago, in the order of their ProgressAt, then by id; at most limit of them.",
		run: func(e *env) {
			q := querier(e)
			for what, f := range map[string]store.Filter{
				"of all": {}, "of a saga": {Sagas: []string{"order", "Order"}}, "waiting": {Statuses: []store.Status{store.StatusWaiting, store.StatusFailed}},
				"stuck": {StuckFor: anHour, At: base}, "finished": {Statuses: []store.Status{store.StatusCompleted}},
			} {
				want := matching(f, e.population())
				want = slices.DeleteFunc(want, func(x *store.Execution) bool { return x.Status.Finished() })
				slices.SortFunc(want, func(a, b *store.Execution) int {
					return cmp.Or(a.ProgressAt.Compare(b.ProgressAt), bytes.Compare(a.ID[:], b.ID[:]))
				})
				for _, limit := range []int{1, 7, store.MaxPage} {
					got, err := q.Longest(e.Context(), f, limit)
					e.ok(err)
					e.same("Longest "+what, ids(got), ids(want[:min(limit, len(want))]))
				}
			}
		},
	},
	{
		name:    "Sagas",
		promise: "Sagas returns the names of the sagas that have executions, in order.",
		run: func(e *env) {
			q := querier(e)
			var want []string
			for _, x := range e.population() {
				want = append(want, x.Saga)
			}
			slices.Sort(want)
			got, err := q.Sagas(e.Context())
			e.ok(err)
			e.same("Sagas", got, slices.Compact(want))
		},
	},
	{
		name:    "Series",
		promise: "Series counts the starts and the ends of the executions that q.Filter selects, for each span of time: all of them, those where nothing happened too, aligned; what is not in Range is not counted.",
		run: func(e *env) {
			q := querier(e)
			for what, ask := range map[string]store.SeriesQuery{
				"hours":                     {Range: store.Range{From: base.Add(-3 * anHour), To: base.Add(3 * anHour)}, Bucket: anHour},
				"odd buckets":               {Range: store.Range{From: base.Add(-3 * anHour), To: base.Add(3 * anHour)}, Bucket: 7*time.Minute + time.Microsecond},
				"from within a bucket":      {Range: store.Range{From: base.Add(-time.Microsecond), To: base.Add(time.Microsecond)}, Bucket: anHour},
				"one microsecond":           {Range: store.Range{From: base, To: base.Add(time.Microsecond)}, Bucket: time.Minute},
				"no time":                   {Range: store.Range{From: base, To: base}, Bucket: time.Minute},
				"of a saga":                 {Range: store.Range{From: base.Add(-3 * anHour), To: base.Add(3 * anHour)}, Bucket: anHour, Filter: store.Filter{Sagas: []string{"order"}}},
				"of what failed":            {Range: store.Range{From: base.Add(-3 * anHour), To: base.Add(3 * anHour)}, Bucket: anHour, Filter: store.Filter{Statuses: []store.Status{store.StatusFailed}}},
				"of what is not finished":   {Range: store.Range{From: base.Add(-3 * anHour), To: base.Add(3 * anHour)}, Bucket: anHour, Filter: store.Filter{Unfinished: true}},
				"as many buckets as can be": {Range: store.Range{From: base.Truncate(time.Millisecond).Add(-time.Millisecond * 999), To: base.Truncate(time.Millisecond).Add(time.Millisecond)}, Bucket: time.Millisecond},
			} {
				want := series(ask, matching(ask.Filter, e.population()))
				got, err := q.Series(e.Context(), ask)
				e.ok(err)
				e.same("Series of "+what, got, want)
			}
		},
	},
	{
		name:    "SeriesIsTruncated",
		promise: "Most is how many starts, and how many ends, are counted at the most: the newest. Since is when the first bucket begins in which all were counted.",
		fresh:   true,
		run: func(e *env) {
			q := querier(e)
			start := base.Truncate(anHour)
			for i := range 30 {
				e.create(func(x *store.Execution) {
					x.CreatedAt = start.Add(time.Duration(i) * time.Minute)
					x.Status, x.DueAt, x.FinishedAt = store.StatusCompleted, nil, &x.CreatedAt
					if i%2 == 0 {
						x.Status, x.FinishedAt, x.DueAt = store.StatusRunning, nil, at(0)
					}
				})
			}
			ask := store.SeriesQuery{Range: store.Range{From: start, To: start.Add(anHour)}, Bucket: 10 * time.Minute}
			for _, c := range []struct {
				most           int
				started, ended []int64
				since          time.Time
			}{
				{30, []int64{10, 10, 10}, []int64{5, 5, 5}, time.Time{}},
				{29, []int64{9, 10, 10}, []int64{5, 5, 5}, start.Add(10 * time.Minute)},
				{20, []int64{0, 10, 10}, []int64{5, 5, 5}, start.Add(10 * time.Minute)},
				{7, []int64{0, 0, 7}, []int64{0, 2, 5}, start.Add(30 * time.Minute)},
			} {
				ask.Most = c.most
				got, err := q.Series(e.Context(), ask)
				e.ok(err)
				if len(got.Buckets) != 6 {
					e.Fatalf("there are %d buckets, want 6", len(got.Buckets))
				}
				var started, ended []int64
				for _, b := range got.Buckets[:3] {
					started, ended = append(started, b.Started), append(ended, b.Ended[store.StatusCompleted])
				}
				e.same(fmt.Sprintf("starts, at most %d", c.most), started, c.started)
				e.same(fmt.Sprintf("ends, at most %d", c.most), ended, c.ended)
				if got.Truncated != (c.most < 30) || !got.Since.Equal(c.since) {
					e.Errorf("at most %d: truncated %t since %v, want since %v", c.most, got.Truncated, got.Since, c.since)
				}
			}
		},
	},
	{
		name:    "Latency",
		promise: "Latency says how long the attempts took, for each saga, step and direction: of those that came to a result, the newest q.Most that finished in q.Finished. P50, P95 and P99 are by nearest rank.",
		fresh:   true,
		run: func(e *env) {
			q := querier(e)
			all, attempts := e.attempted()
			for what, ask := range attemptQueries() {
				list, more := newestOf(asked(ask, all, attempts), cmp.Or(ask.Most, store.DefaultAttempts), func(a *store.Attempt) bool { return a.Status.HasResult() })
				got, err := q.Latency(e.Context(), ask)
				e.ok(err)
				e.same("Latency of "+what, got, &store.Latencies{Groups: latencies(sagaOf(all), list), Truncated: more})
			}
		},
	},
	{
		name:    "Failures",
		promise: "Failures sums up the failed attempts: the newest q.Most that finished in q.Finished, in groups of equal class, saga, step and direction, ordered by their number, descending, then by class, saga, step and direction.",
		fresh:   true,
		run: func(e *env) {
			q := querier(e)
			all, attempts := e.attempted()
			for what, ask := range attemptQueries() {
				list, more := newestOf(asked(ask, all, attempts), cmp.Or(ask.Most, store.DefaultAttempts), func(a *store.Attempt) bool { return a.Failure != nil })
				got, err := q.Failures(e.Context(), ask)
				e.ok(err)
				e.same("Failures of "+what, got, &store.Failures{Groups: failures(sagaOf(all), list), Truncated: more})
			}
		},
	},
	{
		name:    "FailuresAreCut",
		promise: "Of the groups the MaxGroups with the most attempts are returned, and Truncated says so.",
		fresh:   true,
		run: func(e *env) {
			q := querier(e)
			x := e.create()
			var list []store.Attempt
			for i := range store.MaxGroups + 1 {
				for n := range 1 + i%2 {
					a := closed(x.ID, fmt.Sprintf("step %03d", i), n+1)
					a.Status, a.Failure = store.AttemptFailed, &store.Failure{Class: "timeout", Step: a.Step}
					list = append(list, a)
				}
			}
			e.update(x.ID, func(*store.Execution) store.Change { return store.Change{Attempts: list} })
			got, err := q.Failures(e.Context(), store.AttemptQuery{Finished: store.Range{From: base}})
			e.ok(err)
			if len(got.Groups) != store.MaxGroups || !got.Truncated {
				e.Fatalf("there are %d groups (truncated: %t), want %d", len(got.Groups), got.Truncated, store.MaxGroups)
			}
			if first, last := got.Groups[0], got.Groups[store.MaxGroups-1]; first.N != 2 || last.N != 1 || last.Step != "step 098" {
				e.Errorf("the first is %v, the last %v", first, last)
			}
		},
	},
	{
		name:    "StatisticsAreRefused",
		promise: "ValidateLongest and the Filled of a query are the rule: ErrInvalid.",
		run: func(e *env) {
			q := querier(e)
			refused := func(what string, err error) {
				e.Helper()
				if err == nil {
					e.Errorf("%s: no error", what)
					return
				}
				e.is(err, store.ErrInvalid)
			}
			for what, f := range badFilters() {
				_, err := q.Longest(e.Context(), f, 1)
				refused("Longest with "+what, err)
				_, err = q.Series(e.Context(), store.SeriesQuery{Filter: f, Range: store.Range{From: base, To: *at(anHour)}, Bucket: anHour})
				refused("Series with "+what, err)
				_, err = q.Latency(e.Context(), store.AttemptQuery{Filter: f, Finished: store.Range{From: base}})
				refused("Latency with "+what, err)
				_, err = q.Failures(e.Context(), store.AttemptQuery{Filter: f, Finished: store.Range{From: base}})
				refused("Failures with "+what, err)
			}
			for _, limit := range []int{-1, 0, store.MaxPage + 1} {
				_, err := q.Longest(e.Context(), store.Filter{}, limit)
				refused(fmt.Sprintf("Longest of %d", limit), err)
			}
			whole := store.Range{From: base, To: *at(anHour)}
			for what, ask := range map[string]store.SeriesQuery{
				"no range": {Bucket: anHour}, "no end": {Range: store.Range{From: base}, Bucket: anHour}, "no bucket": {Range: whole},
				"a bucket too fine": {Range: whole, Bucket: time.Second + 1}, "a bucket below 0": {Range: whole, Bucket: -time.Second},
				"too many buckets": {Range: store.Range{From: base.Add(-time.Second), To: base.Add(time.Microsecond)}, Bucket: time.Millisecond},
				"too many":         {Range: whole, Bucket: anHour, Most: store.MaxCount + 1}, "fewer than none": {Range: whole, Bucket: anHour, Most: -1},
			} {
				_, err := q.Series(e.Context(), ask)
				refused("Series with "+what, err)
			}
			for what, ask := range map[string]store.AttemptQuery{
				"no range": {}, "too many": {Finished: whole, Most: store.MaxAttempts + 1}, "fewer than none": {Finished: whole, Most: -1},
			} {
				_, err := q.Latency(e.Context(), ask)
				refused("Latency with "+what, err)
				_, err = q.Failures(e.Context(), ask)
				refused("Failures with "+what, err)
			}
		},
	},
	{
		name:    "StatisticsEnd",
		promise: "Every method honours ctx; the ctx's own error is returned where that ended the call.",
		run: func(e *env) {
			q := querier(e)
			e.population()
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			whole := store.Range{From: base, To: *at(anHour)}
			_, err := q.Longest(ctx, store.Filter{}, 1)
			e.is(err, context.Canceled)
			_, err = q.Sagas(ctx)
			e.is(err, context.Canceled)
			_, err = q.Series(ctx, store.SeriesQuery{Range: whole, Bucket: anHour})
			e.is(err, context.Canceled)
			_, err = q.Latency(ctx, store.AttemptQuery{Finished: whole})
			e.is(err, context.Canceled)
			_, err = q.Failures(ctx, store.AttemptQuery{Finished: whole})
			e.is(err, context.Canceled)
		},
	},
}
