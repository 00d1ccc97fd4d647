package saga

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A Schedule starts executions of a saga at given times: its occurrences. Make it
// part of a set with [Saga.Schedule] and [Engine.Schedules].
type Schedule[S any] struct {
	// Name is required, and unique in its set: 1 to 100 characters,
	// [a-z0-9][a-z0-9._-]*. It is part of the ids of what is started.
	Name string

	// Cron has five fields, minute, hour, day of the month, month and day of the
	// week, or is @hourly, @daily, @weekly, @monthly or @yearly. Every, in its place,
	// is a duration from a second on; its occurrences are counted from a Monday
	// at midnight. Exactly one of the two.
	//
	// A cron that names its hours goes by the clock on the wall: a time that is
	// left out in spring is the moment of the jump, one that comes twice in
	// autumn is the first one. One with "*" hours, and Every, go by real time.
	Cron  string
	Every time.Duration

	// TimeZone is that of Cron, such as "Europe/Berlin". Defaults to UTC. A
	// program on machines without time zones imports time/tzdata.
	TimeZone string

	// CatchUp is what becomes of occurrences that nobody was there for.
	// Defaults to CatchUpLatest.
	CatchUp CatchUp

	// Paused keeps it from starting anything, as [Engine.Pause] does for an
	// operator. What occurs meanwhile is not caught up with.
	Paused bool

	// Input returns what to start for an occurrence. Required. It is quick, has
	// no effects, and may be called more than once for one occurrence.
	Input func(occurrence time.Time) (Resource, S)

	// Options are those of the starts; nil for none. ID, Deadline and StartAfter
	// are not taken. When a key is held and the conflict is rejected, the
	// occurrence is passed over.
	Options *StartOptions
}

// CatchUp says what becomes of the occurrences of a time in which no process
// was there.
type CatchUp string

// The ways to catch up. What occurred before a schedule was first declared, or
// before its times were changed, is never started.
const (
	// CatchUpLatest: the last one is started.
	CatchUpLatest CatchUp = "latest"
	// CatchUpSkip: none that is more than a minute old.
	CatchUpSkip CatchUp = "skip"
	// CatchUpAll: each, in order.
	CatchUpAll CatchUp = "all"
)

func (c CatchUp) valid() bool {
	return c == CatchUpLatest || c == CatchUpSkip || c == CatchUpAll
}

// AnySchedule is a [Schedule] of any saga; see [Saga.Schedule].
type AnySchedule struct{ s *schedule }

// schedule is one without its type.
type schedule struct {
	engine  *Engine
	spec    scheduleSpec
	input   bool
	options *StartOptions
	start   func(ctx context.Context, id uuid.UUID, occurrence time.Time) (*Started, error)
}

// scheduleSpec is what of a schedule is stored.
type scheduleSpec struct {
	Name     string        `json:"name"`
	Saga     string        `json:"saga"`
	Cron     string        `json:"cron,omitempty"`
	Every    time.Duration `json:"every,omitempty"`
	TimeZone string        `json:"time_zone,omitempty"`
	CatchUp  CatchUp       `json:"catch_up"`
	Paused   bool          `json:"paused,omitempty"`
}

// sameTimes reports whether two have the same occurrences.
func (s scheduleSpec) sameTimes(o scheduleSpec) bool {
	return s.Saga == o.Saga && s.Cron == o.Cron && s.Every == o.Every && s.TimeZone == o.TimeZone
}

// Schedule returns a schedule of this saga, for [Engine.Schedules], which checks
// it.
func (s *Saga[S]) Schedule(sc Schedule[S]) AnySchedule {
	spec := scheduleSpec{
		Name: sc.Name, Saga: string(s.name), Cron: sc.Cron, Every: sc.Every, TimeZone: sc.TimeZone, CatchUp: sc.CatchUp, Paused: sc.Paused,
	}
	setDefault(&spec.CatchUp, CatchUpLatest)
	return AnySchedule{&schedule{
		engine: s.engine, spec: spec, input: sc.Input != nil, options: sc.Options,
		start: func(ctx context.Context, id uuid.UUID, occurrence time.Time) (x *Started, err error) {
			defer func() {
				if v := recover(); v != nil {
					err = fmt.Errorf("%w: schedule %q: Input panicked: %v", ErrInvalid, sc.Name, v)
				}
			}()
			r, state := sc.Input(occurrence)
			var o StartOptions
			if sc.Options != nil {
				o = *sc.Options
			}
			o.ID = id
			return s.Start(ctx, r, state, &o)
		},
	}}
}

