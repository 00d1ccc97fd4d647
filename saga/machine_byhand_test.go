package saga

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/leveret-go/leveret/store"
)

// byHand lets a process without the definition do an act, and wants this error
// of it.
func (b *bench) byHand(act Act, want error, f func(m *machine) error) *bench {
	b.t.Helper()
	p := b.plan
	b.plan = nil
	defer func() { b.plan = p }()
	if err := b.do(func(m *machine) error { return m.operate(act, ann, nil, func() error { return f(m) }) }); !errors.Is(err, want) {
		b.t.Errorf("%s: %v, want %v; %s", act, err, want, b)
	}
	return b
}

func (b *bench) resolve(step string, is store.StepStatus, force bool, want error) *bench {
	b.t.Helper()
	return b.byHand(ActResolve, want, func(m *machine) error { return m.resolve(step, is, force) })
}

func (b *bench) move(partition string, force bool, want error) *bench {
	b.t.Helper()
	return b.byHand(ActMove, want, func(m *machine) error { return m.move(partition, force) })
}

func (b *bench) edit(state string, want error) *bench {
	b.t.Helper()
	return b.byHand(ActEditState, want, func(m *machine) error { return m.editState(json.RawMessage(state)) })
}

func (b *bench) erase(want error) *bench {
	b.t.Helper()
	return b.byHand(ActErase, want, func(m *machine) error { return m.erase(true) })
}

