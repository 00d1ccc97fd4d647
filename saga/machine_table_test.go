package saga

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leveret-go/leveret/store"
)

var (
	errOrdinary = errors.New("broken")
	errGone     = context.Canceled
)

// A tableRow is a story that ends in a row, a history and an audit trail. All
// times in want are seconds from the end of the story.
type tableRow struct {
	name     string
	steps    []Step[struct{}] // a, b and c by default
	story    func(b *bench)
	want     string
	attempts string
	acts     string
}

func steps(s ...Step[struct{}]) []Step[struct{}] { return s }

// drop hands over a pointer that must be dropped, or set aside, for a reason.
func (b *bench) drop(p Pointer, want string) {
	b.t.Helper()
	if r := b.handle("B", p); r.Reason != want {
		b.t.Errorf("pointer: %q, want %q", r.Reason, want)
	}
}

// refuse wants an act to be refused.
func (b *bench) refuse(act Act, force bool, want error) {
	b.t.Helper()
	if err := b.act(act, force); !errors.Is(err, want) {
		b.t.Errorf("%s: %v, want %v", act, err, want)
	}
}

// cut is a body that returned err after its ctx had ended with cause.
func (b *bench) cut(ref attemptRef, cause error) *bench {
	b.t.Helper()
	return b.settleResult(ref, b.judged(ref, errGone, cause), false)
}

// failAt runs the saga until the step fails for good.
func (b *bench) failAt(step string) *bench {
	b.t.Helper()
	for b.x.Step != step {
		b.run(nil)
	}
	return b.run(Fail(errOrdinary))
}

// undoAll runs undos until the row has ended.
func (b *bench) undoAll() *bench {
	b.t.Helper()
	for range 10 {
		if b.x.Status != store.StatusCompensating {
			return b
		}
		b.wake().run(nil)
	}
	b.t.Fatalf("the walk does not end: %s", b)
	return b
}

// without lets f run in a process with another plan (nil: none).
func (b *bench) without(p *plan, f func()) {
	old := b.plan
	b.plan = p
	f()
	b.plan = old
}

// other is a build with other steps.
func (b *bench) other(d Definition[struct{}]) *plan { b.t.Helper(); return benchPlan(b.t, d) }

// lost lets the sweep find the pointer lost, n times.
func (b *bench) lost(n int) *bench {
	for range n {
		_ = b.do(func(m *machine) error {
			m.lost(m.x.DueAt, m.rules.maxResumes, engineBy("lost again and again"))
			return nil
		})
	}
	return b
}

// late is a result of an attempt that was taken away.
func (b *bench) late(ref attemptRef, err error) *bench {
	b.t.Helper()
	return b.settle(ref, err, false)
}

// zombie opens the step's attempt and lets it lapse under its living body.
func (b *bench) zombie() attemptRef {
	b.t.Helper()
	ref := b.open("A")
	b.lapse()
	return ref
}

func TestMachineTable(t *testing.T) {
	for _, row := range machineTable {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.steps...)
			row.story(b)
			if got := b.String(); got != row.want {
				t.Errorf("row\n got %s\nwant %s", got, row.want)
			}
			if got := b.attempts(); got != row.attempts {
				t.Errorf("attempts\n got %s\nwant %s", got, row.attempts)
			}
			if got := b.acts(); got != row.acts {
				t.Errorf("audit\n got %s\nwant %s", got, row.acts)
			}
		})
	}
}

