package storetest

import (
	"context"
	"slices"
	"strings"

	"github.com/leveret-go/leveret/store"
)

// asksAttempts makes Latency and Failures ask for something else.
func asksAttempts(ask func(*store.AttemptQuery)) func(*faulty) {
	return func(f *faulty) {
		f.latency = func(ctx context.Context, q store.AttemptQuery) (*store.Latencies, error) {
			ask(&q)
			return f.Store.Latency(ctx, q)
		}
		f.failures = func(ctx context.Context, q store.AttemptQuery) (*store.Failures, error) {
			ask(&q)
			return f.Store.Failures(ctx, q)
		}
	}
}

var statisticsFaults = map[string]func(f *faulty){
	"ListByFailedAttempts": filters(func(f *store.Filter) {
		if f.Failed != nil {
			f.Failed.Direction = ""
		}
	}),
	"Longest": func(f *faulty) {
		f.longest = func(ctx context.Context, filter store.Filter, limit int) ([]*store.Execution, error) {
			list, err := f.Store.Longest(ctx, filter, store.MaxPage)
			return list[max(0, len(list)-limit):], err
		}
	},
	"Sagas": func(f *faulty) {
		f.sagas = func(ctx context.Context) ([]string, error) {
			list, err := f.Store.Sagas(ctx)
			slices.SortFunc(list, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
			return list, err
		}
	},
	"Series": func(f *faulty) {
		f.series = func(ctx context.Context, q store.SeriesQuery) (*store.Series, error) {
			s, err := f.Store.Series(ctx, q)
			if err == nil { // without those where nothing happened
				s.Buckets = slices.DeleteFunc(s.Buckets, func(b store.Bucket) bool { return b.Started == 0 && b.Ended == nil })
			}
			return s, err
		}
	},
	"SeriesIsTruncated": func(f *faulty) {
		f.series = func(ctx context.Context, q store.SeriesQuery) (*store.Series, error) {
			q.Most++
			return f.Store.Series(ctx, q)
		}
	},
	"Latency":  asksAttempts(func(q *store.AttemptQuery) { q.Finished.To = q.Finished.From.AddDate(1, 0, 0) }),
	"Failures": asksAttempts(func(q *store.AttemptQuery) { q.Filter.Sagas = nil }),
	"FailuresAreCut": func(f *faulty) {
		f.failures = func(ctx context.Context, q store.AttemptQuery) (*store.Failures, error) {
			out, err := f.Store.Failures(ctx, q)
			if err == nil {
				out.Truncated = false
			}
			return out, err
		}
	},
	"StatisticsAreRefused": asksAttempts(func(q *store.AttemptQuery) { q.Most = min(q.Most, store.MaxAttempts) }),
	"StatisticsEnd": func(f *faulty) {
		f.sagas = func(ctx context.Context) ([]string, error) { return f.Store.Sagas(context.WithoutCancel(ctx)) }
	},
}
