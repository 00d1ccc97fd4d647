package saga

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store"
)

const (
	sweepBatch   = 100
	sweepLooks   = 4               // at once, at executions that were offered before
	depthFor     = 2 * time.Second // how long a queue's depth is taken as still true
	queuedCap    = time.Hour
	noConsumeCap = 2 * time.Minute
)

// sweeper publishes the pointers of executions that come due. One sweep over
// due times heals everything: lost pointers, dead workers, retries.
type sweeper struct {
	e     *Engine
	depth map[string]depth
	// attended is since when a partition is known to have had a consumer
	// without interruption; what was offered before may have been offered to
	// nobody.
	attended map[string]time.Time
}

type depth struct {
	ready, consumers int
	known            bool
	at               time.Time
}

// sweepLoop sweeps until ctx is done. It goes on after any error of the store.
func (e *Engine) sweepLoop(ctx context.Context) {
	s := &sweeper{e: e, depth: map[string]depth{}, attended: map[string]time.Time{}}
	a := e.alarms.add()
	defer e.alarms.remove(a)
	down := false
	for wait := time.Duration(0); a.wait(ctx, e.clock.now, wait); wait = e.sweepPause() {
		if e.direct() {
			s.attended = map[string]time.Time{} // nobody is known to listen
			continue                            // consumers claim their partitions themselves
		}
		if down && !e.awaitStore(ctx) {
			return
		}
		err := s.sweep(ctx)
		if err != nil && ctx.Err() == nil {
			e.warn("saga: sweep", "error", err)
		}
		down = err != nil
	}
}

// awaitStore waits, after an error of the store, until it answers again, and then
// for a third of a lease: workers that live renew before anybody may take over
// what they could not renew. It returns false when ctx is done.
func (e *Engine) awaitStore(ctx context.Context) bool {
	for wait := e.sweepPause(); ; wait = min(2*wait, e.cfg.Lease/3) {
		sctx, cancel := storeCtx(ctx)
		_, err := e.store.Now(sctx)
		cancel()
		if err == nil {
			break
		}
		if !sleep(ctx, wait) {
			return false
		}
	}
	return sleep(ctx, e.cfg.Lease/3)
}

