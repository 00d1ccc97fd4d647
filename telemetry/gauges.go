package telemetry

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/leveret-go/leveret/saga"
)

var (
	attemptsRunning = info{"leveret.attempts.running", "{attempt}", "Functions of steps that run now.", nil}
	leaseLosses     = info{"leveret.lease.losses", "{lease}", "Attempts that lost their lease while their function ran.", nil}
	eventsDropped   = info{"leveret.events.dropped", "{event}", "Events that a slow observer missed.", nil}
	sweepLag        = info{"leveret.sweep.lag", "s", "How late the last sweep found what was due longest.", nil}
	sweepAge        = info{"leveret.sweep.age", "s", "How long ago the last sweep ended that was no failure.", nil}
	queueDepth      = info{"leveret.queue.depth", "{pointer}", "Pointers ready in a partition's queue.", []attribute.Key{keyPartition}}
	queueConsumers  = info{"leveret.queue.consumers", "{consumer}", "Consumers of a partition's queue.", []attribute.Key{keyPartition}}
)

// catalog are all instruments.
var catalog = []info{
	sagaStarted, sagaFinished, sagaHalted, sagaCompensations, sagaResumed, sagaWaits, sagaSignals, stepAttempts, stepDuration, stepStuck, pointerDropped,
	attemptsRunning, leaseLosses, eventsDropped, sweepLag, sweepAge, queueDepth, queueConsumers,
}

// probeWithin bounds how long a collection asks for the depths of queues.
const probeWithin = 2 * time.Second

// gauges are read when metrics are collected.
type gauges struct {
	running, depth, consumers metric.Int64ObservableGauge
	losses, dropped           metric.Int64ObservableCounter
	lag, age                  metric.Float64ObservableGauge
}

func (g *gauges) all() []metric.Observable {
	return []metric.Observable{g.running, g.depth, g.consumers, g.losses, g.dropped, g.lag, g.age}
}

func (m *maker) gauges() (g gauges) {
	count := func(i info) metric.Int64ObservableGauge {
		o, err := m.meter.Int64ObservableGauge(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.what))
		m.note(err)
		return o
	}
	total := func(i info) metric.Int64ObservableCounter {
		o, err := m.meter.Int64ObservableCounter(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.what))
		m.note(err)
		return o
	}
	seconds := func(i info) metric.Float64ObservableGauge {
		o, err := m.meter.Float64ObservableGauge(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.what))
		m.note(err)
		return o
	}
	return gauges{
		running: count(attemptsRunning), depth: count(queueDepth), consumers: count(queueConsumers),
		losses: total(leaseLosses), dropped: total(eventsDropped), lag: seconds(sweepLag), age: seconds(sweepAge),
	}
}

// collect reads the gauges of all watched engines.
func (t *Telemetry) collect(ctx context.Context, o metric.Observer) error {
	t.mu.Lock()
	engines := slices.Clone(t.engines)
	t.mu.Unlock()
	if len(engines) == 0 {
		return nil
	}
	var sum saga.Stats
	for _, w := range engines {
		s := w.engine.Stats()
		sum.Running += s.Running
		sum.LeasesLost += s.LeasesLost
		sum.EventsDropped += s.EventsDropped
		sum.Sweep.Sweeps += s.Sweep.Sweeps - s.Sweep.Failed
		sum.Sweep.Lag = max(sum.Sweep.Lag, s.Sweep.Lag)
		sum.Sweep.Age = max(sum.Sweep.Age, s.Sweep.Age)
	}
	o.ObserveInt64(t.gauges.running, int64(sum.Running))
	o.ObserveInt64(t.gauges.losses, sum.LeasesLost)
	o.ObserveInt64(t.gauges.dropped, sum.EventsDropped)
	if sum.Sweep.Sweeps > 0 {
		o.ObserveFloat64(t.gauges.lag, sum.Sweep.Lag.Seconds())
		o.ObserveFloat64(t.gauges.age, sum.Sweep.Age.Seconds())
	}
	t.probe(ctx, o, engines)
	return nil
}

// probe asks for the depth of each queue, of the first engine that knows it.
func (t *Telemetry) probe(ctx context.Context, o metric.Observer, engines []watched) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	partitions := t.partitions.all()
	for _, w := range engines {
		partitions = append(partitions, w.partitions...)
	}
	slices.Sort(partitions)
	for _, partition := range slices.Compact(partitions) {
		for _, w := range engines {
			ready, consumers, err := depth(ctx, w.engine, partition)
			if err != nil {
				continue
			}
			label := metric.WithAttributes(keyPartition.String(partition))
			o.ObserveInt64(t.gauges.depth, int64(ready), label)
			o.ObserveInt64(t.gauges.consumers, int64(consumers), label)
			break
		}
	}
}

// depth asks a publisher, which may be anybody's.
func depth(ctx context.Context, e *saga.Engine, partition string) (ready, consumers int, err error) {
	err = errNotKnown
	quietly(func() { ready, consumers, err = e.Depth(ctx, partition) })
	return ready, consumers, err
}

var errNotKnown = errors.New("telemetry: the depth is not known")
