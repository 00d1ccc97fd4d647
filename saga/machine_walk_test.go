package saga

import (
	"time"

	"github.com/leveret-go/leveret/store"
)

// walkTable is about compensations.
var walkTable = []tableRow{
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
}

// lateTable is about results whose attempt is not the open one any more.
var lateTable = []tableRow{
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
}

// strayTable is about effects that come after their undo.
var strayTable = []tableRow{
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
}
