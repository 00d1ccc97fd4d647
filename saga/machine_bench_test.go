package saga

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A bench is one row with its history, in memory, on which machines are let
// loose. After each of them it checks what must hold always.
type bench struct {
	t       *testing.T
	x       *store.Execution
	now     time.Time
	plan    *plan
	rules   rules
	history []store.Attempt
	audit   []store.AuditEntry

	published bool
	events    []EventKind
	known     *answers // what steps have said
}

const (
	benchLease  = 30 * time.Second
	benchPickup = 20 * time.Second
)

// benchStep makes a step that can be undone.
func benchStep(name string, change ...func(s *Step[struct{}])) Step[struct{}] {
	body := func(context.Context, *Run[struct{}]) error { return nil }
	policy := RetryPolicy{Attempts: 2, Initial: time.Second, Max: time.Minute}
	s := Step[struct{}]{Name: name, Execute: body, Compensate: body, Retry: policy, CompensateRetry: policy, Timeout: time.Minute}
	for _, f := range change {
		f(&s)
	}
	return s
}

func pivot(s *Step[struct{}])    { s.Compensate = nil }
func turning(s *Step[struct{}])  { s.Pivot = true }
func isolated(s *Step[struct{}]) { s.Isolated = true }
func timeless(s *Step[struct{}]) { s.Timeout = NoTimeout }
func policy(d InDoubt) func(s *Step[struct{}]) {
	return func(s *Step[struct{}]) { s.InDoubt = d }
}

func benchPlan(t testing.TB, d Definition[struct{}]) *plan {
	t.Helper()
	d.Name = "bench"
	if err := checkDefinition(d); err != nil {
		t.Fatal(err)
	}
	p, _ := erase(d)
	return p
}

// newBench starts an execution of these steps; of a, b and c by default.
func newBench(t *testing.T, steps ...Step[struct{}]) *bench {
	t.Helper()
	if len(steps) == 0 {
		steps = []Step[struct{}]{benchStep("a"), benchStep("b"), benchStep("c")}
	}
	b := &bench{t: t, now: worldNow, plan: benchPlan(t, Definition[struct{}]{Steps: steps})}
	b.rules = rules{
		worker: "A", lease: benchLease, margin: leaseMargin, pickup: benchPickup, stepTimeout: 5 * time.Minute,
		maxResumes: 2, onStalled: StalledCompensate,
	}
	b.x = &store.Execution{
		ID: uuid.MustParse("0195524a-0000-7000-8000-000000000002"), Saga: "bench", Version: 1, Partition: "default",
		Status: store.StatusRunning, Direction: store.DirectionExecute, Ledger: b.plan.ledger(), State: []byte("{}"),
		CreatedAt: b.now, UpdatedAt: b.now, ProgressAt: b.now, Revision: 1,
	}
	b.x.Step = b.x.Ledger[0].Name
	b.do(func(m *machine) error { m.offer(); return nil })
	return b
}

// do lets a machine change the row, and returns what f did.
func (b *bench) do(f func(m *machine) error) error {
	b.t.Helper()
	y := b.x.Clone()
	m := &machine{x: y, now: b.now, rules: b.rules, plan: b.plan, answers: b.known}
	err := f(m)
	if err != nil || !m.dirty {
		if fmt.Sprint(describe(b.x)) != fmt.Sprint(describe(y)) {
			b.t.Errorf("changed without being written (error %v):\n%s\n%s", err, describe(b.x), describe(y))
		}
		return err
	}
	if verr := y.Validate(); verr != nil {
		b.t.Errorf("no store takes it: %v", verr)
	}
	y.Revision++
	if verr := m.change.Validate(y.ID); verr != nil {
		b.t.Errorf("no store takes the change: %v", verr)
	}
	b.x = y.Clone()
	for i := range m.change.Attempts {
		b.write(m.change.Attempts[i])
	}
	for _, a := range m.change.Audit {
		if a.Execution != y.ID || a.Actor == "" || a.Reason == "" || !a.At.Equal(b.now) || !a.After.Valid() || !a.Before.Valid() {
			b.t.Errorf("audit entry %+v", a)
		}
		b.audit = append(b.audit, a)
	}
	b.published = m.publish
	for _, e := range m.events {
		b.events = append(b.events, e.Kind)
	}
	b.invariants()
	if m.opened && (y.WakeAt != nil || y.OfferedAt != nil || y.Resumes != 0) {
		b.t.Errorf("opened, and wake_at, offered_at or resumes is set: %s", b)
	}
	return nil
}

