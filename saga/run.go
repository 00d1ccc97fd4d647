package saga

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store"
)

// Run works until ctx is done: it sweeps over due executions, renews the leases
// of what runs here, and runs the consumers. Without a Publisher it also works
// the store, on Config.Workers goroutines. It is the only long call of an
// engine, and at most one may be running: ErrRunning.
//
// When ctx ends no new attempt is opened and the consumers stop. Running steps
// go on for Config.Grace; then their ctx ends with [ErrShutdown]; after another
// Grace Run returns a [*ShutdownIncompleteError] that names those which still
// run. Leases are renewed until the last attempt has settled. A step that
// returns because of the shutdown costs no attempt.
//
// Run returns nil after ctx has ended and all has drained; the error of a
// consumer that returned one by itself, after draining the same way; a
// [*store.SchemaError] at once, when the store cannot be used by this build, and
// store.ErrInUse when Config.Exclusive is set, an earlier Run has given the store
// back, and another engine has it now. Other errors of the store never end it.
func (e *Engine) Run(ctx context.Context, consumers ...Runner) error {
	if !e.life.start() {
		return ErrRunning
	}
	defer e.life.stop()
	incomplete := false
	defer func() {
		// Steps that still run keep the store: whoever took it would think
		// them dead. It is given back when the process ends.
		if e.release != nil && !incomplete {
			if err := e.release(); err != nil {
				e.warn("saga: give the store back", "error", err)
			}
			e.release = nil
		}
	}()
	if e.cfg.Exclusive && e.release == nil { // given back by an earlier Run
		if err := e.takeExclusively(ctx); err != nil {
			<-e.life.drain()
			return err
		}
	}
	e.sessions.start()
	e.beat.Store(0) // what an earlier Run left says nothing of this one
	e.warnAboutPool(consumers)

	// What must go on while steps drain has a life of its own.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	work, stopWork := context.WithCancelCause(ctx)
	defer stopWork(nil)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer stopBackground()

	if err := e.greet(work); err != nil {
		<-e.life.drain()
		return err
	}

	e.lookAtPauses(work)
	loops.Go(func() { e.renewLoop(background) })
	loops.Go(func() { e.pauseLoop(work) })
	loops.Go(func() { e.recordLoop(background, consumers) })
	loops.Go(func() { e.expireLoop(background) })
	if len(e.limited()) > 0 {
		loops.Go(func() { e.limitLoop(work) })
	}
	if len(e.schedules.sets) > 0 {
		loops.Go(func() { e.scheduleLoop(work) })
	}
	loops.Go(func() { e.relayLoop(background) })
	if e.cfg.Retention != nil {
		loops.Go(func() { e.retentionLoop(work) })
	}
	var workers sync.WaitGroup
	if e.pub != nil {
		loops.Go(func() { e.sweepLoop(work) })
	} else {
		workers.Go(func() { _ = e.WorkStore(work, "", NewSlots(e.cfg.Workers)) })
	}
	for _, c := range consumers {
		workers.Go(func() {
			err := c.Run(work)
			if err == nil && work.Err() == nil {
				err = errors.New("saga: a consumer stopped by itself")
			}
			if err != nil && work.Err() == nil {
				stopWork(err)
			}
		})
	}

	<-work.Done()
	idle := e.life.drain()
	drained := make(chan struct{})
	go func() {
		workers.Wait()
		<-idle
		close(drained)
	}()
	if err := e.drain(drained); err != nil {
		incomplete = true
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(work)
}

// drain waits for what runs: a Grace in peace, a Grace after its ctx has ended.
func (e *Engine) drain(drained <-chan struct{}) error {
	timer := time.NewTimer(e.cfg.Grace)
	defer timer.Stop()
	select {
	case <-drained:
		return nil
	case <-timer.C:
	}
	e.sessions.interrupt(ErrShutdown)
	timer.Reset(e.cfg.Grace)
	select {
	case <-drained:
		return nil
	case <-timer.C:
	}
	e.sessions.giveUp()
	if names := e.sessions.names(); len(names) > 0 {
		return &ShutdownIncompleteError{Steps: names}
	}
	<-drained
	return nil
}

// greet waits until the store answers: its clock, its identity, and, on an
// exclusive store, what a dead predecessor left behind.
func (e *Engine) greet(ctx context.Context) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := e.clock.ready(ctx)
		if err == nil {
			_, err = e.identity(ctx)
		}
		if err == nil && e.release != nil {
			err = e.takeOver(ctx)
		}
		var schema *store.SchemaError
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if errors.As(err, &schema) {
			return err
		}
		e.warn("saga: the store does not answer", "error", err)
		sleep(ctx, wait)
	}
}

// takeOver abandons the attempts that a dead predecessor left open.
func (e *Engine) takeOver(ctx context.Context) error {
	q := store.StalledQuery{ProgressBefore: e.clock.now().Add(time.Hour), Limit: sweepBatch}
	for {
		xs, err := e.store.Stalled(ctx, q)
		if err != nil {
			return fmt.Errorf("saga: look for attempts of a dead predecessor: %w", err)
		}
		for _, x := range xs {
			q.After = &store.StalledCursor{ProgressAt: x.ProgressAt, ID: x.ID}
			if x.Attempt == nil || x.Attempt.Worker == e.worker {
				continue
			}
			if _, err := e.decide(ctx, x.ID, func(m *machine) error { m.abandonDead(); return nil }); err != nil {
				return fmt.Errorf("saga: abandon an attempt of a dead predecessor: %w", err)
			}
		}
		if len(xs) < q.Limit {
			return nil
		}
	}
}

// warnAboutPool compares the store's connections with the workers. Stores and
// consumers that know say so.
func (e *Engine) warnAboutPool(consumers []Runner) {
	workers := 0
	if e.pub == nil {
		workers = e.cfg.Workers
	}
	for _, c := range consumers {
		if w, ok := c.(interface{ Workers() int }); ok {
			workers += w.Workers()
		}
	}
	p, ok := store.As[interface{ PoolSize() int }](e.store)
	if ok && p.PoolSize() < workers {
		e.warn("saga: the store's pool is smaller than the number of workers: steps will wait for connections",
			"pool", p.PoolSize(), "workers", workers)
	}
}
