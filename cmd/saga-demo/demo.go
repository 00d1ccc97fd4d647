package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A demo is one process of a demonstration.
type demo struct {
	o         options
	backend   *backend
	services  *services
	engine    *saga.Engine
	sagas     map[saga.Name[order]]*saga.Saga[order]
	consumers []saga.Runner
	progress  *progress
}

// demonstrate runs a demo and returns the exit code; the error says why where
// the report does not.
func demonstrate(ctx context.Context, o options, stdout, stderr io.Writer) (code int, err error) {
	p := newProgress(o, stderr)
	log := newLogger(o, p)
	b, err := openBackend(ctx, o)
	if err != nil {
		return exitFailed, err
	}
	keep := true
	defer func() {
		if err2 := b.close(keep); err2 != nil {
			code, err = exitFailed, errors.Join(err, err2)
		}
	}()
	tr, err := openTransport(ctx, o, b.store, log)
	if err != nil {
		return exitFailed, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tr.close(ctx)
	}()
	d := &demo{o: o, backend: b, services: newServices(b.ledger), progress: p, sagas: map[saga.Name[order]]*saga.Saga[order]{}}
	defer d.services.wait()
	d.engine, err = saga.New(saga.Config{
		Store: b.store, Publisher: tr.publisher, Lease: o.lease, Logger: log, Observe: p.observe, Workers: 2 * o.workers,
	})
	if err != nil {
		return exitFailed, err
	}
	if err := d.register(tr); err != nil {
		return exitFailed, err
	}
	d.introduce(tr)
	stop, err := d.serveConsole(stderr)
	if err != nil {
		return exitFailed, err
	}
	defer stop()

	var report *report
	shown := false
	err = d.run(ctx, func(ctx context.Context) error {
		switch {
		case o.role != roleWork:
			report, err = d.startAndCheck(ctx)
			if err == nil && o.http != "" && !o.json {
				report.write(stdout, colors(stdout))
				fmt.Fprintln(stderr, "the console stays until you interrupt the demo")
				shown = true
				<-ctx.Done()
			}
			return err
		case o.drain:
			return d.untilDrained(ctx)
		}
		<-ctx.Done()
		return nil
	})
	switch {
	case err != nil && context.Cause(ctx) != errSignal:
		return exitFailed, err
	case o.role == roleWork && err == nil:
		return exitOK, nil
	case report == nil:
		return exitInterrupted, fmt.Errorf("interrupted; -run %s -seed %d goes on with these sagas, if the store still has them", o.run, o.seed)
	}
	switch {
	case shown:
		err = nil
	case o.json:
		err = report.writeJSON(stdout)
	default:
		report.write(stdout, colors(stdout))
	}
	if err != nil || report.Ledger != "consistent" {
		return exitFailed, err
	}
	keep = false
	return exitOK, nil
}

// register makes the sagas known: with their steps where they are run, else by
// name.
func (d *demo) register(tr *transport) error {
	for _, l := range lines() {
		var s *saga.Saga[order]
		var err error
		if d.o.role == roleStart {
			s, err = saga.Declare(d.engine, l.name, &saga.DeclareOptions{Partition: l.partition})
		} else {
			s, err = saga.Register(d.engine, l.definition(d.services))
		}
		if err != nil {
			return err
		}
		d.sagas[l.name] = s
	}
	if d.o.role == roleStart || tr.consumer == nil {
		return nil
	}
	c, err := tr.consumer(d.engine, map[string]int{shop: d.o.workers, office: d.o.workers})
	d.consumers = append(d.consumers, c)
	return err
}

func (d *demo) introduce(tr *transport) {
	if d.progress.quiet {
		return
	}
	o := d.o
	what := fmt.Sprintf("%d sagas, %d workers in each of 2 partitions", o.n, o.workers)
	switch o.role {
	case roleStart:
		what = fmt.Sprintf("starting %d sagas", o.n)
	case roleWork:
		what = fmt.Sprintf("%d workers in each of 2 partitions", o.workers)
	}
	d.progress.println(fmt.Sprintf("Leveret demo: %s\nstore: %s; pointers: %s", what, d.backend.where, tr.name))
}

// run runs the engine while f does its work, and then drains it. Progress is
// shown all the while.
func (d *demo) run(ctx context.Context, f func(ctx context.Context) error) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	shown, hide := context.WithCancel(context.WithoutCancel(ctx))
	defer hide()
	wg.Go(func() { d.progress.show(shown) })
	if d.o.role == roleStart {
		return f(ctx)
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() {
		err := d.engine.Run(work, d.consumers...)
		ended <- err
		stop(err) // f has nothing to wait for any more
	}()
	err := f(work)
	if cause := context.Cause(work); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	stop(nil)
	return errors.Join(err, <-ended)
}

