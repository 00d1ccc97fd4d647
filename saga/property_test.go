package saga

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A chaos is a random story on a bench: workers that die, freeze or come late,
// pointers that are lost, doubled and old, operators, and a sweep.
type chaos struct {
	*bench
	r       *rand.Rand
	queue   []Pointer
	bodies  []chaosBody
	log     []string
	workers int
	saved   string // the state that must be in the row
	counter int
	told    map[string]bool // steps whose success was reported
	skipped map[string]bool // steps whose undo an operator skipped before it was begun
	gates   *chaosGates     // nil: no step waits
}

// A chaosBody is a body that runs, whether its attempt still counts or not.
type chaosBody struct{ ref attemptRef }

func (c *chaos) say(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...)+" | "+c.bench.String())
}

func newChaos(t *testing.T, seed uint64) *chaos {
	r := rand.New(rand.NewPCG(seed, 17))
	var line []Step[struct{}]
	for i := range 1 + r.IntN(4) {
		s := benchStep(fmt.Sprintf("s%d", i))
		if r.IntN(4) == 0 {
			s.Compensate = nil
		}
		switch r.IntN(6) {
		case 0:
			s.InDoubt = InDoubtIgnore
		case 1:
			s.InDoubt = InDoubtHalt
		}
		s.Isolated = r.IntN(5) == 0
		s.ErrorsInDoubt = r.IntN(4) == 0
		if r.IntN(4) == 0 {
			s.Timeout = NoTimeout
		}
		s.Retry.Attempts, s.CompensateRetry.Attempts = 1+r.IntN(3), 1+r.IntN(3)
		line = append(line, s)
	}
	c := &chaos{bench: newBench(t, line...), r: r, saved: "{}", told: map[string]bool{}, skipped: map[string]bool{}}
	if r.IntN(6) == 0 {
		c.rules.onStalled = StalledHalt
	}
	if r.IntN(8) == 0 {
		c.x.Step, c.x.Ledger, c.x.Version = "", nil, 0 // declared
	}
	c.publish()
	return c
}

// publish sends the pointer that the last write planned, if it planned one; the
// process may die before it does, and the broker may lose or double it.
func (c *chaos) publish() {
	if !c.published {
		return
	}
	c.published = false
	for range []int{1, 1, 1, 1, 0, 2}[c.r.IntN(6)] {
		c.queue = append(c.queue, c.pointer())
	}
}

// deliver hands a pointer to a worker, and looks at the attempt it opened.
func (c *chaos) deliver(p Pointer, knows bool) {
	old := c.plan
	if !knows {
		c.plan = nil
	}
	c.workers++
	worker := fmt.Sprintf("w%d", c.workers)
	before := c.x.Attempt != nil
	live := before && c.now.Before(c.x.Attempt.LeaseUntil.Add(leaseMargin))
	r := c.handle(worker, p)
	c.plan = old
	c.publish()
	c.say("%s gets a pointer of epoch %d: %v", worker, p.Epoch, r)
	if r == (Result{Disposition: Ack}) {
		if !knows {
			c.t.Errorf("a process that does not know the saga opened an attempt")
		}
		if live {
			c.t.Errorf("opened beside a live attempt")
		}
		if p.Epoch != c.x.Epoch && !before {
			c.t.Errorf("a pointer of epoch %d opened an attempt of epoch %d", p.Epoch, c.x.Epoch)
		}
		c.begun()
	}
}

// begun checks the attempt that was just opened, and begins its body.
func (c *chaos) begun() {
	x := c.x
	s, _ := c.plan.step(x.Step)
	if p := s.policy(x.Direction); x.Tries > p.Attempts {
		c.t.Errorf("try %d of %d", x.Tries, p.Attempts)
	}
	if x.Direction == store.DirectionCompensate {
		last := ""
		for i := range x.Ledger {
			if needsUndo(&x.Ledger[i]) {
				last = x.Ledger[i].Name
			}
		}
		if x.Step != last {
			c.t.Errorf("the undo of %s was opened, %s needs one first", x.Step, last)
		}
		if d := x.Entry(x.Step).DoubtUntil; d != nil && d.After(c.now) {
			c.t.Errorf("an undo was opened before doubt_until")
		}
	}
	for _, h := range c.history {
		if h.Lease() == c.ref().lease {
			c.t.Errorf("the number of %v was used before", h.Lease())
		}
	}
	c.bodies = append(c.bodies, chaosBody{c.ref()})
	if c.gates != nil {
		c.gates.begun(c)
	}
}

