package saga

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// The explorer (TestMachineExplored) walks through every state that one
// execution, two workers, a queue, a sweep, operators and participants can get
// into, within the bounds of a scenario. The execution is changed by the real
// machine alone; what is around it (commits, processes, time) is played here.
//
// What is covered:
//
//   - Every run of the tests explores each of its scenarios to the end: it fails
//     where the limit of states is in the way. Twelve of them (F06, F07, F09, F10,
//     F12, F19, F25, F28, F32, F35 to F37) have all three steps, with lost and
//     doubled pointers, a crash at every point, writes whose outcome is unknown,
//     lapsed leases, slow participants and requests among them; the others have
//     two steps, one fault and one act, or one lease that is lost. Bounds are
//     named where the scenario is: two, one, either, few, frozen.
//   - LEVERET_EXPLORE=full (make explore) explores all scenarios with three
//     steps, up to four faults, two acts (F42: three), and any number of lapsed leases where
//     lapse is set: all of them to the end, in some minutes and 2 GB. One that
//     reached the limit would be reported as PARTIAL.
//   - A person who Resolves says the truth; one who Skips may not, and then answers
//     for the effect (world.word).
//   - Not played: waits, several executions, clocks that differ, growing intervals
//     of the sweep, changed definitions, pauses, EditState, Erase.
//
// A world is one such state. It is comparable: all times are ticks from now, and
// of the history only what a living worker may still ask about is kept. Three
// things keep their number down, and lose nothing: canon drops what cannot
// matter any more and names workers, epochs and attempts anew; a world is not
// explored again with less of its budgets left (see explore); and the machine is
// asked the same question once (see answer).
//
// An explorer is used by one goroutine. What is called for every world is hidden
// from the race detector (norace): it would take twenty times as long.

const (
	worldSteps = 3
	worldTick  = time.Second

	ticksLease  = 2
	ticksMargin = 1
	ticksPickup = 2
)

// A token names an attempt.
type token struct{ proc, step, dir, epoch, num int8 }

type worldEntry struct {
	status, opens, doubt, round int8
	stray                       bool
}

// A worldRow is the execution's row.
type worldRow struct {
	status, dir, step, epoch int8
	ledger                   [worldSteps]worldEntry
	open                     bool
	num, proc, lease, body   int8 // of the open attempt; lease and body (its time-out) in ticks from now
	due, wake                int8 // ticks from now; none: never
	offered                  bool
	tries, resumes           int8
	failed                   int8 // the step of the cause, from 1; 0: none
	way                      int8 // the turn it took
	reason                   int8
	turn                     int8 // of the request
	halt                     bool
}

const never = int8(-1)

// What a worker is at.
const (
	atIdle      = int8(iota)
	atBefore    // the body runs, its effect has not been sent
	atAfter     // the body runs, its effect has landed
	atSettle    // the body has returned
	atOpenAsk   // the reply to the open was lost
	atSettleAsk // the reply to the settling write was lost
	atGone      // its attempt is not open any more: look into the history
	atPublish   // a pointer is to be published
)

// What the history says of a worker's attempt.
const (
	histNone = int8(iota)
	histAbandoned
	histOwn  // closed by its worker
	histLate // abandoned, and the late result noted
)

// A worldWorker is one worker: a process, or a slot of it.
type worldWorker struct {
	at      int8
	tok     token
	want    token // the attempt that a write with a lost reply meant to open
	epoch   int8  // of the pointer that a write with a lost reply was made for
	outcome int8
	cause   int8 // why its ctx ended: an outcome, 0 for not
	hist    int8
	round   int8 // of the undo's key
	snap    int8 // ticks left of the lease, as this worker last saw it
	body    int8 // ticks until the body's time-out
	renews  int8 // ticks for which renewals go on after a request ended ctx
	fresh   bool // nothing was written to the row since this worker's last write
	void    bool // another call of the process has claimed want since
	zombie  bool // not renewed any more
	lost    bool // ghost: the attempt was taken away while this worker had it
}

// A participant is what the steps talk to.
type participant struct {
	effect, seen, flight [worldSteps]bool
	undo                 [worldSteps]int8 // the highest round whose undo key it has seen
}

