package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A HealthCode is the stable name of something that a person should know. What
// each means and what to do about it is in docs/oncall.md.
type HealthCode string

// The health codes.
const (
	HealthStalled            HealthCode = "stalled"             // executions that have not moved for 15 minutes, and nobody works on them
	HealthCompensationFailed HealthCode = "compensation_failed" // executions whose undo has failed for good
	HealthHalted             HealthCode = "halted"              // executions that wait for a person
	HealthOverdue            HealthCode = "overdue"             // executions that were due long ago
	HealthBacklog            HealthCode = "backlog"             // many pointers wait in a partition's queue
	HealthNoConsumer         HealthCode = "no_consumer"         // a partition has work and nobody takes it
	HealthUnroutable         HealthCode = "unroutable"          // the broker had no queue for pointers
	HealthForeignStore       HealthCode = "foreign_store"       // pointers of another store arrive here
	HealthBrokerDown         HealthCode = "broker_down"         // the broker cannot be reached
	HealthStoreDown          HealthCode = "store_down"          // the store does not answer
	HealthStoreSlow          HealthCode = "store_slow"          // the store takes more than a second to answer
	HealthClockSkew          HealthCode = "clock_skew"          // this machine's clock is off by more than 5 seconds
	HealthNoSweep            HealthCode = "no_sweep"            // no process looks for due executions
	HealthScheduleLate       HealthCode = "schedule_late"       // a schedule has not started what it should have
	HealthEventsLate         HealthCode = "events_late"         // status events wait to be published
	HealthPaused             HealthCode = "paused"              // something is paused
)

// HealthCodes lists all of them.
func HealthCodes() []HealthCode {
	return []HealthCode{
		HealthStalled, HealthCompensationFailed, HealthHalted, HealthOverdue, HealthBacklog, HealthNoConsumer, HealthUnroutable,
		HealthForeignStore, HealthBrokerDown, HealthStoreDown, HealthStoreSlow, HealthClockSkew, HealthNoSweep, HealthScheduleLate,
		HealthEventsLate, HealthPaused,
	}
}

// A HealthLevel says how bad it is.
type HealthLevel string

// The levels, from good to bad.
const (
	HealthOK       HealthLevel = "ok"
	HealthInfo     HealthLevel = "info"     // worth knowing; nothing to be done
	HealthDegraded HealthLevel = "degraded" // sagas go on, but a person should look
	HealthDown     HealthLevel = "down"     // sagas do not move, or some do not
)

func (l HealthLevel) rank() int {
	return slices.Index([]HealthLevel{HealthOK, HealthInfo, HealthDegraded, HealthDown}, l)
}

// Health is how it goes, seen from one process.
type Health struct {
	// Level is the worst of the causes, or ok.
	Level  HealthLevel `json:"level"`
	At     time.Time   `json:"at"`
	Causes []Cause     `json:"causes"`
	// Unasked names codes about which nothing is known, because the store or
	// the publisher lacks the ability, or did not answer.
	Unasked []HealthCode `json:"unasked,omitempty"`
}

// A Cause is one reason why not all is well.
type Cause struct {
	Code   HealthCode  `json:"code"`
	Level  HealthLevel `json:"level"`
	Detail string      `json:"detail"` // for people, in English
	// Count is how many executions, pointers or partitions it is about; it is
	// not counted further than 10,000.
	Count int64 `json:"count,omitempty"`
	// Subject is the partition or scope it is about, "" for none.
	Subject string `json:"subject,omitempty"`
	// Since is since when it is so, where that is known: of a pause, and of the
	// last sweep.
	Since time.Time `json:"since,omitzero"`
}

// The thresholds of Health. The store has to have answered in less than all the
// time there is, so that the broker is asked too.
const (
	healthTimeout  = 5 * time.Second
	healthStore    = 3500 * time.Millisecond // all that the store is asked
	healthProbe    = 2 * time.Second         // one question
	healthMost     = 10_000
	healthSlow     = time.Second
	healthSkew     = 5 * time.Second
	healthReported = 5 * time.Minute // for how long what a transport reported is shown
)

