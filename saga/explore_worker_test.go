package saga

import "github.com/leveret-go/leveret/store"

// opened checks an attempt that was just opened.
func (e *explorer) opened(y *world, by int) {
	r := &y.row
	y.losses = 0
	if int(r.tries) > e.attempts {
		violate("S5", "attempt %d of %d", r.tries, e.attempts)
	}
	if y.turned && r.dir == 0 {
		violate("S6", "a step was begun after Compensate or Cancel had been accepted")
	}
	if y.parked {
		violate("S6", "an attempt was opened after Halt had been accepted")
	}
	if r.dir == 1 {
		for i := r.step + 1; i < int8(e.steps); i++ {
			l := e.drawer.plan[i]
			l.Status = worldSteppings[r.ledger[i].status]
			if needsUndo(&l) {
				violate("S4", "the undo of %s was opened while %s still needs its own", worldNames[r.step], worldNames[i])
			}
		}
		if r.ledger[r.step].doubt > 0 {
			violate("S2", "an undo was opened before doubt_until")
		}
	}
	// The call that opens it claims the attempt from others of its process.
	for j := range y.w {
		if j != by && y.w[j].want == r.token() {
			y.w[j].void = true
		}
	}
}

// begin puts worker i on the open attempt.
func (e *explorer) begin(y *world, i int) {
	r := &y.row
	y.w[i] = worldWorker{
		at: atBefore, tok: r.token(), round: max(r.ledger[r.step].round, 1), snap: r.lease, body: r.body, fresh: true,
	}
}

//go:norace
func (e *explorer) workerMoves(x *world, i int, emit emitFunc) {
	w := &x.w[i]
	fault := func(l move, y world) {
		if x.faults > 0 {
			y.faults--
			emit(l, y, true)
		}
	}
	switch w.at {
	case atIdle:
		if x.ptr == 0 {
			return
		}
		y := *x
		y.ptr--
		m := e.do(&y, i, question{kind: askHandle, epoch: x.row.epoch})
		opened, publish := m.opened, m.publish
		if opened {
			e.begin(&y, i)
		} else if publish {
			y.w[i] = worldWorker{at: atPublish}
		}
		emit(mv(mvDeliver, i, 0), y, false)
		if e.twice && x.faults > 0 {
			z := y
			if z.row.epoch == x.row.epoch {
				z.ptr++
			}
			fault(mv(mvDeliverTwice, i, 0), z)
		}
		if e.unknown && opened && x.faults > 0 {
			ask := worldWorker{at: atOpenAsk, tok: y.row.token(), want: y.row.token(), epoch: x.row.epoch}
			z := y
			z.w[i] = ask
			fault(mv(mvOpenApplied, i, 0), z)
			z = *x
			z.ptr--
			z.w[i] = ask
			e.claimed(&z, i)
			fault(mv(mvOpenLost, i, 0), z)
		}
		return
	case atBefore, atAfter:
		e.bodyMoves(x, i, emit)
	case atSettle:
		e.settleMoves(x, i, emit)
	case atOpenAsk:
		y := *x
		m := e.do(&y, i, question{kind: askHandleAgain, epoch: w.epoch, want: w.want, claimed: e.isClaimed(w)})
		switch {
		case m.opened:
			e.begin(&y, i)
		case m.publish:
			y.w[i] = worldWorker{at: atPublish}
		default:
			y.w[i] = worldWorker{}
		}
		emit(mv(mvAsk, i, 0), y, false)
	case atSettleAsk:
		e.settleMoves(x, i, emit)
	case atGone:
		y := *x
		if w.hist < histOwn || e.mutant == "own history not read" {
			if e.mutant != "late results ignored" {
				e.do(&y, i, question{kind: askLate, tok: w.tok, outcome: w.outcome})
			}
			e.tell(&y, w)
		}
		if y.w[i].hist == histLate && e.unknown && x.faults > 0 {
			z := y
			fault(mv(mvLateApplied, i, 0), z)
			fault(mv(mvLateLost, i, 0), *x)
		}
		y.w[i] = worldWorker{}
		emit(mv(mvHistory, i, 0), y, false)
	case atPublish:
		y := *x
		published(&y)
		y.w[i] = worldWorker{}
		emit(mv(mvPublish, i, 0), y, false)
	}
	if e.crash && x.faults > 0 {
		y := *x
		if w.at == atPublish || w.at == atOpenAsk {
			e.lostOne(&y)
		}
		y.w[i] = worldWorker{}
		fault(mv(mvCrash, i, 0), y)
	}
}

// claimed takes the claims that other calls of the process have on what worker
// i means to open.
func (e *explorer) claimed(y *world, i int) {
	for j := range y.w {
		if j != i && y.w[j].want == y.w[i].want {
			y.w[j].void = true
		}
	}
}

func (e *explorer) isClaimed(w *worldWorker) bool { return !w.void || e.mutant == "claims ignored" }

// tell notes that a success of Execute has reached the store.
func (e *explorer) tell(y *world, w *worldWorker) {
	if w.tok.dir == 0 && (w.outcome == outSuccess || w.outcome == outComplete) {
		y.told[w.tok.step] = true
		if worldSteppings[y.row.ledger[w.tok.step].status] != store.StepUndone {
			y.word[w.tok.step] = false // it is to be undone, whatever was said before
		}
	}
	if w.tok.dir == 0 && w.outcome == outComplete {
		y.completes = true
	}
}