// finish lets a body return, and writes its result; the process may die right
// before or right after that.
func (c *chaos) finishBody(i int, err, cause error, dies bool) {
	ref := c.bodies[i].ref
	c.bodies = append(c.bodies[:i], c.bodies[i+1:]...)
	if dies && c.r.IntN(2) == 0 {
		c.say("%s dies before it settles", ref.lease.Worker)
		return
	}
	r := c.judged(ref, err, cause)
	if err == nil || savesState(err) && (r.kind == skipped || r.kind == completed || r.kind == snoozed) {
		c.counter++
		r.state = fmt.Appendf(nil, `{"n":%d}`, c.counter)
	}
	if ref.lease.Direction == store.DirectionExecute && (r.kind == succeeded || r.kind == completed) {
		c.told[ref.lease.Step] = true
	}
	open, ok := c.x.Lease()
	if ok && open == ref.lease {
		if r.state != nil {
			c.saved = string(r.state)
		}
		c.rules.worker = ref.lease.Worker
		if c.gates != nil {
			c.gates.settles(c, ref, r)
		}
		_ = c.do(func(m *machine) error { m.settle(ref, r, c.r.IntN(2) == 0, nil); return nil })
		c.say("%s settles %s %s: %s", ref.lease.Worker, ref.lease.Direction, ref.lease.Step, show(r))
		if c.x.Attempt != nil {
			c.begun()
			if dies {
				c.bodies = c.bodies[:len(c.bodies)-1]
			}
		} else if !dies {
			c.publish()
		}
	} else {
		c.lateBody(ref, r)
	}
	c.published = false
	if string(c.x.State) != c.saved {
		c.t.Errorf("state %s, want %s", c.x.State, c.saved)
	}
}

// lateBody is a result that nobody waits for any more: it may move nothing.
func (c *chaos) lateBody(ref attemptRef, r result) {
	for i := range c.history {
		if h := &c.history[i]; h.Lease() == ref.lease && recorded(h) {
			c.t.Errorf("the result of %v is in, and comes again", ref.lease)
		}
	}
	before := *c.x.Clone()
	_ = c.do(func(m *machine) error { m.late(ref, r); return nil })
	c.say("%s comes late with %s %s: %s", ref.lease.Worker, ref.lease.Direction, ref.lease.Step, show(r))
	x := c.x
	moved := x.Status != before.Status
	if moved && before.Status == store.StatusHalted {
		c.t.Errorf("a late result moved a halted row to %s", x.Status)
	}
	if moved && !(x.Status == store.StatusCompensationFailed && x.Failure.Class == classLateEffect) && !(x.Epoch == before.Epoch+1 && before.Status.Finished()) {
		c.t.Errorf("a late result moved the row from %s to %s", before.Status, x.Status)
	}
	if !moved && (x.Step != before.Step || x.Direction != before.Direction || x.Epoch != before.Epoch || x.Tries != before.Tries) {
		c.t.Errorf("a late result moved the cursor")
	}
	now, _ := x.OpenAttempt()
	was, _ := before.OpenAttempt()
	if now.Lease() != was.Lease() || !now.LeaseUntil.Equal(was.LeaseUntil) || !now.StartedAt.Equal(was.StartedAt) {
		c.t.Errorf("a late result touched the open attempt")
	}
}

