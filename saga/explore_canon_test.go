package saga

import "github.com/leveret-go/leveret/store"

// canon is w without what cannot matter any more, and with its workers in an
// order and under names of its own: worlds with one canon go on alike
// (TestExplorerForgetsNothing).
//
//go:norace
func (e *explorer) canon(w *world) world {
	y := *w
	for i := range y.w {
		e.forgetWorker(&y, &y.w[i])
	}
	if e.either && (y.faults < e.faults || y.acts < e.acts) {
		y.faults, y.acts = 0, 0
	}
	e.forgetRow(&y)
	e.renumber(&y)
	if y.w[1].before(&y.w[0], &y.row) {
		y.w[0], y.w[1] = y.w[1], y.w[0]
		if !e.sameProcess {
			if y.row.open {
				y.row.proc = 1 - y.row.proc
			}
			for i := range y.w {
				for _, t := range []*token{&y.w[i].tok, &y.w[i].want} {
					if t.num > 0 {
						t.proc = 1 - t.proc
					}
				}
			}
		}
	}
	// Nobody is left who could tell whose a dead worker's attempt was.
	if y.row.open && y.row.proc != 0 {
		known := false
		for i := range y.w {
			for _, t := range []token{y.w[i].tok, y.w[i].want} {
				t.proc = y.row.proc
				known = known || t == y.row.token()
			}
		}
		if !known {
			y.row.proc = 0
		}
	}
	return y
}

// forgetWorker drops what worker w of y never looks at again.
//
//go:norace
func (e *explorer) forgetWorker(y *world, w *worldWorker) {
	if w.at == atIdle || w.at == atPublish {
		*w = worldWorker{at: w.at}
		return
	}
	if w.at == atOpenAsk {
		*w = worldWorker{at: w.at, tok: w.tok, want: w.want, epoch: w.epoch, void: w.void}
		return
	}
	mine := y.row.open && y.row.token() == w.tok
	if !mine || w.at == atSettleAsk {
		w.fresh = false
	}
	if !w.fresh || w.snap*2 < ticksLease {
		w.snap = 0 // too short to be inherited
	}
	if w.at != atBefore || w.tok.dir == 0 {
		w.round = 0
	}
	if w.at != atBefore || w.tok.dir == 1 || !e.bounded {
		w.body = 0
	}
	if w.at == atBefore || w.at == atAfter {
		return
	}
	w.lost = false
	keep := w.cause == outShutdown && w.at != atGone // it does not chain
	if e.hang && mine {
		keep = keep || w.cause == outRequest // its renewals have an end
	} else {
		w.renews = 0
	}
	if !keep {
		w.cause = 0
	}
	if !mine {
		w.zombie = false
	}
	if !mine && w.at == atGone && w.outcome != outSuccess && w.outcome != outComplete || w.at == atGone && w.tok.dir == 1 {
		w.outcome = outError // late, they are all the same
	}
}

// busyWith reports whether a worker may still have the effect of step i.
//
//go:norace
func (w *world) busyWith(i int) bool {
	for j := range w.w {
		if v := &w.w[j]; v.at != atIdle && v.at != atPublish && int(v.tok.step) == i && v.tok.dir == 0 {
			return true
		}
	}
	return false
}

// forgetRow drops what of the row, the participants and the ghosts plays no part
// any more.
//
//go:norace
func (e *explorer) forgetRow(y *world) {
	r := &y.row
	if r.dir == 1 && !e.bounded || e.brief && !e.bounded {
		r.body = 0
	}
	undone := false
	for i := range e.steps {
		l := &r.ledger[i]
		undone = undone || worldSteppings[l.status] == store.StepUndone
		if !e.compensable[i] && e.inDoubt != InDoubtHalt || worldSteppings[l.status] == store.StepUndone && !e.retries {
			l.doubt = 0 // no undo waits for it
		}
		if !e.noMemory && e.fence && y.p.undo[i] > 0 || e.noMemory {
			y.p.seen[i] = false
		}
		if e.inDoubt != InDoubtIgnore {
			y.told[i] = false
		}
		if !e.compensable[i] || !y.p.effect[i] && !y.p.flight[i] && !y.busyWith(i) {
			y.word[i] = false // nothing is there to answer for
		}
	}
	r.reason = 0 // words only
	if worldTurns[r.way] != store.TurnCancel {
		r.way = 0
	}
	if undone {
		r.failed = 0 // the walk does not return to it
	}
	if r.ended() {
		y.ptr = 0 // they are dropped: see check
		if len(e.ops) == 0 && y.w[0].at == atIdle && y.w[1].at == atIdle {
			y.turn, y.claimFresh = 0, false // nothing brings it back
		}
	}
}

