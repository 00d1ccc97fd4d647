package saga

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leveret-go/leveret/store"
)

// resolveTable is about Resolve.
var resolveTable = []tableRow{
	{name: "resolve what is not in doubt", story: func(b *bench) {
		b.run(nil).resolve("a", store.StepDone, true, ErrNotInDoubt).resolve("b", store.StepPending, true, ErrNotInDoubt).resolve("z", store.StepDone, true, ErrNoStep)
	},
		want:     "running execute b e0 t0 [done pending pending] due20s offered0s published",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "resolve while it is tried again: no effect", story: func(b *bench) { b.run(Unknown(errOrdinary)).resolve("a", store.StepPending, false, nil) },
		want:     "running execute a e0 t1 [pending pending pending] failure=broken@a due1s wake1s",
		attempts: "a.exec e0 #1 failed",
		acts:     "resolve by ann: running to running",
	},
	{name: "resolve while it is tried again: done; the step still says so itself", story: func(b *bench) {
		b.run(Unknown(errOrdinary)).resolve("a", store.StepDone, false, nil).wake().run(Skip("was there"))
	},
		want:     "running execute b e0 t0 [done pending pending] due20s offered0s published",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 skipped",
		acts:     "resolve by ann: running to running",
	},
	{name: "resolve under an attempt of the step", story: func(b *bench) {
		b.run(Unknown(errOrdinary)).wake().open("A")
		b.resolve("a", store.StepPending, false, ErrAttemptRunning)
	},
		want:     "running execute a e0 t2 open#2/A [in_doubt pending pending] failure=broken@a due32s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "resolve under an attempt of the step, by force", story: func(b *bench) {
		b.run(Unknown(errOrdinary)).wake().open("A")
		b.resolve("a", store.StepPending, true, nil)
	},
		want:     "running execute a e0 t2 [pending pending pending] failure=broken@a due0s",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 abandoned",
		acts:     "resolve by ann: running to running",
	},
	{name: "resolve with a lapsed attempt and a pending Halt", story: func(b *bench) {
		b.run(Unknown(errOrdinary)).wake().open("A")
		b.must(ActHalt, false).lapse().resolve("a", store.StepPending, false, nil)
	},
		want:     "halted execute a e0 t2 [pending pending pending] failure=broken@a reason=because",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 abandoned",
		acts:     "halt by ann: running to running, resolve by ann: running to halted",
	},
	{name: "resolve with a lapsed attempt and a pending turn", story: func(b *bench) {
		b.run(Unknown(errOrdinary)).wake().open("A")
		b.must(ActCancel, false).lapse().resolve("a", store.StepPending, false, nil)
	},
		want:     "cancelled execute a e1 t0 [pending pending pending] reason=cancelled",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 abandoned",
		acts:     "cancel by ann: running to running, resolve by ann: running to cancelled",
	},
	{name: "resolve another step while an attempt runs", story: func(b *bench) {
		b.run(Unknown(errOrdinary)).wake().run(Skip("none")).open("A")
		b.resolve("a", store.StepPending, false, nil)
	},
		want:     "running execute b e0 t1 open#1/A [pending pending pending] due32s",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 skipped",
		acts:     "resolve by ann: running to running",
	},
	{name: "the walk waits for a doubt, resolved as no effect: it does not wait", story: func(b *bench) {
		b.open("A")
		b.lapse().run(Fail(errOrdinary)).resolve("a", store.StepPending, false, nil)
	},
		want:     "failed execute a e0 t0 [pending pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 abandoned, a.exec e0 #2 failed",
		acts:     "resolve by ann: compensating to failed",
	},
	{name: "the walk waits for a doubt, resolved as done: the body may still be at work", story: func(b *bench) {
		b.open("A")
		b.lapse().run(Fail(errOrdinary)).resolve("a", store.StepDone, false, nil)
	},
		want:     "compensating compensate a e0 t0 [done pending pending] failure=broken@a due28s wake28s",
		attempts: "a.exec e0 #1 abandoned, a.exec e0 #2 failed",
		acts:     "resolve by ann: compensating to compensating",
	},
	{name: "the walk backs off, resolved as no effect: on to the next undo", story: func(b *bench) {
		b.run(nil).run(Fail(Unknown(errOrdinary))).run(errOrdinary).resolve("b", store.StepPending, false, nil)
	},
		want:     "compensating compensate a e0 t0 [done undone pending] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, b.comp e0 #1 failed",
		acts:     "resolve by ann: compensating to compensating",
	},
	{name: "another step is resolved while the walk backs off: it goes on backing off", story: func(b *bench) {
		b.run(Unknown(errOrdinary)).wake().run(Skip("none")).run(nil).run(Fail(errOrdinary)).run(errOrdinary)
		b.resolve("a", store.StepPending, false, nil)
	},
		want:     "compensating compensate b e0 t1 [pending done pending] failure=broken@b due1s wake1s",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 skipped, b.exec e0 #1 succeeded, c.exec e0 #1 failed, b.comp e0 #1 failed",
		acts:     "resolve by ann: compensating to compensating",
	},
	{name: "resolve on a halted walk, then Resume", steps: steps(benchStep("a", policy(InDoubtHalt))), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).resolve("a", store.StepDone, false, nil).must(ActResume, false)
	},
		want:     "compensating compensate a e1 t0 [done] failure=broken@a due0s",
		attempts: "a.exec e0 #1 failed",
		acts:     "resolve by ann: halted to halted, resume by ann: halted to compensating",
	},
	{name: "resolve on a halted walk: no effect, then Resume", steps: steps(benchStep("a"), benchStep("b", policy(InDoubtHalt))), story: func(b *bench) {
		b.run(nil).run(Fail(Unknown(errOrdinary))).resolve("b", store.StepPending, false, nil).must(ActResume, false)
	},
		want:     "compensating compensate a e1 t0 [done pending] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
		acts:     "resolve by ann: halted to halted, resume by ann: halted to compensating",
	},
	{name: "resolve on failed: it was done, so it is undone", steps: steps(benchStep("a", policy(InDoubtIgnore))), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).resolve("a", store.StepDone, false, nil)
	},
		want:     "compensating compensate a e1 t0 [done] failure=broken@a due0s",
		attempts: "a.exec e0 #1 failed",
		acts:     "reopen by engine: failed to compensating, resolve by ann: failed to compensating",
	},
	{name: "resolve on cancelled: it was done, so it is undone, and stays cancelled by reason", steps: steps(benchStep("a", policy(InDoubtIgnore))), story: func(b *bench) {
		b.run(Unknown(errOrdinary)).must(ActCancel, false).resolve("a", store.StepDone, false, nil).undoAll()
	},
		want:     "compensated compensate a e2 t0 [undone] reason=cancelled",
		attempts: "a.exec e0 #1 failed, a.comp e2 #1 succeeded",
		acts:     "cancel by ann: running to cancelled, reopen by engine: cancelled to compensating, resolve by ann: cancelled to compensating",
	},
	{name: "resolve on compensated", steps: steps(benchStep("a"), benchStep("b", policy(InDoubtIgnore))), story: func(b *bench) {
		b.run(nil).run(Fail(Unknown(errOrdinary))).undoAll().resolve("b", store.StepDone, false, nil)
	},
		want:     "compensating compensate b e1 t0 [undone done] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 succeeded",
		acts:     "reopen by engine: compensated to compensating, resolve by ann: compensated to compensating",
	},
	{name: "resolve on failed, nothing to undo it with: noted", steps: steps(benchStep("a", pivot)), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).resolve("a", store.StepDone, false, nil)
	},
		want:     "failed execute a e0 t0 [done] failure=broken@a",
		attempts: "a.exec e0 #1 failed",
		acts:     "resolve by ann: failed to failed",
	},
	{name: "resolve on failed, no effect: noted", steps: steps(benchStep("a", pivot)), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).resolve("a", store.StepPending, false, nil)
	},
		want:     "failed execute a e0 t0 [pending] failure=broken@a",
		attempts: "a.exec e0 #1 failed",
		acts:     "resolve by ann: failed to failed",
	},
	{name: "resolve on completed: noted", steps: steps(benchStep("a")), story: func(b *bench) {
		b.run(Unknown(errOrdinary)).wake().run(Skip("none")).resolve("a", store.StepDone, false, nil)
	},
		want:     "completed execute a e0 t0 [done]",
		attempts: "a.exec e0 #1 failed, a.exec e0 #2 skipped",
		acts:     "resolve by ann: completed to completed",
	},
	{name: "resolve on compensation_failed: no effect is left, then Retry", story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).run(Fail(errOrdinary)).resolve("a", store.StepPending, false, nil).must(ActRetry, false)
	},
		want:     "compensated compensate a e1 t0 [undone pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 failed, a.comp e0 #1 failed",
		acts:     "resolve by ann: compensation_failed to compensation_failed, retry by ann: compensation_failed to compensated",
	},
	{name: "no effect is left of what an undo was begun for: what comes late is a stray", story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).wake().run(errOrdinary).resolve("a", store.StepPending, false, nil).late(z, nil)
	},
		want:     "compensation_failed compensate a e0 t0 [undone+stray pending pending] failure=late_effect@a",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed, a.comp e0 #1 failed",
		acts:     "resolve by ann: compensating to compensated, late_effect by engine: compensated to compensation_failed",
	},
}

