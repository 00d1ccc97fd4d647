package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/leveret-go/leveret/inproc"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
	"github.com/leveret-go/leveret/telemetry"
)

type order struct {
	Paid bool `json:"paid,omitempty"`
}

type step = saga.Step[order]

func ok(context.Context, *saga.Run[order]) error { return nil }

func fails(err error) saga.Func[order] {
	return func(context.Context, *saga.Run[order]) error { return err }
}

func tracing() (*tracetest.InMemoryExporter, trace.TracerProvider) {
	spans := tracetest.NewInMemoryExporter()
	return spans, sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
}

func newTelemetry(t *testing.T, cfg telemetry.Config) *telemetry.Telemetry {
	t.Helper()
	tel, err := telemetry.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// A world is a service that starts executions and another one that works on
// them, with a broker in between and one store.
type world struct {
	t       *testing.T
	starter *saga.Engine
	worker  *saga.Engine
	saga    *saga.Saga[order]
	broker  *inproc.Broker
}

func newWorld(t *testing.T, starter, worker *telemetry.Telemetry, d saga.Definition[order]) *world {
	t.Helper()
	w := &world{t: t, broker: inproc.New(nil)}
	st := memory.New()
	engine := func(tel *telemetry.Telemetry) *saga.Engine {
		cfg := saga.Config{Store: st, Publisher: w.broker, Logger: slog.New(slog.DiscardHandler), Handover: saga.HandoverPublish}
		if tel != nil {
			tel.Apply(&cfg)
		}
		e, err := saga.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	w.starter, w.worker = engine(starter), engine(worker)
	if _, err := saga.Register(w.worker, d); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.saga, err = saga.Declare(w.starter, d.Name, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs the worker until f has returned.
func (w *world) run(f func(ctx context.Context)) {
	w.t.Helper()
	c, err := inproc.NewConsumer(w.broker, w.worker, inproc.ConsumerConfig{Workers: map[string]int{"default": 2}})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.worker.Run(ctx, c) }()
	synctest.Wait()
	f(ctx)
	cancel()
	if err := <-done; err != nil {
		w.t.Error(err)
	}
}

// toEnd starts an execution with this ctx and waits for its end.
func (w *world) toEnd(ctx context.Context) (x *saga.Execution) {
	w.t.Helper()
	w.run(func(run context.Context) {
		s, err := w.saga.Start(ctx, saga.Resource{}, order{}, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		if x, err = w.worker.Wait(run, s.ID); err != nil {
			w.t.Fatal(err)
		}
	})
	return x
}

func attrs(s tracetest.SpanStub) map[attribute.Key]attribute.Value {
	m := map[attribute.Key]attribute.Value{}
	for _, kv := range s.Attributes {
		m[kv.Key] = kv.Value
	}
	return m
}

// A saga that fails and is compensated, over publishes and another process, is
// one trace: that of the caller of Start.
func TestExecutionIsOneTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans, provider := tracing()
		tel := newTelemetry(t, telemetry.Config{TracerProvider: provider})
		inner := func(ctx context.Context, _ *saga.Run[order]) error {
			_, span := provider.Tracer("app").Start(ctx, "call the bank")
			span.End()
			return nil
		}
		w := newWorld(t, tel, newTelemetry(t, telemetry.Config{TracerProvider: provider}), saga.Definition[order]{Name: "checkout", Steps: []step{
			{Name: "charge", Execute: inner, Compensate: ok},
			{Name: "ship", Execute: fails(saga.Fail(saga.Class("no_stock", errors.New("none left"))))},
		}})
		ctx, root := provider.Tracer("app").Start(t.Context(), "POST /orders")
		x := w.toEnd(ctx)
		root.End()
		if x.Status != store.StatusCompensated {
			t.Fatal(x.Status)
		}

		var names []string
		byName := map[string]tracetest.SpanStub{}
		for _, s := range spans.GetSpans() {
			names = append(names, s.Name)
			byName[s.Name] = s
			if s.SpanContext.TraceID() != root.SpanContext().TraceID() {
				t.Errorf("%s is in another trace", s.Name)
			}
		}
		want := []string{"call the bank", "execute checkout/charge", "execute checkout/ship", "compensate checkout/charge", "POST /orders"}
		if !slices.Equal(names, want) {
			t.Errorf("spans %q\nwant  %q", names, want)
		}
		for _, name := range []string{"execute checkout/charge", "execute checkout/ship", "compensate checkout/charge"} {
			s := byName[name]
			if s.Parent.SpanID() != root.SpanContext().SpanID() || s.SpanKind != trace.SpanKindConsumer || len(s.Links) > 0 {
				t.Errorf("%s: parent %s, kind %s, %d links", name, s.Parent.SpanID(), s.SpanKind, len(s.Links))
			}
		}
		if got, want := byName["call the bank"].Parent.SpanID(), byName["execute checkout/charge"].SpanContext.SpanID(); got != want {
			t.Errorf("the span in the step has parent %s, want %s", got, want)
		}
		ship := byName["execute checkout/ship"]
		if ship.Status.Code != codes.Error || ship.Status.Description != "none left" {
			t.Errorf("status %+v", ship.Status)
		}
		if s := byName["execute checkout/charge"].Status.Code; s != codes.Unset {
			t.Errorf("status of a success: %v", s)
		}
		got := attrs(ship)
		for key, want := range map[attribute.Key]string{
			"leveret.saga": "checkout", "leveret.step": "ship", "leveret.direction": "execute", "leveret.attempt": "1", "leveret.epoch": "0",
			"leveret.version": "1", "leveret.partition": "default", "leveret.execution.id": x.ID.String(),
			"leveret.outcome": "gave_up", "error.type": "no_stock", "leveret.in_doubt": "false",
		} {
			if v := got[key]; v.String() != want {
				t.Errorf("%s is %q, want %q", key, v.String(), want)
			}
		}
	})
}

// A start outside of any span makes one, so that its execution is one trace, too.
func TestStartWithoutASpanMakesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans, provider := tracing()
		tel := newTelemetry(t, telemetry.Config{TracerProvider: provider})
		w := newWorld(t, tel, tel, saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "charge", Execute: ok}, {Name: "ship", Execute: ok}}})
		w.toEnd(t.Context())
		got := spans.GetSpans()
		if len(got) != 3 || got[0].Name != "start saga" || got[0].SpanKind != trace.SpanKindProducer {
			t.Fatalf("%+v", got)
		}
		for _, s := range got[1:] {
			if s.Parent.SpanID() != got[0].SpanContext.SpanID() {
				t.Errorf("%s has parent %s", s.Name, s.Parent.SpanID())
			}
		}
	})
}