// write keeps an attempt as a store does.
func (b *bench) write(a store.Attempt) {
	b.t.Helper()
	if a.Status == store.AttemptRunning || a.FinishedAt == nil {
		b.t.Errorf("attempt %v written while it is open", a.Lease())
	}
	for i := range b.history {
		h := &b.history[i]
		if h.Step == a.Step && h.Direction == a.Direction && h.Epoch == a.Epoch && h.Number == a.Number {
			if !a.Late || h.Worker != a.Worker {
				b.t.Errorf("attempt %v was closed before", a.Lease())
			}
			if h.LateStatus == "" {
				h.Late, h.LateStatus = true, a.LateStatus
			}
			return
		}
	}
	if a.Late {
		b.t.Errorf("a late result of an attempt that is not in the history: %v", a.Lease())
	}
	b.history = append(b.history, a)
}

// invariants checks what holds for every row.
func (b *bench) invariants() {
	b.t.Helper()
	x := b.x
	ended := x.Status.Finished() || x.Status == store.StatusHalted
	forever := x.Status == store.StatusWaiting && x.Gate != nil && !x.Gate.Open && x.Gate.Until == nil && (&machine{x: x}).deadline() == nil
	if (x.DueAt == nil) != (ended || forever) {
		b.t.Errorf("%s with due_at %v", x.Status, x.DueAt)
	}
	if (x.FinishedAt != nil) != x.Status.Finished() {
		b.t.Errorf("%s with finished_at %v", x.Status, x.FinishedAt)
	}
	if ended && (x.Attempt != nil || x.Request != nil || x.WakeAt != nil || x.OfferedAt != nil) {
		b.t.Errorf("left open on a %s row: %s", x.Status, describe(x))
	}
	if x.Attempt == nil {
		if x.Request != nil {
			b.t.Errorf("a request without an attempt: %+v", x.Request)
		}
		return
	}
	if at := x.Attempt.LeaseUntil; at.After(b.now) && !x.DueAt.Equal(at.Add(leaseMargin)) {
		b.t.Errorf("due at %v, the lease ends at %v", x.DueAt, at)
	}
	if x.Attempt.LeaseUntil.Sub(b.now) > benchLease {
		b.t.Errorf("a lease of %v", x.Attempt.LeaseUntil.Sub(b.now))
	}
}

// describe says in one line what matters of a row, without times.
func describe(x *store.Execution) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s e%d t%d", x.Status, x.Direction, x.Step, x.Epoch, x.Tries)
	if x.Attempt != nil {
		fmt.Fprintf(&b, " open#%d/%s", x.Attempt.Number, x.Attempt.Worker)
	}
	b.WriteString(" [")
	for i := range x.Ledger {
		e := &x.Ledger[i]
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(string(e.Status))
		if e.Stray {
			b.WriteString("+stray")
		}
		if e.Round > 1 {
			fmt.Fprintf(&b, "+round%d", e.Round)
		}
	}
	b.WriteByte(']')
	if x.Resumes > 0 {
		fmt.Fprintf(&b, " resumes=%d", x.Resumes)
	}
	if x.Request != nil {
		fmt.Fprintf(&b, " request=%s", x.Request.Turn)
		if x.Request.Halt {
			b.WriteString("+halt")
		}
	}
	if x.Failure != nil {
		fmt.Fprintf(&b, " failure=%s@%s", x.Failure.Class, x.Failure.Step)
	}
	if x.Reason != "" {
		fmt.Fprintf(&b, " reason=%s", x.Reason)
	}
	if x.Partition != "default" {
		b.WriteString(" in=" + x.Partition)
	}
	if x.ErasedAt != nil {
		b.WriteString(" erased")
	}
	return b.String()
}

// String is describe with times, as seconds from now, and what was published.
func (b *bench) String() string {
	s := describe(b.x)
	rel := func(name string, t *time.Time) {
		if t != nil {
			s += fmt.Sprintf(" %s%+v", name, t.Sub(b.now))
		}
	}
	rel("due", b.x.DueAt)
	rel("wake", b.x.WakeAt)
	rel("offered", b.x.OfferedAt)
	if b.published {
		s += " published"
	}
	return s
}