// moveTable is about Move.
var moveTable = []tableRow{
	{name: "move what is due", story: func(b *bench) { p := b.pointer(); b.move("other", false, nil); b.drop(p, DropStale) },
		want: "running execute a e1 t0 [pending pending pending] in=other due0s",
		acts: "move by ann: running to running",
	},
	{name: "move what backs off: tries and wait are kept", story: func(b *bench) {
		b.run(errOrdinary).move("other", false, nil).wake().run(errOrdinary)
	},
		want:     "failed execute a e1 t0 [pending pending pending] failure=broken@a in=other",
		attempts: "a.exec e0 #1 failed, a.exec e1 #1 failed",
		acts:     "move by ann: running to running",
	},
	{name: "move what waits for a doubt", story: func(b *bench) {
		b.open("A")
		b.lapse().run(Fail(errOrdinary)).move("other", false, nil)
	},
		want:     "compensating compensate a e1 t0 [in_doubt pending pending] failure=broken@a in=other due28s wake28s",
		attempts: "a.exec e0 #1 abandoned, a.exec e0 #2 failed",
		acts:     "move by ann: compensating to compensating",
	},
	{name: "move what runs", story: func(b *bench) { b.open("A"); b.move("other", false, ErrAttemptRunning) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "move what runs, by force", story: func(b *bench) { b.open("A"); b.move("other", true, nil) },
		want:     "running execute a e1 t1 [in_doubt pending pending] in=other due0s",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "move by ann: running to running",
	},
	{name: "move with a lapsed attempt and a pending turn", story: func(b *bench) {
		b.run(nil).open("A")
		b.must(ActCompensate, false).lapse().in(time.Minute).move("other", false, nil)
	},
		want:     "compensating compensate b e2 t0 [done in_doubt pending] reason=operator in=other due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned",
		acts:     "compensate by ann: running to running, move by ann: running to compensating",
	},
	{name: "move with a lapsed attempt and a pending Halt", story: func(b *bench) { b.open("A"); b.must(ActHalt, false).lapse().move("other", false, nil) },
		want:     "halted execute a e0 t1 [in_doubt pending pending] reason=because in=other",
		attempts: "a.exec e0 #1 abandoned",
		acts:     "halt by ann: running to running, move by ann: running to halted",
	},
	{name: "move a halted one: it stays halted", story: func(b *bench) { b.must(ActHalt, false).move("other", false, nil).must(ActResume, false) },
		want: "running execute a e1 t0 [pending pending pending] in=other due0s",
		acts: "halt by ann: running to halted, move by ann: halted to halted, resume by ann: halted to running",
	},
	{name: "move to where it is", story: func(b *bench) { b.open("A"); b.move("default", true, nil) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
		acts: "move by ann: running to running",
	},
	{name: "move a finished one", story: func(b *bench) { b.failAt("a").move("other", true, ErrFinished) },
		want:     "failed execute a e0 t0 [pending pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "move a declared one that no worker has adopted", story: func(b *bench) {
		b.x.Step, b.x.Ledger, b.x.Version = "", nil, 0
		b.move("other", false, nil)
		b.open("B")
	},
		want: "running execute a e1 t1 open#1/B [pending pending pending] in=other due32s",
		acts: "move by ann: running to running",
	},
	{name: "move out of a paused partition", story: func(b *bench) { b.pause("default").move("other", false, nil).open("B") },
		want: "running execute a e1 t1 open#1/B [pending pending pending] in=other due32s",
		acts: "move by ann: running to running",
	},
}

// eraseTable is about Erase, and what comes after it.
var eraseTable = []tableRow{
	{name: "erase what has not finished", story: func(b *bench) { b.erase(ErrNotFinished).must(ActHalt, false).erase(ErrNotFinished) },
		want: "halted execute a e0 t0 [pending pending pending] reason=because",
		acts: "halt by ann: running to halted",
	},
	{name: "erase what still needs its state", story: func(b *bench) { b.failAt("b").run(Fail(errOrdinary)).erase(ErrNotFinished) },
		want:     "compensation_failed compensate a e0 t0 [done pending pending] failure=broken@a",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed, a.comp e0 #1 failed",
	},
	{name: "no act goes on from what was erased", story: func(b *bench) {
		b.failAt("a").erase(nil)
		b.refuse(ActRetry, true, ErrErased)
		b.refuse(ActSkipStep, true, ErrErased)
		b.edit("{}", ErrErased)
		b.byHand(ActRerun, ErrErased, func(m *machine) error { return m.rerunAs(m.x.Clone()) })
	},
		want:     "failed execute a e0 t0 [pending pending pending] failure=broken@a erased",
		attempts: "a.exec e0 #1 failed",
		acts:     "erase by ann: failed to failed",
	},
	{name: "a doubt is resolved after erasing: noted", steps: steps(benchStep("a", policy(InDoubtIgnore))), story: func(b *bench) {
		b.run(Fail(Unknown(errOrdinary))).erase(nil).resolve("a", store.StepDone, false, nil)
	},
		want:     "failed execute a e0 t0 [done] failure=broken@a erased",
		attempts: "a.exec e0 #1 failed",
		acts:     "erase by ann: failed to failed, resolve by ann: failed to failed",
	},
	{name: "a late effect after erasing is a person's", steps: steps(benchStep("a", policy(InDoubtIgnore))), story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).erase(nil).late(z, nil).refuse(ActRetry, true, ErrErased)
	},
		want:     "compensation_failed execute a e0 t0 [done+stray] failure=late_effect@a erased",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed",
		acts:     "erase by ann: failed to failed, late_effect by engine: failed to compensation_failed",
	},
	{name: "and is accepted", steps: steps(benchStep("a", policy(InDoubtIgnore))), story: func(b *bench) {
		z := b.zombie()
		b.run(Fail(errOrdinary)).erase(nil).late(z, nil).must(ActSkipStep, false)
	},
		want:     "compensated execute a e1 t0 [undone] failure=broken@a erased",
		attempts: "a.exec e0 #1 abandoned late succeeded, a.exec e0 #2 failed",
		acts:     "erase by ann: failed to failed, late_effect by engine: failed to compensation_failed, skip_step by ann: compensation_failed to compensated",
	},
}

