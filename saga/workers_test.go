package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// setRecord writes the record of a worker that is not there.
func setRecord(t *testing.T, st store.Store, w *saga.WorkerInfo) {
	t.Helper()
	b, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	cells, _ := store.As[store.Cells](st)
	if _, err := cells.SetCell(t.Context(), "worker/"+w.ID, b, 0); err != nil {
		t.Fatal(err)
	}
}

// theWorker returns the one record that there is.
func (r *rig) theWorker() saga.WorkerInfo {
	r.t.Helper()
	ws, err := r.e.Workers(r.t.Context())
	if err != nil || len(ws) != 1 {
		r.t.Fatalf("%+v, %v", ws, err)
	}
	return ws[0]
}

// In JSON a worker says how often it writes in seconds, and whether it lives.
func TestWorkerInfoInJSON(t *testing.T) {
	w := saga.WorkerInfo{ID: "host:1/aa", Every: 2500 * time.Millisecond, Alive: true, Partitions: map[string]int{"shop": 4}, Running: 2}
	b, err := json.Marshal([]saga.WorkerInfo{w})
	if err != nil || !strings.Contains(string(b), `"every_seconds":2.5`) || !strings.Contains(string(b), `"alive":true`) {
		t.Errorf("%s, %v", b, err)
	}
	var back []saga.WorkerInfo
	if err := json.Unmarshal(b, &back); err != nil || len(back) != 1 || back[0].Every != w.Every || back[0].Partitions["shop"] != 4 || back[0].Running != 2 {
		t.Errorf("%+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"id":7}`), &w); err == nil || w.ID != "host:1/aa" {
		t.Errorf("of another build: %v, %+v", err, w)
	}
}

// The record says what runs, the oldest first, and whether the worker is paused or
// about to end.
func TestRecordSaysWhatAWorkerDoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{Grace: time.Minute}, saga.Step[order]{Name: "a", Execute: takes(time.Minute)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.e.Run(ctx) }()
		begun := time.Now()
		first := r.start(ctx)
		pass(10 * time.Second)
		second := r.start(ctx)
		pass(10 * time.Second)
		w := r.theWorker()
		if w.Running != 2 || len(w.Attempts) != 2 || w.Attempts[0].Execution != first || w.Attempts[1].Execution != second || w.Paused || w.Draining {
			t.Fatalf("%+v", w)
		}
		if a := w.Attempts[0]; a.Saga != "checkout" || a.Step != "a" || a.Direction != store.DirectionExecute || a.Attempt != 1 || a.Since.Sub(begun) > time.Second {
			t.Errorf("%+v", a)
		}
		r.pause(saga.Scope{Worker: w.Name})
		pass(10 * time.Second)
		cancel()
		pass(10 * time.Second)
		if w = r.theWorker(); !w.Paused || !w.Draining || w.Running != 2 || !w.Alive {
			t.Errorf("at its end: %+v", w)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A record that is not as its worker left it is taken over, and removed at the end.
func TestRecordThatSomebodyElseChanged(t *testing.T) {
	for name, value := range map[string]json.RawMessage{"rewritten": json.RawMessage(`{"id":7}`), "removed": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := memory.New()
				r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: ok})
				change := func() {
					t.Helper()
					cell := "worker/" + r.e.Worker()
					_, revision, err := st.Cell(t.Context(), cell)
					if err == nil {
						_, err = st.SetCell(t.Context(), cell, value, revision)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				runEngine(t, r.e, func(context.Context) {
					pass(20 * time.Second)
					change()
					if ws, err := r.e.Workers(t.Context()); err != nil || len(ws) != 0 {
						t.Errorf("%+v, %v", ws, err)
					}
					pass(10 * time.Second)
					if w := r.theWorker(); w.ID != r.e.Worker() || !w.Alive {
						t.Errorf("%+v", w)
					}
					change()
				})
				if cells, err := st.ListCells(t.Context(), "worker/"); err != nil || len(cells) != 0 {
					t.Errorf("%+v, %v", cells, err)
				}
			})
		})
	}
}

// Nothing depends on the record: an engine works on a store that has no cells.
func TestWorkersWithoutCells(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{Store: plainStore{memory.New()}}, saga.Step[order]{Name: "a", Execute: ok})
		if _, err := r.e.Workers(t.Context()); !errors.Is(err, saga.ErrNotSupported) {
			t.Error(err)
		}
		r.runOne()
	})
}

// hungCells hangs, once told to, in calls of cells until their ctx ends.
type hungCells struct {
	*memory.Store
	hang chan struct{}
}

func (h *hungCells) wait(ctx context.Context) error {
	select {
	case <-h.hang:
		<-ctx.Done()
		return ctx.Err()
	default:
		return nil
	}
}

func (h *hungCells) SetCell(ctx context.Context, name string, v json.RawMessage, revision int64) (int64, error) {
	if err := h.wait(ctx); err != nil {
		return 0, err
	}
	return h.Store.SetCell(ctx, name, v, revision)
}

func (h *hungCells) Cell(ctx context.Context, name string) (json.RawMessage, int64, error) {
	if err := h.wait(ctx); err != nil {
		return nil, 0, err
	}
	return h.Store.Cell(ctx, name)
}

// A shutdown waits for a store that hangs no longer than it takes to give the
// removal of the record up.
func TestShutdownWhileCellsHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &hungCells{memory.New(), make(chan struct{})}
		r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: ok})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.e.Run(ctx) }()
		pass(20 * time.Second)
		close(st.hang)
		pass(6 * time.Second)
		cancel()
		begun := time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("Run took %v to return", took)
		}
	})
}