//go:norace
func (e *explorer) bodyMoves(x *world, i int, emit emitFunc) {
	w := &x.w[i]
	exec := w.tok.dir == 0
	s := w.tok.step
	ret := func(out int8, chaos bool) {
		y := *x
		y.w[i].at, y.w[i].outcome = atSettle, out
		emit(mv(mvReturn, i, int(out)), y, chaos)
	}
	fault := func(l move, y world) { y.faults--; emit(l, y, true) }
	if w.at == atBefore && e.bounded && exec && w.body == 0 {
		ret(outTimeout, false)
	} else if w.at == atBefore {
		y := *x
		e.land(&y, w.tok, w.round)
		y.w[i].at = atAfter
		if exec && e.fence && x.p.undo[s] > 0 {
			y.w[i].at, y.w[i].outcome = atSettle, outError // the participant refuses
		}
		emit(mv(mvEffect, i, 0), y, false)
		if e.errs {
			ret(outError, true)
		}
		if e.timeouts {
			ret(outTimeout, true)
		}
		if e.snoozes {
			ret(outSnooze, true)
		}
		if exec {
			if e.skips {
				ret(outSkip, true)
			}
			if e.fails {
				ret(outFail, true)
			}
			if e.halts {
				ret(outHalt, true)
			}
			other := &x.w[1-i]
			if e.noEffects && !x.p.effect[s] && !x.p.flight[s] && (other.at == atIdle || other.tok.step != s || other.tok.dir != 0) {
				ret(outNoEffect, true)
			}
			if e.slow && x.faults > 0 && !x.p.flight[s] {
				y := *x
				y.p.flight[s] = true
				y.w[i].at, y.w[i].outcome = atSettle, outTimeout
				fault(mv(mvSlow, i, 0), y)
			}
		}
	} else {
		ret(outSuccess, false)
		if exec && e.halts {
			ret(outHalt, true)
		}
		if e.snoozes {
			ret(outSnooze, true)
		}
		if e.timeouts && !e.truth {
			ret(outTimeout, true)
		}
		if e.effectErrs {
			ret(outError, true)
		}
		if exec && e.completes {
			ret(outComplete, true)
		}
	}
	if w.cause != 0 && !(e.truth && w.at == atAfter) {
		ret(w.cause, true)
	}
	if e.shutdown && x.faults > 0 && w.cause == 0 {
		y := *x
		y.w[i].cause = outShutdown
		fault(mv(mvShutdown, i, 0), y)
	}
	mine := x.row.open && x.row.token() == w.tok
	if e.zombie && x.faults > 0 && mine && !w.zombie {
		y := *x
		y.w[i].zombie = true
		fault(mv(mvZombie, i, 0), y)
	}
	e.renewMoves(x, i, mine, emit)
}

// renewMoves plays the renewal of the lease, as a store does it.
//
//go:norace
func (e *explorer) renewMoves(x *world, i int, mine bool, emit emitFunc) {
	w, r := &x.w[i], &x.row
	switch {
	case w.zombie || mine && e.hang && w.cause == outRequest && w.renews == 0:
		return // renewals have ended
	case mine && (r.lease < ticksLease || r.turn != 0 && w.cause == 0):
		y := *x
		if r.turn != 0 && w.cause == 0 {
			y.w[i].cause = outRequest
			if e.hang {
				y.w[i].renews = ticksLease
			}
		}
		if r.lease <= 0 && e.mutant != "renewed, still offered" {
			y.row.offered = false
		}
		y.row.lease, y.row.due = ticksLease, ticksLease+ticksMargin
		y.claimFresh = false
		if y != *x {
			emit(mv(mvRenew, i, 0), y, true)
		}
	case !mine && w.cause == 0:
		y := *x
		y.w[i].cause = outLost
		emit(mv(mvRenew, i, 0), y, true)
	}
}

// settleMoves plays Engine.settle: first one write without a lock, which
// conflicts unless fresh; then under the lock.
//
//go:norace
func (e *explorer) settleMoves(x *world, i int, emit emitFunc) {
	w := &x.w[i]
	fault := func(l move, y world) { y.faults--; emit(l, y, true) }
	for _, chain := range []bool{false, true} {
		if chain && w.cause == outShutdown {
			continue
		}
		y := *x
		q := question{kind: askSettle, tok: w.tok, outcome: w.outcome, chain: chain, inherit: never}
		if w.at == atSettle && w.fresh {
			if chain && w.snap*2 >= ticksLease && w.snap <= ticksLease {
				q.inherit = w.snap
			}
		} else {
			q.kind, q.want, q.claimed, q.unsure = askSettleAgain, w.want, e.isClaimed(w), w.at == atSettleAsk
		}
		m := e.do(&y, i, q)
		how := m.how
		opened, publish := m.opened, m.publish
		if chain && !opened {
			continue // nothing differs from handing over
		}
		switch {
		case how == settledGone:
			y.w[i].at, y.w[i].want, y.w[i].void = atGone, token{}, false
			emit(mv(mvAsk, i, 0), y, false)
			if chain {
				return
			}
			continue
		case how == settledMine:
			e.begin(&y, i)
			emit(mv(mvAsk, i, 0), y, false)
			return
		}
		e.tell(&y, w)
		if e.unknown && x.faults > 0 {
			ask := *w
			ask.at, ask.fresh, ask.want, ask.void = atSettleAsk, false, token{}, false
			if opened {
				ask.want = y.row.token()
			}
			z := y
			z.w[i] = ask
			z.w[i].hist, z.w[i].lost = histOwn, w.lost
			fault(mv(mvSettleApplied, i, 0), z)
			z = *x
			z.w[i] = ask
			if opened {
				e.claimed(&z, i)
			}
			fault(mv(mvSettleLost, i, 0), z)
		}
		if opened {
			e.begin(&y, i)
			emit(mv(mvChain, i, 0), y, false)
			continue
		}
		y.w[i] = worldWorker{}
		if publish {
			y.w[i].at = atPublish
		}
		emit(mv(mvSettle, i, 0), y, false)
	}
}
