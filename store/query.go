package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A Querier finds executions for people and their tools. Optional, found with
// [As]. Nothing of what the engine does by itself depends on it.
type Querier interface {
	// List returns the executions that f selects, newest first: by id,
	// descending. List.Next, if not nil, is the After of the next page. Pages
	// fit together: an execution that was selected all the time is on exactly
	// one of them, whatever is started or ends in between.
	List(ctx context.Context, f Filter, p Page) (*List, error)

	// Count counts the executions that f selects, in groups of equal values of
	// the given dimensions; without a dimension in one group, which is there
	// even when it counts 0. Groups are ordered by their count, descending,
	// then by their values. At most most executions are counted (which of
	// them is the store's choice), so that it takes a bounded time: if there
	// are more Counts.Truncated is set.
	Count(ctx context.Context, f Filter, by []Dimension, most int) (*Counts, error)

	// Longest returns the unfinished executions that f selects and that moved
	// longest ago, in the order of their ProgressAt, then by id; at most limit
	// of them, which is between 1 and MaxPage.
	Longest(ctx context.Context, f Filter, limit int) ([]*Execution, error)

	// Sagas returns the names of the sagas that have executions, in order. At
	// most the newest MaxNamed executions, by CreatedAt, are looked at.
	Sagas(ctx context.Context) ([]string, error)

	// Series counts the starts and the ends of the executions that q.Filter
	// selects, for each span of time.
	Series(ctx context.Context, q SeriesQuery) (*Series, error)

	// Latency says how long the attempts of the executions that q.Filter selects
	// took, for each saga, step and direction: of those that came to a result
	// (succeeded, failed, skipped or snoozed), the newest q.Most that finished
	// in q.Finished. The groups are ordered by saga, step and direction.
	Latency(ctx context.Context, q AttemptQuery) (*Latencies, error)

	// Failures sums up the failed attempts of the executions that q.Filter
	// selects: the newest q.Most that finished in q.Finished, in groups of equal
	// class, saga, step and direction. Of the groups the MaxGroups with the most
	// attempts are returned, ordered by that number, descending, then by class,
	// saga, step and direction.
	Failures(ctx context.Context, q AttemptQuery) (*Failures, error)
}

// The limits of a query.
const (
	MaxFilter    = 1000      // values in one field of a Filter
	MaxPage      = 1000      // executions on a page
	MaxCount     = 1_000_000 // executions that one Count looks at
	DefaultPage  = 50
	DefaultCount = 100_000
	MaxNamed     = 100_000 // executions that Sagas looks at
	MaxBuckets   = 1000    // spans of time of one Series
	MaxGroups    = 100     // groups of one Failures
)

// A Filter selects executions: those that satisfy every field that is set. In
// a list one value has to match. The zero Filter selects all.
type Filter struct {
	IDs          []uuid.UUID
	Sagas        []string
	Statuses     []Status
	Steps        []string // the cursor
	Partitions   []string
	ErrorClasses []string // of the Failure
	Keys         []string // start keys
	Parents      []uuid.UUID
	Resource     Resource          // Type and ID: each matches if it is "" here
	Tags         map[string]string // each of them has to match
	Attention    []Attention
	Created      Range
	Progress     Range // of ProgressAt
	Finished     Range // of FinishedAt; none for unfinished ones
	Unfinished   bool  // only those that are not finished
	Erased       *bool // whether its data was erased; nil: either

	// ResourceLike is a part of the resource, written Type/ID, in which ASCII
	// letters have no case. It requires Created.From: no index finds it, so
	// that all that were created since are looked at.
	ResourceLike string
	// StuckFor, if not 0, is for how long an unfinished execution has not moved:
	// its ProgressAt is before At - StuckFor. It waits, is halted, or should
	// have moved. It requires At.
	StuckFor time.Duration
	// Failed, if not nil, is what one of its attempts has to be.
	Failed *FailedAttempt

	// At and the two ages say what Attention means by stalled and overdue:
	// required with these, ignored else.
	At           time.Time
	StalledAfter time.Duration
	OverdueAfter time.Duration
}

// A Range is a span of time, From inclusive, To exclusive. A zero end is open.
type Range struct{ From, To time.Time }

// IsZero reports whether f is the zero Filter, which selects all.
func (f *Filter) IsZero() bool {
	return len(f.IDs) == 0 && len(f.Sagas) == 0 && len(f.Statuses) == 0 && len(f.Steps) == 0 && len(f.Partitions) == 0 &&
		len(f.ErrorClasses) == 0 && len(f.Keys) == 0 && len(f.Parents) == 0 && f.Resource == (Resource{}) && len(f.Tags) == 0 &&
		len(f.Attention) == 0 && f.Created == (Range{}) && f.Progress == (Range{}) && f.Finished == (Range{}) && !f.Unfinished &&
		f.Erased == nil && f.ResourceLike == "" && f.StuckFor == 0 && f.Failed == nil
}

// A FailedAttempt describes attempts that failed, by every field that is set.
type FailedAttempt struct {
	Class, Step string
	Direction   Direction
	Finished    Range // of the attempt's FinishedAt
}

