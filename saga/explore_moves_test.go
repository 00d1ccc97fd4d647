package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// What bodies return.
const (
	outSuccess = int8(iota + 1)
	outError
	outTimeout
	outSkip
	outFail
	outComplete
	outHalt
	outNoEffect
	outSnooze
	outShutdown
	outRequest
	outLost
	outcomes
)

var outcomeNames = [outcomes]string{"", "success", "an error", "a time-out", "Skip", "Fail", "Complete", "Halt", "NoEffect", "Snooze", "interrupted (shutdown)", "interrupted (request)", "interrupted (lease lost)"}

// A move is one step from world to world.
type move uint32

const (
	mvStart = iota
	mvDeliver
	mvDeliverTwice
	mvOpenApplied
	mvOpenLost
	mvLose
	mvEffect
	mvReturn
	mvSlow
	mvSettle
	mvChain
	mvSettleApplied
	mvSettleLost
	mvAsk
	mvHistory
	mvLateApplied
	mvLateLost
	mvPublish
	mvCrash
	mvShutdown
	mvZombie
	mvRenew
	mvLand
	mvClaim
	mvSweep
	mvSweepAgain
	mvSweepAnew
	mvSweepDies
	mvUnknown
	mvTick
	mvAct
)

func mv(kind, a, b int) move { return move(kind<<16 | a<<8 | b) }

func (l move) String() string {
	kind, a, b := int(l>>16), int(l>>8&255), int(l&255)
	who := string(rune('A' + a%26))
	switch kind {
	case mvStart:
		return "started"
	case mvDeliver:
		return who + ": pointer delivered"
	case mvDeliverTwice:
		return who + ": pointer delivered, a duplicate stays behind"
	case mvOpenApplied:
		return who + ": pointer delivered, open committed, reply lost"
	case mvOpenLost:
		return who + ": pointer delivered, open NOT committed, reply lost"
	case mvLose:
		return "broker loses a pointer"
	case mvEffect:
		return who + ": the effect lands"
	case mvReturn:
		return who + ": body returns " + outcomeNames[b]
	case mvSlow:
		return who + ": request leaves for the participant, body times out"
	case mvSettle:
		return who + ": settles, hands over"
	case mvChain:
		return who + ": settles and goes on"
	case mvSettleApplied:
		return who + ": settle committed, reply lost"
	case mvSettleLost:
		return who + ": settle NOT committed, reply lost"
	case mvAsk:
		return who + ": finds out about its unknown write"
	case mvHistory:
		return who + ": finds its attempt gone, reads the history, notes the late result"
	case mvLateApplied:
		return who + ": late result committed, reply lost"
	case mvLateLost:
		return who + ": late result NOT committed, reply lost"
	case mvPublish:
		return who + ": publishes the pointer"
	case mvCrash:
		return who + ": killed"
	case mvShutdown:
		return who + ": shuts down, ctx ends"
	case mvZombie:
		return who + ": is frozen, renews no more"
	case mvRenew:
		return who + ": renews the lease"
	case mvLand:
		return "participant executes the slow request of " + worldNames[a]
	case mvClaim:
		return "sweep claims the row"
	case mvSweep:
		return "sweep acts on an empty queue, or for the first time"
	case mvSweepAgain:
		return "sweep publishes again (queue not empty or unknown)"
	case mvSweepAnew:
		return "sweep publishes anew (consumers came back)"
	case mvSweepDies:
		return "sweeping process is killed"
	case mvUnknown:
		return "a process that does not know the saga gets a pointer"
	case mvTick:
		return "tick"
	case mvAct:
		return "operator: " + actNames[a]
	}
	return "?"
}

// The acts of operators.
const (
	actCompensate = iota
	actCancel
	actHalt
	actResume
	actRetry
	actForceCompensate
	actForceHalt
	actForceRetry
)

var (
	actNames = []string{"Compensate", "Cancel", "Halt", "Resume", "Retry", "Compensate (force)", "Halt (force)", "Retry (force)"}
	actVerbs = []Act{ActCompensate, ActCancel, ActHalt, ActResume, ActRetry, ActCompensate, ActHalt, ActRetry}
)

// A scenario says what can happen.
type scenario struct {
	name        string
	steps       int // 3
	compensable [worldSteps]bool
	inDoubt     InDoubt // of the steps; default by Compensate
	body        int8    // time-out of a body, in ticks
	attempts    int     // budget of a step
	maxResumes  int
	onStalled   OnStalled

	faults, acts int8
	either       bool // a fault leaves no act, and an act no fault

	// Faults, each of which costs one of the budget.
	crash, lose, twice, unknown, shutdown, unknownProcess, slow, zombie bool
	lapse                                                               bool // leases of living workers run out, at no cost
	sameProcess                                                         bool // both workers are slots of one process
	// Outcomes besides success.
	errs, timeouts, skips, fails, completes, halts, snoozes, noEffects bool
	effectErrs                                                         bool // an ordinary error may come after the effect: ErrorsInDoubt
	// Participants.
	fence    bool // it refuses an effect after its undo
	noMemory bool // it does not know keys
	truth    bool // a body whose effect landed returns success
	bounded  bool // no effect leaves a body after its time-out
	hang     bool // bodies may ignore an ended ctx for ever
	ops      []int
	depth    bool // the sweep may also see a queue that is not empty, or unknown
	realLoss bool // S8: whoever is given up has really lost so many pointers

	limit   int    // states
	partial bool   // it may stop there
	breaks  string // the property that is known not to hold
	mutant  string
}

