package sagatest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A StalledError says that executions did not come to rest: after MaxDeliveries
// looks at them there was still something to do.
type StalledError struct {
	Deliveries int
	// Executions are those that have not ended, by the order in which they
	// were started.
	Executions []Stalled
}

// Stalled is an execution that has not ended, and what was last done with it.
type Stalled struct {
	Execution *saga.Execution
	// Pointer is the last one that was handled for it, and Result what came
	// of it; zero when there was none.
	Pointer saga.Pointer
	Result  saga.Result
}

func (e *StalledError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sagatest: still not at rest after %d deliveries; unfinished are %d executions", e.Deliveries, len(e.Executions))
	for _, s := range e.Executions {
		x := s.Execution
		fmt.Fprintf(&b, "\n\t%s %s: %s at step %q, try %d", x.Saga, x.ID, x.Status, x.Step, x.Tries)
		if x.Failure != nil {
			fmt.Fprintf(&b, ", failed with %q", x.Failure.Message)
		}
		if p := s.Pointer; p.V == 0 {
			b.WriteString("; never delivered")
		} else {
			fmt.Fprintf(&b, "; last pointer: %s %q, epoch %d", p.Direction, p.Step, p.Epoch)
			if s.Result.Reason != "" {
				fmt.Fprintf(&b, ", dropped as %s", s.Result.Reason)
			}
		}
	}
	return b.String()
}

// Drain works until nothing is left to do but what waits for a person, or for a
// time that the saga asked for (a snooze, a wait). The clock jumps to the next
// retry, and to the end of a crashed attempt's lease; if a snooze of another
// execution ends before that, it ends.
//
// When it does not come to an end, the test does, with the text of a
// [*StalledError].
func (h *Harness) Drain() {
	h.t.Helper()
	if err := h.TryDrain(); err != nil {
		h.t.Fatal(err)
	}
}

// TryDrain is Drain for tests in which it may not come to an end: it returns the
// [*StalledError].
func (h *Harness) TryDrain() error {
	h.t.Helper()
	return h.work(nil)
}

// Advance lets d pass: what comes due meanwhile, snoozes and waits too, is done
// at its time. It works like [Harness.Drain] otherwise, but jumps to no time
// after that.
func (h *Harness) Advance(d time.Duration) {
	h.t.Helper()
	until := h.Now().Add(max(d, 0))
	if err := h.work(&until); err != nil {
		h.t.Fatal(err)
	}
	h.to(until)
}

// work delivers what is due, and moves the clock to what comes next, until
// there is nothing more, or not before until.
func (h *Harness) work(until *time.Time) error {
	h.t.Helper()
	for deliveries := 0; ; deliveries++ {
		x := h.next(until)
		if x == nil {
			return nil
		}
		if deliveries == h.most {
			return h.stalled(deliveries)
		}
		h.to(*x.DueAt)
		h.deliver(x)
	}
}

// next returns the execution that is due first; of those due at the same time,
// the one that was started first.
func (h *Harness) next(until *time.Time) *saga.Execution {
	h.t.Helper()
	now := h.Now()
	var next *saga.Execution
	for _, x := range h.unfinished() {
		if x.DueAt == nil {
			continue
		}
		if x.DueAt.After(now) {
			if until != nil && x.DueAt.After(*until) || until == nil && h.wantsToWait(x) {
				continue
			}
		}
		if next == nil || due(x, now).Before(due(next, now)) {
			next = x
		}
	}
	return next
}

// due returns when an execution is due, those that are overdue now.
func due(x *saga.Execution, now time.Time) time.Time {
	if x.DueAt.Before(now) {
		return now
	}
	return *x.DueAt
}

// wantsToWait reports whether an execution waits because its saga says so.
func (h *Harness) wantsToWait(x *saga.Execution) bool {
	h.t.Helper()
	if x.Status == store.StatusWaiting {
		return true
	}
	if x.WakeAt == nil || x.Attempt != nil {
		return false
	}
	attempts, err := h.store.Attempts(h.t.Context(), x.ID)
	if err != nil {
		h.t.Fatalf("sagatest: attempts of %s: %v", x.ID, err)
	}
	return len(attempts) > 0 && attempts[len(attempts)-1].Status == store.AttemptSnoozed
}

// unfinished lists the executions that have not ended, by the order in which
// they were started.
func (h *Harness) unfinished() (xs []*saga.Execution) {
	h.t.Helper()
	q := store.StalledQuery{ProgressBefore: h.Now().Add(100 * 365 * 24 * time.Hour), Limit: 1000}
	for {
		page, err := h.store.Stalled(h.t.Context(), q)
		if err != nil {
			h.t.Fatalf("sagatest: list unfinished executions: %v", err)
		}
		xs = append(xs, page...)
		if len(page) < q.Limit {
			break
		}
		last := page[len(page)-1]
		q.After = &store.StalledCursor{ProgressAt: last.ProgressAt, ID: last.ID}
	}
	slices.SortFunc(xs, func(a, b *saga.Execution) int {
		return cmp.Or(cmp.Compare(h.store.order(a.ID), h.store.order(b.ID)), slices.Compare(a.ID[:], b.ID[:]))
	})
	return xs
}

// deliver hands a pointer to the engine, as a transport would.
func (h *Harness) deliver(x *saga.Execution) {
	h.t.Helper()
	d := delivery{pointer: saga.Pointer{
		V: saga.PointerVersion, Store: h.id, Execution: x.ID, Saga: x.Saga, Step: x.Step,
		Direction: x.Direction, Epoch: x.Epoch, TraceParent: x.TraceParent,
	}}
	var err error
	d.result, err = h.handle(d.pointer)
	if err != nil {
		h.t.Fatalf("sagatest: handle a pointer to %s: %v", x.ID, err)
	}
	h.last[x.ID] = d
}

// handle calls the engine, and survives the crashes of its own faults.
func (h *Harness) handle(p saga.Pointer) (r saga.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(crash); !ok {
				panic(v)
			}
		}
	}()
	return h.Engine.Handle(h.t.Context(), p)
}

func (h *Harness) stalled(deliveries int) error {
	h.t.Helper()
	e := &StalledError{Deliveries: deliveries}
	for _, x := range h.unfinished() {
		d := h.last[x.ID]
		e.Executions = append(e.Executions, Stalled{Execution: x, Pointer: d.pointer, Result: d.result})
	}
	return e
}
