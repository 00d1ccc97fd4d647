package saga_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/memory"
)

type pooled struct {
	*memory.Store
	size int
}

func (p pooled) PoolSize() int { return p.size }

type crew struct{ n int }

func (c crew) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (c crew) Workers() int                  { return c.n }

func TestRunWarnsWhenThePoolIsTooSmallForTheWorkers(t *testing.T) {
	for _, tt := range []struct {
		size, workers int
		warns         bool
	}{{4, 10, true}, {10, 10, false}} {
		bubble(t, func(t *testing.T) {
			var log bytes.Buffer
			cfg := saga.Config{Store: pooled{memory.New(), tt.size}, Publisher: &lostPost{}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
			r := newRig(t, cfg, saga.Step[order]{Name: "a", Execute: ok})
			runEngineWith(t, r.e, func(context.Context) {}, crew{tt.workers - 3}, crew{3})
			if got := strings.Contains(log.String(), "pool is smaller"); got != tt.warns {
				t.Errorf("pool of %d, %d workers: warned %v, want %v\n%s", tt.size, tt.workers, got, tt.warns, &log)
			}
		})
	}
}
