package saga

import (
	"time"

	"github.com/leveret-go/leveret/store"
)

// What the machine can be asked to do.
const (
	askHandle = int8(iota)
	askHandleAgain
	askSettle
	askSettleAgain
	askLate
	askLost
	askAgain
	askAnew
	askAct
)

// A question is a call of the machine in one transaction: all that its answer
// depends on.
type question struct {
	row           worldRow
	kind          int8
	worker        int8 // its process; -1: nobody's
	knows         bool // the process knows the saga
	tok, want     token
	epoch         int8 // of the pointer
	outcome       int8
	inherit       int8 // ticks left of the lease that may be inherited, or never
	act           int8
	chain         bool
	claimed       bool // as in handleAgain; of the sweep: due_at is what its claim wrote
	unsure, force bool
}

// A response is what the machine made of a question.
type response struct {
	row                    worldRow
	dirty, opened, publish bool
	refused                bool
	how                    settling
	closed                 [3]closing
	reopened, gaveUp       int8
}

// A closing is an entry of an attempt in the history.
type closing struct {
	tok             token
	late, abandoned bool
}

// answer asks the machine, or remembers what it said before: most worlds differ
// in other things than the row.
//
//go:norace
func (e *explorer) answer(q question) response {
	if a, ok := e.asked[q]; ok {
		return a
	}
	a := e.ask(q)
	if len(e.asked) > 2_000_000 {
		clear(e.asked)
	}
	e.asked[q] = a
	return a
}

func (e *explorer) ask(q question) (a response) {
	e.fill(&q.row)
	m := &machine{x: &e.x, now: worldNow, rules: e.rules}
	if q.knows {
		m.plan = e.plan
	}
	if q.worker >= 0 {
		m.rules.worker = worldProcs[q.worker]
	}
	how, err := e.call(m, &q)
	a = response{row: e.read(), dirty: m.dirty, opened: m.opened, publish: m.publish, refused: err != nil, how: how}
	switch {
	case err != nil && a.row != q.row:
		violate("S6", "an act that failed (%v) changed the row", err)
	case !m.dirty && a.row != q.row:
		violate("S7", "the row changed without being marked as changed")
	}
	for i := range m.change.Attempts {
		t := &m.change.Attempts[i]
		a.closed[i] = closing{tokenOf(t.Lease()), t.Late, t.Status == store.AttemptAbandoned}
	}
	for i := range m.change.Audit {
		switch Act(m.change.Audit[i].Act) {
		case ActReopen:
			a.reopened++
		case ActGiveUp:
			a.gaveUp++
		}
	}
	return a
}

// call calls the machine.
func (e *explorer) call(m *machine, q *question) (how settling, err error) {
	claimed := tickAt(30) // not what the row has
	if q.claimed {
		claimed = tickAt(max(q.row.due, 0))
	}
	ref := attemptRef{lease: q.tok.lease(), startedAt: worldNow, leaseUntil: worldNow}
	var res result
	if q.outcome != 0 {
		res = e.result(q)
	}
	switch q.kind {
	case askHandle:
		if e.mutant == "request ignored by handle" && !m.live() && m.x.Attempt != nil {
			m.x.Request = nil
		}
		m.handle(Pointer{Epoch: int(q.epoch)})
		e.spoil(m)
	case askHandleAgain:
		m.handleAgain(Pointer{Epoch: int(q.epoch)}, q.want.lease(), q.claimed)
	case askSettle, askSettleAgain:
		if open, ok := m.x.Lease(); ok && e.mutant == "token ignored" {
			ref.lease = open
		}
		if q.kind == askSettle {
			var inherit *time.Time
			if q.inherit != never {
				inherit = tickAt(q.inherit)
			}
			m.settle(ref, res, q.chain, inherit)
		} else {
			how = m.settleAgain(ref, res, q.chain, q.want.lease(), q.claimed, q.unsure)
		}
		e.spoil(m)
	case askLate:
		m.late(ref, res)
	case askLost:
		m.lost(claimed, e.maxResumes, engineBy("test"))
	case askAgain:
		m.again(*claimed, ticksPickup*worldTick, true)
	case askAnew:
		m.anew(*claimed)
	case askAct:
		by := By{Actor: "test", Reason: "asked"}
		switch act := actVerbs[q.act]; act {
		case ActMove:
			err = m.operate(act, by, nil, func() error { return m.move("other", false) })
		case ActResolve:
			is := store.StepDone
			if q.act == actResolvePending {
				is = store.StepPending
			}
			err = m.operate(act, by, nil, func() error { return m.resolve(worldNames[q.tok.step], is, false) })
		default:
			err = m.act(act, by, q.force)
		}
	}
	return how, err
}

// do lets the machine change the row of y in one transaction of worker by (-1:
// of nobody), and commits.
//
//go:norace
func (e *explorer) do(y *world, by int, q question) response {
	q.row, q.worker = y.row, -1
	if by >= 0 {
		q.worker, q.knows = int8(e.proc(by)), true
	}
	a := e.answer(q)
	if a.dirty && !a.refused {
		e.commit(y, by, &a, q.kind == askAct)
	}
	return a
}

func (e *explorer) proc(w int) int {
	if e.sameProcess {
		return 0
	}
	return w
}

// commit makes what the machine did true, and checks what can be seen then only.
//
//go:norace
func (e *explorer) commit(y *world, by int, a *response, act bool) {
	had, was, allowed := y.row.open, y.row.token(), y.row.epoch+a.reopened
	if y.row.turn != 0 {
		allowed++ // it was asked for before
	}
	if act {
		allowed++
	}
	if a.row.epoch > allowed {
		violate("S6", "an act was applied twice: epoch %d after %d", a.row.epoch, y.row.epoch)
	}
	if a.row.epoch != y.row.epoch {
		y.ptr = 0 // they are stale
	}
	y.row = a.row
	r := &y.row
	for _, c := range a.closed {
		if c.tok.num == 0 {
			break
		}
		for j := range y.w {
			w := &y.w[j]
			if w.at == atIdle || w.tok != c.tok {
				continue
			}
			switch {
			case c.late && w.hist == histOwn:
				violate("S10", "%s records its own committed result a second time, as a late one", worldProcs[j])
			case c.late && w.hist == histLate:
				violate("S10", "%s records its late result twice", worldProcs[j])
			case c.late && w.hist == histNone:
				violate("S10", "a late result of an attempt that is not in the history")
			case c.late:
				w.hist = histLate
			case w.hist != histNone:
				violate("S1", "an attempt number was used twice: %v", c.tok)
			case c.abandoned:
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
	if a.gaveUp > 0 {
		if e.realLoss && int(y.losses) < e.maxResumes+1 {
			violate("S8", "given up, but only %d pointers were lost since the last open", y.losses)
		}
		y.losses = 0
	}
	if r.status >= isCompleted {
		y.parked = false // a Halt is void
	}
	if r.ended() {
		y.losses = 0 // what brings it back starts counting anew
	}
	if a.opened && !(had && was == r.token()) { // not one that was open before
		e.opened(y, by)
	}
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

func (e *explorer) result(q *question) result {
	r := e.results[q.outcome][q.tok.step][q.tok.dir]
	if e.mutant == "doubt skipped" {
		r.doubt = false
	}
	return r
}
