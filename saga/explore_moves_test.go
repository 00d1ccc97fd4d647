package saga

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
		if a == actResolveDone || a == actResolvePending {
			return "operator: " + actNames[a] + ": " + worldNames[b]
		}
		return "operator: " + actNames[a]
	}
	return "?"
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
		if op != actResolveDone && op != actResolvePending {
			e.actMove(x, op, 0, emit)
			continue
		}
		for s := range e.steps { // a person who looks sees what is there, and nothing that may still come
			if x.p.flight[s] || x.busyWith(s) || x.p.effect[s] != (op == actResolveDone) {
				continue
			}
			e.actMove(x, op, s, emit)
		}
	}
}

//go:norace
func (e *explorer) actMove(x *world, op, step int, emit emitFunc) {
	y := *x
	y.acts--
	was := x.row.status
	force := forced(op)
	if force && !(x.row.open && x.row.lease > -ticksMargin) {
		return // as without
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
	case actSkip, actForceSkip:
		y.parked = false
		if was == isFailed {
			y.turned = false
		}
	}
	q := question{kind: askAct, act: int8(op), force: force, knows: op%2 == 0, tok: token{step: int8(step)}}
	if e.do(&y, -1, q).refused {
		return // and nothing changed: see ask
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
	case actSkip, actForceSkip:
		for i := range e.steps {
			before, after := x.row.ledger[i], r.ledger[i]
			if before.status != after.status || before.stray && !after.stray {
				y.word[i] = true
			}
		}
	}
	y.parked = y.parked && r.status < isCompleted
	y.retried = y.retried && (op == actRetry || x.retried)
	emit(mv(mvAct, op, step), y, true)
}
