package telemetry

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
)

// The attributes of spans and metrics.
const (
	keySaga      = attribute.Key("leveret.saga")
	keyStep      = attribute.Key("leveret.step")
	keyDirection = attribute.Key("leveret.direction")
	keyStatus    = attribute.Key("leveret.status")
	keyOutcome   = attribute.Key("leveret.outcome")
	keyReason    = attribute.Key("leveret.reason")
	keyPartition = attribute.Key("leveret.partition")
	keyGate      = attribute.Key("leveret.gate")

	// Of spans alone.
	keyExecution = attribute.Key("leveret.execution.id")
	keyVersion   = attribute.Key("leveret.version")
	keyEpoch     = attribute.Key("leveret.epoch")
	keyAttempt   = attribute.Key("leveret.attempt")
	keyInDoubt   = attribute.Key("leveret.in_doubt")
	keyErrorType = attribute.Key("error.type")
)

// What a process tells apart in metrics, at most. A service has less; but names
// of sagas and partitions that are made up while it runs must not become time
// series without end.
const (
	maxSteps      = 1000
	maxPartitions = 100
	other         = "other"
)

// A stepName is a step, or with step "" a saga.
type stepName struct{ saga, step string }

// bounded are the first values that came, so and so many.
type bounded[T comparable] struct {
	most int

	mu   sync.Mutex
	seen map[T]struct{}
}

// has reports whether v is one of them.
func (b *bounded[T]) has(v T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.seen[v]; ok {
		return true
	}
	if len(b.seen) >= b.most {
		return false
	}
	if b.seen == nil {
		b.seen = map[T]struct{}{}
	}
	b.seen[v] = struct{}{}
	return true
}

func (b *bounded[T]) all() (values []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v := range b.seen {
		values = append(values, v)
	}
	return values
}

func (t *Telemetry) sagaLabel(saga string) attribute.KeyValue {
	if !t.steps.has(stepName{saga: saga}) {
		saga = other
	}
	return keySaga.String(saga)
}

func (t *Telemetry) stepLabels(saga, step string) []attribute.KeyValue {
	if !t.steps.has(stepName{saga, step}) {
		saga, step = other, other
	}
	return []attribute.KeyValue{keySaga.String(saga), keyStep.String(step)}
}
