package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leveret-go/leveret/store"
)

// Handle does what a pointer asks for: it looks at the execution and, if an
// attempt is due, runs the step, and, unless Config.Handover says otherwise,
// the steps after it. It returns when it is done with the execution for now;
// that may take as long as the steps do.
//
// It returns ErrNotRunning, having looked at nothing, while [Engine.Run] is not
// running or is draining, and ErrPaused while this worker is paused: the
// consumer leaves the pointer where it is. After any
// other error the pointer is done with, too (Result says Ack): the execution
// comes due again. Errors are those of the store; a consumer that gets them
// should pause before it goes on.
//
// ctx gives its values to the steps, not its end: what ends a step is its
// time-out, a lost lease, an operator, or the drain of Run.
//
// Whatever line a process dies on, the execution comes due again by its lease,
// its retry or its pick-up time, here or in another process.
func (e *Engine) Handle(ctx context.Context, p Pointer) (Result, error) {
	if !e.life.enter() {
		return Result{}, ErrNotRunning
	}
	defer e.life.leave()
	if taking, _ := e.gate.taking(); !taking {
		return Result{}, ErrPaused
	}
	ctx = context.WithoutCancel(ctx)
	if p.V > PointerVersion {
		return e.dropped(ctx, p, Result{DeadLetter, DeadVersion}), nil
	}
	id, err := e.identity(ctx)
	if err == nil {
		err = e.ready(ctx)
	}
	if err != nil {
		return Result{Disposition: Ack}, err
	}
	if p.Store != id {
		return e.dropped(ctx, p, Result{DeadLetter, DeadForeignStore}), nil
	}

	start := time.Now()
	c := &claim{}
	defer e.claims.drop(c)
	x, r, err := e.openFrom(ctx, p, c)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return e.dropped(ctx, p, Result{Ack, DropOrphan}), nil
	case errors.Is(err, ErrNotRunning):
		return Result{}, ErrNotRunning
	case errors.Is(err, errLost):
		return e.dropped(ctx, p, Result{Ack, DropBusy}), nil
	case err != nil:
		return Result{Disposition: Ack}, err
	case r.Reason != "":
		return e.dropped(ctx, p, r), nil
	}
	e.work(ctx, x, start, c)
	return r, nil
}

// dropped tells of a pointer that no attempt was opened for.
func (e *Engine) dropped(ctx context.Context, p Pointer, r Result) Result {
	kind, ok := map[string]EventKind{
		DropOrphan: EventPointerOrphan, DropStale: EventPointerStale, DropBusy: EventPointerBusy,
		DropEarly: EventPointerEarly, DropUnknown: EventPointerUnknown, DropPaused: EventPointerPaused,
		DeadForeignStore: EventPointerDead, DeadFutureEpoch: EventPointerDead, DeadVersion: EventPointerDead,
	}[r.Reason]
	if ok {
		e.emit(ctx, Event{
			Kind: kind, At: e.clock.now(), Execution: p.Execution, Saga: p.Saga, Step: p.Step,
			Direction: p.Direction, Epoch: p.Epoch, Reason: r.Reason,
		})
	}
	return r
}

// openFrom opens the attempt that is due. When the outcome of the write is not
// known, it finds out, under the lock and by writing, so that a commit still in
// flight conflicts.
func (e *Engine) openFrom(ctx context.Context, p Pointer, c *claim) (x *store.Execution, r Result, err error) {
	var known *answers
	var w want
	for range maxAsks {
		x, r, w, err = e.tryOpen(ctx, p, c, known)
		var taken *store.KeyTakenError
		switch {
		case errors.As(err, &taken):
			known = &answers{taken: true}
			continue
		case err != nil || r.Reason != dropAsk:
			return x, r, err
		}
		if known, err = e.ask(ctx, x, w, known); err != nil {
			return nil, r, err
		}
	}
	return nil, Result{Ack, DropEarly}, nil // its state changes faster than it can be asked about
}

// maxAsks is how often an execution is asked what is to be done, in a row.
const maxAsks = 100

