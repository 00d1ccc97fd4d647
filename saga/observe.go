package saga

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// emit tells logger and observer of an event. Neither can do harm.
func (e *Engine) emit(ctx context.Context, ev Event) {
	e.reports.note(&ev)
	defer func() { _ = recover() }()
	level := slog.LevelDebug
	switch ev.Kind {
	case EventStepFailed, EventAttemptAbandoned, EventStepStuck, EventHalted, EventReopened,
		EventPointerUnknown, EventPointerUnroutable, EventPointerUnpublished, EventResumed, EventAttemptLate:
		level = slog.LevelWarn
	case EventFailed, EventCompensationFailed, EventStepStray, EventPointerDead:
		level = slog.LevelError
	case EventActDone, EventActRequested, EventCancelled:
		level = slog.LevelInfo
	}
	func() {
		defer func() { _ = recover() }()
		if !e.log.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{slog.String("execution", ev.Execution.String()), slog.String("saga", ev.Saga)}
		text := func(key, v string) {
			if v != "" {
				attrs = append(attrs, slog.String(key, v))
			}
		}
		text("status", string(ev.Status))
		text("step", ev.Step)
		text("direction", string(ev.Direction))
		attrs = append(attrs, slog.Int("epoch", ev.Epoch))
		if ev.Attempt > 0 {
			attrs = append(attrs, slog.Int("attempt", ev.Attempt))
		}
		if ev.Took > 0 {
			attrs = append(attrs, slog.Duration("took", ev.Took))
		}
		text("reason", ev.Reason)
		if ev.Err != nil {
			text("error", cut(ev.Err.Error(), maxMessage))
		}
		e.log.LogAttrs(ctx, level, string(ev.Kind), attrs...)
	}()
	e.deliveries.deliver(ctx, ev)
}

// warn logs what has no event: trouble of the engine itself.
func (e *Engine) warn(msg string, args ...any) {
	defer func() { _ = recover() }()
	e.log.Warn(msg, args...)
}

// waiters are the calls of Wait, told when an execution has ended here.
type waiters struct {
	mu sync.Mutex
	m  map[uuid.UUID][]chan struct{}
}

func (w *waiters) add(id uuid.UUID) chan struct{} {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.m[id] = append(w.m[id], c)
	return c
}

func (w *waiters) remove(id uuid.UUID, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := slices.DeleteFunc(w.m[id], func(d chan struct{}) bool { return c == d }); len(l) > 0 {
		w.m[id] = l
	} else {
		delete(w.m, id)
	}
}

func (w *waiters) tell(id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.m[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
