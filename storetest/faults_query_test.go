package storetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// lists makes List change what it was asked and what it answers.
func lists(ask func(*store.Filter, *store.Page), answer func(*store.List)) func(*faulty) {
	return func(f *faulty) {
		f.list = func(ctx context.Context, filter store.Filter, p store.Page) (*store.List, error) {
			ask(&filter, &p)
			l, err := f.Store.List(ctx, filter, p)
			if err == nil {
				answer(l)
			}
			return l, err
		}
	}
}

// filters makes List ask for something else.
func filters(ask func(*store.Filter)) func(*faulty) {
	return lists(func(f *store.Filter, _ *store.Page) { ask(f) }, func(*store.List) {})
}

var queryFaults = map[string]func(f *faulty){
	"ListAll": lists(func(*store.Filter, *store.Page) {}, func(l *store.List) { slices.Reverse(l.Executions) }),
	"ListIsWhole": lists(func(*store.Filter, *store.Page) {}, func(l *store.List) {
		for _, x := range l.Executions {
			x.Checkpoint = nil // as a list may leave out what is long
		}
	}),
	"ListByOneField": filters(func(f *store.Filter) { f.Finished.To = f.Finished.To.Add(999) }), // cut when it is compared
	"ListByTwoFields": filters(func(f *store.Filter) {
		if len(f.Statuses) > 0 {
			f.Attention = nil
		}
	}),
	"ListByThreeFields": filters(func(f *store.Filter) {
		if len(f.Sagas) > 0 && len(f.Statuses) > 0 {
			f.Partitions, f.Erased = nil, nil
		}
	}),
	"ListInPages": lists(func(*store.Filter, *store.Page) {}, func(l *store.List) {
		if n := len(l.Executions); n == 50 || n == populationSize { // a page that is full
			l.Next = &l.Executions[n-1].ID
		}
	}),
	"ListPagesFitTogether": func(f *faulty) {
		read := 0 // pages by offset
		f.list = func(ctx context.Context, filter store.Filter, p store.Page) (*store.List, error) {
			if p.After == uuid.Nil {
				read = 0
			}
			all, err := f.Store.List(ctx, filter, store.Page{Limit: store.MaxPage})
			if err != nil {
				return nil, err
			}
			l := &store.List{Executions: all.Executions[min(read, len(all.Executions)):]}
			if len(l.Executions) > p.Limit {
				l.Executions = l.Executions[:p.Limit]
				l.Next = &l.Executions[p.Limit-1].ID
			}
			read += len(l.Executions)
			return l, nil
		}
	},
	"ListLimits": lists(func(_ *store.Filter, p *store.Page) { p.Limit = min(p.Limit, store.MaxPage) }, func(*store.List) {}),
	"QueriesAreRefused": filters(func(f *store.Filter) {
		f.Attention = slices.DeleteFunc(slices.Clone(f.Attention), func(a store.Attention) bool { return !slices.Contains(store.Attentions, a) })
	}),
	"FiltersAreLong": filters(func(f *store.Filter) { f.Steps = f.Steps[:min(len(f.Steps), 999)] }),
	"QueriesFollowWrites": func(f *faulty) {
		cached := map[string]*store.List{}
		f.list = func(ctx context.Context, filter store.Filter, p store.Page) (*store.List, error) {
			key := fmt.Sprint(filter, p)
			if cached[key] == nil {
				l, err := f.Store.List(ctx, filter, p)
				if err != nil {
					return nil, err
				}
				cached[key] = l
			}
			return cached[key], nil
		}
	},
	"QueriesEnd": func(f *faulty) {
		f.count = func(ctx context.Context, filter store.Filter, by []store.Dimension, most int) (*store.Counts, error) {
			return f.Store.Count(context.WithoutCancel(ctx), filter, by, most)
		}
	},
}

// countsWrong makes Count change what it was asked and what it answers.
func countsWrong(ask func(*store.Filter, *[]store.Dimension), answer func(c *store.Counts, most int)) func(*faulty) {
	return func(f *faulty) {
		f.count = func(ctx context.Context, filter store.Filter, by []store.Dimension, most int) (*store.Counts, error) {
			by = slices.Clone(by)
			ask(&filter, &by)
			c, err := f.Store.Count(ctx, filter, by, most)
			if err == nil {
				answer(c, most)
			}
			return c, err
		}
	}
}

var countFaults = map[string]func(f *faulty){
	"CountAll": countsWrong(func(*store.Filter, *[]store.Dimension) {}, func(c *store.Counts, _ int) {
		c.Groups = slices.DeleteFunc(c.Groups, func(g store.CountGroup) bool { return g.N == 0 })
	}),
	"CountByOneDimension": countsWrong(func(*store.Filter, *[]store.Dimension) {}, func(c *store.Counts, _ int) {
		slices.SortStableFunc(c.Groups, func(a, b store.CountGroup) int { return slices.Compare(a.Values, b.Values) })
	}),
	"CountByTwoDimensions": countsWrong(func(_ *store.Filter, by *[]store.Dimension) { slices.Sort(*by) }, func(*store.Counts, int) {}),
	"CountErrorClasses": countsWrong(func(*store.Filter, *[]store.Dimension) {}, func(c *store.Counts, _ int) {
		for i, g := range c.Groups {
			if len(g.Values) == 1 && g.Values[0] == "" { // failures of no class stand apart
				c.Groups[i].N--
				c.Groups = append(c.Groups, store.CountGroup{Values: g.Values, N: 1})
			}
		}
	}),
	"CountByFilters": countsWrong(func(f *store.Filter, _ *[]store.Dimension) { f.Unfinished = false }, func(*store.Counts, int) {}),
	"CountIsTruncated": countsWrong(func(*store.Filter, *[]store.Dimension) {}, func(c *store.Counts, most int) {
		var sum int64
		for _, g := range c.Groups {
			sum += g.N
		}
		c.Truncated = sum == int64(most)
	}),
	"CountIsRefused": countsWrong(func(_ *store.Filter, by *[]store.Dimension) { *by = slices.Compact(*by) }, func(*store.Counts, int) {}),
}
