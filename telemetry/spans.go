package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/leveret-go/leveret/saga"
)

const header = "traceparent"

// startSpan is the name of the span of a start that belongs to no other one.
const startSpan = "start saga"

// Middleware returns one that makes a span of each attempt. It should stand
// outermost, as by [Telemetry.Apply].
//
// The span is named for direction, saga and step, such as "execute
// checkout/charge", and has them as attributes, with execution, version,
// partition, epoch, attempt and what the attempt came to ([saga.Call.Verdict]).
// Its parent is the span in which the execution was started, wherever that was,
// and its kind then consumer; if ctx carries another span, as that of a
// consumer, the two are linked. A failed attempt, one that gave up, halted or
// panicked, has the status error, with the error's class as error.type.
func (t *Telemetry) Middleware() saga.Middleware {
	return func(ctx context.Context, call *saga.Call, next func(context.Context) error) error {
		ctx, span := t.begin(ctx, call)
		returned := false
		defer func() {
			if !returned {
				quietly(func() {
					span.SetAttributes(keyOutcome.String(string(saga.VerdictFailed)), keyErrorType.String("panic"))
					span.SetStatus(codes.Error, "panic")
					span.End()
				})
			}
		}()
		err := next(ctx)
		returned = true
		quietly(func() { end(span, call.Verdict(err)) })
		return err
	}
}

func (t *Telemetry) begin(ctx context.Context, call *saga.Call) (in context.Context, span trace.Span) {
	in, span = ctx, noop.Span{}
	quietly(func() {
		opts := []trace.SpanStartOption{trace.WithAttributes(
			keySaga.String(call.Saga), keyStep.String(call.Step), keyDirection.String(string(call.Direction)),
			keyExecution.String(call.Execution.String()), keyVersion.Int(call.Version), keyPartition.String(call.Partition),
			keyEpoch.Int(call.Epoch), keyAttempt.Int(call.Attempt), keyInDoubt.Bool(call.InDoubt),
		)}
		parent := ctx
		if start := remote(call.TraceParent); start.IsValid() {
			if here := trace.SpanContextFromContext(ctx); here.IsValid() && here.SpanID() != start.SpanID() {
				opts = append(opts, trace.WithLinks(trace.Link{SpanContext: here}))
			}
			parent = trace.ContextWithRemoteSpanContext(ctx, start)
			opts = append(opts, trace.WithSpanKind(trace.SpanKindConsumer))
		}
		in, span = t.tracer.Start(parent, string(call.Direction)+" "+call.Saga+"/"+call.Step, opts...)
	})
	return in, span
}

func end(span trace.Span, v saga.Verdict) {
	attrs := []attribute.KeyValue{keyOutcome.String(string(v.Kind))}
	switch v.Kind {
	case saga.VerdictFailed, saga.VerdictGaveUp:
		if v.Failure != nil {
			attrs = append(attrs, keyErrorType.String(v.Failure.Class))
			span.SetStatus(codes.Error, v.Failure.Message)
		}
	case saga.VerdictHalted:
		span.SetStatus(codes.Error, "halted: "+v.Reason)
	}
	span.SetAttributes(attrs...)
	span.End()
}

// TraceParent is a [saga.Config.TraceParent]: it returns the trace context of
// ctx's span. When ctx has none it makes one for the start, so that the steps of
// the execution are in one trace all the same. It returns "" when there is no
// tracing.
func (t *Telemetry) TraceParent(ctx context.Context) (parent string) {
	quietly(func() {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			var span trace.Span
			ctx, span = t.tracer.Start(ctx, startSpan, trace.WithSpanKind(trace.SpanKindProducer))
			defer span.End()
		}
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		parent = carrier[header]
	})
	return parent
}

// remote reads a trace context; what is none is not valid.
func remote(parent string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{header: parent})
	return trace.SpanContextFromContext(ctx)
}
