package saga_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A brokenStore fails as many calls of WithLock as it is told to.
type brokenStore struct {
	store.Store
	fails atomic.Int64
}

func (s *brokenStore) WithLock(ctx context.Context, id uuid.UUID, f func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if s.fails.Add(-1) >= 0 {
		return nil, errors.New("connection refused")
	}
	return s.Store.WithLock(ctx, id, f)
}

// In an outage each of many workers tries again and again; its log must not be
// what fills the disk.
func TestOutageIsLoggedOnceForEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &brokenStore{Store: memory.New()}
		var log strings.Builder // written to by the one worker, read after the end
		r := newRig(t, saga.Config{Store: st, Workers: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))},
			saga.Step[order]{Name: "reserve", Execute: func(context.Context, *saga.Run[order]) error {
				st.fails.Store(20)
				return nil
			}})
		if x := r.runOne(); x.Status != store.StatusCompleted {
			t.Errorf("status %s", x.Status)
		}
		if left := st.fails.Load(); left >= 0 {
			t.Errorf("%d calls are left that were to fail", left)
		}
		if n := strings.Count(log.String(), "connection refused"); n != 1 {
			t.Errorf("the outage was logged %d times, want once:\n%s", n, log.String())
		}
	})
}
