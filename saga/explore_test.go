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
//
//go:norace
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
	if r.ended() {
		q := question{row: *r, kind: askHandle, worker: 0, knows: true, epoch: r.epoch}
		if a := e.answer(q); a.dirty || a.opened || a.publish {
			violate("S6", "a pointer changed a %s row", worldStatuses[r.status])
		}
		for _, kind := range []int8{askLost, askAgain, askAnew} {
			if a := e.answer(question{row: *r, kind: kind, worker: -1, knows: true, claimed: true}); a.dirty || a.publish {
				violate("S6", "the sweep changed a %s row", worldStatuses[r.status])
			}
		}
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
			if x.p.effect[s] && l.Compensable && !ignored && !x.word[s] {
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

// explore walks through all worlds: those first that have most of their faults
// and acts left, and of these the nearest, so that the trace to a violation is
// short. Budgets are no part of a world: one that was reached with more of both
// left can do all that it could do with less.
//
// Beyond the limit only prompt moves are followed, so that L is known of all
// states.
//
//go:norace
func (e *explorer) explore() (res explored) {
	g := &e.graph
	*g = graph{}
	first := e.start()
	g.add(e.canon(&first), -1, 0)
	queues := make([][]int32, int(e.faults+e.acts)+1)
	queues[e.faults+e.acts] = []int32{0}
	var from, to []int32 // the prompt moves
	res.complete = true
	for budget := len(queues) - 1; budget >= 0; {
		if len(queues[budget]) == 0 {
			budget--
			continue
		}
		i := queues[budget][0]
		queues[budget] = queues[budget][1:]
		if res.complete && g.n > e.limit {
			res.complete, res.states = false, g.n
		}
		x := g.world(i)
		var last move
		calm := true
		res.bad = try(func() {
			e.check(&x)
			e.moves(&x, func(l move, y world, chaos bool) {
				last = l
				prompt := !chaos || calm && l>>16 == mvTick
				if !res.complete && !prompt {
					return
				}
				y = e.canon(&y)
				k, isNew := g.add(y, i, l)
				if isNew {
					queues[y.faults+y.acts] = append(queues[y.faults+y.acts], k)
				}
				if prompt {
					from, to = append(from, i), append(to, k)
					calm = false
				}
			})
		})
		if res.bad != nil {
			res.states = g.n
			res.trace = append(e.retrace(i), "(found here or in the move after: "+last.String()+")")
			return res
		}
	}
	if res.complete {
		res.states = g.n
	}
	if i := e.stuck(from, to); i >= 0 {
		res.bad = &violation{"L", "faults and acts stop here and everybody is prompt: it never ends"}
		res.trace = e.retrace(i)
		x := g.world(i)
		x.faults, x.acts = 0, 0
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
func (e *explorer) retrace(i int32) (out []string) {
	g := &e.graph
	var path []int32
	for j := i; j >= 0; j = g.parent[j] {
		path = append(path, j)
	}
	slices.Reverse(path)
	x := e.start()
	out = append(out, fmt.Sprintf("%-66s | %s", move(0), &x))
	for _, j := range path[1:] {
		want := g.world(j)
		next, label, found := want, g.how[j], false
		_ = try(func() {
			e.moves(&x, func(l move, y world, _ bool) {
				if !found && e.canon(&y) == want {
					next, label, found = y, l, true
				}
			})
		})
		x = next
		out = append(out, fmt.Sprintf("%-66s | %s", label, &x))
	}
	return out
}

// prompt emits the moves of a run in which all is done at once, bodies succeed,
// and time passes only when nothing else is left to do.
func (e *explorer) prompt(x *world, emit func(l move, y world)) {
	calm := true
	e.moves(x, func(l move, y world, chaos bool) {
		if !chaos || calm && l>>16 == mvTick {
			calm = false
			emit(l, e.canon(&y))
		}
	})
}

// stuck returns a world from which no prompt run leads to an end, or -1. The
// prompt moves lead from from[i] to to[i].
//
//go:norace
func (e *explorer) stuck(from, to []int32) int32 {
	g := &e.graph
	begin := make([]int32, g.n+1) // of the moves that lead to a world
	for _, k := range to {
		begin[k+1]++
	}
	for i := range g.n {
		begin[i+1] += begin[i]
	}
	back := make([]int32, len(from))
	at := slices.Clone(begin)
	for i, k := range to {
		back[at[k]] = from[i]
		at[k]++
	}
	good := make([]bool, g.n)
	var queue []int32
	for i := range int32(g.n) {
		if x := g.at(i); x.row.ended() {
			good[i], queue = true, append(queue, i)
		}
	}
	for len(queue) > 0 {
		k := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, p := range back[begin[k]:begin[k+1]] {
			if !good[p] {
				good[p], queue = true, append(queue, p)
			}
		}
	}
	return int32(slices.Index(good, false))
}

// base is what scenarios start from.
func base(name string) scenario {
	return scenario{
		name: name, steps: 3, compensable: [worldSteps]bool{true, true, false}, body: 1, attempts: 2, maxResumes: 1, faults: 1, limit: fullLimit,
	}
}

// fullLimit bounds the states of a scenario that is explored in full, by memory:
// some 300 bytes each.
const fullLimit = 12_000_000

var allActs = []int{actCompensate, actCancel, actHalt, actResume, actRetry}

// Bounds of a scenario in every run of the tests.
type bound func(s *scenario)

// two leaves the third step out.
func two(s *scenario) { s.steps, s.compensable[2] = 2, false }

// one allows one fault and one act.
func one(s *scenario) { s.faults, s.acts = min(s.faults, 1), min(s.acts, 1) }

// either allows one fault or one act.
func either(s *scenario) { s.faults, s.acts, s.either = 1, 1, true }

// few leaves out what steps return that has scenarios of its own.
func few(s *scenario) { s.timeouts, s.completes, s.halts = false, false, false }

// frozen lets one lease be lost, not any number.
func frozen(s *scenario) { s.lapse, s.zombie, s.faults = false, true, 1 }

// onlyFull leaves the scenario to the full run.
func onlyFull(s *scenario) { s.limit = 0 }

// scenarios returns what is explored: in full, or with bounds that fit into
// every run of the tests. There it must be the whole of it.
func scenarios(full bool) (out []scenario) {
	add := func(name string, f func(s *scenario), tight ...bound) {
		s := base(name)
		f(&s)
		if s.partial = full; !full {
			for _, b := range tight {
				b(&s)
			}
		}
		if s.limit > 0 {
			out = append(out, s)
		}
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
	}, two, one, few)
	add("F02 all acts, crash, unknown commits, errors", func(s *scenario) { errs(s); ops(s, 2); s.crash, s.unknown = true, true }, two, one, few, func(s *scenario) { s.crash = false })
	add("F03 all acts, shutdown, Halt and Skip", func(s *scenario) { s.fails, s.halts, s.skips, s.shutdown = true, true, true, true; ops(s, 2) }, two, one)
	add("F04 leases lost, fence", func(s *scenario) {
		s.body, s.fence, s.lapse, s.fails, s.errs, s.crash = 3, true, true, true, true, true
	}, two, frozen)
	add("F05 leases lost, no fence, the late worker reports the truth", func(s *scenario) { s.body, s.truth, s.lapse, s.fails, s.errs, s.faults = 3, true, true, true, true, 0 }, two, frozen)
	add("F06 leases lost, no fence, the late worker dies unheard", func(s *scenario) { s.lapse, s.fails, s.crash, s.breaks = true, true, true, "S2" })
	add("F07 slow participant, fence", func(s *scenario) { s.body, s.fence, s.slow, s.crash, s.faults = 3, true, true, true, 2; errs(s) }, one)
	add("F08 forced acts, fence", func(s *scenario) { s.body, s.fence, s.fails, s.crash = 3, true, true, true; forced(s, 2) }, two, one)
	add("F09 InDoubt Ignore, leases lost, the late worker reports", func(s *scenario) { s.body, s.lapse, s.fails, s.faults = 3, true, true, 0; ignore(s) })
	add("F10 compensations on steps 0 and 2", func(s *scenario) {
		s.compensable = [worldSteps]bool{true, false, true}
		pipes(s)
		every(s)
		s.unknown, s.shutdown, s.faults = true, true, 2
	}, one, few, func(s *scenario) { s.unknown, s.shutdown = false, false })
	add("F11 frozen worker in the same process, fence", func(s *scenario) {
		s.fence, s.zombie, s.sameProcess, s.fails, s.unknown, s.shutdown, s.lapse, s.faults = true, true, true, true, true, true, true, 2
	}, two, one, frozen)
	add("F12 lost pointers, resumes", func(s *scenario) { s.errs = true; pipes(s); s.faults = 3; s.depth = true })
	add("F13 acts, leases lost, fence", func(s *scenario) {
		s.body, s.fence, s.lapse, s.fails = 3, true, true, true
		ops(s, 1)
		s.faults = 0
	}, two, frozen)
	add("F14 errors leave doubt, error after the effect", func(s *scenario) { s.effectErrs = true; every(s); s.crash = true }, two)
	add("F15 participant without memory, leases lost, truth", func(s *scenario) {
		s.body, s.noMemory, s.truth, s.lapse, s.fails, s.faults = 3, true, true, true, true, 0
	}, two)
	add("F16 as F01, one fault", func(s *scenario) {
		pipes(s)
		every(s)
		s.unknown, s.shutdown, s.unknownProcess = true, true, true
	}, onlyFull)
	add("F17 as F02, one act", func(s *scenario) { errs(s); ops(s, 1); s.crash, s.unknown = true, true }, onlyFull)
	add("F18 as F10, one fault", func(s *scenario) {
		s.compensable = [worldSteps]bool{true, false, true}
		pipes(s)
		every(s)
		s.unknown, s.shutdown = true, true
	}, onlyFull)
	add("F19 all acts, no faults, all outcomes", func(s *scenario) {
		s.fails, s.skips, s.completes, s.halts, s.faults = true, true, true, true, 0
		ops(s, 2)
	}, one)
	add("F20 leases lost, no fence, bodies end by their time-out", func(s *scenario) {
		s.body, s.bounded, s.lapse, s.crash, s.fails, s.errs = 5, true, true, true, true, true
	}, two, frozen)
	add("F21 forced acts, no fence, bodies end by their time-out", func(s *scenario) {
		s.body, s.bounded, s.crash, s.fails = 3, true, true, true
		forced(s, 2)
	}, two, either)
	add("F22 body ignores its ctx after a request, fence", func(s *scenario) {
		s.fence, s.hang, s.body, s.fails, s.crash = true, true, 5, true, true
		ops(s, 2)
	}, two, one)
	add("F23 all acts, crash, errors", func(s *scenario) { errs(s); ops(s, 2); s.crash = true }, two, one)
	add("F24 Snooze and Halt after the effect, all outcomes, shutdown, crash", func(s *scenario) { every(s); s.snoozes, s.shutdown, s.crash = true, true, true }, two)
	add("F25 lost and doubled pointers, unknown process, crash: real losses", func(s *scenario) {
		s.realLoss, s.errs, s.unknownProcess, s.faults = true, true, true, 4
		pipes(s)
	})
	add("F26 same with leases lost", func(s *scenario) {
		s.fence, s.realLoss, s.fails, s.lapse, s.lose, s.unknownProcess, s.faults = true, true, true, true, true, true, 2
	}, two, one)
	add("F27 acts, leases lost, Retry of a stray, truth", func(s *scenario) {
		s.truth, s.body, s.lapse, s.fails, s.faults = true, 5, true, true, 0
		ops(s, 1)
	}, two, frozen)
	add("F28 acts, lost and doubled pointers, unknown process, crash: real losses", func(s *scenario) {
		s.realLoss, s.fails, s.unknownProcess, s.faults = true, true, true, 3
		ops(s, 1)
		pipes(s)
	})
	add("F29 as F20, no crash, no errors", func(s *scenario) { s.body, s.bounded, s.lapse, s.fails, s.faults = 5, true, true, true, 0 }, two, frozen)
	add("F30 as F04, doubt_until over", func(s *scenario) { s.fence, s.lapse, s.fails, s.errs, s.crash = true, true, true, true, true }, two, frozen)
	add("F31 as F21, one act", func(s *scenario) {
		s.body, s.bounded, s.crash, s.fails = 3, true, true, true
		forced(s, 1)
	}, onlyFull)
	add("F32 Snooze and Halt after the effect, Fail, one fault", func(s *scenario) { s.fails, s.halts, s.snoozes, s.shutdown, s.crash = true, true, true, true, true })
	add("F33 NoEffect, time-outs, Skip, crash", func(s *scenario) { s.noEffects, s.timeouts, s.skips, s.fails, s.crash = true, true, true, true, true }, two)
	add("F34 InDoubt Halt, acts, crash", func(s *scenario) {
		s.inDoubt, s.timeouts, s.fails, s.crash = InDoubtHalt, true, true, true
		ops(s, 2)
	}, two)
	add("F35 unknown commits in one process, doubled pointers", func(s *scenario) { s.sameProcess, s.unknown, s.twice, s.fails, s.faults = true, true, true, true, 3 })
	add("F36 stalled executions halt", func(s *scenario) {
		s.onStalled, s.lose, s.crash, s.realLoss, s.errs, s.faults = StalledHalt, true, true, true, true, 3
		s.ops, s.acts = []int{actResume, actCompensate}, 1
	})
	add("F37 unknown commits, doubled pointers, crash", func(s *scenario) {
		s.unknown, s.twice, s.crash, s.errs, s.fails, s.faults = true, true, true, true, true, 2
	}, one)
	skip := func(s *scenario, n int8, ops ...int) { s.ops, s.acts = ops, n }
	add("F38 SkipStep, Halt, Resume, Retry, crash, errors", func(s *scenario) {
		errs(s)
		s.halts, s.crash = true, true
		skip(s, 2, actSkip, actHalt, actResume, actRetry, actCancel)
	}, two, one, func(s *scenario) { s.acts = 2 }, few)
	add("F39 SkipStep by force, requests, the late worker reports the truth", func(s *scenario) {
		s.body, s.truth, s.lapse, s.fails, s.faults = 3, true, true, true, 0
		skip(s, 2, actForceSkip, actHalt, actCompensate)
	}, two, frozen)
	add("F40 SkipStep and Retry of undos and strays, InDoubt Halt, truth", func(s *scenario) {
		s.inDoubt, s.body, s.truth, s.lapse, s.fails, s.faults = InDoubtHalt, 3, true, true, true, 0
		skip(s, 2, actSkip, actForceSkip, actRetry)
	}, two, frozen)
	add("F41 Resolve, Move, time-outs, crash", func(s *scenario) {
		errs(s)
		s.crash = true
		skip(s, 2, actResolveDone, actResolvePending, actMove, actRetry, actHalt)
	}, two)
	add("F42 Resolve, InDoubt Halt, crash", func(s *scenario) {
		errs(s)
		s.inDoubt, s.crash = InDoubtHalt, true
		skip(s, 3, actResolveDone, actResolvePending, actResume, actRetry)
	}, two)
	add("F43 Resolve, InDoubt Ignore, leases lost, the late worker reports", func(s *scenario) {
		s.body, s.lapse, s.fails, s.timeouts, s.faults = 3, true, true, true, 0
		ignore(s)
		skip(s, 1, actResolveDone, actResolvePending, actMove)
	}, two, frozen)
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
			if !full { // which needs the memory
				t.Parallel()
			}
			begun := time.Now()
			res := newExplorer(s).explore()
			part := "complete"
			if !res.complete {
				part = "PARTIAL"
			}
			t.Logf("%s: %d states, %s, %v", s.name, res.states, part, time.Since(begun).Round(time.Millisecond))
			got := ""
			if res.bad != nil {
				got = res.bad.property
			}
			if got == s.breaks {
				if !res.complete && !s.partial {
					t.Errorf("more than the %d states of the limit: it proves little", s.limit)
				}
				return
			}
			if res.bad == nil {
				t.Fatalf("%s holds, and it is documented that it does not", s.breaks)
			}
			t.Fatalf("%s: %s\n%s", res.bad.property, res.bad.why, strings.Join(res.trace, "\n"))
		})
	}
}