func (e *Engine) sweepPause() time.Duration {
	d := float64(e.cfg.SweepEvery)
	return time.Duration(d * (0.8 + 0.4*mathrand.Float64()))
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// sweep claims due executions until there are no more.
func (s *sweeper) sweep(ctx context.Context) (err error) {
	start, claimed, late := s.e.clock.now(), 0, time.Duration(0)
	defer func() {
		if ctx.Err() == nil {
			s.e.stats.swept(start, s.e.clock.now(), claimed, late, err)
		}
	}()
	for ctx.Err() == nil {
		xs, now, err := s.e.claim(ctx, "", nil, sweepBatch)
		if err != nil {
			return err
		}
		s.e.stats.looks(now)
		claimed, late = claimed+len(xs), max(late, lag(xs, now))
		s.offer(context.WithoutCancel(ctx), xs, now) // what is claimed is offered
		if len(xs) < sweepBatch {
			return nil
		}
	}
	return ctx.Err()
}

// claim takes due executions from the store. It does not end with ctx: what was
// claimed for nobody would have to wait for another pick-up time.
func (e *Engine) claim(ctx context.Context, partition string, sagas []string, limit int) ([]*store.Execution, time.Time, error) {
	if ctx.Err() != nil {
		return nil, time.Time{}, ctx.Err()
	}
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	if err := e.ready(ctx); err != nil {
		return nil, time.Time{}, err
	}
	now := e.clock.now()
	q := store.DueQuery{Now: now, Hold: e.cfg.PickupWithin, Limit: limit, Partition: partition, Sagas: sagas}
	if partition == "" {
		q.NotPartitions = e.worked.names()
	}
	partitions, sagas := e.gate.now().names()
	q.NotPartitions, q.NotSagas = namable(append(q.NotPartitions, partitions...)), namable(sagas)
	xs, err := e.store.ClaimDue(ctx, q)
	if err != nil {
		return nil, now, fmt.Errorf("saga: claim due executions: %w", err)
	}
	return xs, now, nil
}

// namable returns as many names as a query takes. Of what is paused and not named
// nothing is run either, but it loses its place.
func namable(names []string) []string { return names[:min(len(names), store.MaxFilter)] }

// offer does what is due for claimed executions: first those whose pointers only
// have to be published, then those that were offered before, each of which needs
// a look under its lock.
func (s *sweeper) offer(ctx context.Context, xs []*store.Execution, now time.Time) {
	var before []*store.Execution
	for _, x := range xs {
		if x.OfferedAt == nil || x.OfferedAt.Equal(now) {
			s.e.publish(ctx, x)
			s.e.stats.looks(s.e.clock.now())
		} else {
			before = append(before, x)
		}
	}
	var looks sync.WaitGroup
	free := NewSlots(sweepLooks)
	for _, x := range before {
		d, attended := s.probe(ctx, x.Partition, now)
		_ = free.Acquire(ctx)
		looks.Go(func() {
			defer free.Release()
			if err := s.e.offerAgain(ctx, x, now, d, attended); err != nil {
				s.e.warn("saga: sweep", "execution", x.ID, "error", err)
			}
			s.e.stats.looks(s.e.clock.now())
		})
	}
	looks.Wait()
}

// offerAgain decides, by what is queued for its partition and since when the
// partition is attended, what became of the pointer to an execution.
func (e *Engine) offerAgain(ctx context.Context, x *store.Execution, now time.Time, d depth, attended time.Time) error {
	offered, claimed := *x.OfferedAt, *x.DueAt
	age := now.Sub(offered)
	every := func(most time.Duration) time.Duration { return min(max(age, e.cfg.PickupWithin), most) }
	_, err := e.decide(ctx, x.ID, func(m *machine) error {
		if !m.stillDue(claimed) {
			return nil // somebody was faster
		}
		switch e.pointed(m, d, attended) {
		case DiagnosisPaused:
			m.notePaused()
		case DiagnosisNoConsumer:
			m.again(claimed, every(noConsumeCap), true)
		case DiagnosisBacklog:
			if age >= e.cfg.BacklogPatience {
				m.anew(claimed)
			} else {
				m.again(claimed, every(queuedCap), false)
			}
		case DiagnosisQueued:
			m.again(claimed, every(queuedCap), true)
		case DiagnosisDue:
			m.anew(claimed) // it was offered to nobody
		default:
			m.lost(&claimed, e.cfg.MaxResumes, engineBy("the pointer was lost again and again"))
		}
		return nil
	})
	return err
}

// probe asks how much is queued for a partition, and tells since when it is known
// to be attended.
func (s *sweeper) probe(ctx context.Context, partition string, now time.Time) (depth, time.Time) {
	if d, ok := s.depth[partition]; ok && now.Sub(d.at) < depthFor && !now.Before(d.at) {
		return d, s.attended[partition]
	}
	d := depth{at: now}
	if p, ok := s.e.pub.(DepthProber); ok {
		ctx, cancel := storeCtx(ctx)
		defer cancel()
		ready, consumers, err := s.e.probes.depth(ctx, p, partition)
		d.ready, d.consumers, d.known = ready, consumers, err == nil
	}
	s.depth[partition] = d
	if !d.known || d.consumers == 0 {
		delete(s.attended, partition)
	} else if _, ok := s.attended[partition]; !ok {
		s.attended[partition] = now
	}
	return d, s.attended[partition]
}

// worked are the partitions whose consumers here work the store: this process's
// sweep leaves them alone. It would only publish to queues that they cannot reach,
// and put off what they would take.
type worked struct {
	mu sync.Mutex
	n  map[string]int
}

func (w *worked) add(partition string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == nil {
		w.n = map[string]int{}
	}
	if w.n[partition] += n; w.n[partition] == 0 {
		delete(w.n, partition)
	}
}

func (w *worked) names() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.n {
		out = append(out, p)
	}
	return out
}

// names lists the sagas that are registered here: not nil.
func (e *Engine) names() []string {
	e.plans.RLock()
	defer e.plans.RUnlock()
	names := make([]string, 0, len(e.plans.latest))
	for name := range e.plans.latest {
		names = append(names, name)
	}
	if len(names) > store.MaxFilter {
		return nil
	}
	return names
}

// WorkStore claims due executions of the registered sagas in a partition ("": in all) and handles them,
// each on a slot of its own, until ctx is done; then it waits for what it has
// begun and returns nil. Consumers call it while their broker is away; an engine
// without a Publisher lives on it. It goes on after errors of the store, more
// slowly.
func (e *Engine) WorkStore(ctx context.Context, partition string, slots *Slots) error {
	a := e.alarms.add()
	defer e.alarms.remove(a)
	if partition != "" {
		e.worked.add(partition, 1)
		defer e.worked.add(partition, -1)
	}
	var begun sync.WaitGroup
	defer begun.Wait()
	for wait := time.Duration(0); a.wait(ctx, e.clock.now, wait); wait = e.sweepPause() {
		for ctx.Err() == nil {
			if taking, _ := e.gate.taking(); !taking {
				break
			}
			if slots.Acquire(ctx) != nil {
				break
			}
			n := 1
			for n < sweepBatch && slots.TryAcquire() {
				n++
			}
			xs, now, err := e.claim(ctx, partition, e.names(), n)
			if ctx.Err() == nil {
				e.stats.swept(now, e.clock.now(), len(xs), lag(xs, now), err)
			}
			for range n - len(xs) {
				slots.Release()
			}
			for _, x := range xs {
				begun.Go(func() {
					defer slots.Release()
					p, err := e.pointer(ctx, x)
					if err == nil {
						_, err = e.Handle(ctx, p)
					}
					if err != nil {
						e.warn("saga: work the store", "execution", x.ID, "error", err)
					}
				})
			}
			if err != nil && ctx.Err() == nil {
				e.warn("saga: work the store", "error", err)
				e.awaitStore(ctx)
				break
			}
			if len(xs) < n {
				break
			}
		}
	}
	return nil
}
