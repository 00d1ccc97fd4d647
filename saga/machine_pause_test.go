package saga

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leveret-go/leveret/store"
)

// pause pauses a partition; none: unpauses all.
func (b *bench) pause(partitions ...string) *bench {
	b.rules.paused = nil
	if len(partitions) > 0 {
		b.rules.paused = &pauseSet{partitions: map[string]bool{}}
	}
	for _, p := range partitions {
		b.rules.paused.partitions[p] = true
	}
	return b
}

// pauseTable is about rows that must not move, at each entry to the machine.
var pauseTable = []tableRow{
	{name: "pause: a start is due, and published to nobody", story: func(b *bench) {
		b.pause("default")
		_ = b.do(func(m *machine) error { m.offer(); return nil })
	},
		want: "running execute a e0 t0 [pending pending pending] due0s",
	},
	{name: "pause: a pointer is dropped, and the row keeps its place", story: func(b *bench) {
		b.pause("default").in(5*time.Second).drop(b.pointer(), DropPaused)
	},
		want: "running execute a e0 t0 [pending pending pending] due-5s",
	},
	{name: "pause: a second pointer changes nothing", story: func(b *bench) {
		b.pause("default").drop(b.pointer(), DropPaused)
		rev := b.x.Revision
		b.in(time.Hour).drop(b.pointer(), DropPaused)
		if b.x.Revision != rev {
			b.t.Error("written again")
		}
	},
		want: "running execute a e0 t0 [pending pending pending] due-1h0m0s",
	},
	{name: "pause of a saga", story: func(b *bench) {
		b.rules.paused = &pauseSet{sagas: map[string]bool{"bench": true}}
		b.drop(b.pointer(), DropPaused)
	},
		want: "running execute a e0 t0 [pending pending pending] due0s",
	},
	{name: "pause of other partitions and sagas", story: func(b *bench) {
		b.rules.paused = &pauseSet{partitions: map[string]bool{"other": true}, sagas: map[string]bool{"other": true}}
		b.open("A")
	},
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "pause: what runs goes on to its end, the chain stops there", story: func(b *bench) { r := b.open("A"); b.pause("default").settle(r, nil, true) },
		want:     "running execute b e0 t0 [done pending pending] due0s",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "pause: what runs and completes", steps: steps(benchStep("a")), story: func(b *bench) { r := b.open("A"); b.pause("default").settle(r, nil, true) },
		want:     "completed execute a e0 t0 [done]",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "pause: a flip stops there, too", story: func(b *bench) { r := b.run(nil).open("A"); b.pause("default").settle(r, Fail(errOrdinary), true) },
		want:     "compensating compensate a e0 t0 [done pending pending] failure=broken@b due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 failed",
	},
	{name: "pause: a live attempt is busy, not paused", story: func(b *bench) { b.open("A"); b.pause("default").drop(b.pointer(), DropBusy) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "pause: a lapsed attempt stays as it is", story: func(b *bench) { b.open("A"); b.lapse().pause("default").in(time.Second).drop(b.pointer(), DropPaused) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due-1s",
	},
	{name: "pause: and may still be renewed or settled", story: func(b *bench) {
		r := b.zombie()
		b.pause("default").drop(b.pointer(), DropPaused)
		b.settle(r, nil, true)
	},
		want:     "running execute b e0 t0 [done pending pending] due0s",
		attempts: "a.exec e0 #1 succeeded",
	},
	{name: "pause: a request is applied", story: func(b *bench) {
		b.run(nil).open("A")
		b.must(ActCompensate, false).lapse().in(time.Minute).pause("default").drop(b.pointer(), DropPaused)
	},
		want:     "compensating compensate b e1 t0 [done in_doubt pending] reason=operator due0s",
		attempts: "a.exec e0 #1 succeeded, b.exec e0 #1 abandoned",
		acts:     "compensate by ann: running to running",
	},
	{name: "pause: an act is done, and moves nothing", story: func(b *bench) { b.run(nil).pause("default").must(ActCompensate, false).drop(b.pointer(), DropPaused) },
		want:     "compensating compensate a e1 t0 [done pending pending] reason=operator due0s",
		attempts: "a.exec e0 #1 succeeded",
		acts:     "compensate by ann: running to compensating",
	},
	{name: "pause: a backoff is early, and keeps its time", story: func(b *bench) { b.run(errOrdinary).pause("default").drop(b.pointer(), DropEarly) },
		want:     "running execute a e0 t1 [pending pending pending] failure=broken@a due1s wake1s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "pause: a backoff that is over", story: func(b *bench) { b.run(errOrdinary).pause("default").in(3*time.Second).drop(b.pointer(), DropPaused) },
		want:     "running execute a e0 t1 [pending pending pending] failure=broken@a due-2s wake-2s",
		attempts: "a.exec e0 #1 failed",
	},
	{name: "pause: a lost pointer is not counted", story: func(b *bench) { b.in(20 * time.Second).lost(2).pause("default").in(time.Minute).lost(5) },
		want: "running execute a e0 t0 [pending pending pending] resumes=2 due-1m20s",
	},
	{name: "pause: nor found lost under a live attempt", story: func(b *bench) { b.open("A"); b.pause("default").lost(5) },
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "pause: not published again later", story: func(b *bench) {
		b.pause("default").in(5 * time.Second)
		_ = b.do(func(m *machine) error { m.again(*m.x.DueAt, time.Hour, true); return nil })
	},
		want: "running execute a e0 t0 [pending pending pending] due-5s",
	},
	{name: "pause: not published anew, and the place is kept", story: func(b *bench) {
		b.pause("default").in(5 * time.Second)
		_ = b.do(func(m *machine) error { m.anew(*m.x.DueAt); return nil })
	},
		want: "running execute a e0 t0 [pending pending pending] due-5s",
	},
	{name: "pause: an unknown outcome: the attempt is mine, paused or not", story: func(b *bench) {
		r := b.open("A")
		b.pause("default").in(20 * time.Second)
		_ = b.do(func(m *machine) error { m.handleAgain(b.pointer(), r.lease, true); return nil })
	},
		want: "running execute a e0 t1 open#1/A [pending pending pending] due32s",
	},
	{name: "pause: an unknown outcome, not mine", story: func(b *bench) {
		_ = b.pause("default").do(func(m *machine) error {
			if got := m.handleAgain(b.pointer(), store.Lease{}, true); got.Reason != DropPaused {
				b.t.Errorf("%v", got)
			}
			return nil
		})
	},
		want: "running execute a e0 t0 [pending pending pending] due0s",
	},
	{name: "pause: a row noted for others is due again", story: func(b *bench) {
		b.without(nil, func() { b.drop(b.pointer(), DropUnknown) })
		b.pause("default").drop(b.pointer(), DropPaused)
	},
		want: "running execute a e0 t0 [pending pending pending] due0s",
	},
	{name: "pause: a declared start is not adopted", story: func(b *bench) {
		b.x.Step, b.x.Ledger, b.x.Version = "", nil, 0
		b.pause("default").drop(b.pointer(), DropPaused)
	},
		want: "running execute  e0 t0 [] due0s",
	},
	{name: "unpaused: it goes on", story: func(b *bench) { b.pause("default").drop(b.pointer(), DropPaused); b.in(time.Hour).pause().open("B") },
		want: "running execute a e0 t1 open#1/B [pending pending pending] due32s",
	},
	{name: "moved into a paused partition", story: func(b *bench) { b.pause("other").move("other", false, nil).drop(b.pointer(), DropPaused) },
		want: "running execute a e1 t0 [pending pending pending] in=other due0s",
		acts: "move by ann: running to running",
	},
}

// TestPauseSet: who is held by what is paused.
func TestPauseSet(t *testing.T) {
	set := newPauseSet([]Pause{{Scope: Scope{Partition: "p"}}, {Scope: Scope{Saga: "s"}}, {Scope: Scope{Worker: "host/7"}}}, "host/7/abc")
	for _, c := range []struct {
		partition, saga string
		want            bool
	}{{"p", "x", true}, {"x", "s", true}, {"s", "p", false}, {"x", "x", false}} {
		if got := set.holds(&store.Execution{Partition: c.partition, Saga: c.saga}); got != c.want {
			t.Errorf("%s/%s held: %v", c.partition, c.saga, got)
		}
	}
	for name, want := range map[string]bool{"host/7/abc": true, "host/7": true, "host": false, "host/7/abd": false, "abc": false} {
		if got := isWorker("host/7/abc", name); got != want {
			t.Errorf("worker %q: %v", name, got)
		}
	}
	if !set.worker || (*pauseSet)(nil).holds(&store.Execution{}) {
		t.Error("the worker is not held, or nothing holds")
	}
}

// TestPauseLogIsTrimmed: the log is bounded, its oldest entries go; what is
// paused stays.
func TestPauseLogIsTrimmed(t *testing.T) {
	p := pauses{Now: []Pause{{Scope: Scope{Partition: "first"}}}}
	for i := range 300 {
		pause := Pause{Scope: Scope{Partition: fmt.Sprintf("p%d", i)}, Actor: "ann", Reason: strings.Repeat("é", 2000)}
		p.Log = append(p.Log, PauseEntry{Act: ActUnpause, Pause: pause})
	}
	b, err := p.encode()
	var q pauses
	if err != nil || json.Unmarshal(b, &q) != nil || len(b) > maxPauseLog {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if n := len(q.Log); n < 50 || n > 150 || q.Log[n-1].Partition != "p299" || len(q.Now) != 1 {
		t.Errorf("%d entries, %d pauses", n, len(q.Now))
	}
}