// TestMachineErase checks what is left.
func TestMachineErase(t *testing.T) {
	b := newBench(t)
	b.x.Key, b.x.Resource = "k", store.Resource{Type: "order", ID: "bob"}
	b.settleResult(b.open("A"), result{kind: succeeded, state: []byte(`{"n":1}`)}, false).run(Fail(errors.New("bob is out"))).undoAll()
	b.x.Reason, b.x.ReasonBy = "bob asked", "ann"
	b.byHand(ActErase, nil, func(m *machine) error { return m.erase(false) })
	x := b.x
	if string(x.State) != "{}" || x.Initial != nil || x.Key != "" || x.Reason != "" || x.Failure.Message != "" || x.Cause.Message != "" {
		t.Errorf("something is left: %+v", x)
	}
	if x.Resource.ID != "bob" || x.Failure.Class != "bob is out" || x.ErasedAt == nil {
		t.Errorf("too much is gone, or too little: %+v", x)
	}
	at := x.ErasedAt
	b.in(time.Hour).byHand(ActErase, nil, func(m *machine) error { return m.erase(false) })
	if !b.x.ErasedAt.Equal(*at) {
		t.Errorf("erased a second time")
	}
	b.erase(nil)
	if b.x.Resource.ID != "" || b.x.ErasedAt.Equal(*at) {
		t.Errorf("the resource is left: %+v", b.x)
	}
}

