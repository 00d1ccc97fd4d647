package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/internal/view"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A meta is what a page has to know first.
type meta struct {
	Title   string        `json:"title"`
	PollMS  int64         `json:"poll_ms"`
	Stalled float64       `json:"stalled_after_seconds"`
	Actor   string        `json:"actor,omitempty"`
	Actions []Action      `json:"actions"` // those that are allowed
	Refused string        `json:"refused,omitempty"`
	Scoped  bool          `json:"scoped,omitempty"`
	Queries bool          `json:"queries"` // the store is a store.Querier
	Now     time.Time     `json:"now"`
	Sagas   []sagaOutline `json:"sagas"`
}

type sagaOutline struct {
	Saga    string             `json:"saga"`
	Version int                `json:"version"`
	Steps   []saga.OutlineStep `json:"steps"`
	Redact  []string           `json:"redact,omitempty"`
}

func (c *console) meta(r *http.Request) (any, error) {
	now, err := c.Store().Now(r.Context())
	if err != nil {
		return nil, err
	}
	m := meta{
		Title: c.cfg.Title, PollMS: c.cfg.PollInterval.Milliseconds(), Stalled: c.cfg.StalledAfter.Seconds(), Scoped: visitOf(r).scoped,
		Actions: []Action{}, Now: now, Sagas: []sagaOutline{},
	}
	_, m.Queries = store.As[store.Querier](c.Store())
	for _, a := range Actions() {
		actor, err := c.authorize(r, a)
		if err != nil {
			m.Refused = err.Error()
			continue
		}
		if a == ActionPause && m.Scoped {
			continue
		}
		m.Actions = append(m.Actions, a)
		m.Actor = actor
	}
	outlines, err := c.outlines(r.Context())
	if err != nil {
		return nil, err
	}
	scope := visitOf(r).scope
	for _, o := range outlines {
		if len(scope.Sagas) == 0 || slices.Contains(scope.Sagas, o.Saga) {
			m.Sagas = append(m.Sagas, sagaOutline{o.Saga, o.Version, o.Steps, o.Redact})
		}
	}
	return m, nil
}

// outlines returns what is registered here and what workers left in the store,
// the newest version of a saga last.
func (c *console) outlines(ctx context.Context) ([]saga.Outline, error) {
	list, err := c.StoredOutlines(ctx)
	if err != nil && !errors.Is(err, saga.ErrNotSupported) {
		return nil, err
	}
	for _, o := range c.Outlines() {
		same := func(p saga.Outline) bool { return p.Saga == o.Saga && p.Version == o.Version }
		list = append(slices.DeleteFunc(list, same), o)
	}
	slices.SortStableFunc(list, func(a, b saga.Outline) int {
		if n := strings.Compare(a.Saga, b.Saga); n != 0 {
			return n
		}
		return a.Version - b.Version
	})
	return list, nil
}

func (c *console) redactor(ctx context.Context) (*saga.Redactor, error) {
	list, err := c.outlines(ctx)
	return saga.NewRedactor(list...), err
}

// An overview is the first page.
type overview struct {
	At        time.Time      `json:"at"`
	From      time.Time      `json:"from"`
	Counts    []count        `json:"counts"`  // of what is not finished
	Stalled   []count        `json:"stalled"` // of these
	Failed    []count        `json:"failed"`  // that need a person or were given up, in the range
	Moving    []moving       `json:"moving"`
	Series    []bucket       `json:"series"`
	Since     *time.Time     `json:"series_since,omitempty"` // from when on it is whole
	Bucket    float64        `json:"bucket_seconds"`
	Failures  []failureGroup `json:"failures"`
	Latency   []latency      `json:"latency"`
	Longest   []longest      `json:"longest"`
	Truncated []string       `json:"truncated"` // which parts are not whole
}

type count struct {
	Saga      string          `json:"saga"`
	Step      string          `json:"step"`
	Status    store.Status    `json:"status,omitempty"`
	Direction store.Direction `json:"direction,omitempty"`
	N         int64           `json:"n"`
}

type moving struct {
	ID        uuid.UUID       `json:"id"`
	Saga      string          `json:"saga"`
	Step      string          `json:"step"`
	Direction store.Direction `json:"direction"`
	Since     time.Time       `json:"since"` // when it came to the step
	Running   bool            `json:"running"`
}

