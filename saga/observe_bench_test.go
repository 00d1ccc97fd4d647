package saga

import (
	"context"
	"log/slog"
	"testing"

	"github.com/leveret-go/leveret/store/memory"
)

// What an event costs the worker that emits it, by an observer that does
// nothing.
func BenchmarkEmit(b *testing.B) {
	e, err := New(Config{Store: memory.New(), Logger: slog.New(slog.DiscardHandler), Observe: func(context.Context, Event) {}})
	if err != nil {
		b.Fatal(err)
	}
	ev := Event{Kind: EventStepFinished, Saga: "checkout", Step: "charge"}
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			e.emit(b.Context(), ev)
		}
	})
	b.Run("many", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				e.emit(b.Context(), ev)
			}
		})
	})
}