// tryOpen is openFrom with what is known from outside of the lock. When the
// machine has to know more, the reason is dropAsk, and x what that is about.
func (e *Engine) tryOpen(ctx context.Context, p Pointer, c *claim, known *answers) (x *store.Execution, r Result, w want, err error) {
	var want store.Lease // what the last write meant to open
	var asked time.Time
	first := true
	err = e.again(ctx, p.Execution, e.cfg.Lease, func() error {
		asked = time.Now()
		y, err := e.decide(ctx, p.Execution, func(m *machine) error {
			if e.life.isDraining() {
				return ErrNotRunning
			}
			m.answers = known
			if first {
				r = m.handle(p)
			} else {
				r = m.handleAgain(p, want, e.claims.has(want, c))
			}
			w = m.wants
			if m.opened {
				want, _ = m.x.Lease()
				e.claims.take(want, c)
			}
			return nil
		})
		first = false
		x = y
		return err
	})
	if err != nil || r.Reason != "" {
		return x, r, w, err
	}
	return x, r, w, e.fresh(ctx, x, asked)
}

// errLost says that an attempt is not this worker's any more.
var errLost = fmt.Errorf("saga: the lease was lost while it was taken: %w", ErrAttemptLost)

// fresh makes sure that a body starts only under a live lease: when the write
// that opened its attempt took long, the lease is renewed first.
func (e *Engine) fresh(ctx context.Context, x *store.Execution, asked time.Time) error {
	if slept, _ := e.clock.slept(); !slept && time.Since(asked) <= e.cfg.Lease/3 {
		return nil
	}
	if err := e.ready(ctx); err != nil {
		return err
	}
	lease, _ := x.Lease()
	return e.again(ctx, x.ID, e.cfg.Lease/3, func() error {
		y, err := e.decide(ctx, x.ID, func(m *machine) error {
			if open, ok := m.x.Lease(); !ok || open != lease {
				return errLost
			}
			m.renew()
			return nil
		})
		if err == nil {
			*x = *y
		}
		return err
	})
}

// work runs the open attempt of x, and those that follow it in a chain.
func (e *Engine) work(ctx context.Context, x *store.Execution, start time.Time, c *claim) {
	for x != nil {
		x = e.workOne(ctx, x, start, c)
	}
}

func (e *Engine) workOne(ctx context.Context, x *store.Execution, start time.Time, c *claim) *store.Execution {
	s := e.sessions.add(e, x)
	defer e.sessions.remove(s)
	goesOn := func() bool {
		taking, _ := e.gate.taking()
		return e.cfg.Handover == HandoverChain && time.Since(start) < e.cfg.ChainFor && taking && !e.life.isDraining()
	}
	if step, ok := e.planFor(x).step(x.Step); ok {
		if t := step.txBody(x.Direction); t != nil {
			return e.workTx(ctx, x, s, t, goesOn(), c)
		}
	}
	r := e.runBody(ctx, x, s, nil)
	w := &settlement{e: e, x: x, ref: refOf(x, s), chain: goesOn(), claim: c}
	return w.settle(ctx, r)
}

// settle writes the result of an attempt and returns the execution with its
// next attempt open, or nil when there is nothing more to do here.
func (w *settlement) settle(ctx context.Context, r result) *store.Execution {
	e, x := w.e, w.x
	_ = e.ready(ctx)
	w.asked = time.Now()

	// One write, no lock, if the row is as this worker last saw it.
	w.known = e.planFor(x).askNext(x, r)
	if e.advancer != nil {
		y := x.Clone()
		m := e.machine(y)
		m.answers = w.known
		m.settle(w.ref, r, w.chain, e.inherit(m.now, w.ref))
		m.change.SameState = r.state == nil || string(r.state) == string(x.State)
		if m.opened {
			w.want, _ = y.Lease()
			e.claims.takeFree(w.want, w.claim)
		}
		actx, cancel := storeCtx(ctx)
		err := e.advancer.Advance(actx, y, m.change)
		cancel()
		if err == nil {
			e.committed(ctx, m, y)
			return e.goOn(ctx, m, y, w.asked)
		}
		if !errors.Is(err, store.ErrConflict) && !definite(err) {
			e.warn("saga: settle", "execution", x.ID, "step", x.Step, "error", err)
		}
		if errors.Is(err, store.ErrInvalid) {
			r = refused(r, err)
		}
		// A conflict says for sure that this write did nothing.
		if w.unsure = !definite(err) && !errors.Is(err, store.ErrConflict); w.unsure {
			w.wrote = m
		}
	}
	return w.resolve(ctx, r)
}

