package saga

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// maxAlarms bounds what an alarm remembers: with more than that to come, the
// ordinary sweeps are frequent enough.
const maxAlarms = 10_000

// An alarm wakes its one waiter at the due times that this process knows of, so
// that it does not have to wait for the next ordinary sweep.
type alarm struct {
	mu    sync.Mutex
	times timeHeap
	early chan struct{} // holds a token when the earliest time became earlier
}

func newAlarm() *alarm { return &alarm{early: make(chan struct{}, 1)} }

func (a *alarm) set(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	earliest := len(a.times) == 0 || at.Before(a.times[0])
	if len(a.times) >= maxAlarms {
		if !earliest {
			return
		}
		a.times = a.times[:len(a.times)-1]
	}
	heap.Push(&a.times, at)
	if earliest {
		select {
		case a.early <- struct{}{}:
		default:
		}
	}
}

// wait returns when a known time has come, at the latest after atMost, or false
// when ctx is done. Times that have come are forgotten.
func (a *alarm) wait(ctx context.Context, now func() time.Time, atMost time.Duration) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	end := time.Now().Add(atMost)
	for {
		if ctx.Err() != nil {
			return false
		}
		left, any := a.next(now())
		if any && left <= 0 {
			return true
		}
		wait := time.Until(end)
		if any {
			wait = min(wait, left)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return false
		case <-a.early:
		case <-timer.C:
			if !time.Now().Before(end) {
				a.next(now())
				return true
			}
		}
	}
}

// next forgets the times that have come, and returns how long it is until the
// earliest, 0 when one has.
func (a *alarm) next(now time.Time) (left time.Duration, any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.times) > 0 && !a.times[0].After(now) {
		heap.Pop(&a.times)
		any = true
	}
	if any {
		return 0, true
	}
	if len(a.times) == 0 {
		return 0, false
	}
	return a.times[0].Sub(now), true
}

// alarms wakes all that wait for due executions.
type alarms struct {
	mu  sync.Mutex
	all map[*alarm]struct{}
}

func (a *alarms) add() *alarm {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[*alarm]struct{}{}
	}
	n := newAlarm()
	a.all[n] = struct{}{}
	return n
}

func (a *alarms) remove(n *alarm) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, n)
}

func (a *alarms) set(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range a.all {
		n.set(at)
	}
}

type timeHeap []time.Time

func (h timeHeap) Len() int           { return len(h) }
func (h timeHeap) Less(i, j int) bool { return h[i].Before(h[j]) }
func (h timeHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timeHeap) Push(x any)        { *h = append(*h, x.(time.Time)) }
func (h *timeHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	*h = old[:len(old)-1]
	return t
}
