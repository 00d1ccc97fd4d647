package saga

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/leveret-go/leveret/store"
)

// chaosGates are the waits, signals and pivots of a random story, and what has
// to hold of them.
type chaosGates struct {
	never  map[string]bool      // steps whose condition is false
	until  map[string]time.Time // of steps with WaitUntil: may move
	names  []string             // of signals that are awaited
	forced bool                 // a person has forced something

	sent  int
	owner map[string]string // signals that were taken, by id: by which step
	kept  map[string]bool   // signals that were accepted, and not taken yet
	saw   map[string]sight  // what a step's attempts have received, until it awaits anew
}

// A sight is what an attempt has received.
type sight struct {
	ids      []string
	epoch    int
	timedOut bool
}

func newGatedChaos(t *testing.T, seed uint64) *chaos {
	r := rand.New(rand.NewPCG(seed, 23))
	g := &chaosGates{
		never: map[string]bool{}, until: map[string]time.Time{}, owner: map[string]string{}, kept: map[string]bool{}, saw: map[string]sight{},
	}
	names := []string{"paid", "agreed"}
	var line []Step[struct{}]
	turned := false // there is a pivot
	for i := range 1 + r.IntN(4) {
		s := benchStep(fmt.Sprintf("s%d", i))
		s.Retry.Attempts, s.CompensateRetry.Attempts = 1+r.IntN(3), 1+r.IntN(3)
		s.Isolated = r.IntN(3) == 0
		if r.IntN(4) == 0 || turned {
			s.Compensate = nil
		}
		if !turned && r.IntN(5) == 0 {
			s.Pivot, turned, s.Compensate = true, true, nil
		}
		if r.IntN(6) == 0 {
			is := r.IntN(2) == 0
			s.If = func(struct{}) bool { return is }
			g.never[s.Name] = !is
		}
		switch r.IntN(7) {
		case 0:
			s.Wait = time.Duration(1+r.IntN(120)) * time.Second
		case 1:
			g.until[s.Name] = worldNow.Add(time.Duration(r.IntN(600)-60) * time.Second)
			s.WaitUntil = func(struct{}) time.Time { return g.until[s.Name] }
		case 2, 3:
			a := &Await[struct{}]{Signal: Signal[int](names[r.IntN(2)])}
			if r.IntN(2) == 0 {
				a = &Await[struct{}]{Signals: []AnySignal{Signal[int]("paid"), Signal[int]("agreed")}, All: r.IntN(2) == 0}
			}
			if r.IntN(2) == 0 {
				a.Timeout = time.Duration(1+r.IntN(120)) * time.Second
			}
			s.Await, g.names = a, names
		}
		if r.IntN(6) == 0 {
			s.RetryOnSignal, g.names = Signal[int]("paid"), names
		}
		line = append(line, s)
	}
	c := &chaos{bench: newBench(t, line...), r: r, saved: "{}", told: map[string]bool{}, skipped: map[string]bool{}, gates: g}
	if r.IntN(6) == 0 {
		at := c.now.Add(time.Duration(1+r.IntN(900)) * time.Second)
		c.x.Deadline = &at
	}
	c.publish()
	return c
}

// idOf tells signals apart: by what they carry.
func idOf(m store.Message) string { return string(m.Payload) }

// outside lets something happen that is none of the worker's, nor a fault.
func (g *chaosGates) outside(c *chaos) {
	r := c.r
	switch n := r.IntN(4); {
	case n < 2 && g.names != nil:
		g.send(c, g.names[r.IntN(len(g.names))])
	case n == 2:
		for name := range g.until { // the dates move, to and fro
			g.until[name] = c.now.Add(time.Duration(r.IntN(400)-100) * time.Second)
		}
	default:
		at := c.now.Add(time.Duration(r.IntN(200)-20) * time.Second)
		err := c.do(func(m *machine) error { return m.reschedule(at) })
		c.published = false
		c.say("it is moved by %v: %v", at.Sub(c.now), err)
	}
}

func (g *chaosGates) send(c *chaos, name string) {
	key := ""
	if c.r.IntN(3) == 0 {
		key = []string{"k1", "k2"}[c.r.IntN(2)]
	}
	g.sendWith(c, name, key)
}

func (g *chaosGates) sendWith(c *chaos, name, key string) {
	g.sent++
	id := strconv.Itoa(g.sent)
	var got SignalResult
	known := slices.ContainsFunc(c.x.Inbox, func(m store.Message) bool { return m.Name == name && m.Key == key && key != "" })
	old := c.plan
	if c.r.IntN(2) == 0 {
		c.plan = nil // from a process that does not know the saga
	}
	err := c.do(func(m *machine) (err error) {
		got, err = m.signal(store.Message{Name: name, Key: key, Payload: []byte(id), At: m.now})
		return err
	})
	c.plan = old
	c.say("signal %s %s with key %q: %s %v", name, id, key, got, err)
	c.published = false
	switch {
	case err != nil:
		c.t.Errorf("a signal is refused: %v", err)
	case known != (got == SignalDuplicate) && !c.x.Status.Finished():
		c.t.Errorf("a signal whose key is known (%v) is %s", known, got)
	case got == SignalDelivered || got == SignalBuffered:
		g.kept[id] = true
	}
}