func TestSpansWithoutATraceOfTheStart(t *testing.T) {
	spans, provider := tracing()
	tel := newTelemetry(t, telemetry.Config{TracerProvider: provider})
	mw := tel.Middleware()
	next := func(context.Context) error { return nil }
	ctx, here := provider.Tracer("app").Start(t.Context(), "consume")
	for parent, wantKind := range map[string]trace.SpanKind{
		"": trace.SpanKindInternal, "no trace at all": trace.SpanKindInternal,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": trace.SpanKindConsumer,
	} {
		spans.Reset()
		call := &saga.Call{Execution: uuid.New(), Saga: "checkout", Step: "charge", Direction: store.DirectionExecute, TraceParent: parent}
		if err := mw(ctx, call, next); err != nil {
			t.Fatal(err)
		}
		s := spans.GetSpans()[0]
		if s.SpanKind != wantKind {
			t.Errorf("traceparent %q: kind %s", parent, s.SpanKind)
		}
		if wantKind == trace.SpanKindInternal {
			if s.Parent.SpanID() != here.SpanContext().SpanID() || len(s.Links) != 0 {
				t.Errorf("traceparent %q: parent %s, %d links", parent, s.Parent.SpanID(), len(s.Links))
			}
		} else if s.Parent.SpanID().String() != "00f067aa0ba902b7" || len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != here.SpanContext().SpanID() {
			t.Errorf("traceparent %q: parent %s, links %v", parent, s.Parent.SpanID(), s.Links)
		}
	}
}

