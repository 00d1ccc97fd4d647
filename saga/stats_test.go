package saga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/memory"
)

func TestStatsCountAttemptsAndLostLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &cutOff{Store: memory.New()}
		r := newRig(t, saga.Config{Store: st, Lease: 30 * time.Second}, saga.Step[order]{Name: "a", Execute: func(ctx context.Context, run *saga.Run[order]) error {
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Second):
			}
			return nil
		}})
		runEngine(t, r.e, func(ctx context.Context) {
			r.start(ctx)
			r.start(ctx)
			pass(time.Second)
			if s := r.e.Stats(); s.Running != 2 || s.Attempts != 2 || s.LeasesLost != 0 {
				t.Errorf("two run: %+v", s)
			}
			st.off.Store(true)
			pass(40 * time.Second)
			st.off.Store(false)
			if s := r.e.Stats(); s.LeasesLost != 2 {
				t.Errorf("cut off for longer than a lease: %+v", s)
			}
			pass(3 * time.Minute)
			if s := r.e.Stats(); s.Running != 0 || s.LeasesLost != 2 {
				t.Errorf("at the end: %+v", s)
			}
		})
	})
}

func TestStatsTellOfTheLastSweep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, post := range map[string]*lostPost{"sweep": {consumers: 1}, "without a publisher": nil} {
			cfg := saga.Config{SweepEvery: 10 * time.Second}
			consumers := []saga.Runner{}
			if post != nil {
				cfg.Publisher = post
				consumers = append(consumers, idle{})
			}
			r := newRig(t, cfg, saga.Step[order]{Name: "a", Execute: results(saga.Snooze(time.Hour))})
			if s := r.e.Stats().Sweep; s != (saga.SweepStats{}) {
				t.Errorf("%s: before Run: %+v", name, s)
			}
			id := r.start(t.Context())
			if post == nil {
				pass(5 * time.Second) // nobody works
				runEngine(t, r.e, func(context.Context) {
					if s := r.e.Stats().Sweep; s.Claimed != 1 || s.Lag != 5*time.Second || s.Sweeps != 1 || s.EndedAt.IsZero() {
						t.Errorf("%s: found due since 5 s: %+v", name, s)
					}
				})
				pass(90 * time.Minute)
				runEngine(t, r.e, func(context.Context) {
					if s := r.e.Stats().Sweep; s.Claimed != 1 || s.Lag < 30*time.Minute || s.Lag > 31*time.Minute {
						t.Errorf("%s: found awake since 30 min: %+v", name, s)
					}
				})
				continue
			}
			runEngineWith(t, r.e, func(ctx context.Context) {
				if s := r.e.Stats().Sweep; s.Claimed != 0 || s.Lag != 0 || s.Sweeps != 1 {
					t.Errorf("%s: nothing due: %+v", name, s)
				}
				// Pointers that were offered before are looked at again and again
				// without being late.
				post.set(func() { post.ready = 1 })
				pass(10 * time.Minute)
				if s := r.e.Stats().Sweep; s.Lag != 0 || s.Sweeps < 40 || s.Age > 12*time.Second || time.Since(s.EndedAt) != s.Age {
					t.Errorf("%s: %+v", name, s)
				}
				_ = id
			}, consumers...)
		}
	})
}

func TestDepthOfAPublisher(t *testing.T) {
	post := &lostPost{ready: 3, consumers: 2}
	e, err := saga.New(saga.Config{Store: memory.New(), Publisher: post, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if ready, consumers, err := e.Depth(t.Context(), "default"); ready != 3 || consumers != 2 || err != nil {
		t.Errorf("depth %d, %d, %v", ready, consumers, err)
	}
	if _, _, err := e.Depth(t.Context(), "No Partition"); !errors.Is(err, saga.ErrInvalid) {
		t.Errorf("of a bad partition: %v", err)
	}
	post.unknown = true
	if _, _, err := e.Depth(t.Context(), "default"); err == nil {
		t.Error("an unknown depth is no error")
	}
	none, err := saga.New(saga.Config{Store: memory.New(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := none.Depth(t.Context(), "default"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without a publisher: %v", err)
	}
}