// attempts lists the history.
func (b *bench) attempts() string {
	var out []string
	for _, a := range b.history {
		s := fmt.Sprintf("%s.%s e%d #%d %s", a.Step, a.Direction[:4], a.Epoch, a.Number, a.Status)
		if a.Late {
			s += " late " + string(a.LateStatus)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// acts lists the audit trail.
func (b *bench) acts() string {
	var out []string
	for _, a := range b.audit {
		out = append(out, fmt.Sprintf("%s by %s: %s to %s", a.Act, a.Actor, a.Before, a.After))
	}
	return strings.Join(out, ", ")
}

func (b *bench) in(d time.Duration) *bench { b.now = b.now.Add(d); return b }

// pointer returns one to the row's position.
func (b *bench) pointer() Pointer {
	return Pointer{V: 1, Execution: b.x.ID, Saga: b.x.Saga, Step: b.x.Step, Direction: b.x.Direction, Epoch: b.x.Epoch}
}

// handle lets a worker handle a pointer.
func (b *bench) handle(worker string, p Pointer) (r Result) {
	b.t.Helper()
	b.rules.worker = worker
	for {
		_ = b.do(func(m *machine) error { r = m.handle(p); return nil })
		if r.Reason != dropAsk {
			return r
		}
		b.known = b.plan.askFrom(b.x, b.x.Step, b.x.State)
	}
}

// open opens the attempt that is due and returns it.
func (b *bench) open(worker string) attemptRef {
	b.t.Helper()
	if r := b.handle(worker, b.pointer()); r != (Result{Disposition: Ack}) {
		b.t.Fatalf("not opened: %v; %s", r, b)
	}
	return b.ref()
}

// ref returns the open attempt.
func (b *bench) ref() attemptRef {
	b.t.Helper()
	l, ok := b.x.Lease()
	if !ok {
		b.t.Fatalf("nothing is open: %s", b)
	}
	return attemptRef{lease: l, startedAt: b.x.Attempt.StartedAt, leaseUntil: b.x.Attempt.LeaseUntil}
}

// judged is what comes of a step that returned err, with its ctx ended by cause.
func (b *bench) judged(ref attemptRef, err, cause error) result {
	s, ok := b.plan.step(ref.lease.Step)
	if !ok {
		s = &planStep{name: ref.lease.Step}
	}
	r := judge(s, ref.lease.Direction, returned{err: err, cause: cause})
	if r.failure != nil {
		r.failure.Step = ref.lease.Step
	}
	return r
}

// settle writes what an attempt returned, and goes on with the next if chain.
func (b *bench) settle(ref attemptRef, err error, chain bool) *bench {
	b.t.Helper()
	return b.settleResult(ref, b.judged(ref, err, nil), chain)
}

func (b *bench) settleResult(ref attemptRef, r result, chain bool) *bench {
	b.t.Helper()
	b.rules.worker = ref.lease.Worker
	_ = b.do(func(m *machine) error { m.settle(ref, r, chain, nil); return nil })
	return b
}

// run opens what is due and settles it.
func (b *bench) run(err error) *bench {
	b.t.Helper()
	return b.settle(b.open("A"), err, false)
}

// lapse lets the open attempt's lease and the margin pass.
func (b *bench) lapse() *bench {
	return b.in(b.x.Attempt.LeaseUntil.Add(leaseMargin).Sub(b.now))
}

// wake goes to the moment at which the row may go on.
func (b *bench) wake() *bench {
	if w := b.x.WakeAt; w != nil && w.After(b.now) {
		b.now = *w
	}
	return b
}

var ann = By{Actor: "ann", Reason: "because"}

// act lets a process without the definition act.
func (b *bench) act(act Act, force bool) error {
	b.t.Helper()
	p := b.plan
	b.plan = nil
	defer func() { b.plan = p }()
	return b.do(func(m *machine) error { return m.act(act, ann, force) })
}

// must is act that has to succeed.
func (b *bench) must(act Act, force bool) *bench {
	b.t.Helper()
	if err := b.act(act, force); err != nil {
		b.t.Fatalf("%s: %v; %s", act, err, b)
	}
	return b
}
