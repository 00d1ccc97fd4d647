package saga

import (
	"context"
	"sync"
)

// A StartItem is one start of [Saga.StartMany].
type StartItem[S any] struct {
	Resource Resource
	State    S
	Options  *StartOptions
}

// A StartResult is what became of a [StartItem].
type StartResult struct {
	Started *Started // nil when Err is not
	Err     error
}

// startsAtOnce is how many starts of StartMany are under way at a time.
const startsAtOnce = 16

// StartMany starts many executions, several at a time, and returns for each, in
// the order given, what [Saga.Start] would. One that cannot be started does not
// keep the others. When ctx ends, those that were not begun have its error. It
// is no transaction: a process that dies in between has started some; with ids
// or keys of the caller's own it can be called again.
func (s *Saga[S]) StartMany(ctx context.Context, items []StartItem[S]) []StartResult {
	results := make([]StartResult, len(items))
	next := make(chan int)
	var starters sync.WaitGroup
	for range min(startsAtOnce, len(items)) {
		starters.Go(func() {
			for i := range next {
				r := &results[i]
				if r.Err = ctx.Err(); r.Err == nil {
					r.Started, r.Err = s.Start(ctx, items[i].Resource, items[i].State, items[i].Options)
				}
			}
		})
	}
	for i := range items {
		next <- i
	}
	close(next)
	starters.Wait()
	return results
}