// Health looks at the store, the publisher and the records of the workers, and
// says what a person should know. It is never an error: what a store or broker
// lacks the ability to tell is among Unasked, and where one failed to answer
// there is a cause as well. It takes at most 5 seconds, or until ctx is done, and
// each question at most 2 of them. The engine need not be running. Its queries
// are bounded, but it is not free: ask every some seconds, not for each request;
// probes have [LiveHandler] and [ReadyHandler].
func (e *Engine) Health(ctx context.Context) *Health {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	h := &checkup{e: e, h: &Health{Level: HealthOK, At: e.clock.now(), Causes: []Cause{}}}
	sctx, cancelStore := context.WithTimeout(ctx, healthStore)
	defer cancelStore()
	if h.store(sctx) {
		h.pauses(sctx)
		h.counts(sctx)
		h.workers(sctx)
		h.schedules(sctx)
		h.events(sctx)
	} else {
		h.unasked(HealthStalled, HealthCompensationFailed, HealthHalted, HealthOverdue, HealthNoConsumer, HealthNoSweep, HealthScheduleLate, HealthEventsLate, HealthPaused)
	}
	h.broker(ctx)
	h.reports()
	slices.SortStableFunc(h.h.Causes, func(a, b Cause) int { return b.Level.rank() - a.Level.rank() })
	return h.h
}

// A checkup is a Health in the making.
type checkup struct {
	e *Engine
	h *Health
	// partitions that have unfinished work; workers that live, nil: not known.
	partitions []string
	living     []WorkerInfo
	paused     *pauseSet // as the store has it
	failed     bool      // the store failed to answer a question
}

func (c *checkup) cause(level HealthLevel, code HealthCode, subject string, n int64, format string, args ...any) {
	c.h.Causes = append(c.h.Causes, Cause{Code: code, Level: level, Subject: subject, Count: n, Detail: fmt.Sprintf(format, args...)})
	if level.rank() > c.h.Level.rank() {
		c.h.Level = level
	}
}

// unasked notes that nothing is known about codes.
func (c *checkup) unasked(codes ...HealthCode) {
	for _, code := range codes {
		if !slices.Contains(c.h.Unasked, code) {
			c.h.Unasked = append(c.h.Unasked, code)
		}
	}
}

// unanswered notes that the store, which said what time it is, did not answer
// another question: it lacks the ability, or it failed, which is a cause.
func (c *checkup) unanswered(code HealthCode, err error) {
	c.unasked(code)
	if errors.Is(err, ErrNotSupported) || c.failed {
		return
	}
	c.failed = true
	c.e.warn("saga: health", "code", string(code), "error", err)
	c.cause(HealthDegraded, HealthStoreSlow, "", 0, "the store failed to say in time what it was asked about %s", code)
}

// store reports whether the store answers.
func (c *checkup) store(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, healthProbe)
	defer cancel()
	asked := time.Now()
	now, err := c.e.store.Now(ctx)
	took := time.Since(asked)
	if err != nil {
		c.e.warn("saga: health", "code", string(HealthStoreDown), "error", err)
		c.cause(HealthDown, HealthStoreDown, "", 0, "the store does not answer")
		c.unasked(HealthStoreSlow, HealthClockSkew)
		return false
	}
	if err := c.e.clock.ready(ctx); err == nil {
		c.h.At = c.e.clock.now()
	}
	if took > healthSlow {
		c.cause(HealthDegraded, HealthStoreSlow, "", 0, "the store took %v to say what time it is", took.Round(time.Millisecond))
	}
	if c.e.cfg.Now == nil {
		if off := time.Since(now.Add(took / 2)); off.Abs() > healthSkew+took {
			c.cause(HealthInfo, HealthClockSkew, "", 0, "this machine's clock is %v off the store's; the engine goes by the store's", off.Round(time.Second))
		}
	}
	return true
}

