package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/telemetry"
)

func metering() (*sdkmetric.ManualReader, *sdkmetric.MeterProvider) {
	r := sdkmetric.NewManualReader()
	return r, sdkmetric.NewMeterProvider(sdkmetric.WithReader(r))
}

// A series is one time series: its metric with its attributes.
type series map[string]float64

// collect reads all series. Of a histogram it is the count.
func collect(t *testing.T, r *sdkmetric.ManualReader) series {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	out := series{}
	put := func(name string, set attribute.Set, v float64) {
		key := name
		for _, kv := range set.ToSlice() {
			key += " " + strings.TrimPrefix(string(kv.Key), "leveret.") + "=" + kv.Value.String()
		}
		out[key] = v
	}
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Count))
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return out
}

func (s series) of(prefix string) series {
	out := series{}
	for k, v := range s {
		if strings.HasPrefix(k, prefix) {
			out[k] = v
		}
	}
	return out
}

func wantSeries(t *testing.T, got, want series) {
	t.Helper()
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%s is %v (there: %v), want %v", k, g, ok, v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s is %v, not wanted", k, v)
		}
	}
}

func TestMetricsOfASagaThatIsCompensated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, provider := metering()
		tel := newTelemetry(t, telemetry.Config{MeterProvider: provider})
		tries := 0
		w := newWorld(t, tel, tel, saga.Definition[order]{Name: "checkout", Steps: []step{
			{Name: "charge", Compensate: ok, Execute: func(context.Context, *saga.Run[order]) error {
				if tries++; tries == 1 {
					return errors.New("503")
				}
				<-time.After(300 * time.Millisecond)
				return nil
			}},
			{Name: "ship", Execute: fails(saga.Fail(errors.New("none left")))},
		}})
		if x := w.toEnd(t.Context()); x.Status != store.StatusCompensated {
			t.Fatal(x.Status)
		}
		wantSeries(t, collect(t, reader), series{
			"leveret.saga.started saga=checkout":                                                     1,
			"leveret.saga.compensations saga=checkout":                                               1,
			"leveret.saga.finished saga=checkout status=compensated":                                 1,
			"leveret.step.attempts direction=execute outcome=failed saga=checkout step=charge":       1,
			"leveret.step.attempts direction=execute outcome=succeeded saga=checkout step=charge":    1,
			"leveret.step.attempts direction=execute outcome=failed saga=checkout step=ship":         1,
			"leveret.step.attempts direction=compensate outcome=succeeded saga=checkout step=charge": 1,
			"leveret.step.duration direction=execute saga=checkout step=charge":                      2,
			"leveret.step.duration direction=execute saga=checkout step=ship":                        1,
			"leveret.step.duration direction=compensate saga=checkout step=charge":                   1,
		})
	})
}

func TestEventsAreCounted(t *testing.T) {
	reader, provider := metering()
	tel := newTelemetry(t, telemetry.Config{MeterProvider: provider})
	for _, ev := range []saga.Event{
		{Kind: saga.EventHalted}, {Kind: saga.EventResumed}, {Kind: saga.EventCancelled, Status: store.StatusCancelled},
		{Kind: saga.EventStepStuck, Step: "a", Direction: store.DirectionExecute},
		{Kind: saga.EventAttemptAbandoned, Step: "a", Direction: store.DirectionExecute},
		{Kind: saga.EventPointerBusy, Reason: saga.DropBusy}, {Kind: saga.EventPointerOrphan, Reason: saga.DropOrphan},
		{Kind: saga.EventPointerDead, Reason: saga.DeadFutureEpoch}, {Kind: saga.EventPointerDead, Err: errors.New("no pointer")},
		{Kind: saga.EventPointerUnpublished}, {Kind: saga.EventPointerUnroutable}, {Kind: "pointer.new", Reason: "whatever"},
		{Kind: saga.EventStepStarted, Step: "a"}, {Kind: "act.new"},
	} {
		ev.Saga = "s"
		tel.Observe(t.Context(), ev)
	}
	wantSeries(t, collect(t, reader), series{
		"leveret.saga.halted saga=s": 1, "leveret.saga.resumed saga=s": 1, "leveret.saga.finished saga=s status=cancelled": 1,
		"leveret.step.stuck direction=execute saga=s step=a":                      1,
		"leveret.step.attempts direction=execute outcome=abandoned saga=s step=a": 1,
		"leveret.pointer.dropped reason=busy":                                     1,
		"leveret.pointer.dropped reason=orphan":                                   1,
		"leveret.pointer.dropped reason=future_epoch":                             1,
		"leveret.pointer.dropped reason=malformed":                                1,
		"leveret.pointer.dropped reason=unpublished":                              1,
		"leveret.pointer.dropped reason=unroutable":                               1,
		"leveret.pointer.dropped reason=other":                                    1,
	})
}