// A violation is panicked with.
type violation struct{ property, why string }

func violate(property, format string, args ...any) {
	panic(violation{property, fmt.Sprintf(format, args...)})
}

type explorer struct {
	scenario
	drawer
	rules   rules
	plan    *plan
	results [outcomes][worldSteps][2]result
	asked   map[question]answer
	graph   graph
	retries bool // an act may undo a stray step again
	brief   bool // no body's time-out is ahead when its attempt is taken over
}

func newExplorer(s scenario) *explorer {
	e := &explorer{scenario: s, asked: map[question]answer{}}
	force := slices.ContainsFunc(s.ops, func(op int) bool { return op >= actForceCompensate })
	e.retries = slices.Contains(s.ops, actRetry)
	e.brief = !force && s.body <= ticksLease/2+ticksMargin
	body := func(context.Context, *Run[struct{}]) error { return nil }
	policy := RetryPolicy{Attempts: s.attempts, Initial: worldTick, Max: worldTick}
	d := Definition[struct{}]{Name: "walk"}
	for i := range s.steps {
		st := Step[struct{}]{
			Name: worldNames[i], Execute: body, Retry: policy, CompensateRetry: policy, ErrorsInDoubt: s.effectErrs,
			Timeout: time.Duration(s.body) * worldTick,
		}
		if s.compensable[i] {
			st.Compensate = body
			st.InDoubt = s.inDoubt
		} else if s.inDoubt == InDoubtHalt || s.inDoubt == InDoubtIgnore {
			st.InDoubt = s.inDoubt
		}
		d.Steps = append(d.Steps, st)
	}
	if err := checkDefinition(d); err != nil {
		panic(err)
	}
	e.plan, _ = erase(d)
	e.drawer.plan = e.plan.ledger()
	e.rules = rules{
		lease: ticksLease * worldTick, margin: ticksMargin * worldTick, pickup: ticksPickup * worldTick,
		stepTimeout: time.Duration(s.body) * worldTick, maxResumes: s.maxResumes, onStalled: s.onStalled,
	}
	for out := outSuccess; out < outcomes; out++ {
		for i := range s.steps {
			for d := range 2 {
				e.results[out][i][d] = e.resultOf(out, e.plan.steps[i], worldDirections[d])
			}
		}
	}
	return e
}

// resultOf is what judge makes of an outcome.
func (e *explorer) resultOf(out int8, s *planStep, d Direction) result {
	var ret returned
	broken := errors.New("broken")
	switch out {
	case outError:
		ret.err = broken
	case outTimeout:
		ret.err, ret.cause = context.DeadlineExceeded, context.DeadlineExceeded
	case outSkip:
		ret.err = Skip("test")
	case outFail:
		ret.err = Fail(broken)
	case outComplete:
		ret.err = Complete("test")
	case outHalt:
		ret.err = Halt("test")
	case outNoEffect:
		ret.err = NoEffect(broken)
	case outSnooze:
		ret.err = Snooze(worldTick)
	case outShutdown:
		ret.err, ret.cause = context.Canceled, ErrShutdown
	case outRequest:
		ret.err, ret.cause = context.Canceled, ErrInterrupted
	case outLost:
		ret.err, ret.cause = context.Canceled, ErrAttemptLost
	}
	return judge(s, d, ret)
}

// start returns the world in which an execution has just been started.
func (e *explorer) start() world {
	w := world{faults: e.faults, acts: e.acts, ptr: 1}
	w.row = worldRow{due: ticksPickup, wake: never, offered: true}
	return w
}

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

// lost counts a pointer that is really gone.
func (e *explorer) lostOne(y *world) {
	if e.realLoss && y.losses < 3 && !y.row.ended() {
		y.losses++
	}
}

// published puts a pointer into the queue.
func published(y *world) {
	if !y.row.ended() {
		y.ptr = min(y.ptr+1, 2)
	}
}

// land lets an effect or an undo reach the participant.
func (e *explorer) land(y *world, t token, round int8) {
	p, s := &y.p, t.step
	if t.dir == 0 {
		if e.fence && p.undo[s] > 0 || !e.noMemory && p.seen[s] {
			return
		}
		p.seen[s], p.effect[s] = true, true
		return
	}
	if !e.noMemory && p.undo[s] >= round {
		return
	}
	if p.undo[s] > 0 && round > p.undo[s] && !y.retried {
		violate("S9", "%s is undone a second time under a new key, and nobody asked for it", worldNames[s])
	}
	p.undo[s], p.effect[s] = round, false
}

