package saga

import (
	"context"
	"time"
)

// settleTable is about what comes of results.
var settleTable = []tableRow{
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
	{name: "a pivot that succeeds late, after another attempt had no effect, is a person's", steps: steps(benchStep("a"), benchStep("p", pivot, turning)), story: func(b *bench) {
		b.run(nil)
		z := b.zombie()
		b.settle(b.open("B"), NoEffect(Fail(errOrdinary)), false).late(z, nil).undoAll()
	},
		want:     "compensation_failed compensate a e0 t0 [undone done+stray] failure=late_effect@p",
		attempts: "a.exec e0 #1 succeeded, p.exec e0 #1 abandoned late succeeded, p.exec e0 #2 failed, a.comp e0 #1 succeeded",
	},
	{name: "a pivot that succeeds after the end is a person's", steps: steps(benchStep("a"), benchStep("p", pivot, turning)), story: func(b *bench) {
		b.run(nil)
		z := b.zombie()
		b.settle(b.open("B"), NoEffect(Fail(errOrdinary)), false).undoAll().late(z, nil)
	},
		want:     "compensation_failed compensate a e0 t0 [undone done+stray] failure=late_effect@p",
		attempts: "a.exec e0 #1 succeeded, p.exec e0 #1 abandoned late succeeded, p.exec e0 #2 failed, a.comp e0 #1 succeeded",
		acts:     "late_effect by engine: compensated to compensation_failed",
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
}

// chainTable is about going on in the same write.
var chainTable = []tableRow{
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
}
