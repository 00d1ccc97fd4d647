package saga

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// check looks for what must be true in every state.
func (e *explorer) check(x *world) {
	r := &x.row
	if (r.due == never) != r.ended() {
		violate("S7", "%s with due_at %d", worldStatuses[r.status], r.due)
	}
	if r.open && r.lease > 0 && r.due != r.lease+ticksMargin {
		violate("S7b", "due_at (%d) is not the lease's end and the margin (%d)", r.due, r.lease+ticksMargin)
	}
	if r.open && r.lease > ticksLease {
		violate("S7b", "a lease of %d ticks was inherited", r.lease)
	}
	if r.open && r.ended() {
		violate("S1", "an open attempt on a %s row", worldStatuses[r.status])
	}
	if r.ended() && (r.turn != 0 || r.halt) {
		violate("S6", "a request is pending on a %s row", worldStatuses[r.status])
	}
	if !r.open && (r.turn != 0 || r.halt) {
		violate("S6", "a request is pending without an attempt")
	}
	if x.turned && r.status == isCompleted {
		violate("S6", "completed although Compensate or Cancel had been accepted")
	}
	runs := func(w *worldWorker) bool { return w.at == atBefore || w.at == atAfter }
	a, b := &x.w[0], &x.w[1]
	if runs(a) && runs(b) && (a.tok == b.tok || a.tok.step == b.tok.step && !a.lost && !b.lost) {
		violate("S1", "two bodies of %s run, no lease was lost", worldNames[a.tok.step])
	}
	for i := range x.w {
		w := &x.w[i]
		if runs(w) && !w.lost && !(r.open && r.token() == w.tok) {
			violate("S1", "%s runs a body of %s that is not the row's open attempt, and lost no lease", worldProcs[i], worldNames[w.tok.step])
		}
	}
	for i := range x.w {
		if x.w[i].at != atIdle && x.w[i].at != atPublish {
			return
		}
	}
	for _, f := range x.p.flight {
		if f {
			return
		}
	}
	e.checkAtRest(x)
}

// checkAtRest looks at effects once nothing is under way any more.
func (e *explorer) checkAtRest(x *world) {
	r := &x.row
	switch r.status {
	case isCompensated, isFailed, isCancelled:
		for s := range e.steps {
			l := &e.drawer.plan[s]
			ignored := l.InDoubt == InDoubtIgnore && r.ledger[s].status == indexOf(worldSteppings, "in_doubt") && !x.told[s]
			if x.p.effect[s] && l.Compensable && !ignored {
				violate("S2", "%s, and the effect of %s (%s in the ledger) stands", worldStatuses[r.status], worldNames[s], worldSteppings[r.ledger[s].status])
			}
		}
	case isCompleted:
		for s := range e.steps {
			st := worldSteppings[r.ledger[s].status]
			if !x.completes && st != "skipped" && st != "in_doubt" && !x.p.effect[s] {
				violate("S3", "completed, and %s (%s) has no effect", worldNames[s], st)
			}
		}
	}
}

// explored is what became of a scenario.
type explored struct {
	states   int
	complete bool
	bad      *violation
	trace    []string
}

// try calls f and returns what it violates.
func try(f func()) (bad *violation) {
	defer func() {
		if v := recover(); v != nil {
			b, ok := v.(violation)
			if !ok {
				panic(v)
			}
			bad = &b
		}
	}()
	f()
	return nil
}

// explore walks through all worlds, the nearest first, so that the trace to a
// violation is as short as can be.
func (e *explorer) explore() (res explored) {
	first := e.start()
	index := map[world]int32{first: 0}
	worlds := []world{first}
	parent := []int32{-1}
	how := []move{0}
	trace := func(i int32) { res.trace = e.retrace(worlds, parent, how, i) }
	res.complete = true
	for i := 0; i < len(worlds); i++ {
		x := worlds[i]
		var last move
		res.bad = try(func() {
			e.check(&x)
			e.moves(&x, func(l move, y world, chaos bool) {
				last = l
				y = y.canon(e.sameProcess)
				if _, ok := index[y]; ok {
					return
				}
				index[y] = int32(len(worlds))
				worlds, parent, how = append(worlds, y), append(parent, int32(i)), append(how, l)
			})
		})
		if res.bad != nil {
			res.states = len(worlds)
			trace(int32(i))
			res.trace = append(res.trace, "(found here or in the move after: "+last.String()+")")
			return res
		}
		if len(worlds) > e.limit {
			res.complete = false
			break
		}
	}
	res.states = len(worlds)
	index = nil
	last := -1
	if res.bad = try(func() { last = e.stuck(worlds) }); res.bad != nil {
		res.trace = []string{"(in a run without faults)"}
		return res
	}
	if i := last; i >= 0 {
		res.bad = &violation{"L", "faults and acts stop here and everybody is prompt: it never ends"}
		trace(int32(i))
		x := calm(worlds[i])
		for range 12 {
			moved := false
			e.prompt(&x, func(l move, y world) {
				if !moved {
					x, moved = y, true
					res.trace = append(res.trace, fmt.Sprintf("... %-62s | %s", l, &y))
				}
			})
			if !moved {
				break
			}
		}
	}
	return res
}

