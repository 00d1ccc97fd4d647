package saga

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store"
)

// sessions are the attempts that this process runs, and the renewal of their
// leases.
type sessions struct {
	renewing sync.Mutex // held over a renewal

	mu    sync.Mutex
	open  map[store.Lease]*session
	cut   chan struct{} // closed when Run gives up on what still runs
	ended error         // not nil: the cause with which all bodies are ended

	begun, lost int64 // of all time
}

func (ss *sessions) start() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.cut, ss.ended = make(chan struct{}), nil
}

// cutOff returns a channel that is closed when Run has given up waiting.
func (ss *sessions) cutOff() <-chan struct{} {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.cut
}

func (ss *sessions) add(e *Engine, x *store.Execution) *session {
	lease, _ := x.Lease()
	s := &session{
		lease: lease, saga: x.Saga, since: x.Attempt.StartedAt, timeoutAt: x.Attempt.TimeoutAt,
		until: time.Now().Add(x.Attempt.LeaseUntil.Sub(e.clock.now())),
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.open[lease] = s
	return s
}

func (ss *sessions) remove(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.open, s.lease)
	if s.timer != nil {
		s.timer()
	}
	if s.cancel != nil {
		s.cancel(nil)
	}
}

// begin makes the ctx of the session's body.
func (ss *sessions) begin(ctx context.Context, s *session, now time.Time) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.CancelFunc(func() {})
	if s.timeoutAt != nil {
		ctx, stop = context.WithTimeout(ctx, s.timeoutAt.Sub(now))
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.cancel, s.timer, s.running = cancel, stop, true
	ss.begun++
	switch {
	case s.given:
		ss.cancelLocked(s, ErrAttemptLost) // lost before it began
	case ss.ended != nil:
		ss.cancelLocked(s, ss.ended)
	}
	return ctx
}

func (ss *sessions) end(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.running = false
}

// interrupt ends the ctx of all bodies, and of those that still begin.
func (ss *sessions) interrupt(cause error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.ended = cause
	for _, s := range ss.open {
		ss.cancelLocked(s, cause)
	}
}

func (ss *sessions) cancelLocked(s *session, cause error) {
	if s.running && cause == ErrAttemptLost && !s.lost {
		s.lost = true
		ss.lost++
	}
	if s.running && s.endedAt.IsZero() && s.cancel != nil {
		s.cancel(cause)
		s.endedAt = time.Now()
	}
}

// counts returns how many bodies run, were begun, and were lost.
func (ss *sessions) counts() (running int, begun, lost int64) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.open {
		if s.running {
			running++
		}
	}
	return running, ss.begun, ss.lost
}

// names lists what still runs.
func (ss *sessions) names() []string {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var out []string
	for l, s := range ss.open {
		out = append(out, fmt.Sprintf("%s/%s/%s of %s", s.saga, l.Step, l.Direction, l.Execution))
	}
	slices.Sort(out)
	return out
}

// giveUp ends all waiting for the store.
func (ss *sessions) giveUp() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	close(ss.cut)
}

// renewLoop keeps the leases of this process's attempts until ctx is done, by
// one statement for all that have less than two thirds of a lease left: short
// steps cost no renewal.
func (e *Engine) renewLoop(ctx context.Context) {
	tick := max(e.cfg.Lease/12, 10*time.Millisecond)
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		e.renewOnce(ctx)
		timer.Reset(tick)
	}
}

// renewOnce renews what is to be renewed.
func (e *Engine) renewOnce(ctx context.Context) {
	if err := e.ready(ctx); err != nil {
		e.warn("saga: renew leases", "error", err)
	}
	_ = e.renew(ctx, false)
}

// ready makes sure that the clock can be trusted. When this machine seems to
// have slept no lease of its own counts as live before it was renewed by the
// store's clock: that is done first.
func (e *Engine) ready(ctx context.Context) error {
	if err := e.clock.ready(ctx); err != nil {
		return err
	}
	if slept, _ := e.clock.slept(); !slept {
		return nil
	}
	return e.renew(ctx, true)
}

