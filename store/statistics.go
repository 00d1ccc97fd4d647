package store

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// A SeriesQuery asks for a [Series].
type SeriesQuery struct {
	Filter Filter
	// Range is when the starts (CreatedAt) and the ends (FinishedAt) were. Both
	// ends of it are required.
	Range Range
	// Bucket is the length of the spans of time: whole microseconds. They are
	// aligned: each begins a multiple of it after 1970-01-01T00:00:00Z. The
	// first and the last may reach beyond Range, what is not in Range is not
	// counted all the same. There are at most MaxBuckets.
	Bucket time.Duration
	// Most is how many starts, and how many ends, are counted at the most: the
	// newest. 0: DefaultCount; at most MaxCount.
	Most int
}

// A Series is how many executions started and ended over time.
type Series struct {
	Buckets []Bucket // all of them, those where nothing happened too, by time
	// Truncated says that there are more starts or ends than were counted. Since
	// is when the first bucket begins in which all were counted: the zero time
	// when that is in none, and when it is not truncated.
	Truncated bool
	Since     time.Time
}

// A Bucket counts what happened in a span of time.
type Bucket struct {
	At      time.Time // the begin of the span
	Started int64
	Ended   map[Status]int64 // nil for none
}

// An AttemptQuery asks for [Latencies] or [Failures].
type AttemptQuery struct {
	Filter   Filter // of the executions
	Finished Range  // of the attempts; its From is required
	Most     int    // attempts that are looked at: the newest. 0: DefaultAttempts; at most MaxAttempts
}

// The limits of an AttemptQuery.
const (
	DefaultAttempts = 20_000
	MaxAttempts     = 200_000
)

// Latencies say how long attempts took.
type Latencies struct {
	Groups    []Latency
	Truncated bool // there are more attempts than were looked at
}

// A Latency says how long the attempts of one step took. P50, P95 and P99 are
// by nearest rank: the shortest that as many per cent did not exceed.
type Latency struct {
	Saga, Step         string
	Direction          Direction
	N                  int64
	P50, P95, P99, Max time.Duration
}

// Failures sum up failed attempts.
type Failures struct {
	Groups    []FailureGroup
	Truncated bool // there are more attempts than were looked at, or more groups
}

// A FailureGroup sums up attempts that failed in the same way.
type FailureGroup struct {
	Class, Saga, Step string
	Direction         Direction
	N                 int64     // attempts
	Executions        int64     // how many executions they belong to
	Last              time.Time // when the last of them finished
	Sample            uuid.UUID // the execution of the last one, of several at that time the highest id
	Message           string    // what one of the Sample's at that time said
}

// Filled returns q with its defaults, or an error that wraps [ErrInvalid].
func (q SeriesQuery) Filled() (SeriesQuery, error) {
	var v validator
	v.must(!q.Range.From.IsZero() && !q.Range.To.IsZero(), "series range", "has no beginning or no end")
	v.time("series range", q.Range.From)
	v.time("series range", q.Range.To)
	v.must(q.Bucket >= time.Microsecond && q.Bucket%time.Microsecond == 0, "series bucket", "is not a number of whole microseconds")
	v.must(q.Most >= 0 && q.Most <= MaxCount, "series most", "is not between 0 and 1000000")
	if q.Most == 0 {
		q.Most = DefaultCount
	}
	if v.err == nil {
		v.err = q.Filter.Validate()
	}
	if v.err != nil {
		return q, v.err
	}
	q.Range.From, q.Range.To = Micros(q.Range.From), Micros(q.Range.To)
	if n := q.Index(q.Range.To.Add(-time.Microsecond)); n >= MaxBuckets {
		v.must(false, "series bucket", fmt.Sprintf("is so short that there are more than %d", MaxBuckets))
	}
	return q, v.err
}

// Start returns when the first bucket begins.
func (q *SeriesQuery) Start() time.Time {
	from, bucket := q.Range.From.UnixMicro(), q.Bucket.Microseconds()
	from -= (from%bucket + bucket) % bucket
	return time.UnixMicro(from).UTC()
}

