package saga_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
)

// A deafPost takes a minute to tell a depth, whatever becomes of ctx.
type deafPost struct {
	loud
	mu             sync.Mutex
	now, most, all int // calls under way, at most, and in all
}

func (d *deafPost) note(now, all int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.all = d.now+now, d.all+all
	d.most = max(d.most, d.now)
}

func (d *deafPost) counts() (most, all int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most, d.all
}

func (d *deafPost) Depth(context.Context, string) (int, int, error) {
	d.note(1, 1)
	defer d.note(-1, 0)
	<-time.After(time.Minute)
	return 0, 1, nil
}

// A probe that ignores the end of its ctx holds up nothing, and is not begun
// again while it hangs.
func TestAProbeThatIgnoresItsCtx(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &deafPost{}
		r := newRig(t, saga.Config{Publisher: p}, saga.Step[order]{Name: "a", Execute: ok})
		id := r.start(t.Context())
		r.in(t.Context(), "p1")
		r.in(t.Context(), "p2")
		begun := time.Now()
		h := r.e.Health(t.Context())
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("health took %v: %+v", took, h)
		}
		if !slices.Contains(h.Unasked, saga.HealthBacklog) {
			t.Errorf("%+v", h)
		}
		begun = time.Now()
		if d, err := r.e.Diagnose(t.Context(), id); err != nil || d.Code == saga.DiagnosisLost {
			t.Errorf("%+v, %v", d, err)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("diagnose took %v while a probe hangs", took)
		}
		for range 10 {
			r.e.Health(t.Context())
		}
		if most, all := p.counts(); most > 3 || all != 3 {
			t.Errorf("%d probes, %d at once, of 3 partitions", all, most)
		}
		pass(2 * time.Minute)
		_, err := r.e.Diagnose(t.Context(), id)
		if _, all := p.counts(); err != nil || all != 4 {
			t.Errorf("%d probes after they have come back, %v", all, err)
		}
		pass(2 * time.Minute)
		runEngine(t, r.e, func(context.Context) { pass(10 * time.Minute) })
		most, _ := p.counts()
		if s := r.e.Stats().Sweep; s.Sweeps < 30 || most > 3 {
			t.Errorf("%d sweeps, %d probes at once", s.Sweeps, most)
		}
		pass(2 * time.Minute)
	})
}

// A slowPost waits for the end of ctx.
type slowPost struct{ loud }

func (*slowPost) Depth(ctx context.Context, _ string) (int, int, error) {
	<-ctx.Done()
	return 0, 0, ctx.Err()
}

// Queues that do not answer hold up a list's diagnoses once, not each.
func TestDiagnoseAllIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{Publisher: &slowPost{}}, saga.Step[order]{Name: "a", Execute: ok})
		var xs []*saga.Execution
		for i := range 20 {
			xs = append(xs, r.get(r.in(t.Context(), fmt.Sprintf("p%d", i))))
		}
		begun := time.Now()
		if all, err := r.e.DiagnoseAll(t.Context(), xs); err != nil || len(all) != 20 {
			t.Errorf("%d, %v", len(all), err)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// What the broker did not tell in time is not known.
func TestHealthSaysWhatItCouldNotAsk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{Publisher: &slowPost{}}, saga.Step[order]{Name: "a", Execute: ok})
		r.start(t.Context())
		if h := r.e.Health(t.Context()); !slices.Contains(h.Unasked, saga.HealthBacklog) {
			t.Errorf("%+v", h)
		}
	})
}