// skipTable is about SkipStep on the way forward.
var skipTable = []tableRow{
	{name: "skip the step that is due", story: func(b *bench) { b.must(ActSkipStep, false) },
		want: "running execute b e1 t0 [skipped pending pending] due0s",
		acts: "skip_step by ann: running to running",
	},
	{name: "skip from a backoff: its failure is gone, too", story: func(b *bench) { b.run(errOrdinary).must(ActSkipStep, false) },
		want:     "running execute b e1 t0 [skipped pending pending] due0s",
		attempts: "a.exec e0 #1 failed",
		acts:     "skip_step by ann: running to running",
	},
	{name: "skip settles a doubt", story: func(b *bench) { b.run(Unknown(errOrdinary)).must(ActSkipStep, false) },
		want:     "running execute b e1 t0 [skipped pending pending] due0s",
		attempts: "a.exec e0 #1 failed",
		acts:     "skip_step by ann: running to running",
	},
	{name: "skip the last step: completed", steps: steps(benchStep("a")), story: func(b *bench) { b.must(ActSkipStep, false) },
		want: "completed execute a e1 t0 [skipped]",
		acts: "skip_step by ann: running to completed",
	},
	{name: "skip of a failed one goes on behind its step", steps: steps(benchStep("a", pivot), benchStep("b"), benchStep("c")), story: func(b *bench) {
		b.failAt("b").must(ActSkipStep, false)
	},
		want:     "running execute c e1 t0 [done skipped pending] due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "skip_step by ann: failed to running",
	},
	{name: "skip of a failed one whose step is done: it stays done", steps: steps(benchStep("a", pivot), benchStep("b")), story: func(b *bench) {
		b.settleResult(b.open("A"), result{kind: succeeded, stateErr: errState}, false).must(ActSkipStep, false)
	},
		want:     "running execute b e1 t0 [done pending] due0s",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "skip_step by ann: failed to running",
	},
	{name: "skip of a failed one at its last step completes it", steps: steps(benchStep("a", pivot)), story: func(b *bench) { b.failAt("a").must(ActSkipStep, false) },
		want:     "completed execute a e1 t0 [skipped]",
		attempts: "a.exec e0 #1 failed",
		acts:     "skip_step by ann: failed to completed",
	},
	{name: "skip of a halted one", story: func(b *bench) { b.run(Halt("look")).must(ActSkipStep, false) },
		want:     "running execute b e1 t0 [skipped pending pending] due0s",
		attempts: "a.exec e0 #1 failed",
		acts:     "skip_step by ann: halted to running",
	},
	{name: "skip while it runs", story: func(b *bench) { b.open("A"); b.refuse(ActSkipStep, false, ErrAttemptRunning) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "skip by force", story: func(b *bench) { b.open("A"); b.must(ActSkipStep, true) },
		want:     "running execute b e1 t0 [skipped pending pending] due0s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "skip_step by ann: running to running",
	},
	{name: "skip by force, and the effect comes: it is undone when it comes to that", story: func(b *bench) {
		r := b.open("A")
		b.must(ActSkipStep, true).late(r, nil).in(time.Minute).run(Fail(errOrdinary))
	},
		want:     "compensating compensate a e1 t0 [done pending pending] failure=broken@b due20s offered0s published",
		attempts: "a.exec e0 #1 abandoned late succeeded, b.exec e1 #1 failed",
		acts:     "skip_step by ann: running to running",
	},
	{name: "skip by force, and the effect comes after all has failed: reopened", story: func(b *bench) {
		r := b.open("A")
		b.must(ActSkipStep, true).run(Fail(errOrdinary)).in(time.Minute).late(r, nil)
	},
		want:     "compensating compensate a e2 t0 [done pending pending] failure=broken@b due0s",
		attempts: "a.exec e0 #1 abandoned late succeeded, b.exec e1 #1 failed",
		acts:     "skip_step by ann: running to running, reopen by engine: failed to compensating",
	},
	{name: "skip by force, and the effect comes after completion: noted", steps: steps(benchStep("a")), story: func(b *bench) {
		r := b.open("A")
		b.must(ActSkipStep, true).late(r, nil)
	},
		want:     "completed execute a e1 t0 [done]",
		attempts: "a.exec e0 #1 abandoned late succeeded",
		acts:     "skip_step by ann: running to completed",
	},
	{name: "skip with a lapsed attempt", story: func(b *bench) { b.open("A"); b.lapse().must(ActSkipStep, false) },
		want:     "running execute b e1 t0 [skipped pending pending] due0s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "skip_step by ann: running to running",
	},
	{name: "skip by force takes a pending Halt back: it would have gone on from halted, too", story: func(b *bench) { b.open("A"); b.must(ActHalt, false).must(ActSkipStep, true) },
		want:     "running execute b e1 t0 [skipped pending pending] due0s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "halt by ann: running to running, skip_step by ann: running to running",
	},
	{name: "skip while a turn is pending", story: func(b *bench) {
		b.open("A")
		b.must(ActCompensate, false).refuse(ActSkipStep, false, ErrAttemptRunning)
		b.refuse(ActSkipStep, true, ErrChanged)
		b.lapse().refuse(ActSkipStep, false, ErrChanged)
	},
		want: "running execute a e0 t1 open#1/A [pending pending pending] request=compensate due0s",
		acts: "compensate by ann: running to running",
	},
	{name: "skip of a declared one that no worker has adopted", story: func(b *bench) {
		b.x.Step, b.x.Ledger, b.x.Version = "", nil, 0
		b.refuse(ActSkipStep, true, ErrNoStep)
	},
		want: "running execute  e0 t0 [] due20s offered0s published",
	},
	{name: "skip before a removed step passes that one, too", steps: steps(benchStep("a"), benchStep("x"), benchStep("b")), story: func(b *bench) {
		b.must(ActSkipStep, false).without(b.other(Definition[struct{}]{Steps: steps(benchStep("a"), benchStep("b")), Removed: steps(benchStep("x"))}), func() { b.open("B") })
	},
		want: "running execute b e1 t1 open#1/B [skipped skipped pending] due32s",
		acts: "skip_step by ann: running to running",
	},
	{name: "skip of what is final", steps: steps(benchStep("a")), story: func(b *bench) { b.run(nil).refuse(ActSkipStep, true, ErrFinished) },
		want:     "completed execute a e0 t0 [done]",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "skip of a compensated one", story: func(b *bench) { b.failAt("b").undoAll().refuse(ActSkipStep, true, ErrFinished) },
		want:     "compensated compensate a e0 t0 [undone pending pending] failure=broken@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 succeeded",
	},
	{name: "skip of a cancelled one", story: func(b *bench) { b.must(ActCancel, false).refuse(ActSkipStep, true, ErrFinished) },
		want: "cancelled execute a e1 t0 [pending pending pending] reason=cancelled",
		acts: "cancel by ann: running to cancelled",
	},
}

// skipUndoTable is about SkipStep on the way back.
var skipUndoTable = []tableRow{
	{name: "skip the undo that comes next", story: func(b *bench) { b.failAt("c").must(ActSkipStep, false) },
		want:     "compensating compensate a e1 t0 [done undone pending] failure=broken@c due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 succeeded, c.exec e0 #1 failed",
		acts:     "skip_step by ann: compensating to compensating",
	},
	{name: "skip the last undo: compensated", story: func(b *bench) { b.failAt("b").run(errOrdinary).must(ActSkipStep, false) },
		want:     "compensated compensate a e1 t0 [undone pending pending] failure=broken@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 failed",
		acts:     "skip_step by ann: compensating to compensated",
	},
	{name: "skip an undo that runs", story: func(b *bench) { b.failAt("b").open("A"); b.refuse(ActSkipStep, false, ErrAttemptRunning) },
		want:     "compensating compensate a e0 t1 open#1/A [done pending pending] failure=broken@b due32s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
	},
	{name: "skip an undo that runs, by force", story: func(b *bench) { b.failAt("b").open("A"); b.must(ActSkipStep, true) },
		want:     "compensated compensate a e1 t0 [undone pending pending] failure=broken@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 abandoned",
		acts:     "skip_step by ann: compensating to compensated",
	},
	{name: "skip an undo with a pending Halt, by force", story: func(b *bench) { b.failAt("c").open("A"); b.must(ActHalt, false).must(ActSkipStep, true) },
		want:     "compensating compensate a e1 t0 [done undone pending] failure=broken@c due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 succeeded, c.exec e0 #1 failed, b.comp e0 #1 abandoned",
		acts:     "halt by ann: compensating to compensating, skip_step by ann: compensating to compensating",
	},
	{name: "skip the undo that failed: the walk goes on, for the first failure", story: func(b *bench) {
		b.failAt("c").run(Fail(errors.New("refused"))).must(ActSkipStep, false)
	},
		want:     "compensating compensate a e1 t0 [done undone pending] failure=broken@c due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 succeeded, c.exec e0 #1 failed, b.comp e0 #1 failed",
		acts:     "skip_step by ann: compensation_failed to compensating",
	},
	{name: "skip the undo that failed, not one that became due above it", steps: steps(benchStep("a"), benchStep("b", policy(InDoubtIgnore))), story: func(b *bench) {
		z := b.run(nil).zombie()
		b.run(Fail(errOrdinary)).run(Fail(errOrdinary)).late(z, nil).in(time.Minute).must(ActSkipStep, false)
	},
		want:     "compensating compensate b e1 t0 [undone done] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned late succeeded, b.exec e0 #2 failed, a.comp e0 #1 failed",
		acts:     "skip_step by ann: compensation_failed to compensating",
	},
	{name: "skip at a step that waits for a word: no effect", steps: steps(benchStep("a"), benchStep("b", policy(InDoubtHalt))), story: func(b *bench) {
		b.run(nil).run(Fail(Unknown(errOrdinary))).must(ActSkipStep, false)
	},
		want:     "compensating compensate a e1 t0 [done skipped] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "skip_step by ann: halted to compensating",
	},
	{name: "skip at the only step that waits for a word: failed", steps: steps(benchStep("a", policy(InDoubtHalt))), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).must(ActSkipStep, false)
	},
		want:     "failed execute a e1 t0 [skipped] failure=broken@a",
		attempts: "a.exec e0 #1 failed",
		acts:     "skip_step by ann: halted to failed",
	},
	{name: "no effect, they said, and it comes: undone", steps: steps(benchStep("a", policy(InDoubtHalt))), story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).must(ActSkipStep, false).in(time.Minute).late(z, nil)
	},
		want:     "compensating compensate a e2 t0 [done] failure=broken@a due0s",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed",
		acts:     "skip_step by ann: halted to failed, reopen by engine: failed to compensating",
	},
	{name: "skip where this build cannot undo", story: func(b *bench) {
		b.failAt("b").without(b.other(Definition[struct{}]{Steps: steps(benchStep("a", pivot), benchStep("b"))}), func() { b.drop(b.pointer(), DropEnded) })
		b.must(ActSkipStep, false)
	},
		want:     "compensated compensate a e1 t0 [undone pending pending] failure=broken@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "skip_step by ann: halted to compensated",
	},
	{name: "an undo that was skipped stays so, whatever comes late", story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).must(ActSkipStep, false).late(z, nil)
	},
		want:     "compensated compensate a e1 t0 [undone pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed",
		acts:     "skip_step by ann: compensating to compensated",
	},
	{name: "an undo that was begun and then skipped: the effect that comes is a stray", story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).wake().run(Fail(errOrdinary)).must(ActSkipStep, false).late(z, nil)
	},
		want:     "compensation_failed compensate a e1 t0 [undone+stray pending pending] failure=late_effect@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed, a.comp e0 #1 failed",
		acts:     "skip_step by ann: compensation_failed to compensated, late_effect by engine: compensated to compensation_failed",
	},
	{name: "skip accepts a stray", story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).undoAll().late(z, nil).must(ActSkipStep, false)
	},
		want:     "compensated compensate a e1 t0 [undone pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed, a.comp e0 #1 succeeded",
		acts:     "late_effect by engine: compensated to compensation_failed, skip_step by ann: compensation_failed to compensated",
	},
	{name: "skip of a failed undo whose effect came late, too", story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).wake().run(Fail(errOrdinary)).late(z, nil).must(ActSkipStep, false)
	},
		want:     "compensated compensate a e1 t0 [undone pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed, a.comp e0 #1 failed",
		acts:     "skip_step by ann: compensation_failed to compensated",
	},
	{name: "skip of a failed undo does not accept the stray of another step", story: func(b *bench) {
		z := b.run(nil).zombie()
		b.run(Fail(errOrdinary)).wake().run(nil).late(z, nil).run(Fail(errOrdinary)).must(ActSkipStep, false)
	},
		want:     "compensation_failed compensate a e1 t0 [undone undone+stray pending] failure=late_effect@b",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned late succeeded, b.exec e0 #2 failed, b.comp e0 #1 succeeded, a.comp e0 #1 failed",
		acts:     "skip_step by ann: compensation_failed to compensation_failed",
	},
	{name: "nothing to skip: the undo is done, its state was refused", story: func(b *bench) {
		b.failAt("b").settleResult(b.open("A"), result{kind: succeeded, stateErr: errState}, false).refuse(ActSkipStep, true, ErrNoStep)
	},
		want:     "compensation_failed compensate a e0 t0 [undone pending pending] failure=state_refused@a",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 succeeded",
	},
	{name: "skip of an undo waits for the doubt of the next", steps: steps(benchStep("a"), benchStep("b")), story: func(b *bench) {
		b.open("A")
		b.lapse().run(nil).run(Fail(Unknown(errOrdinary))).must(ActSkipStep, false)
	},
		want:     "compensating compensate a e1 t0 [done undone] failure=broken@b due28s wake28s",
		attempts: "a.exec e0 #1 abandoned, a.exec e0 #2 succeeded, b.exec e0 #1 failed",
		acts:     "skip_step by ann: compensating to compensating",
	},
}