// Matches reports whether a is such an attempt. It is the rule that every
// Querier follows.
func (f *FailedAttempt) Matches(a *Attempt) bool {
	return a.Failure != nil && a.FinishedAt != nil && (f.Class == "" || f.Class == a.Failure.Class) && (f.Step == "" || f.Step == a.Step) &&
		(f.Direction == "" || f.Direction == a.Direction) && f.Finished.Has(a.FinishedAt)
}

// An Attention is a reason for a person to look at an execution.
type Attention string

// The attentions.
const (
	// AttentionHalted: it is parked for a person.
	AttentionHalted Attention = "halted"
	// AttentionFailed: it has failed, or its compensation has.
	AttentionFailed Attention = "failed"
	// AttentionCompensationFailed: an undo has failed for good, or an effect
	// came after its undo.
	AttentionCompensationFailed Attention = "compensation_failed"
	// AttentionInDoubt: it is finished or halted, and of some step nobody
	// knows whether it had its effect.
	AttentionInDoubt Attention = "in_doubt"
	// AttentionStalled: it is running or compensating, its cursor moved last
	// before At - StalledAfter, no attempt is open with a lease beyond At, and
	// it does not wait for a later time than At (WakeAt).
	AttentionStalled Attention = "stalled"
	// AttentionOverdue: it is unfinished and its DueAt is before
	// At - OverdueAfter.
	AttentionOverdue Attention = "overdue"
)

// Attentions lists all of them.
var Attentions = []Attention{
	AttentionHalted, AttentionFailed, AttentionCompensationFailed, AttentionInDoubt, AttentionStalled, AttentionOverdue,
}

// A Dimension is what executions can be counted by.
type Dimension string

// The dimensions.
const (
	BySaga       Dimension = "saga"
	ByStatus     Dimension = "status"
	ByStep       Dimension = "step"
	ByPartition  Dimension = "partition"
	ByDirection  Dimension = "direction"
	ByErrorClass Dimension = "error_class" // "" for none
)

// Dimensions lists all of them.
var Dimensions = []Dimension{BySaga, ByStatus, ByStep, ByPartition, ByDirection, ByErrorClass}

// A Page is a part of a list.
type Page struct {
	Limit int       // 0: DefaultPage; at most MaxPage
	After uuid.UUID // only ids below this one; the nil UUID: from the newest
}

// A List is a page of executions.
type List struct {
	Executions []*Execution
	Next       *uuid.UUID // nil: there are no more
}

// Counts are the groups of a Count.
type Counts struct {
	Groups    []CountGroup
	Truncated bool // there are more executions than were counted
}

// A CountGroup says how many executions have these values.
type CountGroup struct {
	Values []string // one for each dimension asked for, in that order
	N      int64
}

// Matches reports whether f selects x, as far as x itself says that: Failed is
// about its attempts (see [FailedAttempt.Matches]). It is the rule that every
// Querier follows.
func (f *Filter) Matches(x *Execution) bool {
	class := ""
	if x.Failure != nil {
		class = x.Failure.Class
	}
	return in(f.IDs, x.ID) && in(f.Sagas, x.Saga) && in(f.Statuses, x.Status) && in(f.Steps, x.Step) &&
		in(f.Partitions, x.Partition) && in(f.ErrorClasses, class) &&
		(f.Resource.Type == "" || f.Resource.Type == x.Resource.Type) &&
		(f.Resource.ID == "" || f.Resource.ID == x.Resource.ID) &&
		in(f.Keys, x.Key) && (len(f.Parents) == 0 || x.Parent != nil && in(f.Parents, x.Parent.Execution)) && hasTags(x.Tags, f.Tags) &&
		f.Created.Has(&x.CreatedAt) && f.Progress.Has(&x.ProgressAt) && f.Finished.Has(x.FinishedAt) &&
		(!f.Unfinished || !x.Status.Finished()) && f.stuck(x) &&
		strings.Contains(ASCIILower(x.Resource.Type+"/"+x.Resource.ID), ASCIILower(f.ResourceLike)) && (f.Erased == nil || *f.Erased == (x.ErasedAt != nil)) &&
		(len(f.Attention) == 0 || slices.ContainsFunc(f.Attention, func(a Attention) bool { return f.attention(a, x) }))
}

func (f *Filter) stuck(x *Execution) bool {
	return f.StuckFor == 0 || !x.Status.Finished() && Micros(x.ProgressAt).Before(Micros(Micros(f.At).Add(-f.StuckFor)))
}

// ASCIILower returns s with the letters of ASCII in lower case: the one change of
// case that all databases agree on.
func ASCIILower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