// counts asks how many executions need a person.
func (c *checkup) counts(ctx context.Context) {
	for _, a := range []struct {
		attention store.Attention
		code      HealthCode
		level     HealthLevel
		text      string
	}{
		{store.AttentionCompensationFailed, HealthCompensationFailed, HealthDegraded, "an undo failed for good: %d"},
		{store.AttentionHalted, HealthHalted, HealthDegraded, "parked for a person: %d"},
		{store.AttentionStalled, HealthStalled, HealthDegraded, "not moved for 15 minutes, and nobody works on them: %d"},
		{store.AttentionOverdue, HealthOverdue, HealthDown, "due long ago, and nobody has looked: %d"},
	} {
		f := store.Filter{Attention: []store.Attention{a.attention}}
		n, err := c.count(ctx, f, a.code)
		if err == nil && n > 0 {
			c.cause(a.level, a.code, "", n, a.text, n)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, healthProbe)
	defer cancel()
	// Parked executions need a person, and paused ones nobody.
	f := store.Filter{Statuses: []store.Status{store.StatusRunning, store.StatusWaiting, store.StatusCompensating}}
	counts, err := c.e.Count(ctx, f, []store.Dimension{store.ByPartition}, healthMost)
	if err != nil {
		c.unanswered(HealthNoConsumer, err)
		return
	}
	for _, g := range counts.Groups {
		if p := g.Values[0]; !c.paused.partitions[p] {
			c.partitions = append(c.partitions, p)
		}
	}
}

// count counts the executions of a filter, paused ones left out where they are
// no reason to worry.
func (c *checkup) count(ctx context.Context, f store.Filter, code HealthCode) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, healthProbe)
	defer cancel()
	var by []store.Dimension
	if code == HealthStalled || code == HealthOverdue {
		by = []store.Dimension{store.ByPartition, store.BySaga}
	}
	counts, err := c.e.Count(ctx, f, by, healthMost)
	if err != nil {
		c.unanswered(code, err)
		return 0, err
	}
	n := int64(0)
	for _, g := range counts.Groups {
		if len(g.Values) == 2 && (c.paused.partitions[g.Values[0]] || c.paused.sagas[g.Values[1]]) {
			continue
		}
		n += g.N
	}
	return n, nil
}

// pauses says what is paused, as the store has it: nothing if it cannot be
// asked.
func (c *checkup) pauses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, healthProbe)
	defer cancel()
	c.paused = &pauseSet{}
	if _, ok := store.As[store.Cells](c.e.store); !ok {
		c.unasked(HealthPaused)
		return
	}
	list, err := c.e.Pauses(ctx)
	if err != nil {
		c.unanswered(HealthPaused, err)
		return
	}
	c.paused = newPauseSet(list, c.e.worker)
	for _, p := range list {
		c.cause(HealthInfo, HealthPaused, p.String(), 0, "%s is paused since %s by %s: %s", p.Scope, clock3339(p.At), p.Actor, p.Reason)
		c.since(p.At)
	}
}

// schedules looks for occurrences that nobody starts.
func (c *checkup) schedules(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, healthProbe)
	defer cancel()
	list, err := c.e.ScheduleList(ctx)
	if err != nil {
		c.unanswered(HealthScheduleLate, err)
		return
	}
	late := max(10*c.e.cfg.SweepEvery, scheduleGrace)
	for i := range list {
		s := &list[i]
		if s.Paused || s.PausedBy != nil || s.Next.IsZero() || c.h.At.Sub(s.Next) <= late {
			continue
		}
		c.cause(HealthDegraded, HealthScheduleLate, s.Key(), 0, "schedule %s should have started saga %q at %s; no process that lives does", s.Key(), s.Saga, clock3339(s.Next))
		c.since(s.Next)
	}
}

// since adds to the last cause since when it is so.
func (c *checkup) since(at time.Time) { c.h.Causes[len(c.h.Causes)-1].Since = at }

// workers looks at who lives, and whether they sweep.
func (c *checkup) workers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, healthProbe)
	defer cancel()
	all, err := c.e.Workers(ctx)
	if err != nil {
		c.unanswered(HealthNoSweep, err)
		return
	}
	swept := c.e.stats.lookedAt()
	every := c.e.cfg.heartbeat()
	c.living = []WorkerInfo{}
	for _, w := range all {
		if w.Alive {
			c.living = append(c.living, w)
			every = max(every, w.Every)
		}
		if w.SweptAt.After(swept) {
			swept = w.SweptAt
		}
	}
	// Without a transport a worker looks for more only when it is free.
	busy := slices.ContainsFunc(c.living, func(w WorkerInfo) bool {
		return w.Partitions[""] > 0 && (w.Paused || w.Running >= w.Partitions[""])
	})
	limit := 10*c.e.cfg.SweepEvery + every
	if age := c.h.At.Sub(swept); age > limit && !busy {
		since := "no process has looked for due executions"
		if !swept.IsZero() {
			since += " since " + clock3339(swept)
		}
		c.cause(HealthDown, HealthNoSweep, "", 0, "%s; workers that live: %d", since, len(c.living))
		c.since(swept)
	}
}