// turnTable is about the turn that an execution took, which outlives halts.
var turnTable = []tableRow{
	{name: "cancelled, halted for a doubt, resumed: cancelled", steps: steps(benchStep("a", pivot, policy(InDoubtHalt))), story: func(b *bench) {
		b.run(Unknown(errOrdinary)).must(ActCancel, false).must(ActResume, false)
	},
		want:     "cancelled execute a e2 t0 [done] reason=cancelled",
		attempts: "a.exec e0 #1 failed",
		acts:     "cancel by ann: running to halted, resume by ann: halted to cancelled",
	},
	{name: "cancelled, halted for a doubt, skipped: cancelled", steps: steps(benchStep("a", policy(InDoubtHalt))), story: func(b *bench) {
		b.run(Unknown(errOrdinary)).must(ActCancel, false).must(ActSkipStep, false)
	},
		want:     "cancelled execute a e2 t0 [skipped] reason=cancelled",
		attempts: "a.exec e0 #1 failed",
		acts:     "cancel by ann: running to halted, skip_step by ann: halted to cancelled",
	},
	{name: "cancelled, halted for a doubt, resolved, resumed: cancelled", steps: steps(benchStep("a", policy(InDoubtHalt))), story: func(b *bench) {
		b.run(Unknown(errOrdinary)).must(ActCancel, false).resolve("a", store.StepPending, false, nil).must(ActResume, false)
	},
		want:     "cancelled execute a e2 t0 [pending] reason=cancelled",
		attempts: "a.exec e0 #1 failed",
		acts:     "cancel by ann: running to halted, resolve by ann: halted to halted, resume by ann: halted to cancelled",
	},
	{name: "cancelled, parked, resumed: compensated for being cancelled", story: func(b *bench) {
		b.run(nil).must(ActCancel, false).must(ActHalt, false).must(ActResume, false).undoAll()
	},
		want:     "compensated compensate a e2 t0 [undone pending pending] reason=cancelled",
		attempts: "a.exec e0 #1 succeeded, a.comp e2 #1 succeeded",
		acts:     "cancel by ann: running to compensating, halt by ann: compensating to halted, resume by ann: halted to compensating",
	},
	{name: "compensated by hand, halted for a doubt, resumed: failed", steps: steps(benchStep("a", pivot, policy(InDoubtHalt))), story: func(b *bench) {
		b.run(Unknown(errOrdinary)).must(ActCompensate, false).must(ActResume, false)
	},
		want:     "failed execute a e2 t0 [done] reason=operator",
		attempts: "a.exec e0 #1 failed",
		acts:     "compensate by ann: running to halted, resume by ann: halted to failed",
	},
	{name: "Cancel of a walk that halted for a failure: it ends failed", steps: steps(benchStep("a", pivot, policy(InDoubtHalt))), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).must(ActCancel, false)
	},
		want:     "failed execute a e1 t0 [done] failure=broken@a",
		attempts: "a.exec e0 #1 failed",
		acts:     "cancel by ann: halted to failed",
	},
	{name: "Retry of what was compensated by hand takes the turn back", story: func(b *bench) {
		b.must(ActCompensate, false).must(ActRetry, false)
		b.failAt("a")
	},
		want:     "failed execute a e2 t0 [pending pending pending] failure=broken@a",
		attempts: "a.exec e2 #1 failed",
		acts:     "compensate by ann: running to failed, retry by ann: failed to running",
	},
}