// Names that are made up while a process runs do not become series without end,
// and no id becomes one at all.
func TestSeriesAreBounded(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	// Without the SDK's own bound.
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(0))
	tel := newTelemetry(t, telemetry.Config{MeterProvider: provider})
	const n = 3000
	for i := range n {
		for _, kind := range []saga.EventKind{saga.EventStarted, saga.EventStepFinished, saga.EventPointerDead} {
			tel.Observe(t.Context(), saga.Event{
				Kind: kind, Execution: uuid.New(), Resource: saga.Resource{Type: "order", ID: uuid.NewString()}, Saga: fmt.Sprintf("saga%d", i),
				Step: "a", Direction: store.DirectionExecute, Partition: fmt.Sprintf("p%d", i), Reason: uuid.NewString(), Err: errors.New(uuid.NewString()),
			})
		}
	}
	got := collect(t, reader)
	started, attempts := got.of("leveret.saga.started"), got.of("leveret.step.attempts")
	if len(started)+len(attempts) > 1002 || len(got) > 2002 {
		t.Errorf("%d series of sagas, %d of steps, %d in all", len(started), len(attempts), len(got))
	}
	sum := 0.0
	for _, v := range attempts {
		sum += v
	}
	if sum != n {
		t.Errorf("%v attempts counted, want %d", sum, n)
	}
	if len(got.of("leveret.pointer.dropped")) != 1 {
		t.Errorf("%v", got.of("leveret.pointer.dropped"))
	}
}

func TestGaugesOfWatchedEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, provider := metering()
		tel := newTelemetry(t, telemetry.Config{MeterProvider: provider})
		free := make(chan struct{})
		w := newWorld(t, tel, tel, saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "charge", Execute: func(context.Context, *saga.Run[order]) error {
			<-free
			return nil
		}}}})
		tel.Watch(w.starter)
		tel.Watch(w.worker, "mail")
		if err := w.broker.Publish(t.Context(), "mail", saga.Pointer{}); err != nil {
			t.Fatal(err)
		}
		if got := collect(t, reader); len(got.of("leveret.sweep")) != 0 || got["leveret.attempts.running"] != 0 {
			t.Errorf("before Run: %v", got)
		}
		w.run(func(ctx context.Context) {
			for range 5 {
				if _, err := w.saga.Start(ctx, saga.Resource{}, order{}, nil); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			<-time.After(5 * time.Second)
			got := collect(t, reader)
			age := got["leveret.sweep.age"]
			if age < 0 || age > 1.2 {
				t.Errorf("the last sweep was %v s ago", age)
			}
			delete(got, "leveret.sweep.age")
			for k := range got.of("leveret.saga.started") {
				delete(got, k)
			}
			wantSeries(t, got, series{
				"leveret.attempts.running": 2, "leveret.lease.losses": 0, "leveret.events.dropped": 0, "leveret.sweep.lag": 0,
				"leveret.queue.depth partition=default": 3, "leveret.queue.consumers partition=default": 1,
				"leveret.queue.depth partition=mail": 1, "leveret.queue.consumers partition=mail": 0,
			})
			close(free)
		})
		if err := tel.Close(); err != nil {
			t.Error(err)
		}
		if got := collect(t, reader); len(got.of("leveret.attempts.running"))+len(got.of("leveret.queue"))+len(got.of("leveret.sweep")) != 0 {
			t.Errorf("after Close: %v", got)
		}
		if err := tel.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

func TestOneTelemetryIsSafeForManyAtOnce(t *testing.T) {
	reader, provider := metering()
	tel := newTelemetry(t, telemetry.Config{MeterProvider: provider})
	done := make(chan struct{})
	for g := range 4 {
		go func() {
			for i := range 200 {
				tel.Observe(context.Background(), saga.Event{Kind: saga.EventStepFinished, Saga: "s", Step: fmt.Sprint(g, i%3), Partition: fmt.Sprint(i)})
			}
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	sum := 0.0
	for _, v := range collect(t, reader).of("leveret.step.attempts") {
		sum += v
	}
	if sum != 800 {
		t.Errorf("%v attempts", sum)
	}
}