// startAndCheck starts the sagas of the run, waits until all have ended, and
// compares them with the services' ledger.
func (d *demo) startAndCheck(ctx context.Context) (*report, error) {
	plan := planRun(d.o.run, d.o.n)
	if err := d.insist(ctx, func() error { return d.backend.ledger.plan(ctx, d.o.run, plan) }); err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	started := make(chan planned, len(plan))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wg.Go(func() {
		defer close(started)
		for i, p := range plan {
			if err := d.start(ctx, i, p); err != nil {
				cancel(err)
				return
			}
			started <- p
		}
	})
	for {
		if err := d.waitForAll(ctx, started); err != nil {
			return nil, err
		}
		// Requests that hang may still reach the services: what they leave
		// counts.
		d.services.wait()
		r, again, err := d.conclude(ctx)
		if err != nil || !again {
			return r, err
		}
		// A late result has reopened a saga: it will end once more.
		started = make(chan planned, len(plan))
		for _, p := range plan {
			started <- p
		}
		close(started)
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// start starts one saga, or finds that it was started before.
func (d *demo) start(ctx context.Context, i int, p planned) error {
	l := lineOf(i)
	return d.insist(ctx, func() error {
		_, err := d.sagas[l.name].Start(ctx, saga.Resource{Type: "order", ID: p.Order}, stateOf(i, d.o), &saga.StartOptions{ID: p.Execution})
		switch {
		case errors.Is(err, store.ErrExists):
			err = nil
		case errors.Is(err, store.ErrInvalid):
			return final{err}
		}
		if err == nil {
			d.progress.start()
		}
		return err
	})
}

// A final error is not worth another try.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// insist tries until the store answers, or ctx is done.
func (d *demo) insist(ctx context.Context, f func() error) error {
	told := false
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := f()
		var fin final
		if err == nil || errors.As(err, &fin) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !told {
			told = true
			d.progress.println(fmt.Sprintf("the store does not answer, trying again: %v", err))
		}
		if sleep(ctx, wait) != nil {
			return context.Cause(ctx)
		}
	}
}

// watched is how many sagas are looked at in one go. Those that were started
// first are looked at first: it is them that end first.
const watched = 200

// waitForAll waits until all sagas that come from started have ended.
func (d *demo) waitForAll(ctx context.Context, started <-chan planned) error {
	var pending []planned
	seen := map[uuid.UUID]bool{}
	for {
		for len(pending) < watched && started != nil {
			select {
			case p, ok := <-started:
				if !ok {
					started = nil
				} else {
					pending = append(pending, p)
				}
				continue
			default:
			}
			break
		}
		if len(pending) == 0 && started == nil {
			return nil
		}
		looked := time.Now()
		var left []planned
		for _, p := range pending {
			ended, err := d.ended(ctx, p, seen)
			if err != nil {
				return err
			}
			if !ended {
				left = append(left, p)
			}
		}
		all := len(pending) > 0 && len(left) == 0
		pending = left
		if all {
			continue
		}
		// The looks must not take from the store what the workers need.
		if sleep(ctx, max(100*time.Millisecond, 2*time.Since(looked))) != nil {
			return context.Cause(ctx)
		}
	}
}

func (d *demo) ended(ctx context.Context, p planned, seen map[uuid.UUID]bool) (ended bool, err error) {
	err = d.insist(ctx, func() error {
		x, err := d.backend.store.Get(ctx, p.Execution)
		if err != nil {
			return err
		}
		ended = x.Status.Finished() || x.Status == store.StatusHalted
		if ended && !seen[x.ID] {
			seen[x.ID] = true
			d.progress.end(x.Status)
		}
		return nil
	})
	return ended, err
}

// conclude reads all sagas of the run and the effects on their orders. again
// says that one of them has not ended after all.
func (d *demo) conclude(ctx context.Context) (r *report, again bool, err error) {
	err = d.insist(ctx, func() error {
		plan, err := d.backend.ledger.planned(ctx, d.o.run)
		if err != nil {
			return err
		}
		r, again = newReport(d.o), false
		xs := map[uuid.UUID]*saga.Execution{}
		for _, p := range plan {
			x, err := d.backend.store.Get(ctx, p.Execution)
			if errors.Is(err, store.ErrNotFound) {
				r.add(p, nil, nil)
				continue
			}
			if err != nil {
				return err
			}
			attempts, err := d.backend.store.Attempts(ctx, x.ID)
			if err != nil {
				return err
			}
			again = again || !x.Status.Finished() && x.Status != store.StatusHalted
			x.State = nil
			xs[x.ID] = x
			r.add(p, x, attempts)
		}
		effects, err := d.backend.ledger.effects(ctx, d.o.run)
		if err != nil {
			return err
		}
		r.conclude(check(lines(), plan, xs, effects), effects)
		return nil
	})
	return r, again, err
}

const (
	quietSeen  = 2 * time.Second  // nothing left to do for this long, after there was something
	quietNever = 10 * time.Second // or for this long, when there never was
)

// untilDrained returns when nothing has been left to do for a while.
func (d *demo) untilDrained(ctx context.Context) error {
	seen := false
	quiet := time.Now()
	for {
		left, err := d.backend.store.Stalled(ctx, store.StalledQuery{ProgressBefore: time.Now().Add(24 * time.Hour), Limit: watched})
		busy := err != nil // a store that does not answer may have anything
		for _, x := range left {
			if x.Status != store.StatusHalted {
				busy, seen = true, true
			}
		}
		if busy {
			quiet = time.Now()
		}
		d.progress.mu.Lock()
		seen = seen || d.progress.steps > 0
		d.progress.mu.Unlock()
		if idle := time.Since(quiet); idle >= quietNever || seen && idle >= quietSeen {
			return nil
		}
		if sleep(ctx, 250*time.Millisecond) != nil {
			return nil
		}
	}
}
