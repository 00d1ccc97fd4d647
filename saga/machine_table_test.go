package saga

import (
	"context"
	"errors"
	"slices"
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
	tables := [][]tableRow{
		pointerTable, settleTable, chainTable, walkTable, lateTable, strayTable, requestTable, actTable, forceTable, sweepTable, unknownTable,
		skipTable, skipUndoTable, resolveTable, moveTable, eraseTable, turnTable, pauseTable,
	}
	for _, row := range slices.Concat(tables...) {
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

// pointerTable is about pointers, in the order of the rows of the table in handle.
var pointerTable = []tableRow{
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
}