func TestStatusOfASpanIsTheOutcome(t *testing.T) {
	spans, provider := tracing()
	mw := newTelemetry(t, telemetry.Config{TracerProvider: provider}).Middleware()
	call := &saga.Call{Saga: "checkout", Step: "charge", Direction: store.DirectionExecute}
	boom := errors.New("boom")
	for _, row := range []struct {
		err     error
		outcome string
		code    codes.Code
		class   string
	}{
		{nil, "succeeded", codes.Unset, ""},
		{boom, "failed", codes.Error, "boom"},
		{saga.Fail(boom), "gave_up", codes.Error, "boom"},
		{saga.Skip("done before"), "skipped", codes.Unset, ""},
		{saga.Complete("enough"), "completed", codes.Unset, ""},
		{saga.Snooze(time.Hour), "snoozed", codes.Unset, ""},
		{saga.Halt("look"), "halted", codes.Error, ""},
	} {
		spans.Reset()
		if err := mw(t.Context(), call, func(context.Context) error { return row.err }); err != row.err {
			t.Errorf("%v became %v", row.err, err)
		}
		s := spans.GetSpans()[0]
		if a := attrs(s); a["leveret.outcome"].AsString() != row.outcome || a["error.type"].AsString() != row.class || s.Status.Code != row.code {
			t.Errorf("%v: %v, status %+v", row.err, a, s.Status)
		}
	}
	spans.Reset()
	func() {
		defer func() {
			if recover() != "bang" {
				t.Error("the panic did not go through")
			}
		}()
		_ = mw(t.Context(), call, func(context.Context) error { panic("bang") })
	}()
	if s := spans.GetSpans(); len(s) != 1 || s[0].Status.Code != codes.Error || attrs(s[0])["error.type"].AsString() != "panic" {
		t.Errorf("of a panic: %+v", s)
	}
}

// A broken provider's tracer panics on every call.
type brokenProvider struct{ noop.TracerProvider }

type brokenTracer struct{ noop.Tracer }

func (brokenProvider) Tracer(string, ...trace.TracerOption) trace.Tracer { return brokenTracer{} }

func (brokenTracer) Start(context.Context, string, ...trace.SpanStartOption) (context.Context, trace.Span) {
	panic("broken")
}

func TestBrokenTracingDoesNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry(t, telemetry.Config{TracerProvider: brokenProvider{}})
		w := newWorld(t, tel, tel, saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "charge", Execute: ok}}})
		if x := w.toEnd(t.Context()); x.Status != store.StatusCompleted || x.TraceParent != "" {
			t.Errorf("%s, %q", x.Status, x.TraceParent)
		}
	})
}

func TestApplyKeepsWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans, provider := tracing()
		tel := newTelemetry(t, telemetry.Config{TracerProvider: provider})
		var seen []string
		cfg := saga.Config{
			Store: memory.New(), Logger: slog.New(slog.DiscardHandler),
			Middleware: []saga.Middleware{func(ctx context.Context, _ *saga.Call, next func(context.Context) error) error {
				if !trace.SpanContextFromContext(ctx).IsValid() {
					t.Error("the span does not stand outside")
				}
				seen = append(seen, "middleware")
				return next(ctx)
			}},
			Observe:     func(_ context.Context, ev saga.Event) { seen = append(seen, string(ev.Kind)) },
			TraceParent: func(context.Context) string { return "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" },
		}
		tel.Apply(&cfg)
		e, err := saga.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s, err := saga.Register(e, saga.Definition[order]{Name: "checkout", Steps: []step{{Name: "charge", Execute: ok}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		x, err := s.Start(ctx, saga.Resource{}, order{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Wait(ctx, x.ID); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := strings.Join(seen, " "); got != "saga.started saga.step.started middleware saga.step.finished saga.completed" {
			t.Error(got)
		}
		if got := spans.GetSpans(); len(got) != 1 || got[0].Parent.SpanID().String() != "00f067aa0ba902b7" {
			t.Errorf("%+v", got)
		}
	})
}
