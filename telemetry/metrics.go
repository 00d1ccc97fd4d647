package telemetry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// An info describes an instrument. docs/telemetry.md lists them all.
type info struct {
	name, unit, what string
	labels           []attribute.Key
}

var (
	sagaStarted       = info{"leveret.saga.started", "{execution}", "Executions started.", []attribute.Key{keySaga}}
	sagaFinished      = info{"leveret.saga.finished", "{execution}", "Executions ended.", []attribute.Key{keySaga, keyStatus}}
	sagaHalted        = info{"leveret.saga.halted", "{execution}", "Executions parked for a person.", []attribute.Key{keySaga}}
	sagaCompensations = info{"leveret.saga.compensations", "{execution}", "Compensations begun.", []attribute.Key{keySaga}}
	sagaResumed       = info{"leveret.saga.resumed", "{execution}", "Executions resumed, by the sweep or by a person.", []attribute.Key{keySaga}}
	sagaWaits         = info{"leveret.saga.waits", "{wait}", "Executions parked until a time, a signal or another execution.", []attribute.Key{keySaga, keyStep, keyGate}}
	sagaSignals       = info{"leveret.saga.signals", "{signal}", "Signals taken in.", []attribute.Key{keySaga}}
	stepAttempts      = info{"leveret.step.attempts", "{attempt}", "Attempts that ended.", []attribute.Key{keySaga, keyStep, keyDirection, keyOutcome}}
	stepDuration      = info{"leveret.step.duration", "s", "How long attempts took that ended by themselves.", []attribute.Key{keySaga, keyStep, keyDirection}}
	stepStuck         = info{"leveret.step.stuck", "{attempt}", "Attempts that ignore the end of their ctx.", []attribute.Key{keySaga, keyStep, keyDirection}}
	pointerDropped    = info{"leveret.pointer.dropped", "{pointer}", "Pointers that led to no attempt.", []attribute.Key{keyReason}}
)

var durations = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// counters are what events are counted by.
type counters struct {
	started, finished, halted, compensations, resumed metric.Int64Counter
	waits, signals                                    metric.Int64Counter
	attempts, stuck, dropped                          metric.Int64Counter
	duration                                          metric.Float64Histogram
}

// A maker makes instruments and keeps the errors.
type maker struct {
	meter metric.Meter
	errs  []error
}

func (m *maker) note(err error) {
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

func (m *maker) counter(i info) metric.Int64Counter {
	c, err := m.meter.Int64Counter(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.what))
	m.note(err)
	return c
}

func (m *maker) counters() counters {
	d, err := m.meter.Float64Histogram(stepDuration.name, metric.WithUnit(stepDuration.unit),
		metric.WithDescription(stepDuration.what), metric.WithExplicitBucketBoundaries(durations...))
	m.note(err)
	return counters{
		started: m.counter(sagaStarted), finished: m.counter(sagaFinished), halted: m.counter(sagaHalted),
		compensations: m.counter(sagaCompensations), resumed: m.counter(sagaResumed),
		waits: m.counter(sagaWaits), signals: m.counter(sagaSignals),
		attempts: m.counter(stepAttempts), stuck: m.counter(stepStuck), dropped: m.counter(pointerDropped), duration: d,
	}
}

// outcomes are what attempts come to, by the event that tells of it. The
// attempt that halted its saga has no event of its own.
var outcomes = map[saga.EventKind]string{
	saga.EventStepFinished:     "succeeded",
	saga.EventStepSkipped:      "skipped",
	saga.EventStepFailed:       "failed",
	saga.EventSnoozed:          "snoozed",
	saga.EventStepInterrupted:  "interrupted",
	saga.EventAttemptAbandoned: "abandoned",
}

// Observe is a [saga.Config.Observe] that counts events. It is quick, and never
// panics.
func (t *Telemetry) Observe(ctx context.Context, ev saga.Event) {
	quietly(func() { t.observe(ctx, ev) })
}

func (t *Telemetry) observe(ctx context.Context, ev saga.Event) {
	if strings.HasPrefix(string(ev.Kind), "pointer.") {
		// What a pointer says of itself may be anything.
		t.counters.dropped.Add(ctx, 1, metric.WithAttributes(keyReason.String(reason(ev))))
		return
	}
	if ev.Partition != "" {
		t.partitions.has(ev.Partition)
	}
	count := func(c metric.Int64Counter, more ...attribute.KeyValue) {
		c.Add(ctx, 1, metric.WithAttributes(append(more, t.sagaLabel(ev.Saga))...))
	}
	step := func() []attribute.KeyValue {
		return append(t.stepLabels(ev.Saga, ev.Step), keyDirection.String(string(ev.Direction)))
	}
	switch ev.Kind {
	case saga.EventStarted:
		count(t.counters.started)
	case saga.EventCompleted, saga.EventCompensated, saga.EventFailed, saga.EventCompensationFailed, saga.EventCancelled:
		count(t.counters.finished, keyStatus.String(string(ev.Status)))
	case saga.EventHalted:
		count(t.counters.halted)
	case saga.EventCompensationStarted:
		count(t.counters.compensations)
	case saga.EventResumed:
		count(t.counters.resumed)
	case saga.EventWaiting:
		t.counters.waits.Add(ctx, 1, metric.WithAttributes(append(t.stepLabels(ev.Saga, ev.Step), keyGate.String(gate(ev.Reason)))...))
	case saga.EventSignal: // its name may be anything
		count(t.counters.signals)
	case saga.EventStepStuck:
		t.counters.stuck.Add(ctx, 1, metric.WithAttributes(step()...))
	}
	if ev.Kind == saga.EventStepSkipped && ev.Attempt == 0 {
		return // its condition was false: there was no attempt
	}
	if outcome, ok := outcomes[ev.Kind]; ok {
		labels := step()
		if ev.Kind != saga.EventAttemptAbandoned {
			t.counters.duration.Record(ctx, ev.Took.Seconds(), metric.WithAttributes(labels...))
		}
		t.counters.attempts.Add(ctx, 1, metric.WithAttributes(append(labels, keyOutcome.String(outcome))...))
	}
}

// gate keeps the label to the words there are.
func gate(kind string) string {
	if store.GateKind(kind).Valid() {
		return kind
	}
	return other
}

// reason says in a word what became of a pointer.
func reason(ev saga.Event) string {
	switch ev.Kind {
	case saga.EventPointerDead:
		switch ev.Reason {
		case saga.DeadForeignStore, saga.DeadFutureEpoch, saga.DeadVersion:
			return ev.Reason
		}
		return "malformed"
	case saga.EventPointerOrphan, saga.EventPointerStale, saga.EventPointerUnknown, saga.EventPointerEarly,
		saga.EventPointerBusy, saga.EventPointerPaused, saga.EventPointerUnroutable, saga.EventPointerUnpublished:
		return strings.TrimPrefix(string(ev.Kind), "pointer.")
	}
	return other
}