// retrace tells how world i came about, with workers that keep their names.
func (e *explorer) retrace(worlds []world, parent []int32, how []move, i int32) (out []string) {
	var path []int32
	for j := i; j >= 0; j = parent[j] {
		path = append(path, j)
	}
	slices.Reverse(path)
	x := worlds[path[0]]
	out = append(out, fmt.Sprintf("%-66s | %s", move(0), &x))
	for _, j := range path[1:] {
		next, label, found := worlds[j], how[j], false
		_ = try(func() {
			e.moves(&x, func(l move, y world, _ bool) {
				if !found && y.canon(e.sameProcess) == worlds[j] {
					next, label, found = y, l, true
				}
			})
		})
		x = next
		out = append(out, fmt.Sprintf("%-66s | %s", label, &x))
	}
	return out
}

// calm is x without what does not matter to how it goes on without faults.
func calm(x world) world {
	x.faults, x.acts, x.moved, x.losses = 0, 0, 0, 0
	x.turned, x.parked, x.retried, x.completes = false, false, false, false
	x.told = [worldSteps]bool{}
	return x
}

// prompt emits the moves of a run in which all is done at once, bodies succeed,
// and time passes only when nothing else is left to do.
func (e *explorer) prompt(x *world, emit func(l move, y world)) {
	n := 0
	var tick *world
	from := *x
	from.moved, from.retried = 100, true // acts are over: nothing of them is checked here
	e.moves(&from, func(l move, y world, chaos bool) {
		y = calm(y)
		y = y.canon(e.sameProcess)
		if l>>16 == mvTick {
			tick = &y
			return
		}
		if !chaos {
			n++
			emit(l, y)
		}
	})
	if n == 0 && tick != nil {
		emit(mv(mvTick, 0, 0), *tick)
	}
}

