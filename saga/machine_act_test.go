package saga

import (
	"time"

	"github.com/leveret-go/leveret/store"
)

// requestTable is about acts while an attempt runs.
var requestTable = []tableRow{
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
}

// actTable is about acts without a live attempt.
var actTable = []tableRow{
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
}

// forceTable is about acts by force.
var forceTable = []tableRow{
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
}
