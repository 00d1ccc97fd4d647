package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leveret-go/leveret/store"
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
	actVerbs = []string{ActCompensate, ActCancel, ActHalt, ActResume, ActRetry, ActCompensate, ActHalt, ActRetry}
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

	limit  int    // states
	whole  bool   // needs all steps
	breaks string // the property that is known not to hold
	mutant string
}

// A violation is panicked with.
type violation struct{ property, why string }

func violate(property, format string, args ...any) {
	panic(violation{property, fmt.Sprintf(format, args...)})
}

type explorer struct {
	scenario
	drawer
	m       machine
	rules   rules
	plan    *plan
	results [outcomes][worldSteps][2]result
}

func newExplorer(s scenario) *explorer {
	e := &explorer{scenario: s}
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

// do lets the machine change the row of y in one transaction of worker by (-1:
// of nobody), and commits.
func (e *explorer) do(y *world, by int, knows bool, f func(m *machine) error) (*machine, error) {
	e.fill(&y.row)
	e.m = machine{x: &e.x, now: worldNow, rules: e.rules}
	if knows {
		e.m.plan = e.plan
	}
	if by >= 0 {
		e.m.rules.worker = worldProcs[e.proc(by)]
	}
	m := &e.m
	if err := f(m); err != nil {
		if e.read() != y.row {
			violate("S6", "an act that failed (%v) changed the row", err)
		}
		return m, err
	}
	if !m.dirty {
		if e.read() != y.row {
			violate("S7", "the row changed without being marked as changed")
		}
		return m, nil
	}
	e.commit(y, by)
	return m, nil
}

func (e *explorer) proc(w int) int {
	if e.sameProcess {
		return 0
	}
	return w
}

// commit makes what the machine did true, and checks what can be seen then only.
func (e *explorer) commit(y *world, by int) {
	m := &e.m
	before, had, was := y.row.epoch, y.row.open, y.row.token()
	y.row = e.read()
	r := &y.row
	for i := range m.change.Attempts {
		a := &m.change.Attempts[i]
		t := tokenOf(a.Lease())
		for j := range y.w {
			w := &y.w[j]
			if w.at == atIdle || w.tok != t {
				continue
			}
			switch {
			case a.Late && w.hist == histOwn:
				violate("S10", "%s records its own committed result a second time, as a late one", worldProcs[j])
			case a.Late && w.hist == histLate:
				violate("S10", "%s records its late result twice", worldProcs[j])
			case a.Late && w.hist == histNone:
				violate("S10", "a late result of an attempt that is not in the history")
			case a.Late:
				w.hist = histLate
			case w.hist != histNone:
				violate("S1", "an attempt number was used twice: %v", t)
			case a.Status == store.AttemptAbandoned:
				w.hist, w.lost = histAbandoned, true
			default:
				w.hist = histOwn
			}
		}
	}
	for j := range y.w {
		y.w[j].fresh = j == by
	}
	y.claimFresh = false
	for i := range m.change.Audit {
		switch m.change.Audit[i].Act {
		case ActReopen:
			y.moved++
		case ActGiveUp:
			if e.realLoss && int(y.losses) < e.maxResumes+1 {
				violate("S8", "given up, but only %d pointers were lost since the last open", y.losses)
			}
			y.losses = 0
		}
	}
	if r.epoch != before {
		y.ptr = 0 // they are stale
		if r.epoch > y.moved {
			violate("S6", "an act was applied twice: epoch %d after %d acts", r.epoch, y.moved)
		}
	}
	if m.opened && !(had && was == r.token()) { // not one that was open before
		e.opened(y, by)
	}
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
			if needsUndo(&e.x.Ledger[i]) {
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
	if e.realLoss && y.losses < 3 {
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
		if e.fence && p.tomb[s] || !e.noMemory && p.seen[s] {
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
	p.undo[s], p.tomb[s], p.effect[s] = round, true, false
}

// The moves that a world allows are emitted with what they lead to. chaos marks
// those that do not belong to a prompt run without faults.
type emitFunc func(l move, y world, chaos bool)

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

func (e *explorer) workerMoves(x *world, i int, emit emitFunc) {
	w := &x.w[i]
	fault := func(l move, y world) {
		if x.faults > 0 {
			y.faults--
			emit(l, y, true)
		}
	}
	pointer := Pointer{Epoch: int(x.row.epoch)}
	switch w.at {
	case atIdle:
		if x.ptr == 0 {
			return
		}
		y := *x
		y.ptr--
		m, _ := e.do(&y, i, true, func(m *machine) error { e.handle(m, pointer); return nil })
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
		m, _ := e.do(&y, i, true, func(m *machine) error {
			m.handleAgain(Pointer{Epoch: int(w.epoch)}, w.want.lease(), e.isClaimed(w))
			return nil
		})
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
			_, _ = e.do(&y, i, true, func(m *machine) error {
				if e.mutant != "late results ignored" {
					m.late(e.ref(w), e.result(w))
				}
				return nil
			})
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

// handle is machine.handle, spoilt by a mutant.
func (e *explorer) handle(m *machine, p Pointer) {
	if e.mutant == "request ignored by handle" && !m.live() && m.x.Attempt != nil {
		m.x.Request = nil
	}
	m.handle(p)
	e.spoil(m)
}

// spoil changes what the machine did.
func (e *explorer) spoil(m *machine) {
	for i := range m.x.Ledger {
		l := &m.x.Ledger[i]
		switch e.mutant {
		case "doubt skipped":
			if l.Status == store.StepInDoubt {
				l.Status = store.StepPending
			}
		case "doubt_until not kept":
			l.DoubtUntil = nil
		}
	}
	if e.mutant == "backoff without due time" && m.x.WakeAt != nil {
		m.x.DueAt = nil
	}
	if e.mutant == "due at the lease's end" && m.x.Attempt != nil {
		m.x.DueAt = &m.x.Attempt.LeaseUntil
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

func (e *explorer) ref(w *worldWorker) attemptRef {
	return attemptRef{lease: w.tok.lease(), startedAt: worldNow, leaseUntil: *tickAt(w.snap)}
}

func (e *explorer) result(w *worldWorker) result {
	r := e.results[w.outcome][w.tok.step][w.tok.dir]
	if e.mutant == "doubt skipped" {
		r.doubt = false
	}
	return r
}

// tell notes that a success of Execute has reached the store.
func (e *explorer) tell(y *world, w *worldWorker) {
	if w.tok.dir == 0 && (w.outcome == outSuccess || w.outcome == outComplete) {
		y.told[w.tok.step] = true
	}
	if w.tok.dir == 0 && w.outcome == outComplete {
		y.completes = true
	}
}

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
		if exec && e.fence && x.p.tomb[s] {
			y.w[i].at, y.w[i].outcome = atSettle, outError // the participant refuses
		}
		emit(mv(mvEffect, i, 0), y, false)
		if e.errs {
			ret(outError, true)
		}
		if e.timeouts {
			ret(outTimeout, true)
		}
		if e.snoozes && w.tok.num < 3 {
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
		if e.snoozes && w.tok.num < 3 {
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
func (e *explorer) settleMoves(x *world, i int, emit emitFunc) {
	w := &x.w[i]
	fault := func(l move, y world) { y.faults--; emit(l, y, true) }
	for _, chain := range []bool{false, true} {
		if chain && w.cause == outShutdown {
			continue
		}
		y := *x
		var how settling
		m, _ := e.do(&y, i, true, func(m *machine) error {
			ref := e.ref(w)
			if open, ok := m.x.Lease(); ok && e.mutant == "token ignored" {
				ref.lease = open
			}
			if w.at == atSettle && w.fresh {
				var inherit *time.Time
				if left := w.snap; left*2 >= ticksLease && left <= ticksLease {
					inherit = tickAt(left)
				}
				m.settle(ref, e.result(w), chain, inherit)
				e.spoil(m)
				return nil
			}
			how = m.settleAgain(ref, e.result(w), chain, w.want.lease(), e.isClaimed(w), w.at == atSettleAsk)
			e.spoil(m)
			return nil
		})
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
		m, _ := e.do(&y, -1, false, func(m *machine) error { m.handle(Pointer{Epoch: int(x.row.epoch)}); return nil })
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
	claimed := *tickAt(30) // not what the row has
	if x.claimFresh {
		claimed = *tickAt(x.row.due)
	}
	act := func(kind int, chaos bool, f func(m *machine)) {
		y := *x
		y.turn, y.claimFresh = 0, false
		m, _ := e.do(&y, -1, true, func(m *machine) error { f(m); return nil })
		if m.publish {
			published(&y)
		}
		emit(mv(kind, 0, 0), y, chaos)
	}
	after := ticksPickup * worldTick
	switch {
	case x.turn == 1:
		y := *x
		y.turn, y.claimFresh = 0, false
		published(&y)
		emit(mv(mvSweep, 0, 0), y, false)
	case x.ptr == 0:
		act(mvSweep, false, func(m *machine) { m.lost(&claimed, e.maxResumes, engineBy("test")) })
		if e.depth {
			act(mvSweepAgain, true, func(m *machine) { m.again(claimed, after, true) })
			act(mvSweepAnew, true, func(m *machine) { m.anew(claimed) })
		}
	default:
		act(mvSweepAgain, false, func(m *machine) { m.again(claimed, after, true) })
	}
	if e.crash && x.faults > 0 {
		y := *x
		y.turn, y.claimFresh = 0, false
		e.lostOne(&y)
		fault(mv(mvSweepDies, 0, 0), y)
	}
}

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

func (e *explorer) actMoves(x *world, emit emitFunc) {
	for _, op := range e.ops {
		y := *x
		y.acts--
		y.moved++
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
		_, err := e.do(&y, -1, op%2 == 0, func(m *machine) error {
			err := m.act(actVerbs[op], By{Actor: "test", Reason: "asked"}, force)
			return err
		})
		if err != nil {
			continue // refused, and do has seen that nothing changed
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