// renew renews the leases that need it, or all, one call at a time.
func (e *Engine) renew(ctx context.Context, all bool) error {
	e.sessions.renewing.Lock()
	defer e.sessions.renewing.Unlock()
	now := time.Now()
	leases, progress := e.sessions.toRenew(e, now, all)
	if len(leases) > 0 {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(e.cfg.Lease/4, time.Second))
		defer cancel()
		at := e.clock.now()
		until := at.Add(e.cfg.Lease)
		states, err := e.store.Renew(rctx, leases, store.Renewal{Now: at, Until: until, DueAt: until.Add(leaseMargin), Progress: progress})
		if err != nil {
			e.warn("saga: renew leases", "leases", len(leases), "error", err)
			return fmt.Errorf("saga: renew leases: %w", err)
		}
		e.heard.Store(time.Now().UnixNano())
		e.sessions.renewed(leases, states, progress, now.Add(e.cfg.Lease))
	}
	if all {
		e.clock.renewed()
	}
	return nil
}

// expireLoop ends, until ctx is done, the bodies whose lease this process cannot
// be sure of any more. It does no I/O: nothing can hold it up.
func (e *Engine) expireLoop(ctx context.Context) {
	tick := max(min(e.cfg.Lease/12, leaseMargin/4), 10*time.Millisecond)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		e.sessions.expire(e)
		e.beat.Store(time.Now().UnixNano())
	}
}

// toRenew lists the leases to renew, and notices bodies that ignore the end of
// their ctx.
func (ss *sessions) toRenew(e *Engine, now time.Time, all bool) (leases []store.Lease, progress []*store.Progress) {
	var stuck []*session
	ss.mu.Lock()
	storeNow := e.clock.now()
	for _, s := range ss.open {
		if s.running && s.endedAt.IsZero() && s.timeoutAt != nil && storeNow.After(*s.timeoutAt) {
			s.endedAt = now // its own time-out
		}
		if s.running && !s.endedAt.IsZero() && now.Sub(s.endedAt) > e.cfg.Lease {
			s.given = true
			if !s.stuck {
				s.stuck = true
				stuck = append(stuck, s)
			}
		}
		if !s.given && (all || s.until.Sub(now) < e.cfg.Lease*2/3) {
			leases = append(leases, s.lease)
			var p *store.Progress
			if !s.told {
				p = s.progress
			}
			progress = append(progress, p)
		}
	}
	ss.mu.Unlock()
	for _, s := range stuck {
		e.emit(context.Background(), Event{
			Kind: EventStepStuck, At: storeNow, Execution: s.lease.Execution, Saga: s.saga, Step: s.lease.Step,
			Direction: s.lease.Direction, Epoch: s.lease.Epoch, Attempt: s.lease.Number, Took: now.Sub(s.endedAt),
			Reason: "the step ignores the end of its ctx; its lease is not renewed any more",
		})
	}
	return leases, progress
}

func (ss *sessions) renewed(leases []store.Lease, states []store.LeaseState, progress []*store.Progress, until time.Time) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for i, state := range states {
		s := ss.open[leases[i]]
		if s == nil {
			continue // settled meanwhile
		}
		if (state == store.LeaseHeld || state == store.LeaseInterrupted) && progress[i] == s.progress {
			s.told = true
		}
		switch state {
		case store.LeaseHeld:
			s.until = until
		case store.LeaseInterrupted:
			s.until = until
			ss.cancelLocked(s, ErrInterrupted)
		case store.LeaseLost:
			ss.cancelLocked(s, ErrAttemptLost)
			s.given = true
		}
	}
}

// expire ends the bodies whose leases are about to end unrenewed, a margin
// before others may take them over.
func (ss *sessions) expire(e *Engine) {
	margin := min(leaseMargin, e.cfg.Lease/4)
	_, slept := e.clock.slept()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	now := time.Now().Add(slept)
	for _, s := range ss.open {
		if !s.given && s.until.Sub(now) < margin {
			ss.cancelLocked(s, ErrAttemptLost)
		}
	}
}
