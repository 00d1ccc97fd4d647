package saga

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A WorkerInfo is what an engine that runs says of itself: its record in the
// store, written every few seconds and removed when Run ends.
type WorkerInfo struct {
	// ID is the name under which it opens attempts, Name that without the part
	// that each start makes anew: what [Engine.Pause] takes.
	ID   string `json:"id"`
	Name string `json:"name"`
	Host string `json:"host"`
	PID  int    `json:"pid"`

	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"seen_at"`
	// SweptAt is when it last looked for due executions without an error, or
	// got on with what it had found; zero: not yet.
	SweptAt time.Time `json:"swept_at,omitzero"`
	// Every is how often the record is written; in JSON it is every_seconds.
	Every time.Duration `json:"-"`
	// Paused says that it takes no new work.
	Paused bool `json:"paused,omitempty"`
	// Draining says that Run's ctx has ended and steps still run.
	Draining bool `json:"draining,omitempty"`

	// Partitions says how many workers each partition has; "" stands for all
	// of them, where there is no transport.
	Partitions map[string]int `json:"partitions"`
	// Sagas are those registered there. Of very many their steps are left out,
	// and at last they themselves: then Cut is set.
	Sagas []WorkerSaga `json:"sagas"`
	Cut   bool         `json:"cut,omitempty"`
	// Running is how many attempts run there, and Attempts the oldest of them,
	// at most 50.
	Running  int             `json:"running"`
	Attempts []WorkerAttempt `json:"attempts,omitempty"`

	// Alive says that the record was not older than three times Every and a
	// lease when it was read.
	Alive bool `json:"alive"`
}

// workerJSON is a WorkerInfo as JSON has it.
type workerJSON struct {
	plainWorker
	EverySeconds float64 `json:"every_seconds"`
}

type plainWorker WorkerInfo // without methods

// MarshalJSON implements [json.Marshaler].
func (w WorkerInfo) MarshalJSON() ([]byte, error) {
	return json.Marshal(workerJSON{plainWorker(w), w.Every.Seconds()})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (w *WorkerInfo) UnmarshalJSON(b []byte) error {
	v := workerJSON{plainWorker: plainWorker(*w)}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*w = WorkerInfo(v.plainWorker)
	w.Every = time.Duration(v.EverySeconds * float64(time.Second))
	return nil
}

// A WorkerSaga is a version of a saga that a worker knows, with all the names of
// its steps.
type WorkerSaga struct {
	Saga    string   `json:"saga"`
	Version int      `json:"version"`
	Steps   []string `json:"steps,omitempty"`
}

// A WorkerAttempt is an attempt that runs at a worker.
type WorkerAttempt struct {
	Execution uuid.UUID `json:"execution"`
	Saga      string    `json:"saga"`
	Step      string    `json:"step"`
	Direction Direction `json:"direction"`
	Attempt   int       `json:"attempt"`
	Since     time.Time `json:"since,omitzero"` // zero: of an older build
}

const (
	workerPrefix    = "worker/"
	workerAttempts  = 50
	recordTimeout   = 2 * time.Second // for removing a record: a shutdown waits for it
	workerForgotten = 24 * time.Hour  // a record that old is removed
	workerSize      = 512 * 1024      // bytes of a record: half of what a cell holds
)

// Workers lists the engines that run on this store, or were running when they
// were last heard of, by ID. It returns [ErrNotSupported] when the store has no
// store.Cells.
func (e *Engine) Workers(ctx context.Context) ([]WorkerInfo, error) {
	cells, ok := store.As[store.Cells](e.store)
	if !ok {
		return nil, fmt.Errorf("saga: workers: %w: it has no store.Cells", ErrNotSupported)
	}
	if err := e.clock.ready(ctx); err != nil {
		return nil, err
	}
	list, err := cells.ListCells(ctx, workerPrefix)
	if err != nil {
		return nil, fmt.Errorf("saga: workers: %w", err)
	}
	now := e.clock.now()
	out := []WorkerInfo{}
	for _, c := range list {
		var w WorkerInfo
		if json.Unmarshal(c.Value, &w) != nil {
			continue // of another build
		}
		w.Alive = now.Sub(w.SeenAt) <= 3*w.Every+e.cfg.Lease
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b WorkerInfo) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// knows reports whether the worker can work on an execution's cursor.
func (w *WorkerInfo) knows(x *store.Execution) bool {
	return w.Cut && len(w.Sagas) == 0 || slices.ContainsFunc(w.Sagas, func(s WorkerSaga) bool {
		return s.Saga == x.Saga && (x.Version == 0 || s.Version == x.Version) &&
			(x.Step == "" || len(s.Steps) == 0 || slices.Contains(s.Steps, x.Step))
	})
}

// attends reports whether the worker takes work of a partition.
func (w *WorkerInfo) attends(partition string) bool {
	return !w.Paused && !w.Draining && (w.Partitions[partition] > 0 || w.Partitions[""] > 0)
}

// A record is what this process writes of itself while Run runs.
type record struct {
	info     WorkerInfo
	revision int64
}

// heartbeat is how often the record is written.
func (cfg *Config) heartbeat() time.Duration {
	return min(max(min(cfg.Lease/3, 5*cfg.SweepEvery), 200*time.Millisecond), time.Minute)
}

// recordLoop writes this process's record until ctx is done, and then removes
// it. Errors of the store are logged: nothing depends on the record.
func (e *Engine) recordLoop(ctx context.Context, consumers []Runner) {
	cells, ok := store.As[store.Cells](e.store)
	if !ok {
		return
	}
	r := &record{info: e.newInfo(consumers)}
	outlined := -1 // how many sagas' outlines are in the store
	for {
		e.writeRecord(ctx, cells, r)
		if n := e.definitions(); n != outlined { // at the start, and what is registered later
			if err := e.storeOutlines(ctx); err == nil {
				outlined = n
			} else if ctx.Err() == nil {
				e.warn("saga: store the outlines", "error", err)
			}
		}
		if !sleep(ctx, r.info.Every) {
			break
		}
	}
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := r.write(rctx, cells, nil); err != nil {
		e.warn("saga: remove the worker's record", "error", err)
	}
}

// cellName keeps a worker's name within what a cell's name may be.
func cellName(worker string) string {
	return truncate(strings.ToValidUTF8(worker, "?"), 150)
}

func (e *Engine) newInfo(consumers []Runner) WorkerInfo {
	host, err := os.Hostname()
	if err != nil || !cleanText(host) {
		host = "unknown"
	}
	name := e.worker
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[:i]
	}
	w := WorkerInfo{
		ID: e.worker, Name: name, Host: host, PID: os.Getpid(), StartedAt: e.clock.now(), Every: e.cfg.heartbeat(),
		Partitions: map[string]int{}, Sagas: []WorkerSaga{},
	}
	if e.pub == nil {
		w.Partitions[""] = e.cfg.Workers
	}
	for _, c := range consumers {
		if p, ok := c.(interface{ Partitions() map[string]int }); ok {
			for name, n := range p.Partitions() {
				w.Partitions[name] += n
			}
		}
	}
	return w
}

func (e *Engine) writeRecord(ctx context.Context, cells store.Cells, r *record) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	w := &r.info
	w.SeenAt, w.SweptAt, w.Alive = e.clock.now(), e.stats.lookedAt(), true
	taking, _ := e.gate.taking()
	w.Paused, w.Draining = !taking, e.life.isDraining()
	w.Sagas, w.Cut = e.knownSagas(), false
	w.Running, w.Attempts = e.sessions.running()
	b, err := w.encode()
	if err == nil {
		err = r.write(ctx, cells, b)
	}
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // Run ends
			e.warn("saga: write the worker's record", "error", err)
		}
		return
	}
	e.heard.Store(time.Now().UnixNano())
	e.forgetWorkers(ctx, cells)
}

// encode returns the record as JSON, with as much about its sagas as there is
// room for.
func (w *WorkerInfo) encode() (json.RawMessage, error) {
	b, err := json.Marshal(w)
	if err == nil && len(b) > workerSize {
		w.Cut = true
		for i := range w.Sagas {
			w.Sagas[i].Steps = nil
		}
		b, err = json.Marshal(w)
	}
	if err == nil && len(b) > workerSize {
		w.Sagas = []WorkerSaga{}
		b, err = json.Marshal(w)
	}
	return b, err
}

// write sets the cell, or deletes it when b is nil; when it is not as this
// process left it, after a write of which nobody knows what became of it, it
// takes it over.
func (r *record) write(ctx context.Context, cells store.Cells, b json.RawMessage) error {
	name := workerPrefix + cellName(r.info.ID)
	revision, err := cells.SetCell(ctx, name, b, r.revision)
	if errors.Is(err, store.ErrConflict) {
		_, revision, err = cells.Cell(ctx, name)
		if err == nil && (b != nil || revision != 0) {
			revision, err = cells.SetCell(ctx, name, b, revision)
		}
	}
	if err == nil {
		r.revision = revision
	}
	return err
}

// forgetWorkers removes, now and then, the records of those that died long ago.
func (e *Engine) forgetWorkers(ctx context.Context, cells store.Cells) {
	now := e.clock.now()
	if now.Sub(e.forgot) < time.Hour {
		return
	}
	e.forgot = now
	list, err := cells.ListCells(ctx, workerPrefix)
	if err != nil {
		return // the next hour will do
	}
	for _, c := range list {
		var w WorkerInfo
		if json.Unmarshal(c.Value, &w) == nil && now.Sub(w.SeenAt) > workerForgotten {
			_, _ = cells.SetCell(ctx, c.Name, nil, c.Revision)
		}
	}
}

func (e *Engine) knownSagas() []WorkerSaga {
	out := []WorkerSaga{}
	for _, o := range e.Outlines() {
		s := WorkerSaga{Saga: o.Saga, Version: o.Version}
		for _, list := range [][]OutlineStep{o.Steps, o.Removed} {
			for _, step := range list {
				s.Steps = append(append(s.Steps, step.Name), step.Was...)
			}
		}
		out = append(out, s)
	}
	return out
}

// running lists what runs here, the oldest first.
func (ss *sessions) running() (n int, out []WorkerAttempt) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for l, s := range ss.open {
		out = append(out, WorkerAttempt{Execution: l.Execution, Saga: s.saga, Step: l.Step, Direction: l.Direction, Attempt: l.Number, Since: s.since})
	}
	slices.SortFunc(out, func(a, b WorkerAttempt) int {
		return cmp.Or(a.Since.Compare(b.Since), slices.Compare(a.Execution[:], b.Execution[:]))
	})
	return len(out), out[:min(len(out), workerAttempts)]
}