// Schedules declares the schedules of a namespace: all of them, as this build has
// them. [Engine.Run] puts the set into the store, in one write, in the place of
// the one before: what is not declared any more is gone, what has changed its
// times begins anew from now, and what an operator has paused stays paused. The
// set of the process that has begun last holds for all; one with another build
// starts only what it knows and the set has.
//
// Every process in Run that has the schedules looks at them. Each occurrence
// starts exactly one execution, whose id follows from namespace, name and
// time, until that execution is purged. When the store is away, or a process dies in between, it is
// started later. It goes by the store's clock.
//
// Call it before Run, once for a namespace: 1 to 100 characters, as names. An
// error lists all faults and declares nothing; [ErrRunning] after Run has begun; [ErrNotSupported] without a store
// that has store.Cells.
func (e *Engine) Schedules(namespace string, list ...AnySchedule) error {
	var faults []string
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if !nameRule.MatchString(namespace) {
		bad("namespace %s", nameFault(namespace))
	}
	if len(list) > maxSchedules {
		bad("has %d schedules, at most %d", len(list), maxSchedules)
	}
	set := &scheduleSet{namespace: namespace, known: map[string]*schedule{}, tables: map[string]*timetable{}}
	for i, a := range list {
		s := a.s
		if s == nil {
			bad("schedule %d: was not made by Saga.Schedule", i+1)
			continue
		}
		name := s.spec.Name
		for _, f := range s.faults(e) {
			bad("schedule %q: %s", name, f)
		}
		if set.known[name] != nil {
			bad("schedule %q: is declared twice", name)
		}
		set.known[name] = s
		set.specs = append(set.specs, s.spec)
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: schedules of %q: %s", ErrInvalid, namespace, strings.Join(faults, "; "))
	}
	if _, ok := store.As[store.Cells](e.store); !ok {
		return fmt.Errorf("saga: schedules of %q: %w: the store has no store.Cells", namespace, ErrNotSupported)
	}
	if e.life.isRunning() {
		return fmt.Errorf("saga: schedules of %q: %w: declare them before Run", namespace, ErrRunning)
	}
	e.schedules.mu.Lock()
	defer e.schedules.mu.Unlock()
	if slices.ContainsFunc(e.schedules.sets, func(s *scheduleSet) bool { return s.namespace == namespace }) {
		return fmt.Errorf("%w: schedules of %q are declared already", ErrInvalid, namespace)
	}
	e.schedules.sets = append(e.schedules.sets, set)
	return nil
}

// maxSchedules is how many one namespace has.
const maxSchedules = 1000

func (s *schedule) faults(e *Engine) (faults []string) {
	if s.engine != e {
		faults = append(faults, "is of another engine's saga")
	}
	if !nameRule.MatchString(s.spec.Name) {
		faults = append(faults, "Name "+nameFault(s.spec.Name))
	}
	if !s.input {
		faults = append(faults, "has no Input")
	}
	if !s.spec.CatchUp.valid() {
		faults = append(faults, "CatchUp is none of latest, skip and all")
	}
	if _, err := s.spec.timetable(); err != nil {
		faults = append(faults, err.Error())
	}
	if o := s.options; o != nil && (o.ID != uuid.Nil || !o.Deadline.IsZero() || !o.StartAfter.IsZero()) {
		faults = append(faults, "Options: ID, Deadline and StartAfter are not taken")
	}
	return faults
}

func (s scheduleSpec) timetable() (*timetable, error) {
	return parseTimetable(s.Cron, s.Every, s.TimeZone)
}

// occurrenceID returns the id of what an occurrence starts.
func occurrenceID(namespace, name string, at time.Time) uuid.UUID {
	return uuid.NewSHA1(idSpace, []byte("schedule/"+namespace+"/"+name+"/"+at.UTC().Format(time.RFC3339)))
}
