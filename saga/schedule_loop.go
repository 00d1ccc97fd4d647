package saga

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A scheduleSet is what this process has declared of a namespace.
type scheduleSet struct {
	namespace string
	specs     []scheduleSpec
	known     map[string]*schedule
	tables    map[string]*timetable // by spec, as far as they were needed
	declared  bool                  // it is in the store
}

// schedules are those of an engine.
type schedules struct {
	mu   sync.Mutex
	sets []*scheduleSet
}

const (
	// scheduleLook is the longest time between two looks at a set: somebody else
	// may have put another one there.
	scheduleLook = 30 * time.Second
	// scheduleGrace is how old an occurrence may be to be still in time.
	scheduleGrace = time.Minute
	// scheduleBatch is how many occurrences of a schedule one look starts.
	scheduleBatch = 100
)

// scheduleLoop looks at the schedules until ctx is done.
func (e *Engine) scheduleLoop(ctx context.Context) {
	cells, _ := store.As[store.Cells](e.store)
	e.schedules.mu.Lock()
	sets := e.schedules.sets
	e.schedules.mu.Unlock()
	for _, s := range sets {
		s.declared = false // a new Run says it anew
	}
	for {
		next := e.clock.now().Add(scheduleLook)
		for _, s := range sets {
			at, err := e.lookAtSet(ctx, cells, s)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				e.warn("saga: schedules", "namespace", s.namespace, "error", err)
				at = e.clock.now().Add(e.sweepPause())
			}
			if at.Before(next) {
				next = at
			}
		}
		pause := max(next.Sub(e.clock.now()), time.Millisecond)
		if e.cfg.Now != nil { // a clock that may be moved
			pause = min(pause, e.sweepPause())
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// lookAtSet starts what is due of a namespace, and returns when to look again.
//
// A start that fails does not keep the others: it is tried again by the next look.
func (e *Engine) lookAtSet(ctx context.Context, cells store.Cells, s *scheduleSet) (next time.Time, err error) {
	set, revision, p, err := e.readAll(ctx, cells, s)
	if err != nil {
		return next, err
	}
	paused := newPauseSet(p.Now, e.worker)
	now := e.clock.now()
	next = now.Add(scheduleLook)
	changed := false
	var errs []error
	for i := range set.Schedules {
		stored := &set.Schedules[i]
		mine := s.known[stored.Name]
		if mine == nil || mine.spec.Saga != stored.Saga {
			continue // of another build: who has it starts it
		}
		t, err := s.timetable(stored.scheduleSpec)
		if err != nil { // of a newer build, or this machine lacks the zone
			e.warn("saga: a schedule's times are not understood here", "schedule", s.namespace+"/"+stored.Name, "error", err)
			continue
		}
		stop := stored.Paused || paused.schedules[s.namespace+"/"+stored.Name]
		done, err := e.fire(ctx, s.namespace, stored, mine, t, now, stop)
		changed = changed || done
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break // what was done is noted
		}
		if at := t.after(stored.from()); !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next, errors.Join(append(errs, e.keepSet(ctx, cells, s.namespace, set, revision, changed))...)
}

// readAll reads a set, which it declares before when that was not done, and what
// is paused.
func (e *Engine) readAll(ctx context.Context, cells store.Cells, s *scheduleSet) (set storedSet, revision int64, p pauses, err error) {
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	if err = e.clock.ready(ctx); err != nil {
		return set, 0, p, err
	}
	if !s.declared {
		if err = e.declareSet(ctx, cells, s); err != nil {
			return set, 0, p, err
		}
		s.declared = true
	}
	if set, revision, err = readSet(ctx, cells, s.namespace); err == nil {
		p, _, err = e.readPauses(ctx)
	}
	return set, revision, p, err
}

// keepSet notes what was dealt with. When somebody else has written meanwhile,
// the next look finds what is still to be done: what was started is not started
// again, as its id is there.
func (e *Engine) keepSet(ctx context.Context, cells store.Cells, namespace string, set storedSet, revision int64, changed bool) error {
	if !changed {
		return nil
	}
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	err := writeSet(ctx, cells, namespace, set, revision)
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

func (s *scheduleSet) timetable(spec scheduleSpec) (*timetable, error) {
	key := spec.Cron + "\x00" + spec.Every.String() + "\x00" + spec.TimeZone
	if t := s.tables[key]; t != nil {
		return t, nil
	}
	t, err := spec.timetable()
	if err == nil {
		s.tables[key] = t
	}
	return t, err
}

// fire deals with the occurrences of a schedule until now, and reports whether
// there were any. The error is one of the store's: what comes after it is for the
// next look.
func (e *Engine) fire(ctx context.Context, namespace string, stored *storedSchedule, s *schedule, t *timetable, now time.Time, paused bool) (done bool, err error) {
	pass := func(at time.Time, result string, id *uuid.UUID) {
		stored.Last, stored.LastResult, stored.LastID = at, result, id
		done = true
	}
	if paused || stored.CatchUp != CatchUpAll {
		last := t.last(stored.from(), now)
		switch {
		case last.IsZero():
			return done, nil
		case paused:
			pass(last, "paused", nil)
			return done, nil
		case stored.CatchUp == CatchUpSkip && now.Sub(last) > scheduleGrace:
			pass(last, "skipped", nil)
			return done, nil
		}
		result, id, err := e.startOccurrence(ctx, namespace, s, last)
		if err == nil {
			pass(last, result, id)
		}
		return done, err
	}
	for range scheduleBatch {
		if ctx.Err() != nil {
			break
		}
		at := t.after(stored.from())
		if at.IsZero() || at.After(now) {
			break
		}
		result, id, err := e.startOccurrence(ctx, namespace, s, at)
		if err != nil {
			return done, err
		}
		pass(at, result, id)
	}
	return done, nil
}

// startOccurrence starts the execution of an occurrence, if nobody has. What the
// saga refuses is passed over: trying again would not help.
func (e *Engine) startOccurrence(ctx context.Context, namespace string, s *schedule, at time.Time) (result string, id *uuid.UUID, err error) {
	own := occurrenceID(namespace, s.spec.Name, at)
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	x, err := s.start(ctx, own, at)
	var taken *store.KeyTakenError
	switch {
	case err == nil && x.Existing:
		return "existing", &x.ID, nil
	case err == nil, errors.Is(err, store.ErrExists):
		return scheduleStarted, &own, nil
	case errors.As(err, &taken):
		result, id = "key_taken", &taken.Execution
	case errors.Is(err, ErrInvalid):
		result = "refused"
	default:
		return "", nil, err
	}
	e.warn("saga: a schedule's occurrence was not started", "schedule", namespace+"/"+s.spec.Name, "occurrence", at, "result", result, "error", err)
	return result, id, nil
}