type world struct {
	row  worldRow
	w    [2]worldWorker
	p    participant
	ptr  int8 // pointers of the row's epoch in the queue
	turn int8 // sweep: 0 nothing claimed, 1 first offer, 2 offered before

	claimFresh   bool // due_at is still what the claim wrote
	faults, acts int8 // budgets left

	// Ghosts: what properties need to know of the past.
	turned    bool // Compensate or Cancel was accepted
	parked    bool // Halt was accepted, and not taken back
	retried   bool // Retry of a stray step was accepted
	completes bool // a step said Complete
	told      [worldSteps]bool
	word      [worldSteps]bool // a person has answered for the step's effect
	losses    int8             // pointers really lost since the last open
}

var (
	worldNow      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	worldTimes    = worldClock()
	worldID       = uuid.MustParse("0195524a-0000-7000-8000-000000000001")
	worldStatuses = []store.Status{
		store.StatusRunning, store.StatusHalted, store.StatusCompensating, store.StatusCompleted, store.StatusCompensated,
		store.StatusFailed, store.StatusCompensationFailed, store.StatusCancelled,
	}
	worldSteppings  = []store.StepStatus{store.StepPending, store.StepSkipped, store.StepInDoubt, store.StepDone, store.StepUndone}
	worldDirections = []store.Direction{store.DirectionExecute, store.DirectionCompensate}
	worldTurns      = []store.Turn{store.TurnNone, store.TurnCompensate, store.TurnCancel}
	worldReasons    = []string{"", reasonCancelled, reasonOperator, reasonInDoubt, reasonNoCompensation, reasonStalled, "test", "asked"}
	worldNames      = []string{"s0", "s1", "s2"}
	worldProcs      = []string{"A", "B"}
)

const (
	isRunning = int8(iota)
	isHalted
	isCompensating
	isCompleted
	isCompensated
	isFailed
	isCompensationFailed
	isCancelled
)

func worldClock() (all [96]time.Time) {
	for i := range all {
		all[i] = worldNow.Add(time.Duration(i-32) * worldTick)
	}
	return all
}

func tickAt(t int8) *time.Time { return &worldTimes[int(t)+32] }

// ticks returns how many ticks from now t is, at least least.
func ticks(t time.Time, least int8) int8 {
	d := t.Sub(worldNow)
	if d%worldTick != 0 {
		panic(fmt.Sprintf("%v is not a whole number of ticks", d))
	}
	return max(int8(d/worldTick), least)
}

func ticksOf(t *time.Time) int8 {
	if t == nil {
		return never
	}
	return ticks(*t, 0)
}

func indexOf[T comparable](all []T, v T) int8 {
	i := slices.Index(all, v)
	if i < 0 {
		panic(fmt.Sprintf("%v is not known to the explorer", v))
	}
	return int8(i)
}

// A drawer turns rows into executions and back. It keeps one execution to fill.
type drawer struct {
	x       store.Execution
	ledger  [worldSteps]store.LedgerEntry
	plan    []store.LedgerEntry // names and policies
	attempt store.OpenAttempt
	request store.Request
	failure store.Failure
}

func (d *drawer) fill(r *worldRow) *store.Execution {
	for i := range d.plan {
		e, w := &d.ledger[i], &r.ledger[i]
		*e = d.plan[i]
		e.Status, e.Opens, e.Round, e.Stray = worldSteppings[w.status], int(w.opens), int(w.round), w.stray
		if w.doubt > 0 {
			e.DoubtUntil = tickAt(w.doubt)
		}
	}
	d.x = store.Execution{
		ID: worldID, Saga: "walk", Version: 1, Partition: "default",
		Status: worldStatuses[r.status], Direction: worldDirections[r.dir], Step: worldNames[r.step], Epoch: int(r.epoch),
		Turn: worldTurns[r.way], Ledger: d.ledger[:len(d.plan)], Tries: int(r.tries), Resumes: int(r.resumes), Reason: worldReasons[r.reason],
		CreatedAt: worldNow, UpdatedAt: worldNow, ProgressAt: worldNow,
	}
	x := &d.x
	if r.open {
		d.attempt = store.OpenAttempt{
			Number: int(r.num), Worker: worldProcs[r.proc], StartedAt: worldNow, LeaseUntil: *tickAt(r.lease), TimeoutAt: tickAt(r.body),
		}
		x.Attempt = &d.attempt
	}
	if r.due != never {
		x.DueAt = tickAt(r.due)
	}
	if r.wake != never {
		x.WakeAt = tickAt(r.wake)
	}
	if r.offered {
		x.OfferedAt = tickAt(0)
	}
	if r.failed > 0 {
		d.failure = store.Failure{Class: "test", Message: "test", Step: worldNames[r.failed-1]}
		x.Cause = &d.failure
	}
	if r.turn != 0 || r.halt {
		d.request = store.Request{Turn: worldTurns[r.turn], Halt: r.halt, Actor: "test", Reason: "asked", At: worldNow}
		x.Request = &d.request
	}
	if x.Status.Finished() {
		x.FinishedAt = tickAt(0)
	}
	return x
}