// sweep claims the row if it is due, and does what follows.
func (c *chaos) sweep(calm bool) {
	x := c.x
	if x.DueAt == nil || x.DueAt.After(c.now) {
		return
	}
	due, offered := c.now.Add(benchPickup), x.OfferedAt
	x.DueAt = &due
	if offered == nil {
		now := c.now
		x.OfferedAt = &now
		if !calm && c.r.IntN(5) == 0 {
			return // it dies
		}
		c.published = true
		c.publish()
		c.say("sweep offers")
		return
	}
	c.published = false
	_ = c.do(func(m *machine) error {
		switch n := c.r.IntN(3); {
		case calm, n == 0 && len(c.queue) == 0:
			m.lost(&due, 4, engineBy("lost again and again"))
		case n == 1:
			m.again(due, time.Minute, c.r.IntN(2) == 0)
		default:
			m.anew(due)
		}
		return nil
	})
	c.publish()
	c.say("sweep finds an offered row")
}

// step does one random thing.
func (c *chaos) step() {
	r := c.r
	defer c.atRest()
	if c.gates != nil && r.IntN(5) == 0 {
		c.gates.outside(c)
		return
	}
	switch n := r.IntN(20); {
	case n < 5 && len(c.queue) > 0:
		i := r.IntN(len(c.queue))
		p := c.queue[i]
		if r.IntN(4) > 0 {
			c.queue = append(c.queue[:i], c.queue[i+1:]...)
		}
		c.deliver(p, r.IntN(6) > 0)
	case n < 10 && len(c.bodies) > 0:
		err, cause := c.outcome()
		c.finishBody(r.IntN(len(c.bodies)), err, cause, r.IntN(8) == 0)
	case n < 11 && len(c.bodies) > 0:
		i := r.IntN(len(c.bodies))
		c.say("%s is killed", c.bodies[i].ref.lease.Worker)
		c.bodies = append(c.bodies[:i], c.bodies[i+1:]...)
	case n < 12 && len(c.bodies) > 0:
		if open, ok := c.x.Lease(); ok && open == c.bodies[len(c.bodies)-1].ref.lease { // a renewal, which no machine does
			c.x.Attempt.LeaseUntil = c.now.Add(benchLease)
			due := c.x.Attempt.LeaseUntil.Add(leaseMargin)
			c.x.DueAt, c.x.OfferedAt = &due, nil
		}
	case n < 15:
		c.in(time.Duration(r.IntN(20_000)) * time.Millisecond)
	case n < 18:
		if c.x.DueAt != nil && r.IntN(2) == 0 && c.x.DueAt.After(c.now) {
			c.now = *c.x.DueAt
		}
		c.sweep(false)
	case n < 19:
		c.operator()
		c.published = false
	default:
		c.queue = nil
		c.say("the broker forgets its queue")
	}
}

// operator lets a person do something.
func (c *chaos) operator() {
	r := c.r
	force := r.IntN(4) == 0
	var err error
	what := ""
	before := c.x.Clone()
	switch n := r.IntN(10); {
	case n < 7:
		act := acts[r.IntN(len(acts))]
		what, err = string(act), c.act(act, force)
		if c.gates != nil && err == nil && force {
			c.gates.forced = true
		}
		if act == ActSkipStep && err == nil {
			for i := range c.x.Ledger {
				if e := &c.x.Ledger[i]; e.Status == store.StepUndone && e.Round == 0 {
					c.skipped[e.Name] = true
				}
			}
		}
		if act != ActHalt && act != ActRetry && err == nil && before.Status == store.StatusHalted && c.x.Status == store.StatusHalted && c.x.Reason != reasonInDoubt {
			c.t.Errorf("%s left it halted for %q", act, c.x.Reason)
		}
	case n < 8 && len(c.x.Ledger) > 0:
		step := c.x.Ledger[r.IntN(len(c.x.Ledger))].Name
		is := []store.StepStatus{store.StepDone, store.StepPending}[r.IntN(2)]
		what = fmt.Sprintf("resolve %s %s", step, is)
		err = c.do(func(m *machine) error {
			return m.operate(ActResolve, ann, nil, func() error { return m.resolve(step, is, force) })
		})
	case n < 9:
		to := []string{"default", "other"}[r.IntN(2)]
		what = "move to " + to
		err = c.do(func(m *machine) error {
			return m.operate(ActMove, ann, nil, func() error { return m.move(to, force) })
		})
	default:
		c.counter++
		state := fmt.Sprintf(`{"n":%d}`, c.counter)
		what = "edit_state"
		err = c.do(func(m *machine) error {
			return m.operate(ActEditState, ann, nil, func() error { return m.editState([]byte(state)) })
		})
		if err == nil {
			c.saved = state
		}
	}
	c.say("%s, force %v: %v", what, force, err)
	if err == nil && c.x.Epoch > before.Epoch+2 { // a pending turn, and the act
		c.t.Errorf("epoch %d after %d", c.x.Epoch, before.Epoch)
	}
}