// TestMachineFailureAndCause: Failure is what stands in the way now, Cause what
// the execution is compensated for, and an end has the cause again.
func TestMachineFailureAndCause(t *testing.T) {
	b := newBench(t)
	check := func(when, failure, cause string) {
		t.Helper()
		text := func(f *store.Failure) string {
			if f == nil {
				return ""
			}
			return f.Class + "@" + f.Step
		}
		if f, c := text(b.x.Failure), text(b.x.Cause); f != failure || c != cause {
			t.Errorf("%s: failure %q, cause %q; want %q, %q", when, f, c, failure, cause)
		}
	}
	b.run(nil).run(errOrdinary)
	check("a try failed", "broken@b", "")
	b.wake().run(nil)
	check("the next one did not", "", "")
	b.run(Fail(errors.New("no stock")))
	check("turned around", "no stock@c", "no stock@c")
	b.run(errOrdinary)
	check("an undo failed", "broken@b", "no stock@c")
	b.wake().run(nil)
	check("it did after all", "no stock@c", "no stock@c")
	b.run(Fail(errOrdinary))
	check("an undo failed for good", "broken@a", "no stock@c")
	b.must(ActRetry, false)
	check("tried again", "no stock@c", "no stock@c")
	b.undoAll()
	check("compensated", "no stock@c", "no stock@c")

	b = newBench(t, benchStep("a", pivot), benchStep("b"))
	b.failAt("b")
	check("failed", "broken@b", "broken@b")
	b.must(ActRetry, false)
	check("retried", "", "")
	b.run(errOrdinary).must(ActHalt, false)
	check("halted", "broken@b", "")
	b.must(ActCompensate, false)
	check("compensated by hand", "", "")
	b.must(ActRetry, false).must(ActSkipStep, false)
	check("skipped", "", "")
}