func in[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

func hasTags(have, want map[string]string) bool {
	for name, value := range want {
		if v, ok := have[name]; !ok || v != value {
			return false
		}
	}
	return true
}

// Has reports whether t is in r. Without ends r has nil too.
func (r Range) Has(t *time.Time) bool {
	if r.From.IsZero() && r.To.IsZero() {
		return true
	}
	if t == nil {
		return false
	}
	u := Micros(*t)
	return (r.From.IsZero() || !u.Before(Micros(r.From))) && (r.To.IsZero() || u.Before(Micros(r.To)))
}

func (f *Filter) attention(a Attention, x *Execution) bool {
	at := Micros(f.At)
	switch a {
	case AttentionHalted:
		return x.Status == StatusHalted
	case AttentionFailed:
		return x.Status == StatusFailed || x.Status == StatusCompensationFailed
	case AttentionCompensationFailed:
		return x.Status == StatusCompensationFailed
	case AttentionInDoubt:
		return (x.Status.Finished() || x.Status == StatusHalted) &&
			slices.ContainsFunc(x.Ledger, func(e LedgerEntry) bool { return e.Status == StepInDoubt })
	case AttentionStalled:
		return (x.Status == StatusRunning || x.Status == StatusCompensating) &&
			Micros(x.ProgressAt).Before(Micros(at.Add(-f.StalledAfter))) &&
			(x.Attempt == nil || !Micros(x.Attempt.LeaseUntil).After(at)) &&
			(x.WakeAt == nil || !Micros(*x.WakeAt).After(at))
	case AttentionOverdue:
		return !x.Status.Finished() && x.DueAt != nil && Micros(*x.DueAt).Before(Micros(at.Add(-f.OverdueAfter)))
	}
	return false
}

// Value returns the value that x has in a dimension.
func (d Dimension) Value(x *Execution) string {
	switch d {
	case BySaga:
		return x.Saga
	case ByStatus:
		return string(x.Status)
	case ByStep:
		return x.Step
	case ByPartition:
		return x.Partition
	case ByDirection:
		return string(x.Direction)
	case ByErrorClass:
		if x.Failure != nil {
			return x.Failure.Class
		}
	}
	return ""
}

// Validate reports, as an error that wraps [ErrInvalid], whether f is no
// filter.
func (f *Filter) Validate() error {
	var v validator
	list := func(field string, n int) {
		if n > MaxFilter {
			v.must(false, field, fmt.Sprintf("has more than %d values", MaxFilter))
		}
	}
	texts := func(field string, values []string) {
		list(field, len(values))
		for _, s := range values {
			v.text(field, s, MaxText)
		}
	}
	list("filter ids", len(f.IDs))
	texts("filter sagas", f.Sagas)
	texts("filter steps", f.Steps)
	texts("filter partitions", f.Partitions)
	texts("filter error class", f.ErrorClasses)
	texts("filter keys", f.Keys)
	list("filter parents", len(f.Parents))
	v.tags("filter tags", f.Tags)
	v.text("filter resource type", f.Resource.Type, MaxText)
	v.text("filter resource id", f.Resource.ID, MaxText)
	for _, s := range f.Statuses {
		v.must(s.Valid(), "filter status", "is none of the statuses")
	}
	for _, a := range f.Attention {
		v.must(slices.Contains(Attentions, a), "filter attention", "is none of the attentions")
		if a == AttentionStalled || a == AttentionOverdue {
			v.must(!f.At.IsZero(), "filter at", "is required with stalled and overdue")
			v.must(f.StalledAfter >= 0 && f.OverdueAfter >= 0, "filter age", "is negative")
		}
	}
	v.text("filter resource like", f.ResourceLike, MaxText)
	v.must(f.ResourceLike == "" || !f.Created.From.IsZero(), "filter resource like", "requires a time that executions were created from")
	v.must(f.StuckFor >= 0, "filter stuck for", "is negative")
	v.must(f.StuckFor == 0 || !f.At.IsZero(), "filter at", "is required with stuck for")
	if a := f.Failed; a != nil {
		v.text("filter failed class", a.Class, MaxText)
		v.text("filter failed step", a.Step, MaxText)
		v.must(a.Direction == "" || a.Direction.Valid(), "filter failed direction", "is none of the directions")
		v.time("filter failed range", a.Finished.From)
		v.time("filter failed range", a.Finished.To)
	}
	v.time("filter at", f.At)
	for _, r := range []Range{f.Created, f.Progress, f.Finished} {
		v.time("filter range", r.From)
		v.time("filter range", r.To)
	}
	return v.err
}

// Filled returns p with its defaults, or an error that wraps [ErrInvalid].
func (p Page) Filled() (Page, error) {
	var v validator
	v.must(p.Limit >= 0 && p.Limit <= MaxPage, "page limit", "is not between 0 and 1000")
	if p.Limit == 0 {
		p.Limit = DefaultPage
	}
	return p, v.err
}

// ValidateCount returns most with its default, or an error that wraps
// [ErrInvalid] when it or a dimension is wrong.
func ValidateCount(by []Dimension, most int) (int, error) {
	var v validator
	for i, d := range by {
		v.must(slices.Contains(Dimensions, d), "dimension", "is none of the dimensions")
		v.must(!slices.Contains(by[:i], d), "dimension", "is given twice")
	}
	v.must(most >= 0 && most <= MaxCount, "most", "is not between 0 and 1000000")
	if most == 0 {
		most = DefaultCount
	}
	return most, v.err
}