// broker looks at the connection and the queues.
func (c *checkup) broker(ctx context.Context) {
	if c.e.pub == nil {
		c.unattended(nil)
		c.unasked(HealthBacklog, HealthBrokerDown, HealthUnroutable)
		return
	}
	if c.e.direct() {
		c.cause(HealthDegraded, HealthBrokerDown, "", 0, "the broker cannot be reached; consumers take their work from the store")
		c.unattended(nil)
		c.unasked(HealthBacklog)
		return
	}
	partitions := slices.Clone(c.partitions)
	for _, w := range c.living {
		for p := range w.Partitions {
			if p != "" && !slices.Contains(partitions, p) {
				partitions = append(partitions, p)
			}
		}
	}
	slices.Sort(partitions)
	consumers := map[string]int{}
	for _, p := range partitions {
		ready, n, err := c.depth(ctx, p)
		if err != nil {
			c.unasked(HealthBacklog)
			if errors.Is(err, errors.ErrUnsupported) || ctx.Err() != nil {
				break
			}
			continue
		}
		consumers[p] = n
		if ready > c.e.cfg.BacklogThreshold {
			c.cause(HealthDegraded, HealthBacklog, p, int64(ready), "pointers that wait in the queue of partition %[2]s: %[1]d; consumers: %[3]d", ready, p, n)
		}
	}
	c.unattended(consumers)
}

func (c *checkup) depth(ctx context.Context, partition string) (ready, consumers int, err error) {
	ctx, cancel := context.WithTimeout(ctx, healthProbe)
	defer cancel()
	return c.e.Depth(ctx, partition)
}

// unattended names the partitions that have work and nobody who takes it: no
// consumer, where the broker could say, and no living worker that has the
// partition, where there are records of workers. A consumer that has just lost
// its connection is so none that is missing.
func (c *checkup) unattended(consumers map[string]int) {
	if c.living == nil && consumers == nil {
		c.unasked(HealthNoConsumer)
		return
	}
	for _, p := range c.partitions {
		n, known := consumers[p]
		switch {
		case n > 0 || slices.ContainsFunc(c.living, func(w WorkerInfo) bool { return w.attends(p) }):
		case !known && c.living == nil:
			c.unasked(HealthNoConsumer)
		default:
			c.cause(HealthDown, HealthNoConsumer, p, 0, "partition %s has executions to go on with, and nobody takes its work", p)
		}
	}
}

// reports shows what transports told of pointers lately.
func (c *checkup) reports() {
	unroutable, foreign := c.e.reports.since(c.e.clock.now().Add(-healthReported))
	if unroutable > 0 {
		c.cause(HealthDegraded, HealthUnroutable, "", unroutable, "pointers for which the broker had no queue, in the last 5 minutes: %d", unroutable)
	}
	if foreign > 0 {
		c.cause(HealthDegraded, HealthForeignStore, "", foreign, "pointers of another store that came here in the last 5 minutes: %d; two services on one prefix?", foreign)
	}
}

// reports counts, by minute, what transports told of pointers.
type reports struct {
	mu      sync.Mutex
	minutes map[int64]*[2]int64 // unroutable, foreign store
}

func (r *reports) note(ev *Event) {
	i := 0
	switch {
	case ev.Kind == EventPointerUnroutable:
	case ev.Kind == EventPointerDead && ev.Reason == DeadForeignStore:
		i = 1
	default:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.minutes == nil {
		r.minutes = map[int64]*[2]int64{}
	}
	minute := ev.At.Unix() / 60
	if r.minutes[minute] == nil {
		r.minutes[minute] = &[2]int64{}
		for m := range r.minutes {
			if m < minute-int64(healthReported/time.Minute)-1 {
				delete(r.minutes, m)
			}
		}
	}
	r.minutes[minute][i]++
}

func (r *reports) since(t time.Time) (unroutable, foreign int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for minute, n := range r.minutes {
		if minute >= t.Unix()/60 {
			unroutable += n[0]
			foreign += n[1]
		}
	}
	return unroutable, foreign
}