// TestMachineCheckpoint: kept over failures, halts and Retry, gone when the saga
// leaves the step or turns around.
func TestMachineCheckpoint(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(b *bench)
		kept bool
	}{
		{"a failed try", func(b *bench) { b.run(errOrdinary) }, true},
		{"Snooze", func(b *bench) { b.run(Snooze(time.Second)) }, true},
		{"Halt and Resume", func(b *bench) { b.run(Halt("look")).must(ActResume, false) }, true},
		{"failed for good", func(b *bench) { b.run(Fail(errOrdinary)) }, true},
		{"failed and retried", func(b *bench) { b.run(Fail(errOrdinary)).must(ActRetry, false) }, true},
		{"retried while it waits", func(b *bench) { b.run(errOrdinary).must(ActRetry, false) }, true},
		{"moved", func(b *bench) { b.run(errOrdinary).move("other", false, nil) }, true},
		{"abandoned", func(b *bench) { b.open("A"); b.lapse().open("B") }, true},
		{"state edited", func(b *bench) { b.run(Halt("look")).edit(`{"n":1}`, nil) }, true},
		{"succeeded", func(b *bench) { b.run(nil) }, false},
		{"skipped by hand", func(b *bench) { b.must(ActSkipStep, false) }, false},
		{"failed and skipped by hand", func(b *bench) { b.run(Fail(errOrdinary)).must(ActSkipStep, false) }, false},
		{"turned around onto itself", func(b *bench) { b.run(Fail(Unknown(errOrdinary))) }, false},
		{"cancelled", func(b *bench) { b.must(ActCancel, false) }, false},
		{"erased", func(b *bench) { b.run(Fail(errOrdinary)).erase(nil) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.x.Checkpoint = json.RawMessage("7")
			c.f(b)
			if got := b.x.Checkpoint != nil; got != c.kept {
				t.Errorf("kept: %v, want %v; %s", got, c.kept, b)
			}
		})
	}
}
