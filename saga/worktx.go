package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leveret-go/leveret/store"
)

// errRollBack ends a transaction in which there is nothing to keep.
var errRollBack = errors.New("saga: rolled back")

// txTries is how often a step's transaction is tried in one attempt when the
// database lets it fail for the sake of others.
const txTries = 3

// workTx runs the open attempt of x, whose step wants a transaction, and settles
// it in that transaction if it has come to something that is kept. It returns
// the execution with its next attempt open, or nil.
func (e *Engine) workTx(ctx context.Context, x *store.Execution, s *session, t *txBody, chain bool, c *claim) *store.Execution {
	w := &settlement{e: e, x: x, ref: refOf(x, s), chain: chain, claim: c}
	transactor, ok := store.As[store.Transactor](e.store)
	if !ok { // Register saw to that
		return w.settle(ctx, failedTx(x.Step, ErrNotSupported))
	}
	for try := 1; ; try++ {
		var r result
		var next *store.Execution
		w.wrote, w.want, w.unsure = nil, store.Lease{}, false
		err := transactor.RunTx(context.WithoutCancel(ctx), t.kind, func(tx store.Tx, st store.Store) error {
			r = e.runBody(ctx, x, s, tx)
			if r.kind == failed && errors.Is(r.err, store.ErrConflict) {
				return r.err // the function met it before the commit did
			}
			if !r.kind.committed() || r.stateErr != nil {
				return errRollBack
			}
			var err error
			next, err = w.settleIn(ctx, st, r)
			return err
		})
		switch {
		case err == nil:
			e.committed(ctx, w.wrote, next)
			return e.goOn(ctx, w.wrote, next, w.asked)
		case errors.Is(err, errRollBack):
			r.doubt, r.noEffect = false, true // nothing is left of it
			return w.settle(ctx, r)
		case errors.Is(err, errLost):
			e.settleGone(ctx, w.ref, result{kind: failed, reason: "rolled back: the attempt was lost"}, nil, x)
			return nil
		case errors.Is(err, store.ErrConflict) && try < txTries && s.alive():
			e.warn("saga: a step's transaction conflicts with another one, trying again", "execution", x.ID, "step", x.Step)
			continue
		}
		r = failedTx(x.Step, err)
		r.scrub(e.planFor(x).secrets(x.State, nil))
		if errors.Is(err, store.ErrConflict) || definite(err) || w.wrote == nil {
			w.wrote, w.want = nil, store.Lease{}
			return w.settle(ctx, r)
		}
		// The commit may have gone through: what is under the lock tells.
		e.warn("saga: settle", "execution", x.ID, "step", x.Step, "error", err)
		w.unsure = true
		return w.resolve(ctx, r)
	}
}

// committed reports whether what a step's transaction did is kept.
func (k resultKind) committed() bool {
	return k == succeeded || k == skipped || k == completed
}

// failedTx is the result of an attempt whose transaction failed outside of the
// step's function.
func failedTx(step string, err error) result {
	f := failureOf(fmt.Errorf("the step's transaction failed: %w", err), "transaction_failed", step)
	return result{kind: failed, failure: f, err: err, noEffect: true}
}

// alive reports whether the attempt's ctx has not ended.
func (s *session) alive() bool { return s.endedAt.IsZero() }

// A settlement is the writing of one attempt's result.
type settlement struct {
	e     *Engine
	x     *store.Execution // as this worker last wrote it
	ref   attemptRef
	chain bool
	claim *claim

	known  *answers
	asked  time.Time   // when the last write began
	wrote  *machine    // the last write that was tried
	want   store.Lease // the attempt that it meant to open
	unsure bool        // whether its outcome is unknown
}

func refOf(x *store.Execution, s *session) attemptRef {
	return attemptRef{lease: s.lease, startedAt: x.Attempt.StartedAt, leaseUntil: x.Attempt.LeaseUntil}
}

// settleIn writes the result in the step's own transaction, whose commit is still
// to come. errLost when the attempt is not the open one any more.
func (w *settlement) settleIn(ctx context.Context, st store.Store, r result) (*store.Execution, error) {
	e := w.e
	_ = e.ready(ctx)
	w.asked = time.Now()
	w.known = e.planFor(w.x).askNext(w.x, r)
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	return st.WithLock(ctx, w.x.ID, func(x *store.Execution) (store.Change, error) {
		before := string(x.State)
		m := e.machine(x)
		m.answers = w.known
		if open, ok := x.Lease(); !ok || open != w.ref.lease {
			return store.Change{}, errLost
		}
		m.settle(w.ref, r, w.chain, nil)
		m.change.SameState = before == string(x.State)
		if m.opened {
			w.want, _ = x.Lease()
			e.claims.take(w.want, w.claim)
		}
		w.wrote = m
		return m.change, nil
	})
}