type bucket struct {
	At      time.Time              `json:"at"`
	Started int64                  `json:"started"`
	Ended   map[store.Status]int64 `json:"ended,omitempty"`
}

type failureGroup struct {
	Class      string          `json:"class"`
	Saga       string          `json:"saga"`
	Step       string          `json:"step"`
	Direction  store.Direction `json:"direction"`
	N          int64           `json:"n"`
	Executions int64           `json:"executions"`
	Last       time.Time       `json:"last"`
	Sample     uuid.UUID       `json:"sample"`
	Message    string          `json:"message"`
}

type latency struct {
	Saga      string          `json:"saga"`
	Step      string          `json:"step"`
	Direction store.Direction `json:"direction"`
	N         int64           `json:"n"`
	P50       float64         `json:"p50_ms"`
	P95       float64         `json:"p95_ms"`
	P99       float64         `json:"p99_ms"`
	Max       float64         `json:"max_ms"`
}

type longest struct {
	view.Execution
	Diagnosis saga.Diagnosis `json:"diagnosis"`
}

// The ranges that a page offers, with the length of their buckets.
var ranges = map[string]struct{ span, bucket time.Duration }{
	"1h": {time.Hour, time.Minute}, "24h": {24 * time.Hour, 15 * time.Minute}, "7d": {7 * 24 * time.Hour, 2 * time.Hour},
}

const (
	movingShown  = 200
	longestShown = 10
	parkedLooked = 1000 // of what moved longest ago, to find what does not wait for a time
)

func (c *console) overview(r *http.Request) (any, error) {
	ctx, q := r.Context(), r.URL.Query()
	now, err := c.Store().Now(ctx)
	if err != nil {
		return nil, err
	}
	span, ok := ranges[q.Get("range")]
	if !ok {
		return nil, invalid("range", "is none of 1h, 24h and 7d")
	}
	q.Del("range")
	base, err := c.filterOf(q, now)
	if err != nil {
		return nil, err
	}
	o := overview{
		At: now, From: now.Add(-span.span), Bucket: span.bucket.Seconds(), Counts: []count{}, Stalled: []count{}, Failed: []count{}, Moving: []moving{},
		Series: []bucket{}, Failures: []failureGroup{}, Latency: []latency{}, Longest: []longest{}, Truncated: []string{},
	}
	base, ok = narrow(base, visitOf(r).scope)
	if !ok {
		return o, nil
	}
	whole := store.Range{From: o.From, To: now.Add(time.Microsecond)}
	for _, part := range []struct {
		name string
		fill func(store.Filter) (bool, error)
	}{
		{"counts", func(f store.Filter) (bool, error) {
			f.Unfinished = true
			return c.count(ctx, f, &o.Counts)
		}},
		{"stalled", func(f store.Filter) (bool, error) {
			f.Attention = []store.Attention{store.AttentionStalled}
			return c.count(ctx, f, &o.Stalled)
		}},
		{"failed", func(f store.Filter) (bool, error) {
			f.Statuses, f.Finished = []store.Status{store.StatusFailed, store.StatusCompensationFailed, store.StatusCompensated}, whole
			return c.count(ctx, f, &o.Failed)
		}},
		{"moving", func(f store.Filter) (bool, error) {
			f.Statuses = []store.Status{store.StatusRunning, store.StatusCompensating}
			list, err := c.List(ctx, f, store.Page{Limit: movingShown})
			if err != nil {
				return false, err
			}
			for _, x := range list.Executions {
				o.Moving = append(o.Moving, moving{x.ID, x.Saga, x.Step, x.Direction, x.ProgressAt, x.Attempt != nil})
			}
			return list.Next != nil, nil
		}},
		{"series", func(f store.Filter) (bool, error) {
			s, err := c.Series(ctx, store.SeriesQuery{Filter: f, Range: whole, Bucket: span.bucket, Most: c.cfg.MaxRows})
			if err != nil {
				return false, err
			}
			for _, b := range s.Buckets {
				o.Series = append(o.Series, bucket{b.At, b.Started, b.Ended})
			}
			if s.Truncated {
				o.Since = &s.Since
			}
			return s.Truncated, nil
		}},
		{"failures", func(f store.Filter) (bool, error) {
			s, err := c.Failures(ctx, store.AttemptQuery{Filter: f, Finished: whole, Most: min(c.cfg.MaxRows, store.DefaultAttempts)})
			if err != nil {
				return false, err
			}
			for _, g := range s.Groups {
				o.Failures = append(o.Failures, failureGroup(g))
			}
			return s.Truncated, nil
		}},
		{"latency", func(f store.Filter) (bool, error) {
			s, err := c.Latency(ctx, store.AttemptQuery{Filter: f, Finished: whole, Most: min(c.cfg.MaxRows, store.DefaultAttempts)})
			if err != nil {
				return false, err
			}
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			for _, g := range s.Groups {
				o.Latency = append(o.Latency, latency{g.Saga, g.Step, g.Direction, g.N, ms(g.P50), ms(g.P95), ms(g.P99), ms(g.Max)})
			}
			return s.Truncated, nil
		}},
		{"longest", func(f store.Filter) (bool, error) { return false, c.longest(ctx, f, &o.Longest) }},
	} {
		cut, err := part.fill(base)
		if err != nil {
			return nil, err
		}
		if cut {
			o.Truncated = append(o.Truncated, part.name)
		}
	}
	return o, nil
}