func (d *drawer) read() (r worldRow) {
	x := &d.x
	r = worldRow{
		status: indexOf(worldStatuses, x.Status), dir: indexOf(worldDirections, x.Direction), step: indexOf(worldNames, x.Step),
		epoch: int8(x.Epoch), due: ticksOf(x.DueAt), wake: ticksOf(x.WakeAt), offered: x.OfferedAt != nil,
		tries: int8(x.Tries), resumes: int8(x.Resumes), reason: indexOf(worldReasons, x.Reason), way: indexOf(worldTurns, x.Turn),
	}
	for i := range d.plan {
		e, w := &x.Ledger[i], &r.ledger[i]
		w.status, w.opens, w.round, w.stray = indexOf(worldSteppings, e.Status), int8(e.Opens), int8(e.Round), e.Stray
		w.doubt = max(ticksOf(e.DoubtUntil), 0)
	}
	if a := x.Attempt; a != nil {
		r.open, r.num, r.proc = true, int8(a.Number), indexOf(worldProcs, a.Worker)
		r.lease, r.body = ticks(a.LeaseUntil, -ticksMargin), ticksOf(a.TimeoutAt)
	}
	if x.Cause != nil {
		r.failed = 1 + indexOf(worldNames, x.Cause.Step)
	}
	if q := x.Request; q != nil {
		r.turn, r.halt = indexOf(worldTurns, q.Turn), q.Halt
	}
	return r
}

// tick lets a tick pass for the row.
func (r *worldRow) tick() {
	if r.open {
		r.lease = max(r.lease-1, -ticksMargin)
		r.body = less(r.body)
	}
	for i := range r.ledger {
		r.ledger[i].doubt = less(r.ledger[i].doubt)
	}
	r.due, r.wake = less(r.due), less(r.wake)
}

func less(v int8) int8 {
	if v > 0 {
		return v - 1
	}
	return v
}

func (r *worldRow) ended() bool { return r.status >= isCompleted || r.status == isHalted }

func (r *worldRow) token() token {
	return token{r.proc, r.step, r.dir, r.epoch, r.num}
}

func tokenOf(l store.Lease) token {
	return token{
		indexOf(worldProcs, l.Worker), indexOf(worldNames, l.Step), indexOf(worldDirections, l.Direction), int8(l.Epoch), int8(l.Number),
	}
}

func (t token) lease() store.Lease {
	if t.num == 0 {
		return store.Lease{}
	}
	return store.Lease{
		Execution: worldID, Step: worldNames[t.step], Direction: worldDirections[t.dir], Epoch: int(t.epoch), Number: int(t.num),
		Worker: worldProcs[t.proc],
	}
}

// String describes a row in one line.
func (w *world) String() string {
	r := &w.row
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s@%s e%d tries=%d due=%d", worldStatuses[r.status], []string{"exec", "undo"}[r.dir], worldNames[r.step], r.epoch, r.tries, r.due)
	if r.wake != never {
		fmt.Fprintf(&b, " wake=%d", r.wake)
	}
	if r.open {
		fmt.Fprintf(&b, " open{%s #%d lease=%d}", worldProcs[r.proc], r.num, r.lease)
	}
	b.WriteString(" [")
	for i := range r.ledger {
		e := &r.ledger[i]
		fmt.Fprintf(&b, " %s", worldSteppings[e.status])
		if e.stray {
			b.WriteString("+stray")
		}
		if e.doubt > 0 {
			fmt.Fprintf(&b, "+wait%d", e.doubt)
		}
	}
	b.WriteString(" ] effects=")
	for _, on := range w.p.effect {
		b.WriteByte("01"[map[bool]int{true: 1}[on]])
	}
	if r.turn != 0 || r.halt {
		fmt.Fprintf(&b, " request{%s halt=%v}", worldTurns[r.turn], r.halt)
	}
	if r.resumes > 0 {
		fmt.Fprintf(&b, " resumes=%d", r.resumes)
	}
	if r.reason > 0 {
		fmt.Fprintf(&b, " reason=%s", worldReasons[r.reason])
	}
	fmt.Fprintf(&b, " queue=%d", w.ptr)
	return b.String()
}
