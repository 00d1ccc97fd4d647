package amqp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
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

// While a broker is away the tries are never further apart than
// Config.Reconnect, nor much closer; a refusal is asked about more rarely.
func TestTriesWhileTheBrokerIsAway(t *testing.T) {
	for name, row := range map[string]struct {
		err         error
		least, most time.Duration // of the waits in the end
	}{
		"away":    {errors.New("connection refused"), time.Second, 2 * time.Second},
		"refused": {&refusal{err: errors.New("403")}, 15 * time.Second, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tries []time.Time
				cfg := Config{
					URLs: []string{"amqp://localhost/"}, Logger: slog.New(slog.DiscardHandler),
					Auth: func(context.Context) (string, string, error) {
						tries = append(tries, time.Now())
						return "", "", row.err
					},
				}
				cfg.fill()
				ctx, stop := context.WithCancel(t.Context())
				l := newLink(&cfg, &watched[struct{}]{}, "consume", nil, func(error) {})
				over := make(chan struct{})
				go func() {
					defer close(over)
					l.run(ctx)
				}()
				<-time.After(10 * time.Minute)
				stop()
				<-over
				if first := tries[1].Sub(tries[0]); first > refusedFirst {
					t.Errorf("the first wait is %v", first)
				}
				for i := 10; i < len(tries); i++ {
					if wait := tries[i].Sub(tries[i-1]); wait < row.least || wait > row.most {
						t.Errorf("wait %d is %v, want %v to %v", i, wait, row.least, row.most)
					}
				}
			})
		})
	}
}

// What goes wrong is logged once a minute, also when two kinds of it alternate, and from the start
// again after all was well.
func TestTroubleIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		trouble := trouble{log: slog.New(slog.NewTextHandler(&log, nil))}
		lines := func() int { return strings.Count(log.String(), "\n") }
		alternate := func() {
			for range 10 {
				trouble.warn("trouble", &amqp091.Error{Code: 501, Reason: "EOF"})
				trouble.warn("trouble", errors.New("connection reset"))
				<-time.After(time.Second)
			}
		}
		alternate()
		if n := lines(); n != 2 {
			t.Errorf("%d lines within a minute, want one of each kind", n)
		}
		<-time.After(time.Minute)
		alternate()
		if n := lines(); n != 4 {
			t.Errorf("%d lines within two minutes, want two of each kind", n)
		}
		trouble.over()
		alternate()
		if n := lines(); n != 6 {
			t.Errorf("%d lines after all was well, want one more of each kind", n)
		}
	})
}