// TestMachineEditState checks who may be edited, and that the state of the start
// is kept, once.
func TestMachineEditState(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(b *bench)
		want error
	}{
		{"running", func(b *bench) {}, ErrNotEditable},
		{"running, an attempt is open", func(b *bench) { b.open("A") }, ErrNotEditable},
		{"compensating", func(b *bench) { b.failAt("b") }, ErrNotEditable},
		{"halted", func(b *bench) { b.must(ActHalt, false) }, nil},
		{"halted walk", func(b *bench) { b.failAt("b").run(Halt("look")) }, nil},
		{"failed", func(b *bench) { b.failAt("a") }, nil},
		{"compensation_failed", func(b *bench) { b.failAt("b").run(Fail(errOrdinary)) }, nil},
		{"completed", func(b *bench) { b.run(Complete("enough")) }, ErrFinished},
		{"compensated", func(b *bench) { b.failAt("b").undoAll() }, ErrFinished},
		{"cancelled", func(b *bench) { b.must(ActCancel, false) }, ErrFinished},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			c.f(b)
			before := b.String()
			b.edit(`{"n":1}`, c.want)
			if c.want != nil {
				if string(b.x.State) != "{}" || b.x.Initial != nil {
					t.Errorf("refused, and changed: %s", b.x.State)
				}
				return
			}
			b.edit(`{"n":2}`, nil).edit(`{"n":2}`, nil)
			if string(b.x.State) != `{"n":2}` || string(b.x.Initial) != "{}" {
				t.Errorf("state %s, initial %s", b.x.State, b.x.Initial)
			}
			if got := b.String(); strings.TrimSuffix(got, " published") != strings.TrimSuffix(before, " published") {
				t.Errorf("it moved:\n%s\n%s", before, got)
			}
		})
	}
	// The steps themselves keep it, too, and only when the state changes.
	b := newBench(t)
	b.settleResult(b.open("A"), result{kind: succeeded, state: []byte("{}")}, false)
	if b.x.Initial != nil {
		t.Errorf("initial %s of a state that is as it was", b.x.Initial)
	}
	b.settleResult(b.open("A"), result{kind: succeeded, state: []byte(`{"n":1}`)}, false)
	b.settleResult(b.open("A"), result{kind: succeeded, state: []byte(`{"n":2}`)}, false)
	if string(b.x.Initial) != "{}" {
		t.Errorf("initial %s", b.x.Initial)
	}
}

// TestMachineRerun checks which executions are repeated, and from which state.
func TestMachineRerun(t *testing.T) {
	b := newBench(t)
	b.byHand(ActRerun, ErrNotFinished, func(m *machine) error { return m.rerunAs(m.x.Clone()) })
	b.settleResult(b.open("A"), result{kind: completed, state: []byte(`{"n":1}`)}, false)
	y := newBench(t).x
	y.ID[0]++
	_ = b.do(func(m *machine) error {
		if err := m.rerunAs(y); err != nil {
			return err
		}
		if len(m.change.Create) != 1 || m.change.Create[0] != y {
			t.Errorf("created %v", m.change.Create)
		}
		m.change.Create = nil // a bench has one row
		return nil
	})
	if string(y.State) != "{}" || y.RerunOf == nil || *y.RerunOf != b.x.ID || b.x.RerunAs == nil || *b.x.RerunAs != y.ID {
		t.Errorf("%s of %v as %v", y.State, y.RerunOf, b.x.RerunAs)
	}
}
