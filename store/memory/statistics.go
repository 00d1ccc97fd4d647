package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// Longest lists what moved longest ago; see [store.Querier].
func (s *Store) Longest(ctx context.Context, f store.Filter, limit int) ([]*store.Execution, error) {
	if err := cmp.Or(ctx.Err(), store.ValidateLongest(&f, limit)); err != nil {
		return nil, err
	}
	f.Unfinished = true
	found := s.selected(&f)
	slices.SortFunc(found, func(a, b *store.Execution) int {
		return cmp.Or(a.ProgressAt.Compare(b.ProgressAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return clones(found[:min(limit, len(found))]), nil
}

// Sagas names the sagas that have executions; see [store.Querier].
func (s *Store) Sagas(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all := s.all()
	if len(all) > store.MaxNamed {
		slices.SortFunc(all, func(a, b *store.Execution) int { return b.CreatedAt.Compare(a.CreatedAt) })
		all = all[:store.MaxNamed]
	}
	seen, names := make(map[string]bool), []string{}
	for _, x := range all {
		if !seen[x.Saga] {
			seen[x.Saga] = true
			names = append(names, x.Saga)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Series counts starts and ends over time; see [store.Querier].
func (s *Store) Series(ctx context.Context, q store.SeriesQuery) (*store.Series, error) {
	q, err := q.Filled()
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	out := &store.Series{Buckets: q.Empty()}
	type moment struct {
		at     time.Time
		status store.Status // "": a start
	}
	var starts, ends []moment
	for _, x := range s.selected(&q.Filter) {
		if q.Bucketed(out.Buckets, x.CreatedAt) != nil {
			starts = append(starts, moment{x.CreatedAt, ""})
		}
		if x.FinishedAt != nil && x.Status.Finished() && q.Bucketed(out.Buckets, *x.FinishedAt) != nil {
			ends = append(ends, moment{*x.FinishedAt, x.Status})
		}
	}
	for _, list := range [][]moment{starts, ends} {
		slices.SortFunc(list, func(a, b moment) int { return b.at.Compare(a.at) })
		if len(list) > q.Most {
			out.Cut(int(q.Index(list[q.Most].at)))
			list = list[:q.Most]
		}
		for _, m := range list {
			if b := q.Bucketed(out.Buckets, m.at); m.status == "" {
				b.Started++
			} else {
				b.End(m.status, 1)
			}
		}
	}
	return out, nil
}

// newest returns the newest of the attempts that q asks for, and whether there
// are more.
func (s *Store) newest(q *store.AttemptQuery, which func(*store.Attempt) bool) (list []ran, more bool) {
	for _, a := range s.ran(&q.Filter) {
		if a.FinishedAt != nil && q.Finished.Has(a.FinishedAt) && which(&a.Attempt) {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b ran) int { return b.FinishedAt.Compare(*a.FinishedAt) })
	if len(list) > q.Most {
		return list[:q.Most], true
	}
	return list, false
}

// Latency says how long attempts took; see [store.Querier].
func (s *Store) Latency(ctx context.Context, q store.AttemptQuery) (*store.Latencies, error) {
	q, err := q.Filled()
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	list, more := s.newest(&q, func(a *store.Attempt) bool { return a.Status.HasResult() })
	type group struct {
		saga, step string
		direction  store.Direction
	}
	took := make(map[group][]time.Duration)
	for _, a := range list {
		g := group{a.saga, a.Step, a.Direction}
		took[g] = append(took[g], max(0, a.FinishedAt.Sub(a.StartedAt)))
	}
	out := &store.Latencies{Groups: []store.Latency{}, Truncated: more}
	for g, all := range took {
		slices.Sort(all)
		n := int64(len(all))
		at := func(p int64) time.Duration { return all[store.Rank(n, p)-1] }
		out.Groups = append(out.Groups, store.Latency{
			Saga: g.saga, Step: g.step, Direction: g.direction, N: n, P50: at(50), P95: at(95), P99: at(99), Max: all[n-1],
		})
	}
	out.Sort()
	return out, nil
}

// Failures sums up failed attempts; see [store.Querier].
func (s *Store) Failures(ctx context.Context, q store.AttemptQuery) (*store.Failures, error) {
	q, err := q.Filled()
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	list, more := s.newest(&q, func(a *store.Attempt) bool { return a.Failure != nil })
	type group struct {
		class, saga, step string
		direction         store.Direction
	}
	groups := make(map[group]*store.FailureGroup)
	executions := make(map[group]map[uuid.UUID]bool)
	for _, a := range list {
		g := group{a.Failure.Class, a.saga, a.Step, a.Direction}
		sum := groups[g]
		if sum == nil {
			sum = &store.FailureGroup{Class: g.class, Saga: g.saga, Step: g.step, Direction: g.direction}
			groups[g], executions[g] = sum, make(map[uuid.UUID]bool)
		}
		sum.N++
		executions[g][a.Execution] = true
		if later := a.FinishedAt.Compare(sum.Last); later > 0 || later == 0 && bytes.Compare(a.Execution[:], sum.Sample[:]) > 0 {
			sum.Last, sum.Sample, sum.Message = *a.FinishedAt, a.Execution, a.Failure.Message
		}
	}
	out := &store.Failures{Groups: []store.FailureGroup{}, Truncated: more}
	for g, sum := range groups {
		sum.Executions = int64(len(executions[g]))
		out.Groups = append(out.Groups, *sum)
	}
	out.Sort()
	return out, nil
}
