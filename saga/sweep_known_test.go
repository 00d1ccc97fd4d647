package saga_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// Two engines without a transport share a store, and each knows another saga:
// neither takes, and puts off, what is the other's.
func TestEnginesLeaveEachOthersSagas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		r1 := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: ok})
		r2 := newRigFor(t, saga.Config{Store: st}, saga.Definition[order]{Name: "other", Steps: []saga.Step[order]{{Name: "a", Execute: ok}}})
		runEngine(t, r1.e, func(ctx context.Context) {
			runEngine(t, r2.e, func(ctx context.Context) {
				var ids []uuid.UUID
				for range 10 {
					ids = append(ids, r1.start(ctx), r2.start(ctx))
				}
				for _, id := range ids {
					if x := r1.wait(ctx, id); x.Status != store.StatusCompleted || x.FinishedAt.Sub(x.CreatedAt) > 3*time.Second {
						t.Errorf("%s: %s after %v", x.Saga, x.Status, x.FinishedAt.Sub(x.CreatedAt))
					}
				}
			})
		})
	})
}