// Index returns the number of the bucket that t is in, the first one being 0.
func (q *SeriesQuery) Index(t time.Time) int64 {
	return (t.UnixMicro() - q.Start().UnixMicro()) / q.Bucket.Microseconds()
}

// Empty returns the buckets of q, which is filled, in which nothing happened.
func (q *SeriesQuery) Empty() []Bucket {
	list := []Bucket{}
	if !q.Range.From.Before(q.Range.To) {
		return list
	}
	for i := range q.Index(q.Range.To.Add(-time.Microsecond)) + 1 {
		list = append(list, Bucket{At: time.UnixMicro(q.Start().UnixMicro() + i*q.Bucket.Microseconds()).UTC()})
	}
	return list
}

// Bucketed returns the bucket among list, which Empty made, that counts t: nil
// when t is not in q.Range.
func (q *SeriesQuery) Bucketed(list []Bucket, t time.Time) *Bucket {
	if i := q.Index(t); i >= 0 && i < int64(len(list)) && !t.Before(q.Range.From) && t.Before(q.Range.To) {
		return &list[i]
	}
	return nil
}

// Cut says that bucket i, and none after it, lacks some of its starts or ends.
func (s *Series) Cut(i int) {
	s.Truncated = true
	if i+1 < len(s.Buckets) && s.Buckets[i+1].At.After(s.Since) {
		s.Since = s.Buckets[i+1].At
	}
}

// End counts n executions that ended with a status.
func (b *Bucket) End(status Status, n int64) {
	if b.Ended == nil {
		b.Ended = make(map[Status]int64)
	}
	b.Ended[status] += n
}

// ValidateLongest reports, as an error that wraps [ErrInvalid], whether these are
// not for Longest of a [Querier].
func ValidateLongest(f *Filter, limit int) error {
	var v validator
	v.must(limit >= 1 && limit <= MaxPage, "limit", "is not between 1 and 1000")
	if v.err == nil {
		v.err = f.Validate()
	}
	return v.err
}

// Filled returns q with its defaults, or an error that wraps [ErrInvalid].
func (q AttemptQuery) Filled() (AttemptQuery, error) {
	var v validator
	v.must(!q.Finished.From.IsZero(), "attempts finished", "has no beginning")
	v.time("attempts finished", q.Finished.From)
	v.time("attempts finished", q.Finished.To)
	v.must(q.Most >= 0 && q.Most <= MaxAttempts, "most", "is not between 0 and 200000")
	if q.Most == 0 {
		q.Most = DefaultAttempts
	}
	if v.err == nil {
		v.err = q.Filter.Validate()
	}
	return q, v.err
}

// HasResult reports whether an attempt with this status came to a result, so that
// it tells how long the step takes.
func (s AttemptStatus) HasResult() bool {
	switch s {
	case AttemptSucceeded, AttemptFailed, AttemptSkipped, AttemptSnoozed:
		return true
	}
	return false
}

// Rank returns the p-th percentile of n values by nearest rank: the number of
// it among them, counted from 1, when they are in order.
func Rank(n, p int64) int64 { return max(1, (n*p+99)/100) }

// Sort orders the groups as [Querier] says.
func (l *Latencies) Sort() {
	slices.SortFunc(l.Groups, func(a, b Latency) int {
		return cmp.Or(cmp.Compare(a.Saga, b.Saga), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Direction, b.Direction))
	})
}

// Sort orders the groups as [Querier] says, and cuts them at MaxGroups.
func (f *Failures) Sort() {
	slices.SortFunc(f.Groups, func(a, b FailureGroup) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Saga, b.Saga),
			cmp.Compare(a.Step, b.Step), cmp.Compare(a.Direction, b.Direction))
	})
	if len(f.Groups) > MaxGroups {
		f.Groups, f.Truncated = f.Groups[:MaxGroups], true
	}
}
