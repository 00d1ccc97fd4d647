package amqp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The connections of a process come back together: one that publishes while the
// other does not consume yet fills the queue with what nobody takes.
func TestLinkTriesAtOnceWhenAnotherGetsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		cfg := Config{
			URLs: []string{"amqp://localhost/"}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Auth: func(context.Context) (string, string, error) {
				dials.Add(1)
				return "", "", errors.New("not now")
			},
		}
		cfg.fill()
		var answers watched[struct{}]
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		l := newLink(&cfg, &answers, "consume", nil, func(error) {})
		go l.run(ctx)
		<-time.After(10 * time.Minute) // the tries are far apart by now
		synctest.Wait()

		before, at := dials.Load(), time.Now()
		answers.set(struct{}{})
		synctest.Wait()
		if n := dials.Load() - before; n != 1 || !time.Now().Equal(at) {
			t.Errorf("%d tries in %v after another link got through, want 1 at once", n, time.Since(at))
		}

		// Links whose sessions end at once do not wake each other for ever.
		for range 10 {
			answers.set(struct{}{})
			synctest.Wait()
		}
		if n := dials.Load() - before; n != 1 {
			t.Errorf("%d tries at once although none of them came to anything, want 1", n)
		}
	})
}
