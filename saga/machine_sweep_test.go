package saga

import (
	"time"
)

// sweepTable is about pointers that the sweep finds lost.
var sweepTable = []tableRow{
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
}

// unknownTable is about writes with an unknown outcome.
var unknownTable = []tableRow{
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