var machineTable = []tableRow{
	// A pointer, in the order of the rows of the table.
	{name: "start plans a pointer", story: func(b *bench) {},
		want: "running execute a e0 t0 [pending pending pending] due20s offered0s published",
	},
	{name: "pointer of a finished row is dropped", story: func(b *bench) { b.failAt("a"); b.drop(b.pointer(), DropFinished) },
		want:     "failed execute a e0 t0 [pending pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "pointer of a halted row is dropped", story: func(b *bench) { b.must(ActHalt, false); b.drop(b.pointer(), DropFinished) },
		want: "halted execute a e0 t0 [pending pending pending] reason=because",
		acts: "halt by ann: running to halted",
	},
	{name: "pointer of a future epoch is set aside", story: func(b *bench) { p := b.pointer(); p.Epoch++; b.drop(p, DeadFutureEpoch) },
		want: "running execute a e0 t0 [pending pending pending] due20s offered0s published",
	},
	{name: "pointer of an older epoch is stale", story: func(b *bench) { p := b.pointer(); b.must(ActRetry, false); b.drop(p, DropStale) },
		want: "running execute a e1 t0 [pending pending pending] due0s",
		acts: "retry by ann: running to running",
	},
	{name: "pointer to another step opens what is due", story: func(b *bench) { p := b.pointer(); b.run(nil); b.handle("B", p) },
		want:     "running execute b e0 t1 open#1/B [done pending pending] due32s",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "pointer of another direction opens what is due", story: func(b *bench) { p := b.pointer(); b.failAt("b"); b.handle("B", p) },
		want:     "compensating compensate a e0 t1 open#1/B [done pending pending] failure=broken@b due32s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
	},
	{name: "live attempt: busy", story: func(b *bench) { b.open("A"); b.in(31*time.Second).drop(b.pointer(), DropBusy) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due1s",
	},
	{name: "lease over, margin not: busy", story: func(b *bench) { b.open("A"); b.in(32*time.Second-1).drop(b.pointer(), DropBusy) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due1ns",
	},
	{name: "request and lapsed lease: applied, first undo opened", story: func(b *bench) { b.run(nil).open("A"); b.must(ActCompensate, false).lapse().in(time.Minute).open("B") },
		want:     "compensating compensate b e1 t1 open#1/B [done in_doubt pending] reason=operator due32s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned",
		acts:     "compensate by ann: running to running",
	},
	{name: "request and lapsed lease: applied, undo waits", story: func(b *bench) { b.open("A"); b.must(ActCompensate, false).lapse(); b.drop(b.pointer(), DropEarly) },
		want:     "compensating compensate a e1 t0 [in_doubt pending pending] reason=operator due28s wake28s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "compensate by ann: running to running",
	},
	{name: "halt requested and lapsed lease: parked in doubt", story: func(b *bench) { b.open("A"); b.must(ActHalt, false).lapse(); b.drop(b.pointer(), DropEnded) },
		want:     "halted execute a e0 t1 [in_doubt pending pending] reason=because",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "halt by ann: running to running",
	},
	{name: "backing off: early", story: func(b *bench) { b.run(errOrdinary); b.drop(b.pointer(), DropEarly) },
		want:     "running execute a e0 t1 [pending pending pending] failure=broken@a due1s wake1s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "a little early is not early", story: func(b *bench) { b.run(errOrdinary).in(950 * time.Millisecond).open("B") },
		want:     "running execute a e0 t2 open#2/B [pending pending pending] failure=broken@a due32s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "unknown saga: noted for others", story: func(b *bench) { b.in(7*time.Second).without(nil, func() { b.drop(b.pointer(), DropUnknown) }) },
		want: "running execute a e0 t0 [pending pending pending] due7s",
	},
	{name: "unknown saga at once: noted for a second", story: func(b *bench) { b.without(nil, func() { b.drop(b.pointer(), DropUnknown) }) },
		want: "running execute a e0 t0 [pending pending pending] due1s",
	},
	{name: "unknown saga after hours: noted for two minutes", story: func(b *bench) { b.in(time.Hour).without(nil, func() { b.drop(b.pointer(), DropUnknown) }) },
		want: "running execute a e0 t0 [pending pending pending] due2m0s",
	},
	{name: "unknown step: noted", story: func(b *bench) {
		b.without(b.other(Definition[struct{}]{Steps: steps(benchStep("z"))}), func() { b.drop(b.pointer(), DropUnknown) })
	},
		want: "running execute a e0 t0 [pending pending pending] due1s",
	},
	{name: "unknown saga, live attempt: busy", story: func(b *bench) { b.open("A"); b.without(nil, func() { b.drop(b.pointer(), DropBusy) }) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "unknown saga, lapsed attempt: stays, noted", story: func(b *bench) { b.open("A"); b.lapse().without(nil, func() { b.drop(b.pointer(), DropUnknown) }) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "unknown saga, backing off: early", story: func(b *bench) { b.run(errOrdinary).without(nil, func() { b.drop(b.pointer(), DropEarly) }) },
		want:     "running execute a e0 t1 [pending pending pending] failure=broken@a due1s wake1s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "lapsed attempt: abandoned, in doubt, next opens", story: func(b *bench) { b.open("A"); b.lapse().open("B") },
		want:     "running execute a e0 t2 open#2/B [in_doubt pending pending] due32s",
		attempts: "a.exec e0 #1 abandoned",
	},
	{name: "tries used up: failed for good, undo of the step before opens", steps: steps(benchStep("a"), benchStep("b", pivot)), story: func(b *bench) {
		b.run(nil).open("A")
		b.lapse().open("A")
		b.lapse().open("B")
	},
		want:     "compensating compensate a e0 t1 open#1/B [done in_doubt] failure=abandoned@b due32s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned, b.exec e0 #2 abandoned",
	},
	{name: "tries used up, nothing to undo: failed", steps: steps(benchStep("a", pivot)), story: func(b *bench) {
		b.open("A")
		b.lapse().open("A")
		b.lapse().drop(b.pointer(), DropEnded)
	},
		want:     "failed execute a e0 t0 [in_doubt] failure=abandoned@a",
		attempts: "a.exec e0 #1 abandoned, a.exec e0 #2 abandoned",
	},
	{name: "tries of an undo used up", story: func(b *bench) {
		b.failAt("b").open("A")
		b.lapse().open("A")
		b.lapse().drop(b.pointer(), DropEnded)
	},
		want:     "compensation_failed compensate a e0 t0 [done pending pending] failure=abandoned@a",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 abandoned, a.comp e0 #2 abandoned",
	},
	{name: "opened: number, tries, lease, due, resumes", story: func(b *bench) { b.lost(2).open("A") },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "declared start adopts the plan of the first worker", story: func(b *bench) {
		b.x.Step, b.x.Ledger, b.x.Version = "", nil, 0
		b.open("B")
	},
		want: "running execute a e0 t1 open#1/B [pending pending pending] due32s",
	},
	{name: "declared start, unknown saga", story: func(b *bench) {
		b.x.Step, b.x.Ledger, b.x.Version = "", nil, 0
		b.without(nil, func() { b.drop(b.pointer(), DropUnknown) })
	},
		want: "running execute  e0 t0 [] due1s",
	},
	{name: "declared start cancelled before a worker saw it", story: func(b *bench) {
		b.x.Step, b.x.Ledger, b.x.Version = "", nil, 0
		b.must(ActCancel, false)
	},
		want: "cancelled execute  e1 t0 [] reason=cancelled",
		acts: "cancel by ann: running to cancelled",
	},

	// Settling.
	{name: "success moves the cursor and hands over", story: func(b *bench) { b.run(nil) },
		want:     "running execute b e0 t0 [done pending pending] due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "success goes on in one write", story: func(b *bench) { b.settle(b.open("A"), nil, true) },
		want:     "running execute b e0 t1 open#1/A [done pending pending] due32s",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "success of the last step completes", story: func(b *bench) { b.run(nil).run(nil).run(nil) },
		want:     "completed execute c e0 t0 [done done done]",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 succeeded, c.exec e0 #1 succeeded",
	},
	{name: "success under a lapsed lease that nobody took counts", story: func(b *bench) { b.settle(b.zombie(), nil, false) },
		want:     "running execute b e0 t0 [done pending pending] due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "Skip marks a pending step", story: func(b *bench) { b.run(Skip("none")) },
		want:     "running execute b e0 t0 [skipped pending pending] due20s offered0s published",
		attempts: "a.exec e0 #1 skipped",
	},
	{name: "Skip keeps a doubt", story: func(b *bench) { b.run(Unknown(errOrdinary)).wake().run(Skip("none")) },
		want:     "running execute b e0 t0 [in_doubt pending pending] due20s offered0s published",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 skipped",
	},
	{name: "Skip keeps a late success", story: func(b *bench) {
		z := b.zombie()
		r := b.open("B")
		b.late(z, nil).settle(r, Skip("none"), false)
	},
		want:     "running execute b e0 t0 [done pending pending] due20s offered0s published",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 skipped",
	},
	{name: "NoEffect around Skip takes the doubt back", story: func(b *bench) { b.run(Unknown(errOrdinary)).wake().run(NoEffect(Skip("none"))) },
		want:     "running execute b e0 t0 [skipped pending pending] due20s offered0s published",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 skipped",
	},
	{name: "Unknown around Skip leaves a doubt", story: func(b *bench) { b.run(Unknown(Skip("none"))) },
		want:     "running execute b e0 t0 [in_doubt pending pending] due20s offered0s published",
		attempts: "a.exec e0 #1 skipped",
	},
	{name: "Complete ends it", story: func(b *bench) { b.run(Complete("enough")) },
		want:     "completed execute a e0 t0 [done pending pending] reason=enough",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "error with tries left backs off", story: func(b *bench) { b.run(errOrdinary) },
		want:     "running execute a e0 t1 [pending pending pending] failure=broken@a due1s wake1s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "second error gives up, nothing to undo", story: func(b *bench) { b.run(errOrdinary).wake().run(errOrdinary) },
		want:     "failed execute a e0 t0 [pending pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 failed",
	},
	{name: "RetryAfter has a wait of its own", story: func(b *bench) { b.run(RetryAfter(time.Hour, errOrdinary)) },
		want:     "running execute a e0 t1 [pending pending pending] failure=broken@a due1h0m0s wake1h0m0s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "Unknown leaves a doubt", story: func(b *bench) { b.run(Unknown(errOrdinary)) },
		want:     "running execute a e0 t1 [in_doubt pending pending] failure=broken@a due1s wake1s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "NoEffect takes it back", story: func(b *bench) { b.run(Unknown(errOrdinary)).wake().run(NoEffect(errOrdinary)) },
		want:     "failed execute a e0 t0 [pending pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 failed",
	},
	{name: "NoEffect does not take back what is done", story: func(b *bench) {
		z := b.zombie()
		r := b.open("B")
		b.late(z, nil).settle(r, NoEffect(errOrdinary), false)
	},
		want:     "compensating compensate a e0 t0 [done pending pending] failure=broken@a due28s wake28s",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed",
	},
	{name: "time-out is a failed try in doubt", story: func(b *bench) { r := b.open("A"); b.cut(r, context.DeadlineExceeded) },
		want:     "running execute a e0 t1 [in_doubt pending pending] failure=context canceled@a due1s wake1s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "Fail flips to the last step done", story: func(b *bench) { b.failAt("c") },
		want:     "compensating compensate b e0 t0 [done done pending] failure=broken@c due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 succeeded, c.exec e0 #1 failed",
	},
	{name: "Fail goes on with the first undo in one write", story: func(b *bench) { b.run(nil).settle(b.open("A"), Fail(errOrdinary), true) },
		want:     "compensating compensate a e0 t1 open#1/A [done pending pending] failure=broken@b due32s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
	},
	{name: "Fail in doubt undoes the step itself, at once: its body returned", story: func(b *bench) { b.run(Fail(Unknown(errOrdinary))) },
		want:     "compensating compensate a e0 t0 [in_doubt pending pending] failure=broken@a due20s offered0s published",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "Fail with nothing to undo: cursor on the failing step", steps: steps(benchStep("a", pivot), benchStep("b")), story: func(b *bench) { b.failAt("b") },
		want:     "failed execute b e0 t0 [done pending] failure=broken@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
	},
	{name: "Halt parks, in doubt", story: func(b *bench) { b.run(Halt("look")) },
		want:     "halted execute a e0 t1 [in_doubt pending pending] reason=look",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "Snooze takes the try back, leaves a doubt", story: func(b *bench) { b.run(Snooze(time.Minute)) },
		want:     "running execute a e0 t0 [in_doubt pending pending] due1m0s wake1m0s",
		attempts: "a.exec e0 #1 snoozed",
	},
	{name: "Snooze does not reuse the number", story: func(b *bench) { b.run(Snooze(time.Minute)).wake().open("A") },
		want:     "running execute a e0 t1 open#2/A [in_doubt pending pending] due32s",
		attempts: "a.exec e0 #1 snoozed",
	},
	{name: "shutdown takes the try back, due now, nothing published", story: func(b *bench) { b.cut(b.open("A"), ErrShutdown) },
		want:     "running execute a e0 t0 [in_doubt pending pending] due0s",
		attempts: "a.exec e0 #1 interrupted",
	},
	{name: "interrupted: the number is not reused", story: func(b *bench) { b.cut(b.open("A"), ErrShutdown).open("A") },
		want:     "running execute a e0 t1 open#2/A [in_doubt pending pending] due32s",
		attempts: "a.exec e0 #1 interrupted",
	},
	{name: "lost, but still open: interrupted", story: func(b *bench) { b.cut(b.open("A"), ErrAttemptLost) },
		want:     "running execute a e0 t0 [in_doubt pending pending] due0s",
		attempts: "a.exec e0 #1 interrupted",
	},
	{name: "refused state of a step: done, and failed for good", story: func(b *bench) {
		b.settleResult(b.open("A"), result{kind: succeeded, stateErr: errState}, false)
	},
		want:     "compensating compensate a e0 t0 [done pending pending] failure=state_refused@a due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "refused state of an undo: undone, and failed for good", story: func(b *bench) {
		b.failAt("b").settleResult(b.open("A"), result{kind: succeeded, stateErr: errState}, false)
	},
		want:     "compensation_failed compensate a e0 t0 [undone pending pending] failure=state_refused@a",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 succeeded",
	},
	{name: "refused state with Snooze fails for good", story: func(b *bench) {
		after := time.Minute
		b.settleResult(b.open("A"), result{kind: snoozed, after: &after, doubt: true, stateErr: errState}, false)
	},
		want:     "compensating compensate a e0 t0 [in_doubt pending pending] failure=state_refused@a due20s offered0s published",
		attempts: "a.exec e0 #1 snoozed",
	},

	// Chaining.
	{name: "an isolated step is handed over", steps: steps(benchStep("a"), benchStep("b", isolated)), story: func(b *bench) { b.settle(b.open("A"), nil, true) },
		want:     "running execute b e0 t0 [done pending] due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "after an isolated step it is handed over", steps: steps(benchStep("a", isolated), benchStep("b")), story: func(b *bench) { b.settle(b.open("A"), nil, true) },
		want:     "running execute b e0 t0 [done pending] due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "an isolated step behind a removed one is handed over", steps: steps(benchStep("a"), benchStep("x"), benchStep("b", isolated)), story: func(b *bench) {
		r := b.open("A")
		b.without(b.other(Definition[struct{}]{Steps: steps(benchStep("a"), benchStep("b", isolated)), Removed: steps(benchStep("x"))}), func() {
			b.settle(r, nil, true)
		})
	},
		want:     "running execute b e0 t0 [done skipped pending] due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "a chain passes a removed step", steps: steps(benchStep("a"), benchStep("x"), benchStep("b")), story: func(b *bench) {
		r := b.open("A")
		b.without(b.other(Definition[struct{}]{Steps: steps(benchStep("a"), benchStep("b")), Removed: steps(benchStep("x"))}), func() {
			b.settle(r, nil, true)
		})
	},
		want:     "running execute b e0 t1 open#1/A [done skipped pending] due32s",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "a lease is inherited", story: func(b *bench) {
		r := b.open("A")
		b.in(10 * time.Second)
		_ = b.do(func(m *machine) error { m.settle(r, result{kind: succeeded}, true, &r.leaseUntil); return nil })
	},
		want:     "running execute b e0 t1 open#1/A [done pending pending] due22s",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "an undo that must wait is not chained", story: func(b *bench) {
		b.open("A")
		b.lapse().settle(b.open("B"), Fail(errOrdinary), true)
	},
		want:     "compensating compensate a e0 t0 [in_doubt pending pending] failure=broken@a due28s wake28s",
		attempts: "a.exec e0 #1 abandoned, a.exec e0 #2 failed",
	},
	{name: "direct: handed over by being due", story: func(b *bench) { b.rules.direct = true; b.run(nil) },
		want:     "running execute b e0 t0 [done pending pending] due0s",
		attempts: "a.exec e0 #1 succeeded",
	},

	// The walk.
	{name: "undo by undo to the end", story: func(b *bench) { b.failAt("c").undoAll() },
		want:     "compensated compensate a e0 t0 [undone undone pending] failure=broken@c",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 succeeded, c.exec e0 #1 failed, b.comp e0 #1 succeeded, a.comp e0 #1 succeeded",
	},
	{name: "a failed undo backs off", story: func(b *bench) { b.failAt("b").run(errOrdinary) },
		want:     "compensating compensate a e0 t1 [done pending pending] failure=broken@a due1s wake1s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 failed",
	},
	{name: "an undo that fails for good stops the walk", story: func(b *bench) { b.failAt("c").run(Fail(errOrdinary)) },
		want:     "compensation_failed compensate b e0 t0 [done done pending] failure=broken@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 succeeded, c.exec e0 #1 failed, b.comp e0 #1 failed",
	},
	{name: "Skip in an undo counts as undone", story: func(b *bench) { b.failAt("b").run(Skip("nothing there")) },
		want:     "compensated compensate a e0 t0 [undone pending pending] failure=broken@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 skipped",
	},
	{name: "Complete in an undo is an error", story: func(b *bench) { b.failAt("b").run(Complete("no")) },
		want:     "compensating compensate a e0 t1 [done pending pending] failure=saga: complete: no@a due1s wake1s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 failed",
	},
	{name: "Halt in an undo parks", story: func(b *bench) { b.failAt("b").run(Halt("look")) },
		want:     "halted compensate a e0 t1 [done pending pending] failure=broken@b reason=look",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 failed",
	},
	{name: "Resume of a halted undo goes on there", story: func(b *bench) { b.failAt("b").run(Halt("look")).must(ActResume, false) },
		want:     "compensating compensate a e1 t0 [done pending pending] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 failed",
		acts:     "resume by ann: halted to compensating",
	},
	{name: "Snooze in an undo", story: func(b *bench) { b.failAt("b").run(Snooze(time.Minute)) },
		want:     "compensating compensate a e0 t0 [done pending pending] failure=broken@b due1m0s wake1m0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 snoozed",
	},
	{name: "an undo cut off by shutdown", story: func(b *bench) { b.failAt("b").cut(b.open("A"), ErrShutdown) },
		want:     "compensating compensate a e0 t0 [done pending pending] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 interrupted",
	},
	{name: "steps without undo, skipped and pending ones are passed over", steps: steps(benchStep("a"), benchStep("b", pivot), benchStep("c"), benchStep("d")), story: func(b *bench) {
		b.run(nil).run(nil).run(Skip("none")).run(Fail(errOrdinary))
	},
		want:     "compensating compensate a e0 t0 [done done skipped pending] failure=broken@d due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 succeeded, c.exec e0 #1 skipped, d.exec e0 #1 failed",
	},
	{name: "undo of a dead worker's step waits for its time-out", story: func(b *bench) { b.open("A"); b.lapse().run(Fail(errOrdinary)) },
		want:     "compensating compensate a e0 t0 [in_doubt pending pending] failure=broken@a due28s wake28s",
		attempts: "a.exec e0 #1 abandoned, a.exec e0 #2 failed",
	},
	{name: "and opens then", story: func(b *bench) { b.open("A"); b.lapse().run(Fail(errOrdinary)).wake().open("B") },
		want:     "compensating compensate a e0 t1 open#1/B [in_doubt pending pending] failure=broken@a due32s",
		attempts: "a.exec e0 #1 abandoned, a.exec e0 #2 failed",
	},
	{name: "without a time-out it waits a lease more", steps: steps(benchStep("a", timeless)), story: func(b *bench) { b.open("A"); b.lapse().run(Fail(errOrdinary)) },
		want:     "compensating compensate a e0 t0 [in_doubt] failure=broken@a due28s wake28s",
		attempts: "a.exec e0 #1 abandoned, a.exec e0 #2 failed",
	},
	{name: "no act clears that", story: func(b *bench) {
		b.open("A")
		b.lapse().run(Fail(errOrdinary)).must(ActRetry, false).must(ActHalt, false).must(ActResume, false)
	},
		want:     "compensating compensate a e2 t0 [in_doubt pending pending] failure=broken@a due28s wake28s",
		attempts: "a.exec e0 #1 abandoned, a.exec e0 #2 failed",
		acts:     "retry by ann: compensating to compensating, halt by ann: compensating to halted, resume by ann: halted to compensating",
	},
	{name: "a doubt that is ignored", steps: steps(benchStep("a", policy(InDoubtIgnore))), story: func(b *bench) { b.run(Fail(Unknown(errOrdinary))) },
		want:     "failed execute a e0 t0 [in_doubt] failure=broken@a",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "a doubt that halts", steps: steps(benchStep("a", policy(InDoubtHalt)), benchStep("b")), story: func(b *bench) { b.run(Fail(Unknown(errOrdinary))) },
		want:     "halted compensate a e0 t0 [in_doubt pending] failure=broken@a reason=in_doubt",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "Resume takes it as done", steps: steps(benchStep("a", policy(InDoubtHalt)), benchStep("b")), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).must(ActResume, false)
	},
		want:     "compensating compensate a e1 t0 [done pending] failure=broken@a due0s",
		attempts: "a.exec e0 #1 failed",
		acts:     "resume by ann: halted to compensating",
	},
	{name: "halts once only", steps: steps(benchStep("a", policy(InDoubtHalt)), benchStep("b")), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).must(ActResume, false).open("A")
		b.must(ActHalt, false).settle(b.ref(), errOrdinary, false).must(ActResume, false)
	},
		want:     "compensating compensate a e2 t0 [done pending] failure=broken@a due0s",
		attempts: "a.exec e0 #1 failed, a.comp e1 #1 failed",
		acts:     "resume by ann: halted to compensating, halt by ann: compensating to compensating, resume by ann: halted to compensating",
	},
	{name: "a pivot's doubt: Resume, nothing to undo", steps: steps(benchStep("a", pivot, policy(InDoubtHalt))), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).must(ActResume, false)
	},
		want:     "failed execute a e1 t0 [done] failure=broken@a",
		attempts: "a.exec e0 #1 failed",
		acts:     "resume by ann: halted to failed",
	},
	{name: "halts for its doubt, not while it is tried again", steps: steps(benchStep("a", policy(InDoubtHalt))), story: func(b *bench) { b.run(Unknown(errOrdinary)) },
		want:     "running execute a e0 t1 [in_doubt] failure=broken@a due1s wake1s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "any other Resume leaves the ledger alone", steps: steps(benchStep("a", policy(InDoubtHalt)), benchStep("b")), story: func(b *bench) {
		b.open("A")
		b.must(ActHalt, true).must(ActResume, false)
	},
		want:     "running execute a e1 t0 [in_doubt pending] due0s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "halt by ann: running to halted, resume by ann: halted to running",
	},
	{name: "Compensate on a halted walk resumes it", steps: steps(benchStep("a", policy(InDoubtHalt))), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).must(ActCompensate, false)
	},
		want:     "compensating compensate a e1 t0 [done] failure=broken@a due0s",
		attempts: "a.exec e0 #1 failed",
		acts:     "compensate by ann: halted to compensating",
	},
	{name: "this build cannot undo it: halted", story: func(b *bench) {
		b.failAt("b").without(b.other(Definition[struct{}]{Steps: steps(benchStep("a", pivot), benchStep("b"))}), func() {
			b.drop(b.pointer(), DropEnded)
		})
	},
		want:     "halted compensate a e0 t0 [done pending pending] failure=broken@b reason=no_compensation",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
	},
	{name: "a removed step is passed over", story: func(b *bench) {
		b.without(b.other(Definition[struct{}]{Steps: steps(benchStep("b"), benchStep("c")), Removed: steps(benchStep("a"))}), func() { b.open("A") })
	},
		want: "running execute b e0 t1 open#1/A [skipped pending pending] due32s",
	},
	{name: "a removed step keeps its doubt", story: func(b *bench) {
		b.run(Unknown(errOrdinary)).wake().without(b.other(Definition[struct{}]{Steps: steps(benchStep("b"), benchStep("c")), Removed: steps(benchStep("a"))}), func() { b.open("A") })
	},
		want:     "running execute b e0 t1 open#1/A [in_doubt pending pending] due32s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "a removed step at the end completes", story: func(b *bench) {
		b.run(nil).run(nil).without(b.other(Definition[struct{}]{Steps: steps(benchStep("a"), benchStep("b")), Removed: steps(benchStep("c"))}), func() {
			b.drop(b.pointer(), DropEnded)
		})
	},
		want:     "completed execute c e0 t0 [done done skipped]",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 succeeded",
	},
	{name: "a removed step that is done is undone", story: func(b *bench) {
		b.failAt("b").without(b.other(Definition[struct{}]{Steps: steps(benchStep("b"), benchStep("c")), Removed: steps(benchStep("a"))}), func() { b.run(nil) })
	},
		want:     "compensated compensate a e0 t0 [undone pending pending] failure=broken@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 succeeded",
	},
	{name: "a renamed step keeps the ledger's name", story: func(b *bench) {
		b.without(b.other(Definition[struct{}]{Steps: steps(benchStep("new", func(s *Step[struct{}]) { s.Was = []string{"a"} }), benchStep("b"))}), func() {
			b.run(Fail(Unknown(errOrdinary)))
		})
	},
		want:     "compensating compensate a e0 t0 [in_doubt pending pending] failure=broken@a due20s offered0s published",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "a step that the ledger lacks is not run", story: func(b *bench) {
		b.without(b.other(Definition[struct{}]{Steps: steps(benchStep("a"), benchStep("between"), benchStep("b"))}), func() { b.run(nil) })
	},
		want:     "running execute b e0 t0 [done pending pending] due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
	},

	// Late results.
	{name: "late success while another attempt is open", story: func(b *bench) { z := b.zombie(); b.open("B"); b.late(z, nil) },
		want:     "running execute a e0 t2 open#2/B [done pending pending] due32s",
		attempts: "a.exec e0 #1 abandoned late succeeded",
	},
	{name: "late error changes nothing", story: func(b *bench) { z := b.zombie(); b.open("B"); b.late(z, errOrdinary) },
		want:     "running execute a e0 t2 open#2/B [in_doubt pending pending] due32s",
		attempts: "a.exec e0 #1 abandoned late failed",
	},
	{name: "late Skip changes nothing", story: func(b *bench) { z := b.zombie(); b.open("B"); b.late(z, Skip("none")) },
		want:     "running execute a e0 t2 open#2/B [in_doubt pending pending] due32s",
		attempts: "a.exec e0 #1 abandoned late skipped",
	},
	{name: "late Complete is proof, no more", story: func(b *bench) { z := b.zombie(); b.open("B"); b.late(z, Complete("enough")) },
		want:     "running execute a e0 t2 open#2/B [done pending pending] due32s",
		attempts: "a.exec e0 #1 abandoned late succeeded",
	},
	{name: "late success twice is noted once", story: func(b *bench) { z := b.zombie(); b.open("B"); b.late(z, nil).late(z, errOrdinary) },
		want:     "running execute a e0 t2 open#2/B [done pending pending] due32s",
		attempts: "a.exec e0 #1 abandoned late succeeded",
	},
	{name: "late success above the cursor is undone next", steps: steps(benchStep("a"), benchStep("b", policy(InDoubtIgnore))), story: func(b *bench) {
		z := b.run(nil).zombie()
		b.run(Fail(errOrdinary))
		b.late(z, nil).in(time.Minute).open("B")
	},
		want:     "compensating compensate b e0 t1 open#1/B [done done] failure=broken@b due32s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned late succeeded, b.exec e0 #2 failed",
	},
	{name: "late success on failed reopens", steps: steps(benchStep("a", policy(InDoubtIgnore))), story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).in(time.Minute).late(z, nil)
	},
		want:     "compensating compensate a e1 t0 [done] failure=broken@a due0s",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed",
		acts:     "reopen by engine: failed to compensating",
	},
	{name: "late success on cancelled reopens", steps: steps(benchStep("a", policy(InDoubtIgnore))), story: func(b *bench) {
		z := b.zombie()
		b.must(ActCancel, false).in(time.Minute).late(z, nil)
	},
		want:     "compensating compensate a e2 t0 [done] reason=cancelled due0s",
		attempts: "a.exec e0 #1 abandoned late succeeded",
		acts:     "cancel by ann: running to cancelled, reopen by engine: cancelled to compensating",
	},
	{name: "late success on compensated reopens when no undo was opened", steps: steps(benchStep("a"), benchStep("b", policy(InDoubtIgnore))), story: func(b *bench) {
		z := b.run(nil).zombie()
		b.run(Fail(errOrdinary)).undoAll().in(time.Minute).late(z, nil)
	},
		want:     "compensating compensate b e1 t0 [undone done] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned late succeeded, b.exec e0 #2 failed, a.comp e0 #1 succeeded",
		acts:     "reopen by engine: compensated to compensating",
	},
	{name: "reopened, undone, compensated", steps: steps(benchStep("a", policy(InDoubtIgnore))), story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).in(time.Minute).late(z, nil).undoAll()
	},
		want:     "compensated compensate a e1 t0 [undone] failure=broken@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed, a.comp e1 #1 succeeded",
		acts:     "reopen by engine: failed to compensating",
	},
	{name: "late success of a pivot on failed is noted", steps: steps(benchStep("a", pivot)), story: func(b *bench) { z := b.zombie(); b.run(Fail(errOrdinary)).late(z, nil) },
		want:     "failed execute a e0 t0 [done] failure=broken@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed",
	},
	{name: "late success on halted is noted", story: func(b *bench) { z := b.zombie(); b.must(ActHalt, false).late(z, nil) },
		want:     "halted execute a e0 t1 [done pending pending] reason=because",
		attempts: "a.exec e0 #1 abandoned late succeeded",
		acts:     "halt by ann: running to halted",
	},
	{name: "late success on completed is noted", steps: steps(benchStep("a")), story: func(b *bench) { z := b.zombie(); b.run(Skip("none")).late(z, nil) },
		want:     "completed execute a e0 t0 [done]",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 skipped",
	},
	{name: "late success on compensation_failed is noted", steps: steps(benchStep("a"), benchStep("b", policy(InDoubtIgnore))), story: func(b *bench) {
		z := b.run(nil).zombie()
		b.run(Fail(errOrdinary)).run(Fail(errOrdinary)).late(z, nil)
	},
		want:     "compensation_failed compensate a e0 t0 [done done] failure=broken@a",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned late succeeded, b.exec e0 #2 failed, a.comp e0 #1 failed",
	},
	{name: "late success of a step whose undo an operator skipped", story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary))
		b.x.Ledger[0].Status = store.StepUndone // as SkipStep does
		_ = b.do(func(m *machine) error { m.walk(); return nil })
		b.late(z, nil)
	},
		want:     "compensated compensate a e0 t0 [undone pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed",
	},

	// Effects that come after their undo.
	{name: "stray while the undo runs", story: func(b *bench) { z := b.zombie(); b.run(Fail(errOrdinary)).wake().open("B"); b.late(z, nil) },
		want:     "compensating compensate a e0 t1 open#1/B [in_doubt+stray pending pending] failure=broken@a due32s",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed",
	},
	{name: "a success of that undo does not clear it", story: func(b *bench) {
		z := b.zombie()
		r := b.run(Fail(errOrdinary)).wake().open("B")
		b.late(z, nil).settle(r, nil, false)
	},
		want:     "compensation_failed compensate a e0 t0 [undone+stray pending pending] failure=late_effect@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed, a.comp e0 #1 succeeded",
	},
	{name: "stray on compensated", story: func(b *bench) { z := b.zombie(); b.run(Fail(errOrdinary)).undoAll().late(z, nil) },
		want:     "compensation_failed compensate a e0 t0 [undone+stray pending pending] failure=late_effect@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed, a.comp e0 #1 succeeded",
		acts:     "late_effect by engine: compensated to compensation_failed",
	},
	{name: "stray on compensation_failed", story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).wake().run(Fail(errOrdinary)).late(z, nil)
	},
		want:     "compensation_failed compensate a e0 t0 [in_doubt+stray pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed, a.comp e0 #1 failed",
	},
	{name: "a late failure after the undo is only noted", story: func(b *bench) { z := b.zombie(); b.run(Fail(errOrdinary)).undoAll().late(z, errOrdinary) },
		want:     "compensated compensate a e0 t0 [undone pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 abandoned late failed, a.exec e0 #2 failed, a.comp e0 #1 succeeded",
	},
	{name: "Retry of a stray raises the round", story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).undoAll().late(z, nil).must(ActRetry, false)
	},
		want:     "compensating compensate a e1 t0 [done+round2 pending pending] failure=broken@a due0s",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed, a.comp e0 #1 succeeded",
		acts:     "late_effect by engine: compensated to compensation_failed, retry by ann: compensation_failed to compensating",
	},
	{name: "and undoes it again", story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).undoAll().late(z, nil).must(ActRetry, false).undoAll()
	},
		want:     "compensated compensate a e1 t0 [undone+round2 pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed, a.comp e0 #1 succeeded, a.comp e1 #1 succeeded",
		acts:     "late_effect by engine: compensated to compensation_failed, retry by ann: compensation_failed to compensating",
	},

	// Requests.
	{name: "Compensate while it runs is a request", story: func(b *bench) { b.open("A"); b.must(ActCompensate, false) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] request=compensate due32s",
		acts: "compensate by ann: running to running",
	},
	{name: "Cancel while it runs is a request", story: func(b *bench) { b.open("A"); b.must(ActCancel, false) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] request=cancel due32s",
		acts: "cancel by ann: running to running",
	},
	{name: "Halt while it runs is a request", story: func(b *bench) { b.open("A"); b.must(ActHalt, false) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] request=+halt due32s",
		acts: "halt by ann: running to running",
	},
	{name: "a turn beats the success of the last step", steps: steps(benchStep("a")), story: func(b *bench) { r := b.open("A"); b.must(ActCompensate, false).settle(r, nil, false) },
		want:     "compensating compensate a e1 t0 [done] reason=operator due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "compensate by ann: running to running",
	},
	{name: "a turn beats Complete", story: func(b *bench) { r := b.open("A"); b.must(ActCompensate, false).settle(r, Complete("enough"), false) },
		want:     "compensating compensate a e1 t0 [done pending pending] reason=operator due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "compensate by ann: running to running",
	},
	{name: "a turn beats Halt", story: func(b *bench) { r := b.open("A"); b.must(ActCompensate, false).settle(r, Halt("look"), false) },
		want:     "compensating compensate a e1 t0 [in_doubt pending pending] reason=operator due20s offered0s published",
		attempts: "a.exec e0 #1 failed",
		acts:     "compensate by ann: running to running",
	},
	{name: "a turn beats an error with tries left", story: func(b *bench) { r := b.open("A"); b.must(ActCompensate, false).settle(r, errOrdinary, false) },
		want:     "failed execute a e1 t0 [pending pending pending] reason=operator",
		attempts: "a.exec e0 #1 failed",
		acts:     "compensate by ann: running to running",
	},
	{name: "a turn beats Snooze", story: func(b *bench) { r := b.open("A"); b.must(ActCompensate, false).settle(r, Snooze(time.Minute), false) },
		want:     "compensating compensate a e1 t0 [in_doubt pending pending] reason=operator due20s offered0s published",
		attempts: "a.exec e0 #1 snoozed",
		acts:     "compensate by ann: running to running",
	},
	{name: "a turn and the interrupted step: in doubt, undone", story: func(b *bench) { r := b.open("A"); b.must(ActCompensate, false).cut(r, ErrInterrupted) },
		want:     "compensating compensate a e1 t0 [in_doubt pending pending] reason=operator due20s offered0s published",
		attempts: "a.exec e0 #1 interrupted",
		acts:     "compensate by ann: running to running",
	},
	{name: "a turn goes on with the undo in one write", story: func(b *bench) { r := b.open("A"); b.must(ActCompensate, false).settle(r, nil, true) },
		want:     "compensating compensate a e1 t1 open#1/A [done pending pending] reason=operator due32s",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "compensate by ann: running to running",
	},
	{name: "Cancel with nothing to undo ends cancelled", story: func(b *bench) { r := b.open("A"); b.must(ActCancel, false).settle(r, errOrdinary, false) },
		want:     "cancelled execute a e1 t0 [pending pending pending] reason=cancelled",
		attempts: "a.exec e0 #1 failed",
		acts:     "cancel by ann: running to running",
	},
	{name: "Halt parks after the success", story: func(b *bench) { r := b.open("A"); b.must(ActHalt, false).settle(r, nil, true) },
		want:     "halted execute b e0 t0 [done pending pending] reason=because",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "halt by ann: running to running",
	},
	{name: "Halt parks instead of a backoff", story: func(b *bench) { r := b.open("A"); b.must(ActHalt, false).settle(r, errOrdinary, false) },
		want:     "halted execute a e0 t1 [pending pending pending] failure=broken@a reason=because",
		attempts: "a.exec e0 #1 failed",
		acts:     "halt by ann: running to running",
	},
	{name: "Halt parks when interrupted", story: func(b *bench) { r := b.open("A"); b.must(ActHalt, false).cut(r, ErrShutdown) },
		want:     "halted execute a e0 t0 [in_doubt pending pending] reason=because",
		attempts: "a.exec e0 #1 interrupted",
		acts:     "halt by ann: running to running",
	},
	{name: "Halt parks after the flip", story: func(b *bench) { r := b.run(nil).open("A"); b.must(ActHalt, false).settle(r, Fail(errOrdinary), true) },
		want:     "halted compensate a e0 t0 [done pending pending] failure=broken@b reason=because",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "halt by ann: running to running",
	},
	{name: "Halt is void when it completes", steps: steps(benchStep("a")), story: func(b *bench) { r := b.open("A"); b.must(ActHalt, false).settle(r, nil, false) },
		want:     "completed execute a e0 t0 [done]",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "halt by ann: running to running",
	},
	{name: "Halt is void when it fails", story: func(b *bench) { r := b.open("A"); b.must(ActHalt, false).settle(r, Fail(errOrdinary), false) },
		want:     "failed execute a e0 t0 [pending pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 failed",
		acts:     "halt by ann: running to running",
	},
	{name: "Halt is void when it is compensated", story: func(b *bench) { r := b.failAt("b").open("A"); b.must(ActHalt, false).settle(r, nil, false) },
		want:     "compensated compensate a e0 t0 [undone pending pending] failure=broken@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 succeeded",
		acts:     "halt by ann: compensating to compensating",
	},
	{name: "Halt is void when the undo fails", story: func(b *bench) {
		r := b.failAt("b").open("A")
		b.must(ActHalt, false).settle(r, Fail(errOrdinary), false)
	},
		want:     "compensation_failed compensate a e0 t0 [done pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 failed",
		acts:     "halt by ann: compensating to compensating",
	},
	{name: "Compensate takes a pending Halt back", story: func(b *bench) { b.open("A"); b.must(ActHalt, false).must(ActCompensate, false) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] request=compensate due32s",
		acts: "halt by ann: running to running, compensate by ann: running to running",
	},
	{name: "Halt adds to a pending turn", story: func(b *bench) { b.open("A"); b.must(ActCancel, false).must(ActHalt, false) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] request=cancel+halt due32s",
		acts: "cancel by ann: running to running, halt by ann: running to running",
	},
	{name: "turn and Halt: turned, then parked", story: func(b *bench) {
		r := b.open("A")
		b.must(ActCompensate, false).must(ActHalt, false).settle(r, nil, true)
	},
		want:     "halted compensate a e1 t0 [done pending pending] reason=because",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "compensate by ann: running to running, halt by ann: running to running",
	},
	{name: "Resume takes a pending Halt back", story: func(b *bench) { b.open("A"); b.must(ActHalt, false).must(ActResume, false) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
		acts: "halt by ann: running to running, resume by ann: running to running",
	},
	{name: "Resume takes a pending Halt back, the turn stays", story: func(b *bench) {
		b.open("A")
		b.must(ActCompensate, false).must(ActHalt, false).must(ActResume, false)
		if n := b.events[len(b.events)-1]; n != EventActDone {
			b.t.Errorf("event %s", n)
		}
	},
		want: "running execute a e0 t1 open#1/A [pending pending pending] request=compensate due32s",
		acts: "compensate by ann: running to running, halt by ann: running to running, resume by ann: running to running",
	},
	{name: "Compensate while compensating takes a pending Halt back", story: func(b *bench) { b.failAt("b").open("A"); b.must(ActHalt, false).must(ActCompensate, false) },
		want:     "compensating compensate a e0 t1 open#1/A [done pending pending] failure=broken@b due32s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "halt by ann: compensating to compensating, compensate by ann: compensating to compensating",
	},
	{name: "Compensate while compensating changes nothing", story: func(b *bench) { b.failAt("b").must(ActCompensate, true) },
		want:     "compensating compensate a e0 t0 [done pending pending] failure=broken@b due20s offered0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "compensate by ann: compensating to compensating",
	},
	{name: "Retry and Resume while it runs", story: func(b *bench) {
		b.open("A")
		b.refuse(ActRetry, false, ErrAttemptRunning)
		b.refuse(ActResume, false, ErrNotHalted)
	},
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},

	// Acts without a live attempt.
	{name: "Compensate at once", story: func(b *bench) { b.run(nil).must(ActCompensate, false) },
		want:     "compensating compensate a e1 t0 [done pending pending] reason=operator due0s",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "compensate by ann: running to compensating",
	},
	{name: "Compensate at once, from a backoff", story: func(b *bench) { b.run(nil).run(errOrdinary).must(ActCompensate, false) },
		want:     "compensating compensate a e1 t0 [done pending pending] reason=operator due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "compensate by ann: running to compensating",
	},
	{name: "Compensate at once, nothing to undo", story: func(b *bench) { b.must(ActCompensate, false) },
		want: "failed execute a e1 t0 [pending pending pending] reason=operator",
		acts: "compensate by ann: running to failed",
	},
	{name: "Cancel at once, nothing to undo", story: func(b *bench) { b.must(ActCancel, false) },
		want: "cancelled execute a e1 t0 [pending pending pending] reason=cancelled",
		acts: "cancel by ann: running to cancelled",
	},
	{name: "Cancel at once, something to undo", story: func(b *bench) { b.run(nil).must(ActCancel, false).undoAll() },
		want:     "compensated compensate a e1 t0 [undone pending pending] reason=cancelled",
		attempts: "a.exec e0 #1 succeeded, a.comp e1 #1 succeeded",
		acts:     "cancel by ann: running to compensating",
	},
	{name: "Compensate with a lapsed attempt", story: func(b *bench) { b.open("A"); b.lapse().must(ActCompensate, false) },
		want:     "compensating compensate a e1 t0 [in_doubt pending pending] reason=operator due28s wake28s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "compensate by ann: running to compensating",
	},
	{name: "Compensate of a halted one", story: func(b *bench) { b.run(nil).must(ActHalt, false).must(ActCompensate, false) },
		want:     "compensating compensate a e1 t0 [done pending pending] reason=operator due0s",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "halt by ann: running to halted, compensate by ann: halted to compensating",
	},
	{name: "Halt at once", story: func(b *bench) { b.run(nil).must(ActHalt, false) },
		want:     "halted execute b e0 t0 [done pending pending] reason=because",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "halt by ann: running to halted",
	},
	{name: "Halt of a halted one", story: func(b *bench) { b.must(ActHalt, false).must(ActHalt, false) },
		want: "halted execute a e0 t0 [pending pending pending] reason=because",
		acts: "halt by ann: running to halted, halt by ann: halted to halted",
	},
	{name: "Halt with a lapsed attempt", story: func(b *bench) { b.open("A"); b.lapse().must(ActHalt, false) },
		want:     "halted execute a e0 t1 [in_doubt pending pending] reason=because",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "halt by ann: running to halted",
	},
	{name: "Halt with a lapsed attempt and a pending turn", story: func(b *bench) { b.open("A"); b.must(ActCompensate, false).lapse().must(ActHalt, false) },
		want:     "halted compensate a e1 t0 [in_doubt pending pending] reason=because",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "compensate by ann: running to running, halt by ann: running to halted",
	},
	{name: "Resume goes on with a new epoch", story: func(b *bench) { b.run(errOrdinary).must(ActHalt, false).must(ActResume, false) },
		want:     "running execute a e1 t0 [pending pending pending] failure=broken@a due0s",
		attempts: "a.exec e0 #1 failed",
		acts:     "halt by ann: running to halted, resume by ann: halted to running",
	},
	{name: "Retry of failed starts again at the step, the ledger stays", steps: steps(benchStep("a", pivot), benchStep("b", policy(InDoubtIgnore))), story: func(b *bench) {
		b.run(nil).run(Fail(Unknown(errOrdinary))).must(ActRetry, false)
	},
		want:     "running execute b e1 t0 [done in_doubt] due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "retry by ann: failed to running",
	},
	{name: "Retry of failed after a walk that found nothing", steps: steps(benchStep("a", pivot, policy(InDoubtHalt)), benchStep("b", policy(InDoubtIgnore))), story: func(b *bench) {
		b.run(nil)
		b.x.Ledger[0].Status = store.StepInDoubt
		b.run(Fail(errOrdinary)).must(ActResume, false).must(ActRetry, false)
	},
		want:     "running execute b e2 t0 [done pending] due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "resume by ann: halted to failed, retry by ann: failed to running",
	},
	{name: "Retry of running: same place, fresh tries", story: func(b *bench) { b.run(nil).run(errOrdinary).must(ActRetry, false) },
		want:     "running execute b e1 t0 [done pending pending] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "retry by ann: running to running",
	},
	{name: "Retry of compensating: same place, fresh tries", story: func(b *bench) { b.failAt("b").run(errOrdinary).must(ActRetry, false) },
		want:     "compensating compensate a e1 t0 [done pending pending] failure=broken@a due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 failed",
		acts:     "retry by ann: compensating to compensating",
	},
	{name: "Retry of compensation_failed", story: func(b *bench) { b.failAt("b").run(Fail(errOrdinary)).must(ActRetry, false) },
		want:     "compensating compensate a e1 t0 [done pending pending] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 failed",
		acts:     "retry by ann: compensation_failed to compensating",
	},
	{name: "Retry with a lapsed attempt", story: func(b *bench) { b.open("A"); b.lapse().must(ActRetry, false) },
		want:     "running execute a e1 t0 [in_doubt pending pending] due0s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "retry by ann: running to running",
	},
	{name: "Retry with a lapsed attempt and a pending turn", story: func(b *bench) {
		b.run(nil).open("A")
		b.must(ActCompensate, false).lapse().in(time.Minute).must(ActRetry, false)
	},
		want:     "compensating compensate b e2 t0 [done in_doubt pending] reason=operator due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned",
		acts:     "compensate by ann: running to running, retry by ann: running to compensating",
	},
	{name: "acts on halted", story: func(b *bench) { b.must(ActHalt, false).refuse(ActRetry, false, ErrNotRetryable) },
		want: "halted execute a e0 t0 [pending pending pending] reason=because",
		acts: "halt by ann: running to halted",
	},
	{name: "Resume of one that is not halted", story: func(b *bench) { b.refuse(ActResume, false, ErrNotHalted) },
		want: "running execute a e0 t0 [pending pending pending] due20s offered0s published",
	},
	{name: "acts on completed", steps: steps(benchStep("a")), story: func(b *bench) {
		b.run(nil)
		for _, a := range []Act{ActRetry, ActCompensate, ActCancel, ActHalt, ActResume} {
			b.refuse(a, true, ErrFinished)
		}
	},
		want:     "completed execute a e0 t0 [done]",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "acts on compensated", story: func(b *bench) {
		b.failAt("b").undoAll()
		for _, a := range []Act{ActRetry, ActCompensate, ActCancel, ActHalt, ActResume} {
			b.refuse(a, true, ErrFinished)
		}
	},
		want:     "compensated compensate a e0 t0 [undone pending pending] failure=broken@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 succeeded",
	},
	{name: "acts on cancelled", story: func(b *bench) {
		b.must(ActCancel, false)
		for _, a := range []Act{ActRetry, ActCompensate, ActCancel, ActHalt, ActResume} {
			b.refuse(a, true, ErrFinished)
		}
	},
		want: "cancelled execute a e1 t0 [pending pending pending] reason=cancelled",
		acts: "cancel by ann: running to cancelled",
	},
	{name: "acts on failed", story: func(b *bench) {
		b.failAt("a")
		for _, a := range []Act{ActCompensate, ActCancel, ActHalt, ActResume} {
			b.refuse(a, true, ErrFinished)
		}
	},
		want:     "failed execute a e0 t0 [pending pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "acts on compensation_failed", story: func(b *bench) {
		b.failAt("b").run(Fail(errOrdinary))
		for _, a := range []Act{ActCompensate, ActCancel, ActHalt, ActResume} {
			b.refuse(a, true, ErrFinished)
		}
	},
		want:     "compensation_failed compensate a e0 t0 [done pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 failed",
	},
	{name: "an act that is not known", story: func(b *bench) { b.refuse("dance", false, ErrInvalid) },
		want: "running execute a e0 t0 [pending pending pending] due20s offered0s published",
	},
	{name: "acts on waiting", story: func(b *bench) {
		b.x.Status = store.StatusWaiting
		b.refuse(ActRetry, false, ErrNotRetryable)
		b.refuse(ActResume, false, ErrNotHalted)
	},
		want: "waiting execute a e0 t0 [pending pending pending] due20s offered0s published",
	},

	// Force.
	{name: "Compensate by force", story: func(b *bench) { b.open("A"); b.must(ActCompensate, true) },
		want:     "compensating compensate a e1 t0 [in_doubt pending pending] reason=operator due1m0s wake1m0s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "compensate by ann: running to compensating",
	},
	{name: "Cancel by force", steps: steps(benchStep("a", policy(InDoubtIgnore))), story: func(b *bench) { b.open("A"); b.must(ActCancel, true) },
		want:     "cancelled execute a e1 t0 [in_doubt] reason=cancelled",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "cancel by ann: running to cancelled",
	},
	{name: "Halt by force", story: func(b *bench) { b.open("A"); b.must(ActHalt, true) },
		want:     "halted execute a e0 t1 [in_doubt pending pending] reason=because",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "halt by ann: running to halted",
	},
	{name: "Halt by force with a pending turn", story: func(b *bench) { b.run(nil).open("A"); b.must(ActCompensate, false).must(ActHalt, true) },
		want:     "halted compensate b e1 t0 [done in_doubt pending] reason=because",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned",
		acts:     "compensate by ann: running to running, halt by ann: running to halted",
	},
	{name: "Retry by force", story: func(b *bench) { b.open("A"); b.must(ActRetry, true) },
		want:     "running execute a e1 t0 [in_doubt pending pending] due0s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "retry by ann: running to running",
	},
	{name: "Retry by force with a pending Halt is parked", story: func(b *bench) { b.open("A"); b.must(ActHalt, false).must(ActRetry, true) },
		want:     "halted execute a e0 t1 [in_doubt pending pending] reason=because",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "halt by ann: running to running, retry by ann: running to halted",
	},
	{name: "Retry by force of an undo", story: func(b *bench) { b.failAt("b").open("A"); b.must(ActRetry, true) },
		want:     "compensating compensate a e1 t0 [done pending pending] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 abandoned",
		acts:     "retry by ann: compensating to compensating",
	},
	{name: "what was forced away reports late", story: func(b *bench) { r := b.open("A"); b.must(ActRetry, true).late(r, nil) },
		want:     "running execute a e1 t0 [done pending pending] due0s",
		attempts: "a.exec e0 #1 abandoned late succeeded",
		acts:     "retry by ann: running to running",
	},

	// The sweep.
	{name: "a lost pointer is counted, intervals go on", story: func(b *bench) { b.in(20 * time.Second).lost(1) },
		want: "running execute a e0 t0 [pending pending pending] resumes=1 due20s offered-20s published",
	},
	{name: "given up: compensation", story: func(b *bench) { b.run(nil).lost(3) },
		want:     "compensating compensate a e0 t0 [done pending pending] failure=stalled@b reason=stalled due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "give_up by engine: running to compensating",
	},
	{name: "given up: nothing to undo", story: func(b *bench) { b.lost(3) },
		want: "failed execute a e0 t0 [pending pending pending] failure=stalled@a reason=stalled",
		acts: "give_up by engine: running to failed",
	},
	{name: "given up: compensating", story: func(b *bench) { b.failAt("b").lost(3) },
		want:     "compensation_failed compensate a e0 t0 [done pending pending] failure=stalled@a",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "give_up by engine: compensating to compensation_failed",
	},
	{name: "given up: halted, where Config says so", story: func(b *bench) { b.rules.onStalled = StalledHalt; b.run(nil).lost(3) },
		want:     "halted execute b e0 t0 [done pending pending] reason=stalled",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "give_up by engine: running to halted",
	},
	{name: "giving up closes a lapsed attempt", story: func(b *bench) { b.run(nil).open("A"); b.lapse().in(time.Minute).lost(3) },
		want:     "compensating compensate b e0 t0 [done in_doubt pending] failure=stalled@b reason=stalled due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned",
		acts:     "give_up by engine: running to compensating",
	},
	{name: "giving up applies a pending request instead", story: func(b *bench) { b.run(nil).open("A"); b.must(ActHalt, false).lapse().lost(3) },
		want:     "halted execute b e0 t1 [done in_doubt pending] reason=because",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned",
		acts:     "halt by ann: running to running, give_up by engine: running to halted",
	},
	{name: "a process that does not know it never gives up", story: func(b *bench) { b.without(nil, func() { b.lost(5) }) },
		want: "running execute a e0 t0 [pending pending pending] resumes=5 due20s offered0s published",
	},
	{name: "not lost: the claim is not the last word", story: func(b *bench) {
		other := b.now.Add(time.Second)
		_ = b.do(func(m *machine) error { m.lost(&other, 0, engineBy("x")); return nil })
	},
		want: "running execute a e0 t0 [pending pending pending] due20s offered0s published",
	},
	{name: "not lost: a live attempt", story: func(b *bench) { b.open("A"); b.lost(5) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "not lost: backing off", story: func(b *bench) { b.run(errOrdinary).lost(5) },
		want:     "running execute a e0 t1 [pending pending pending] failure=broken@a due1s wake1s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "again later, published", story: func(b *bench) {
		_ = b.do(func(m *machine) error { m.again(*m.x.DueAt, time.Hour, true); return nil })
	},
		want: "running execute a e0 t0 [pending pending pending] due1h0m0s offered0s published",
	},
	{name: "again later, not published", story: func(b *bench) {
		_ = b.do(func(m *machine) error { m.again(*m.x.DueAt, time.Hour, false); return nil })
	},
		want: "running execute a e0 t0 [pending pending pending] due1h0m0s offered0s",
	},
	{name: "again: not under a live attempt", story: func(b *bench) {
		b.open("A")
		_ = b.do(func(m *machine) error { m.again(*m.x.DueAt, time.Hour, true); return nil })
	},
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "anew", story: func(b *bench) {
		b.in(5 * time.Second)
		_ = b.do(func(m *machine) error { m.anew(*m.x.DueAt); return nil })
	},
		want: "running execute a e0 t0 [pending pending pending] due20s offered0s published",
	},
	{name: "the attempt of a dead predecessor", story: func(b *bench) {
		b.open("A")
		_ = b.do(func(m *machine) error { m.abandonDead(); return nil })
	},
		want:     "running execute a e0 t1 [in_doubt pending pending] due0s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "abandon by engine: running to running",
	},
	{name: "the attempt of a dead predecessor, turn pending", story: func(b *bench) {
		b.run(nil).open("A")
		b.must(ActCompensate, false)
		_ = b.do(func(m *machine) error { m.abandonDead(); return nil })
	},
		want:     "compensating compensate b e1 t0 [done in_doubt pending] reason=operator due1m0s wake1m0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned",
		acts:     "compensate by ann: running to running, abandon by engine: running to compensating",
	},

	// Writes with an unknown outcome.
	{name: "unknown open: mine, renewed", story: func(b *bench) {
		r := b.open("A")
		b.in(20 * time.Second)
		_ = b.do(func(m *machine) error { m.handleAgain(b.pointer(), r.lease, true); return nil })
	},
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "unknown open: of another call, busy", story: func(b *bench) {
		r := b.open("A")
		b.in(20 * time.Second)
		_ = b.do(func(m *machine) error {
			if got := m.handleAgain(b.pointer(), r.lease, false); got.Reason != DropBusy {
				b.t.Errorf("%v", got)
			}
			return nil
		})
	},
		want: "running execute a e0 t1 open#1/A [pending pending pending] due12s",
	},
	{name: "unknown settle: the next one is mine", story: func(b *bench) {
		r := b.open("A")
		b.settle(r, nil, true)
		next := b.ref()
		b.in(20 * time.Second)
		_ = b.do(func(m *machine) error {
			if how := m.settleAgain(r, result{kind: succeeded}, true, next.lease, true, true); how != settledMine {
				b.t.Errorf("%v", how)
			}
			return nil
		})
	},
		want:     "running execute b e0 t1 open#1/A [done pending pending] due32s",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "conflict: the next one is not mine", story: func(b *bench) {
		r := b.open("A")
		b.settle(r, nil, true)
		next := b.ref()
		_ = b.do(func(m *machine) error {
			if how := m.settleAgain(r, result{kind: succeeded}, true, next.lease, true, false); how != settledGone {
				b.t.Errorf("%v", how)
			}
			return nil
		})
	},
		want:     "running execute b e0 t1 open#1/A [done pending pending] due32s",
		attempts: "a.exec e0 #1 succeeded",
	},
}