// stuck returns the index of a world from which no prompt run leads to an end,
// or -1.
func (e *explorer) stuck(worlds []world) int {
	id := map[world]int32{}
	var all []world
	var back [][]int32
	add := func(x world) int32 {
		if k, ok := id[x]; ok {
			return k
		}
		k := int32(len(all))
		id[x], all, back = k, append(all, x), append(back, nil)
		return k
	}
	// The ghosts that checks in moves look at are off: they were checked.
	loss := e.realLoss
	e.realLoss = false
	defer func() { e.realLoss = loss }()
	for i := range worlds {
		add(calm(worlds[i]))
	}
	for i := 0; i < len(all); i++ {
		x := all[i]
		e.prompt(&x, func(_ move, y world) {
			k := add(y)
			back[k] = append(back[k], int32(i))
		})
	}
	good := make([]bool, len(all))
	var queue []int32
	for i := range all {
		if all[i].row.ended() {
			good[i], queue = true, append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		k := queue[0]
		queue = queue[1:]
		for _, p := range back[k] {
			if !good[p] {
				good[p], queue = true, append(queue, p)
			}
		}
	}
	for i := range worlds {
		if !good[id[calm(worlds[i])]] {
			return i
		}
	}
	return -1
}

// base is what scenarios start from.
func base(name string) scenario {
	return scenario{
		name: name, steps: 3, compensable: [worldSteps]bool{true, true, false}, body: 1, attempts: 2, maxResumes: 1, faults: 1, limit: 8000,
	}
}

// compact is s with bounds that fit into every run of the tests: two steps
// where the third adds nothing, fewer faults and acts.
func (s scenario) compact() scenario {
	if s.compensable == base("").compensable && !s.whole {
		s.steps, s.compensable[2] = 2, false
	}
	s.faults, s.acts = min(s.faults, 1), min(s.acts, 1)
	if s.lapse && s.breaks == "" {
		s.lapse, s.zombie, s.faults = false, true, 1 // one lease is lost, not any number
	}
	s.limit = compactLimit
	return s
}

const compactLimit = 20_000

// fullLimit bounds the states of a scenario that is explored in full.
const fullLimit = 300_000

var allActs = []int{actCompensate, actCancel, actHalt, actResume, actRetry}

// scenarios returns what is explored: in full, or with bounds that fit into
// every run of the tests.
func scenarios(full bool) (out []scenario) {
	add := func(name string, f func(s *scenario)) {
		s := base(name)
		if full {
			s.limit = fullLimit
		}
		f(&s)
		if !full {
			s = s.compact()
		}
		out = append(out, s)
	}
	errs := func(s *scenario) { s.errs, s.timeouts, s.fails = true, true, true }
	every := func(s *scenario) { errs(s); s.skips, s.completes, s.halts = true, true, true }
	pipes := func(s *scenario) { s.crash, s.lose, s.twice = true, true, true }
	ops := func(s *scenario, n int8) { s.ops, s.acts = allActs, n }
	forced := func(s *scenario, n int8) {
		s.ops, s.acts = append([]int{actForceCompensate, actForceHalt, actForceRetry}, allActs...), n
	}
	ignore := func(s *scenario) { s.inDoubt = InDoubtIgnore }

	add("F01 pipes, unknown commits, shutdown, all outcomes", func(s *scenario) {
		pipes(s)
		every(s)
		s.unknown, s.shutdown, s.unknownProcess = true, true, true
		s.faults = 2
	})
	add("F02 all acts, crash, unknown commits, errors", func(s *scenario) { errs(s); ops(s, 2); s.crash, s.unknown = true, true })
	add("F03 all acts, shutdown, Halt and Skip", func(s *scenario) { s.fails, s.halts, s.skips, s.shutdown = true, true, true, true; ops(s, 2) })
	add("F04 leases lost, fence", func(s *scenario) {
		s.body, s.fence, s.lapse, s.fails, s.errs, s.crash = 3, true, true, true, true, true
	})
	add("F05 leases lost, no fence, the late worker reports the truth", func(s *scenario) { s.body, s.truth, s.lapse, s.fails, s.errs, s.faults = 3, true, true, true, true, 0 })
	add("F06 leases lost, no fence, the late worker dies unheard", func(s *scenario) { s.lapse, s.fails, s.crash, s.breaks, s.limit = true, true, true, "S2", 60000 })
	add("F07 slow participant, fence", func(s *scenario) { s.body, s.fence, s.slow, s.crash, s.faults = 3, true, true, true, 2; errs(s) })
	add("F08 forced acts, fence", func(s *scenario) { s.body, s.fence, s.fails, s.crash = 3, true, true, true; forced(s, 2) })
	add("F09 InDoubt Ignore, leases lost, the late worker reports", func(s *scenario) { s.body, s.lapse, s.fails, s.faults = 3, true, true, 0; ignore(s) })
	add("F10 compensations on steps 0 and 2", func(s *scenario) {
		s.compensable = [worldSteps]bool{true, false, true}
		pipes(s)
		every(s)
		s.unknown, s.shutdown, s.faults = true, true, 2
	})
	add("F11 frozen worker in the same process, fence", func(s *scenario) {
		s.fence, s.zombie, s.sameProcess, s.fails, s.unknown, s.shutdown, s.lapse, s.faults = true, true, true, true, true, true, true, 2
	})
	add("F12 lost pointers, resumes", func(s *scenario) { s.errs = true; pipes(s); s.faults = 3; s.depth = true })
	add("F13 acts, leases lost, fence", func(s *scenario) {
		s.body, s.fence, s.lapse, s.fails = 3, true, true, true
		ops(s, 1)
		s.faults = 0
	})
	add("F14 errors leave doubt, error after the effect", func(s *scenario) { s.effectErrs = true; every(s); s.crash = true })
	add("F15 participant without memory, leases lost, truth", func(s *scenario) {
		s.body, s.noMemory, s.truth, s.lapse, s.fails, s.faults = 3, true, true, true, true, 0
	})
	add("F16 as F01, one fault", func(s *scenario) {
		pipes(s)
		every(s)
		s.unknown, s.shutdown, s.unknownProcess = true, true, true
	})
	add("F17 as F02, one act", func(s *scenario) { errs(s); ops(s, 1); s.crash, s.unknown = true, true })
	add("F18 as F10, one fault", func(s *scenario) {
		s.compensable = [worldSteps]bool{true, false, true}
		pipes(s)
		every(s)
		s.unknown, s.shutdown = true, true
	})
	add("F19 all acts, no faults, all outcomes", func(s *scenario) {
		s.fails, s.skips, s.completes, s.halts, s.faults = true, true, true, true, 0
		ops(s, 2)
	})
	add("F20 leases lost, no fence, bodies end by their time-out", func(s *scenario) {
		s.body, s.bounded, s.lapse, s.crash, s.fails, s.errs = 5, true, true, true, true, true
	})
	add("F21 forced acts, no fence, bodies end by their time-out", func(s *scenario) {
		s.body, s.bounded, s.crash, s.fails = 3, true, true, true
		forced(s, 2)
	})
	add("F22 body ignores its ctx after a request, fence", func(s *scenario) {
		s.fence, s.hang, s.body, s.fails, s.crash = true, true, 5, true, true
		ops(s, 2)
	})
	add("F23 all acts, crash, errors", func(s *scenario) { errs(s); ops(s, 2); s.crash = true })
	add("F24 Snooze and Halt after the effect, all outcomes, shutdown, crash", func(s *scenario) { every(s); s.snoozes, s.shutdown, s.crash = true, true, true })
	add("F25 lost and doubled pointers, unknown process, crash: real losses", func(s *scenario) {
		s.realLoss, s.errs, s.unknownProcess, s.faults = true, true, true, 4
		pipes(s)
	})
	add("F26 same with leases lost", func(s *scenario) {
		s.fence, s.realLoss, s.fails, s.lapse, s.lose, s.unknownProcess, s.faults = true, true, true, true, true, true, 2
	})
	add("F27 acts, leases lost, Retry of a stray, truth", func(s *scenario) {
		s.truth, s.body, s.lapse, s.fails, s.faults = true, 5, true, true, 0
		ops(s, 1)
	})
	add("F28 acts, lost and doubled pointers, unknown process, crash: real losses", func(s *scenario) {
		s.realLoss, s.fails, s.unknownProcess, s.faults = true, true, true, 3
		ops(s, 1)
		pipes(s)
	})
	add("F29 as F20, no crash, no errors", func(s *scenario) { s.body, s.bounded, s.lapse, s.fails, s.faults = 5, true, true, true, 0 })
	add("F30 as F04, doubt_until over", func(s *scenario) { s.fence, s.lapse, s.fails, s.errs, s.crash = true, true, true, true, true })
	add("F31 as F21, one act", func(s *scenario) {
		s.body, s.bounded, s.crash, s.fails = 3, true, true, true
		forced(s, 1)
	})
	add("F32 Snooze and Halt after the effect, Fail, one fault", func(s *scenario) { s.fails, s.halts, s.snoozes, s.shutdown, s.crash = true, true, true, true, true })
	add("F33 NoEffect, time-outs, Skip, crash", func(s *scenario) { s.noEffects, s.timeouts, s.skips, s.fails, s.crash = true, true, true, true, true })
	add("F34 InDoubt Halt, acts, crash", func(s *scenario) {
		s.inDoubt, s.timeouts, s.fails, s.crash = InDoubtHalt, true, true, true
		ops(s, 2)
	})
	add("F35 unknown commits in one process, doubled pointers", func(s *scenario) { s.sameProcess, s.unknown, s.twice, s.fails, s.faults = true, true, true, true, 3 })
	add("F36 stalled executions halt", func(s *scenario) {
		s.onStalled, s.lose, s.crash, s.realLoss, s.errs, s.faults = StalledHalt, true, true, true, true, 3
		s.ops, s.acts = []int{actResume, actCompensate}, 1
	})
	return out
}

// TestMachineExplored explores the scenarios. Properties:
//
//	S1  no two attempts, nor bodies of a step, unless a lease was lost
//	S2  no effect stands on what ended compensated, failed or cancelled
//	S3  what completed has the effects of its steps
//	S4  undos go backwards
//	S5  no more attempts than the budget
//	S6  acts are honoured, once
//	S7  unfinished executions have a due time, S7b that of the lease and the margin
//	S8  given up is only what really lost its pointers
//	S9  nothing is undone twice under a new key unasked
//	S10 no result is recorded twice
//	L   when faults and acts stop, it ends
func TestMachineExplored(t *testing.T) {
	full := os.Getenv("LEVERET_EXPLORE") == "full"
	for _, s := range scenarios(full) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			res := newExplorer(s).explore()
			part := "complete"
			if !res.complete {
				part = "within the limit"
			}
			t.Logf("%d states, %s, %v", res.states, part, time.Since(begun).Round(time.Millisecond))
			got := ""
			if res.bad != nil {
				got = res.bad.property
			}
			if got == s.breaks {
				return
			}
			if res.bad == nil {
				t.Fatalf("%s holds, and it is documented that it does not", s.breaks)
			}
			t.Fatalf("%s: %s\n%s", res.bad.property, res.bad.why, strings.Join(res.trace, "\n"))
		})
	}
}