func (c *console) count(ctx context.Context, f store.Filter, out *[]count) (bool, error) {
	counts, err := c.Count(ctx, f, []store.Dimension{store.BySaga, store.ByStep, store.ByStatus, store.ByDirection}, c.cfg.MaxRows)
	if err != nil {
		return false, err
	}
	for _, g := range counts.Groups {
		*out = append(*out, count{g.Values[0], g.Values[1], store.Status(g.Values[2]), store.Direction(g.Values[3]), g.N})
	}
	return counts.Truncated, nil
}

// longest lists what has not moved for longest, leaving out what waits for a
// time that is to come: that is no sign of anything.
func (c *console) longest(ctx context.Context, f store.Filter, out *[]longest) error {
	list, err := c.Longest(ctx, f, parkedLooked)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(x *store.Execution) bool {
		return x.Status == store.StatusWaiting && x.Gate != nil && (x.Gate.Kind == store.GateTime || x.Gate.Kind == store.GateStart)
	})
	list = list[:min(longestShown, len(list))]
	if len(list) == 0 {
		return nil
	}
	diagnoses, err := c.DiagnoseAll(ctx, list)
	if err != nil {
		return err
	}
	for i, x := range list {
		*out = append(*out, longest{view.Of(x), diagnoses[i]})
	}
	return nil
}

// workers is the page of who works.
func (c *console) workers(r *http.Request) (any, error) {
	ctx := r.Context()
	type depth struct {
		Partition string `json:"partition"`
		Ready     int    `json:"ready"`
		Consumers int    `json:"consumers"`
	}
	out := struct {
		Workers   []saga.WorkerInfo   `json:"workers"`
		Health    *saga.Health        `json:"health"`
		Pauses    []saga.Pause        `json:"pauses"`
		Depths    []depth             `json:"queues,omitempty"` // nil: nobody can be asked
		Schedules []saga.ScheduleInfo `json:"schedules,omitempty"`
	}{Workers: []saga.WorkerInfo{}, Pauses: []saga.Pause{}}
	optional := func(err error) error {
		if errors.Is(err, saga.ErrNotSupported) {
			return nil
		}
		return err
	}
	workers, err := c.Workers(ctx)
	if optional(err) != nil {
		return nil, err
	}
	partitions := map[string]bool{}
	for _, w := range workers {
		if visitOf(r).scoped {
			w.Attempts = nil // of executions of others
		}
		for p := range w.Partitions {
			partitions[p] = true
		}
		out.Workers = append(out.Workers, w)
	}
	pauses, err := c.Pauses(ctx)
	if optional(err) != nil {
		return nil, err
	}
	out.Pauses = append(out.Pauses, pauses...)
	if out.Schedules, err = c.ScheduleList(ctx); optional(err) != nil {
		return nil, err
	}
	for p := range partitions {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		ready, consumers, err := c.Depth(limited, p)
		cancel()
		if p != "" && err == nil {
			out.Depths = append(out.Depths, depth{p, ready, consumers})
		}
	}
	slices.SortFunc(out.Depths, func(a, b depth) int { return strings.Compare(a.Partition, b.Partition) })
	out.Health = c.Health(ctx)
	return out, nil
}
