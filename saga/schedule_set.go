package saga

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

const schedulePrefix = "schedules/"

// storedSet is the cell of a namespace.
type storedSet struct {
	Schedules []storedSchedule `json:"schedules"`
}

// storedSchedule is a schedule as all processes have it.
type storedSchedule struct {
	scheduleSpec
	Since time.Time `json:"since"` // nothing before is started
	// Last is the last occurrence that was dealt with, zero for none, and how.
	Last       time.Time  `json:"last,omitzero"`
	LastResult string     `json:"last_result,omitempty"` // scheduleStarted, or why not
	LastID     *uuid.UUID `json:"last_id,omitempty"`
}

// scheduleStarted says that an occurrence has started an execution.
const scheduleStarted = "started"

// from is the time after which occurrences are to be dealt with.
func (s *storedSchedule) from() time.Time {
	if s.Last.After(s.Since) {
		return s.Last
	}
	return s.Since
}

// A ScheduleInfo is a schedule as the store has it.
type ScheduleInfo struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Saga      string        `json:"saga"`
	Cron      string        `json:"cron,omitempty"`
	Every     time.Duration `json:"every,omitempty"` // in JSON nanoseconds
	TimeZone  string        `json:"time_zone,omitempty"`
	CatchUp   CatchUp       `json:"catch_up"`
	// Paused says that its declaration pauses it, PausedBy who else does.
	Paused   bool   `json:"paused,omitempty"`
	PausedBy *Pause `json:"paused_by,omitempty"`
	// Next is its next occurrence, or the first that is overdue.
	Next time.Time `json:"next"`
	// Last is the last one that was dealt with, zero for none; LastResult is
	// "started", or says why it was not.
	Last       time.Time  `json:"last,omitzero"`
	LastResult string     `json:"last_result,omitempty"`
	LastID     *uuid.UUID `json:"last_id,omitempty"`
}

// Key returns the name by which it is paused: namespace/name.
func (s *ScheduleInfo) Key() string { return s.Namespace + "/" + s.Name }

// ScheduleList lists the schedules that are in the store, by namespace and name,
// in any process, whether it has declared them or not.
func (e *Engine) ScheduleList(ctx context.Context) ([]ScheduleInfo, error) {
	cells, ok := store.As[store.Cells](e.store)
	if !ok {
		return nil, fmt.Errorf("saga: schedules: %w", ErrNotSupported)
	}
	list, err := cells.ListCells(ctx, schedulePrefix)
	if err != nil {
		return nil, fmt.Errorf("saga: schedules: %w", err)
	}
	p, _, err := e.readPauses(ctx)
	if err != nil {
		return nil, err
	}
	var out []ScheduleInfo
	for _, c := range list {
		var set storedSet
		if err := json.Unmarshal(c.Value, &set); err != nil {
			return nil, fmt.Errorf("saga: schedules: %s: %w", c.Name, err)
		}
		for i := range set.Schedules {
			s := &set.Schedules[i]
			info := ScheduleInfo{
				Namespace: strings.TrimPrefix(c.Name, schedulePrefix), Name: s.Name, Saga: s.Saga, Cron: s.Cron, Every: s.Every, TimeZone: s.TimeZone,
				CatchUp: s.CatchUp, Paused: s.Paused, Last: s.Last, LastResult: s.LastResult, LastID: s.LastID,
			}
			for _, q := range p.Now {
				if q.Schedule == info.Key() {
					info.PausedBy = &q
				}
			}
			if t, err := s.timetable(); err == nil { // of a newer build's form
				info.Next = t.after(s.from())
			}
			out = append(out, info)
		}
	}
	slices.SortFunc(out, func(a, b ScheduleInfo) int { return cmp.Compare(a.Key(), b.Key()) })
	return out, nil
}

// readSet reads the cell of a namespace.
func readSet(ctx context.Context, cells store.Cells, namespace string) (set storedSet, revision int64, err error) {
	v, revision, err := cells.Cell(ctx, schedulePrefix+namespace)
	if err == nil && v != nil {
		err = json.Unmarshal(v, &set)
	}
	return set, revision, err
}

func writeSet(ctx context.Context, cells store.Cells, namespace string, set storedSet, revision int64) error {
	b, err := json.Marshal(set)
	if err == nil {
		_, err = cells.SetCell(ctx, schedulePrefix+namespace, b, revision)
	}
	return err
}

// passOver lets a schedule begin anew from now: what occurred while it was paused
// is not caught up with, whether a process was there or not. It is done before the
// pause is taken back, as it changes nothing while that holds.
func passOver(ctx context.Context, cells store.Cells, key string, now time.Time) error {
	namespace, name, _ := strings.Cut(key, "/")
	for {
		set, revision, err := readSet(ctx, cells, namespace)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(set.Schedules, func(s storedSchedule) bool { return s.Name == name })
		if i < 0 {
			return nil
		}
		set.Schedules[i].Since = now
		if err = writeSet(ctx, cells, namespace, set, revision); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// declareSet puts a set into the store in the place of what is there.
func (e *Engine) declareSet(ctx context.Context, cells store.Cells, s *scheduleSet) error {
	for {
		was, revision, err := readSet(ctx, cells, s.namespace)
		if err != nil {
			return err
		}
		now := e.clock.now()
		var set storedSet
		for _, spec := range s.specs {
			next := storedSchedule{scheduleSpec: spec, Since: now}
			if i := slices.IndexFunc(was.Schedules, func(o storedSchedule) bool { return o.Name == spec.Name }); i >= 0 {
				if old := was.Schedules[i]; old.sameTimes(spec) {
					next = old
					next.scheduleSpec = spec
				}
			}
			set.Schedules = append(set.Schedules, next)
		}
		err = writeSet(ctx, cells, s.namespace, set, revision)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