// atRest checks what must hold of every row, by what has happened to it.
func (c *chaos) atRest() {
	x := c.x
	if c.gates != nil {
		c.gates.atRest(c)
	}
	for name := range c.skipped {
		if e := x.Entry(name); e.Status != store.StepUndone || e.Stray {
			c.t.Errorf("the undo of %s was skipped by hand, and it is %s, stray %v", name, e.Status, e.Stray)
		}
	}
	switch x.Status {
	case store.StatusFailed, store.StatusCancelled, store.StatusCompensated:
	default:
		return
	}
	for i := range x.Ledger {
		e := &x.Ledger[i]
		if needsUndo(e) || e.Stray || c.told[e.Name] && e.Compensable && e.Status != store.StepUndone {
			c.t.Errorf("%s, and %s is %s, stray %v", x.Status, e.Name, e.Status, e.Stray)
		}
	}
}

// outcome is what a body returns, and why its ctx had ended.
func (c *chaos) outcome() (err, cause error) {
	broken := errors.New("broken")
	all := []error{nil, nil, nil, nil, nil, broken, Unknown(broken), NoEffect(broken), Fail(broken), Fail(Unknown(broken)), Skip("none"),
		Complete("enough"), Halt("look"), Snooze(time.Second), RetryAfter(time.Minute, broken), context.Canceled}
	err = all[c.r.IntN(len(all))]
	if err == context.Canceled {
		cause = []error{ErrShutdown, ErrInterrupted, ErrAttemptLost, context.DeadlineExceeded}[c.r.IntN(4)]
	}
	return err, cause
}

// settleDown stops all faults, and lets sweeps alone bring the row to an end.
func (c *chaos) settleDown() {
	c.say("faults stop")
	for range 60 {
		for len(c.bodies) > 0 {
			c.finishBody(0, nil, nil, false)
		}
		if c.x.Status.Finished() || c.x.Status == store.StatusHalted {
			return
		}
		if c.x.DueAt == nil {
			c.gates.release(c)
			continue
		}
		if c.x.DueAt.After(c.now) {
			c.now = *c.x.DueAt
		}
		c.queue = nil
		c.sweep(true)
		for _, p := range c.queue {
			c.deliver(p, true)
		}
		if len(c.queue) == 0 && c.x.Status != store.StatusHalted && !c.x.Status.Finished() {
			c.deliver(c.pointer(), true) // publish is as unreliable as ever: the next sweep's
		}
	}
	c.t.Errorf("it does not end: %s", c.bench)
}

// TestMachineProperties plays random stories. LEVERET_SEED replays one.
func TestMachineProperties(t *testing.T) {
	first, n := seeds(t, 3000, 300)
	ends := map[store.Status]int{}
	for seed := first; seed < first+n; seed++ {
		c := newChaos(t, seed)
		for range 60 {
			c.step()
			if t.Failed() {
				break
			}
		}
		if !t.Failed() {
			c.settleDown()
			c.atRest()
			ends[c.x.Status]++
		}
		if t.Failed() {
			for _, l := range c.log {
				t.Log(l)
			}
			t.Fatalf("LEVERET_SEED=%d replays this", seed)
		}
	}
	t.Logf("ends: %v", ends)
}

// seeds returns the seeds of the stories to play: n, fewer with -short, or the one
// of LEVERET_SEED.
func seeds(t *testing.T, n, short uint64) (first, count uint64) {
	t.Helper()
	first = uint64(rand.Uint32())
	if testing.Short() {
		n = short
	}
	if s := os.Getenv("LEVERET_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, n = seed, 1
	}
	t.Logf("seeds %d to %d", first, first+n-1)
	return first, n
}
