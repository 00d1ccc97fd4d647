package saga

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store"
)

// Stats are counters of one engine, since New, for tools and metrics. They are
// of this process alone: what the store holds is asked by [Engine.Get] and the
// like.
type Stats struct {
	// Running is how many functions of steps run now.
	Running int
	// Attempts is how many were begun.
	Attempts int64
	// LeasesLost is how many attempts this process lost while their function
	// ran: it could not renew their leases in time, or somebody took them over.
	LeasesLost int64
	// EventsQueued is how many events wait for a slow observer, and
	// EventsDropped how many it missed: see [Config.Observe].
	EventsQueued  int
	EventsDropped int64
	// Sweep is the last look for due executions.
	Sweep SweepStats
}

// SweepStats are about the sweep, or, where there is nobody to publish to, about
// the claims of [Engine.WorkStore], which are made while a worker is free.
type SweepStats struct {
	// Sweeps is how many have ended, Failed how many of them with an error of
	// the store.
	Sweeps, Failed int64
	// StartedAt and EndedAt are those of the last one that ended without an
	// error, by the engine's clock. Zero: none yet.
	StartedAt, EndedAt time.Time
	// Age is how long ago that was, when Stats was called; 0 if never.
	Age time.Duration
	// Claimed is how many executions it found due.
	Claimed int
	// Lag is for how long the one that was due longest had been due. Those that
	// had been offered before do not count: they are looked at in intervals on
	// purpose.
	Lag time.Duration
}

// Stats returns the counters. It does no I/O.
func (e *Engine) Stats() Stats {
	s := Stats{Sweep: e.stats.sweep()}
	if !s.Sweep.EndedAt.IsZero() {
		s.Sweep.Age = max(e.clock.now().Sub(s.Sweep.EndedAt), 0)
	}
	s.EventsQueued, s.EventsDropped = e.deliveries.stats()
	s.Running, s.Attempts, s.LeasesLost = e.sessions.counts()
	return s
}

// Depth asks the engine's publisher how many pointers are ready in a partition's
// queue, and how many consumers it has. The error wraps [errors.ErrUnsupported]
// when there is no publisher, or it is no [DepthProber]; others mean that the
// depth is not known now. It ends with ctx, even when the publisher does not: see
// [DepthProber].
func (e *Engine) Depth(ctx context.Context, partition string) (ready, consumers int, err error) {
	p, ok := e.pub.(DepthProber)
	if !ok {
		return 0, 0, fmt.Errorf("saga: depth: the publisher cannot tell: %w", errors.ErrUnsupported)
	}
	if !partitionRule.MatchString(partition) {
		return 0, 0, fmt.Errorf("%w: partition %s", ErrInvalid, partitionFault(partition))
	}
	ready, consumers, err = e.probes.depth(ctx, p, partition)
	if err != nil {
		// A publisher may say only once that it refused pointers: the sweep has
		// to know.
		e.refused.note(partition, e.clock.now())
	}
	return ready, consumers, err
}

// stats are what Stats adds up from the sweeps.
type stats struct {
	mu     sync.Mutex
	s      SweepStats
	looked time.Time
}

func (st *stats) sweep() SweepStats {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.s
}

// looks takes note that the store was looked through, or something offered that
// was found there: a sweep over very much takes long.
func (st *stats) looks(at time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.looked = at
}

// lookedAt is when a sweep last got on, zero if none has.
func (st *stats) lookedAt() time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.looked
}

// swept takes note of a sweep that has ended.
func (st *stats) swept(start, end time.Time, claimed int, lag time.Duration, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.s.Sweeps++
	if err != nil {
		st.s.Failed++
		return
	}
	st.s.StartedAt, st.s.EndedAt, st.s.Claimed, st.s.Lag = start, end, claimed, lag
	st.looked = end
}

// lag returns for how long the one of these executions, claimed at now, that was
// due longest had been due.
func lag(xs []*store.Execution, now time.Time) (most time.Duration) {
	for _, x := range xs {
		due := x.UpdatedAt // from the moment it was written
		switch {
		case x.OfferedAt != nil && x.OfferedAt.Before(store.Micros(now)):
			continue // offered before
		case x.Attempt != nil:
			due = x.Attempt.LeaseUntil.Add(leaseMargin)
		case x.WakeAt != nil:
			due = *x.WakeAt
		}
		most = max(most, now.Sub(due))
	}
	return most
}