// release lets an execution go on that waits for a signal without an end.
func (g *chaosGates) release(c *chaos) {
	for _, name := range c.x.Gate.Signals {
		g.sendWith(c, name, "")
		if c.x.DueAt != nil {
			return
		}
	}
	if c.x.DueAt == nil && c.x.Status == store.StatusWaiting {
		c.t.Errorf("all signals came, and it waits: %+v", c.x.Gate)
	}
}

// received are the signals that the cursor's step has.
func (g *chaosGates) received(x *store.Execution) (ids []string) {
	for _, m := range x.Inbox {
		if m.Step == x.Step && !m.Spent {
			ids = append(ids, idOf(m))
		}
	}
	return ids
}

// begun checks that an attempt is not opened too early, nor of a step that is
// to be passed over.
func (g *chaosGates) begun(c *chaos) {
	x := c.x
	if x.Direction == store.DirectionCompensate {
		for i := range x.Ledger {
			if e := &x.Ledger[i]; e.Pivot && e.Status == store.StepDone && !e.Stray && !g.forced {
				c.t.Errorf("past the pivot %s, and nobody forced it, %s is undone", e.Name, x.Step)
			}
		}
		return
	}
	if g.never[x.Step] {
		c.t.Errorf("step %s runs, and its condition is false", x.Step)
	}
	gate := x.Gate
	s, _ := c.plan.step(x.Step)
	if gate == nil {
		if s.waits && x.Entry(x.Step).Opens == 1 {
			c.t.Errorf("step %s runs, and has not waited", x.Step)
		}
		return
	}
	if !gate.Open {
		c.t.Errorf("step %s runs, and its gate is closed: %+v", x.Step, gate)
	}
	got := g.received(x)
	passed := gate.Until != nil && !gate.Until.After(c.now)
	switch gate.Kind {
	case store.GateTime:
		if !passed {
			c.t.Errorf("step %s runs at %v, and should wait until %v", x.Step, c.now, gate.Until)
		}
		return
	case store.GateSignal:
		enough := len(got) >= 1
		if gate.All {
			enough = len(got) == len(gate.Signals)
		}
		if !enough && !(passed && gate.TimedOut) {
			c.t.Errorf("step %s runs with %v, before %v", x.Step, got, gate.Until)
		}
	case store.GateRetry:
		if len(got) == 0 && !passed {
			c.t.Errorf("step %s runs again, and no signal came", x.Step)
		}
		return
	}
	saw, ok := g.saw[x.Step]
	same := slices.Equal(saw.ids, got)
	if saw.epoch != x.Epoch { // a Retry by hand awaits anew: it keeps what it had, unless the deadline had passed, and may get more
		same = saw.timedOut || !slices.ContainsFunc(saw.ids, func(id string) bool { return !slices.Contains(got, id) })
	}
	if ok && !same {
		c.t.Errorf("an attempt of %s has received %v, the one before it %v", x.Step, got, saw.ids)
	}
	g.saw[x.Step] = sight{got, x.Epoch, gate.TimedOut}
}

// settles forgets what a step has received when it is used up.
func (g *chaosGates) settles(c *chaos, ref attemptRef, r result) {
	if r.kind == halted || r.kind == snoozed || r.kind == failed || r.kind == gaveUp { // a retry gate may be next
		delete(g.saw, ref.lease.Step)
	}
	c.known = nil
	if c.r.IntN(2) == 0 { // else it is asked by who looks next
		c.known = c.plan.askNext(c.x, r)
	}
}

// atRest checks that no signal was lost, nor taken by two steps.
func (g *chaosGates) atRest(c *chaos) {
	x := c.x
	there := map[string]bool{}
	for _, m := range x.Inbox {
		id := idOf(m)
		if m.Spent {
			continue
		}
		there[id] = true
		if m.Step == "" {
			continue
		}
		if o, ok := g.owner[id]; ok && o != m.Step {
			c.t.Errorf("signal %s was taken by %s, and is by %s", id, o, m.Step)
		}
		g.owner[id] = m.Step
		delete(g.kept, id)
	}
	if x.Status.Finished() {
		return
	}
	for id := range g.kept {
		if !there[id] {
			c.t.Errorf("signal %s is lost", id)
		}
	}
}

// TestGateProperties plays random stories of sagas that wait. LEVERET_SEED
// replays one.
func TestGateProperties(t *testing.T) {
	first, n := seeds(t, 3000, 300)
	ends, taken := map[store.Status]int{}, 0
	for seed := first; seed < first+n; seed++ {
		c := newGatedChaos(t, seed)
		for range 80 {
			c.step()
			if t.Failed() {
				break
			}
		}
		if !t.Failed() {
			c.settleDown()
			c.atRest()
			ends[c.x.Status]++
			taken += len(c.gates.owner)
		}
		if t.Failed() {
			for _, l := range c.log {
				t.Log(l)
			}
			t.Fatalf("LEVERET_SEED=%d replays this", seed)
		}
	}
	t.Logf("ends: %v, signals taken: %d", ends, taken)
	if taken == 0 && n > 1 {
		t.Error("no signal was ever taken")
	}
}