// resolve settles an attempt under the lock, after a write that met a conflict or
// whose outcome is not known (w.unsure).
func (w *settlement) resolve(ctx context.Context, r result) *store.Execution {
	e, x, ref := w.e, w.x, w.ref
	for {
		var how settling
		var m *machine
		var y *store.Execution
		err := e.again(ctx, ref.lease.Execution, 0, func() error {
			w.asked = time.Now()
			var err error
			y, err = e.decide(ctx, x.ID, func(mm *machine) error {
				m = mm
				m.answers = w.known
				how = m.settleAgain(ref, r, w.chain, w.want, e.claims.has(w.want, w.claim), w.unsure)
				if how == settledNow {
					w.wrote, w.unsure, w.want = m, true, store.Lease{}
					if m.opened {
						w.want, _ = m.x.Lease()
						e.claims.take(w.want, w.claim)
					}
				}
				return nil
			})
			return err
		})
		switch {
		case errors.Is(err, store.ErrInvalid) && r.failure == nil:
			r = refused(r, err)
			continue
		case err != nil:
			e.warn("saga: a result could not be written; its lease will run out", "execution", x.ID, "step", x.Step, "error", err)
			return nil
		case how == settledMine:
			for _, ev := range w.wrote.events {
				e.emit(ctx, ev)
			}
			return e.goOn(ctx, m, y, w.asked)
		case how == settledGone:
			e.settleGone(ctx, ref, r, w.wrote, y)
			return nil
		}
		return e.goOn(ctx, m, y, w.asked)
	}
}

// refused makes of a result that no store takes one that it does. It should
// not be needed: what reaches a store was checked before.
func refused(r result, err error) result {
	return result{kind: r.kind, stateErr: fmt.Errorf("%w: %w", errState, err), doubt: true, failure: &store.Failure{Class: classState, Message: "the store refused the result"}}
}

// goOn returns the execution if its next attempt was opened here and is live.
func (e *Engine) goOn(ctx context.Context, m *machine, x *store.Execution, asked time.Time) *store.Execution {
	if !m.opened {
		return nil
	}
	if err := e.fresh(ctx, x, asked); err != nil {
		e.warn("saga: next attempt", "execution", x.ID, "step", x.Step, "error", err)
		return nil
	}
	return x
}

// settleGone deals with an attempt that is not open any more: either this
// worker's own write (wrote, nil for none) got through, or somebody else closed
// it. x is the execution as it is now.
func (e *Engine) settleGone(ctx context.Context, ref attemptRef, r result, wrote *machine, x *store.Execution) {
	err := e.again(ctx, ref.lease.Execution, 0, func() error {
		actx, cancel := storeCtx(ctx)
		attempts, err := e.store.Attempts(actx, ref.lease.Execution)
		cancel()
		if err != nil {
			return err
		}
		for i := range attempts {
			a := &attempts[i]
			if a.Lease() == ref.lease && recorded(a) {
				if wrote != nil && a.LateStatus == "" {
					// What it planned is still to be done, if nobody has come
					// further.
					wrote.publish = wrote.publish && x.Attempt == nil && x.Step == wrote.x.Step &&
						x.Direction == wrote.x.Direction && x.Epoch == wrote.x.Epoch
					e.committed(ctx, wrote, x)
				}
				return nil // already in
			}
		}
		late := func(keyless bool) error {
			_, err := e.decide(ctx, ref.lease.Execution, func(m *machine) error {
				m.keyless = keyless
				m.late(ref, r)
				return nil
			})
			return err
		}
		err = late(false)
		var taken *store.KeyTakenError
		if errors.As(err, &taken) {
			err = late(true)
		}
		return err
	})
	if err != nil {
		e.warn("saga: a late result could not be written", "execution", ref.lease.Execution, "step", ref.lease.Step, "error", err)
	}
}

// inherit returns the end of a settled attempt's lease if enough, and not too
// much, of it is left for the next one: a quick chain then touches no index.
func (e *Engine) inherit(now time.Time, ref attemptRef) *time.Time {
	left := ref.leaseUntil.Sub(now)
	if left < e.cfg.Lease/2 || left > e.cfg.Lease {
		return nil
	}
	return &ref.leaseUntil
}