// The moves that a world allows are emitted with what they lead to. chaos marks
// those that do not belong to a prompt run without faults.
type emitFunc func(l move, y world, chaos bool)

//go:norace
func (e *explorer) moves(x *world, emit emitFunc) {
	for i := range x.w {
		e.workerMoves(x, i, emit)
	}
	e.brokerMoves(x, emit)
	e.sweepMoves(x, emit)
	e.tickMove(x, emit)
	if x.acts > 0 {
		e.actMoves(x, emit)
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

//go:norace
func (e *explorer) brokerMoves(x *world, emit emitFunc) {
	fault := func(l move, y world) { y.faults--; emit(l, y, true) }
	if e.lose && x.faults > 0 && x.ptr > 0 {
		y := *x
		y.ptr--
		e.lostOne(&y)
		fault(mv(mvLose, 0, 0), y)
	}
	if e.unknownProcess && x.faults > 0 && x.ptr > 0 {
		y := *x
		y.ptr--
		m := e.do(&y, -1, question{kind: askHandle, epoch: x.row.epoch})
		if m.opened {
			violate("S1", "a process that does not know the saga opened an attempt")
		}
		if m.publish {
			published(&y)
		}
		fault(mv(mvUnknown, 0, 0), y)
	}
	for s := range x.p.flight {
		if x.p.flight[s] {
			y := *x
			y.p.flight[s] = false
			e.land(&y, token{step: int8(s)}, 1)
			emit(mv(mvLand, s, 0), y, false)
		}
	}
}

//go:norace
func (e *explorer) sweepMoves(x *world, emit emitFunc) {
	fault := func(l move, y world) { y.faults--; emit(l, y, true) }
	if x.turn == 0 {
		if x.row.due == 0 && !x.row.ended() {
			y := *x
			y.turn, y.claimFresh = 1, true
			if x.row.offered {
				y.turn = 2
			}
			y.row.due, y.row.offered = ticksPickup, true
			emit(mv(mvClaim, 0, 0), y, false)
		}
		return
	}
	act := func(move int, chaos bool, kind int8) {
		y := *x
		y.turn, y.claimFresh = 0, false
		m := e.do(&y, -1, question{kind: kind, knows: true, claimed: x.claimFresh})
		if m.publish {
			published(&y)
		}
		emit(mv(move, 0, 0), y, chaos)
	}
	switch {
	case x.turn == 1:
		y := *x
		y.turn, y.claimFresh = 0, false
		published(&y)
		emit(mv(mvSweep, 0, 0), y, false)
	case x.ptr == 0:
		act(mvSweep, false, askLost)
		if e.depth {
			act(mvSweepAgain, true, askAgain)
			act(mvSweepAnew, true, askAnew)
		}
	default:
		act(mvSweepAgain, false, askAgain)
	}
	if e.crash && x.faults > 0 {
		y := *x
		y.turn, y.claimFresh = 0, false
		e.lostOne(&y)
		fault(mv(mvSweepDies, 0, 0), y)
	}
}

//go:norace
func (e *explorer) tickMove(x *world, emit emitFunc) {
	r := &x.row
	for i := range x.w {
		w := &x.w[i]
		if e.realLoss && w.at == atPublish {
			return // publishing is prompt, unless the worker dies
		}
		hung := w.zombie || e.hang && w.cause == outRequest && w.renews == 0
		if r.open && !e.lapse && w.at != atIdle && w.tok == r.token() && r.lease == 1 && !hung {
			return // a living worker renews in time
		}
	}
	y := *x
	y.row.tick()
	for i := range y.w {
		w := &y.w[i]
		w.snap, w.body, w.renews = less(w.snap), less(w.body), less(w.renews)
	}
	if y != *x {
		emit(mv(mvTick, 0, 0), y, true)
	}
}

//go:norace
func (e *explorer) actMoves(x *world, emit emitFunc) {
	for _, op := range e.ops {
		y := *x
		y.acts--
		was := x.row.status
		force := op >= actForceCompensate
		if force && !(x.row.open && x.row.lease > -ticksMargin) {
			continue // as without
		}
		switch op { // ghosts first: what the act itself opens or ends is seen by them
		case actResume:
			y.parked = false
		case actRetry, actForceRetry:
			if was >= isCompleted {
				y.turned, y.parked, y.retried = false, false, true
			}
		case actCompensate, actCancel, actForceCompensate:
			y.parked = false
		}
		if e.do(&y, -1, question{kind: askAct, act: int8(op), force: force, knows: op%2 == 0}).refused {
			continue // and nothing changed: see ask
		}
		r := &y.row
		switch op {
		case actCompensate, actCancel, actForceCompensate:
			y.turned = true
		case actHalt, actForceHalt:
			y.parked = r.halt || r.status == isHalted
		case actRetry, actForceRetry:
			if r.status == isHalted {
				y.parked = true
			}
		}
		if r.status >= isCompleted {
			y.parked = false
		}
		y.retried = y.retried && (op == actRetry || x.retried)
		emit(mv(mvAct, op, 0), y, true)
	}
}