// renumber gives epochs and attempts the lowest numbers with which all that are
// still known can be told apart.
//
//go:norace
func (e *explorer) renumber(y *world) {
	r := &y.row
	var live [5]*token
	n := 0
	open := r.token()
	if r.open {
		live[n], n = &open, n+1
	}
	for i := range y.w {
		w := &y.w[i]
		for _, t := range []*token{&w.tok, &w.want} {
			if t.num > 0 {
				live[n], n = t, n+1
			}
		}
	}
	all := live[:n]
	// Numbers, within step, direction and epoch.
	var nums [5]int8
	below := func(step, dir, epoch, num int8) (k int8) { // distinct known numbers up to num
		for i, t := range all {
			if t.step != step || t.dir != dir || t.epoch != epoch || t.num > num {
				continue
			}
			first := true
			for _, u := range all[:i] {
				if u.step == step && u.dir == dir && u.epoch == epoch && u.num == t.num {
					first = false
				}
			}
			if first {
				k++
			}
		}
		return k
	}
	for i, t := range all {
		nums[i] = below(t.step, t.dir, t.epoch, t.num)
		if t.dir == r.dir && t.epoch == r.epoch {
			if o := r.ledger[t.step].opens; t.num > o { // not opened yet
				nums[i] = t.num - o + below(t.step, t.dir, t.epoch, o)
			}
		}
	}
	for i := range e.steps {
		r.ledger[i].opens = below(int8(i), r.dir, r.epoch, r.ledger[i].opens)
	}
	// Epochs.
	var epochs [8]*int8
	k := 0
	for _, t := range all {
		epochs[k], k = &t.epoch, k+1
	}
	for i := range y.w {
		if y.w[i].at == atOpenAsk {
			epochs[k], k = &y.w[i].epoch, k+1
		}
	}
	epochs[k], k = &r.epoch, k+1
	var ranks [8]int8
	for i, a := range epochs[:k] {
		for j, b := range epochs[:k] {
			if *b >= *a {
				continue
			}
			first := true
			for _, c := range epochs[:j] {
				first = first && *c != *b
			}
			if first {
				ranks[i]++
			}
		}
	}
	for i, a := range epochs[:k] {
		*a = ranks[i]
	}
	for i, t := range all {
		t.num = nums[i]
	}
	if r.open {
		r.num = open.num
	}
}

// before orders workers, by what is the same whatever they are called.
//
//go:norace
func (w *worldWorker) before(v *worldWorker, r *worldRow) bool {
	bit := func(b bool) int8 {
		if b {
			return 1
		}
		return 0
	}
	key := func(w *worldWorker) [23]int8 {
		return [23]int8{
			w.at, w.tok.step, w.tok.dir, w.tok.epoch, w.tok.num, w.want.step, w.want.num, w.outcome, w.cause, w.hist, w.snap, w.body,
			w.renews, bit(w.fresh), bit(w.lost), bit(w.zombie), bit(w.void), w.round, w.want.dir, w.want.epoch, w.epoch,
			bit(r.open && w.tok == r.token()), bit(r.open && w.want == r.token()),
		}
	}
	a, b := key(w), key(v)
	for i := range a {
		if a[i] != b[i] {
			return a[i] > b[i] // busy ones first
		}
	}
	return false
}
