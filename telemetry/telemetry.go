// Package telemetry gives an engine traces and metrics by OpenTelemetry. It
// uses the API alone: which SDK and which exporters there are is the service's
// choice.
//
//	tel, err := telemetry.New(telemetry.Config{})
//	…
//	defer tel.Close()
//	cfg := saga.Config{Store: st, Publisher: broker}
//	tel.Apply(&cfg)
//	engine, err := saga.New(cfg)
//	…
//	tel.Watch(engine)
//
// # Traces
//
// Every attempt of a step or an undo is a span, whatever process it runs in, and
// all of one execution are in one trace: that of the code that called Start.
// The ctx of the step carries the span, so that what the step calls is part of
// it.
//
// # Metrics
//
// Their names, units and attributes are in docs/telemetry.md. No attribute of a
// metric is an id or an error: there are as many time series as there are sagas
// and steps.
//
// Nothing here can fail a saga or hold it: what goes wrong in a provider is
// swallowed.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/leveret-go/leveret/saga"
)

// scope names the instrumentation.
const scope = "github.com/leveret-go/leveret/telemetry"

// A Config says where traces and metrics go. Its zero value takes the global
// providers of package otel.
type Config struct {
	// TracerProvider defaults to otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
	// MeterProvider defaults to otel.GetMeterProvider().
	MeterProvider metric.MeterProvider
}

// A Telemetry makes spans and metrics of what engines do. Make one with [New];
// one is enough for all engines of a process. All methods are safe for
// concurrent use.
type Telemetry struct {
	tracer   trace.Tracer
	counters counters
	gauges   gauges
	callback metric.Registration

	steps      bounded[stepName]
	partitions bounded[string]

	mu      sync.Mutex
	engines []watched
}

type watched struct {
	engine     *saga.Engine
	partitions []string
}

// New returns a Telemetry, or the errors of the meter that refused one of its
// instruments.
func New(cfg Config) (*Telemetry, error) {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	t := &Telemetry{
		tracer: cfg.TracerProvider.Tracer(scope),
		steps:  bounded[stepName]{most: maxSteps}, partitions: bounded[string]{most: maxPartitions},
	}
	meter := cfg.MeterProvider.Meter(scope)
	m := &maker{meter: meter}
	t.counters = m.counters()
	t.gauges = m.gauges()
	if err := errors.Join(m.errs...); err != nil {
		return nil, fmt.Errorf("telemetry: make instruments: %w", err)
	}
	var err error
	if t.callback, err = meter.RegisterCallback(t.collect, t.gauges.all()...); err != nil {
		return nil, fmt.Errorf("telemetry: register the gauges: %w", err)
	}
	return t, nil
}

// Apply adds this telemetry to the configuration of an engine, before
// [saga.New]: its Middleware outside of those that are there, its Observe before
// the one that is there, and, if there is none, its TraceParent. Apply it once.
func (t *Telemetry) Apply(cfg *saga.Config) {
	cfg.Middleware = slices.Concat([]saga.Middleware{t.Middleware()}, cfg.Middleware)
	if observe := cfg.Observe; observe == nil {
		cfg.Observe = t.Observe
	} else {
		cfg.Observe = func(ctx context.Context, ev saga.Event) {
			t.Observe(ctx, ev)
			observe(ctx, ev)
		}
	}
	if cfg.TraceParent == nil {
		cfg.TraceParent = t.TraceParent
	}
}

// Watch has the gauges tell of an engine, until Close, and of the queues of
// these partitions, besides those that events have named. Gauges are added up
// over all watched engines; of lags and ages the largest counts.
func (t *Telemetry) Watch(e *saga.Engine, partitions ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.engines = append(t.engines, watched{e, slices.Clone(partitions)})
}

// Close ends the gauges. What Apply has added to an engine stays harmless, and
// goes on.
func (t *Telemetry) Close() error {
	t.mu.Lock()
	t.engines = nil
	t.mu.Unlock()
	if err := t.callback.Unregister(); err != nil {
		return fmt.Errorf("telemetry: close: %w", err)
	}
	return nil
}

// quietly calls f, which calls code of a provider.
func quietly(f func()) {
	defer func() { _ = recover() }()
	f()
}
