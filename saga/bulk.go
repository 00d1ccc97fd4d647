package saga

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// BulkOptions says how [Engine.Bulk] goes about it.
type BulkOptions struct {
	// DryRun only says what would be done. What the store alone can refuse, such
	// as a start key that another execution holds by now, it does not see.
	DryRun bool
	// Limit is how many executions are looked at, at most: each has an item in
	// the report, those that are skipped too. Defaults to 100; at most MaxBulk.
	Limit int
	// After begins after this execution, in the order of [Engine.List]: the
	// Next of an earlier report goes on where that one ended.
	After uuid.UUID
	// Rate is how many executions are acted on in a second, at most. 0: as fast
	// as the store can.
	Rate float64
	// StopAtErrors ends it with [ErrTooManyErrors] when so large a share of the
	// last 20 acts failed, of 10 at least: the store is not well. Above 0, and
	// at most 1; defaults to 0.5. What is skipped does not count.
	StopAtErrors float64
}

// MaxBulk is the most that BulkOptions.Limit and EraseOptions.Limit may be.
const MaxBulk = 100_000

// ErrTooManyErrors: so many acts failed that a bulk act was ended.
var ErrTooManyErrors = errors.New("saga: too many acts failed")

// A BulkReport says what a bulk act did, newest execution first.
type BulkReport struct {
	Act    Act                `json:"act"`
	DryRun bool               `json:"dry_run,omitempty"`
	Items  []BulkItem         `json:"items"`
	Counts map[BulkResult]int `json:"counts"` // of the items
	// Next, if not nil, is the After with which to go on. Nil, when there was
	// no error: the filter selects no more.
	Next *uuid.UUID `json:"next,omitempty"`
}

// A BulkItem is what was done about one execution.
type BulkItem struct {
	Execution uuid.UUID  `json:"execution"`
	Result    BulkResult `json:"result"`
	// Reason says why it was skipped, in one of these words: changed (the
	// filter does not select it any more), finished, not_finished,
	// not_retryable, not_halted, no_step, attempt_running, erased,
	// compensation_failed, key_taken, request_used, gone. Of a failed one it is
	// the error; of one that is done it is repeated when it was done before,
	// under the same By.Request, else "".
	Reason string `json:"reason,omitempty"`
	// EndsAs is, in a dry run of [Engine.Bulk], what the execution would come
	// to: see [Plan].
	EndsAs store.Status `json:"ends_as,omitempty"`
}

// A BulkResult is what a bulk act did about an execution.
type BulkResult string

// The results of a bulk act.
const (
	BulkDone      BulkResult = "done"
	BulkRequested BulkResult = "requested" // left as a request for the attempt that is running
	BulkSkipped   BulkResult = "skipped"   // not done, for a reason that lies in the execution
	BulkFailed    BulkResult = "failed"    // an error of the store: it may have been done or not
)

// What stands in BulkItem.Reason.
const (
	bulkChanged            = "changed"
	bulkRepeated           = "repeated"
	bulkCompensationFailed = "compensation_failed"
)

const (
	bulkPage    = 100 // executions that are listed at once
	bulkLast    = 20  // acts of which the share of errors is taken
	bulkAtLeast = 10  // acts before it counts
)

// Bulk does an act (see [Engine.Act], without Force) to the executions that f
// selects, one after the other, newest first. The zero Filter selects all.
//
// Each act is one of its own, with its own audit entry, and whether f still
// selects the execution is asked again under its lock: an execution that has
// moved on since it was listed is skipped. So is one to which the act cannot be
// done. Executions that are started meanwhile are not reached.
//
// A By.Request names the act on each of the executions: repeated with the same
// content, after a crash or an error in the middle, it does what is not done yet
// and nothing twice.
//
// opts may be nil. The report, which is never nil, says what was done until an
// error ended it: ctx's when ctx is done, [ErrTooManyErrors], [ErrInvalid],
// [ErrNotSupported] when the store has no store.Querier, or one of the store's.
func (e *Engine) Bulk(ctx context.Context, f store.Filter, act Act, by By, opts *BulkOptions) (*BulkReport, error) {
	var o BulkOptions
	if opts != nil {
		o = *opts
	}
	b := &bulk{
		e: e, filter: f, o: o, name: "Bulk",
		op: operation{act: act, by: by, content: []string{strconv.FormatBool(false)}}, // as Act has it
		do: func(m *machine) error { return m.act(act, by, false) },
		foresee: func(x *store.Execution, item *BulkItem) error {
			p := e.foresee(x, act, false)
			if p.Requested && act != ActResume {
				item.Result = BulkRequested
			}
			item.EndsAs = p.EndsAs
			return p.Refused
		},
	}
	if !slices.Contains(acts, act) {
		return b.begin(), fmt.Errorf("%w: saga: bulk: act %q is not known", ErrInvalid, act)
	}
	return b.run(ctx)
}

// A bulk is an act on many executions.
type bulk struct {
	e      *Engine
	filter store.Filter
	o      BulkOptions
	name   string // of the method
	op     operation
	do     func(m *machine) error
	// foresee says what do would do, without changing x. item is taken as done
	// when it returns no error.
	foresee func(x *store.Execution, item *BulkItem) error

	report *BulkReport
	last   []bool // whether the last acts failed
	next   time.Time
}

func (b *bulk) begin() *BulkReport {
	b.report = &BulkReport{Act: b.op.act, DryRun: b.o.DryRun, Items: []BulkItem{}, Counts: map[BulkResult]int{}}
	return b.report
}

func (b *bulk) check() error {
	o := &b.o
	setDefault(&o.Limit, 100)
	setDefault(&o.StopAtErrors, 0.5)
	bad := func(rule string) error { return fmt.Errorf("%w: saga: %sOptions.%s", ErrInvalid, b.name, rule) }
	switch {
	case o.Limit < 0 || o.Limit > MaxBulk:
		return bad(fmt.Sprintf("Limit is %d, want 0 to %d", o.Limit, MaxBulk))
	case !(o.Rate >= 0 && !math.IsInf(o.Rate, 0)):
		return bad("Rate must be 0 or more")
	case !(o.StopAtErrors > 0 && o.StopAtErrors <= 1):
		return bad("StopAtErrors must be above 0 and at most 1")
	}
	return b.op.by.check()
}

func (b *bulk) run(ctx context.Context) (*BulkReport, error) {
	r := b.begin()
	if err := b.check(); err != nil {
		return r, err
	}
	if err := ctx.Err(); err != nil {
		return r, err
	}
	q, f, err := b.e.query(ctx, b.filter)
	if err != nil {
		return r, err
	}
	b.filter = f
	for after := b.o.After; ; {
		list, err := q.List(ctx, f, store.Page{Limit: min(bulkPage, b.o.Limit-len(r.Items)), After: after})
		if err != nil {
			if ctx.Err() != nil {
				return r, ctx.Err()
			}
			return r, fmt.Errorf("saga: list executions: %w", err)
		}
		for _, x := range list.Executions {
			if err := b.one(ctx, x); err != nil {
				return r, err
			}
		}
		if list.Next == nil {
			r.Next = nil
			return r, nil
		}
		if len(r.Items) >= b.o.Limit {
			return r, nil
		}
		after = *list.Next
	}
}

// one acts on an execution, and returns an error when that is to be the last.
func (b *bulk) one(ctx context.Context, x *store.Execution) error {
	if err := b.pace(ctx); err != nil {
		return err
	}
	item := b.act
	if b.o.DryRun {
		item = b.dry
	}
	i, err := item(ctx, x)
	b.report.Items = append(b.report.Items, i)
	b.report.Counts[i.Result]++
	if ctx.Err() != nil && err != nil {
		return ctx.Err() // Next is still the one before: it is to be tried again
	}
	b.report.Next = &i.Execution
	if i.Result == BulkSkipped || b.o.DryRun && err == nil {
		return nil
	}
	if b.o.Rate > 0 {
		b.next = time.Now().Add(time.Duration(min(float64(time.Second)/b.o.Rate, float64(year))))
	}
	return b.count(i.Result == BulkFailed)
}

// pace waits for the time of the next act.
func (b *bulk) pace(ctx context.Context) error {
	if wait := time.Until(b.next); wait > 0 {
		sleep(ctx, wait)
	}
	return ctx.Err()
}

// count returns ErrTooManyErrors when the last acts failed too often.
func (b *bulk) count(failed bool) error {
	b.last = append(b.last, failed)
	if len(b.last) > bulkLast {
		b.last = b.last[1:]
	}
	n := 0
	for _, f := range b.last {
		if f {
			n++
		}
	}
	if len(b.last) >= bulkAtLeast && float64(n) >= b.o.StopAtErrors*float64(len(b.last)) {
		return fmt.Errorf("%w: %d of the last %d", ErrTooManyErrors, n, len(b.last))
	}
	return nil
}

// act acts on an execution if the filter still selects it.
func (b *bulk) act(ctx context.Context, x *store.Execution) (BulkItem, error) {
	item := BulkItem{Execution: x.ID, Result: BulkDone, Reason: bulkRepeated}
	_, err := b.e.operate(ctx, x.ID, b.op, func(m *machine) error {
		if !b.filter.Matches(m.x) {
			return skip(bulkChanged)
		}
		requested := m.x.Request
		if err := b.do(m); err != nil {
			return err
		}
		item.Reason = ""
		if m.x.Request != nil && m.x.Request != requested && b.op.act != ActResume {
			item.Result = BulkRequested
		}
		return nil
	})
	return b.judge(item, err), err
}

// dry says what act would do.
func (b *bulk) dry(ctx context.Context, x *store.Execution) (BulkItem, error) {
	item := BulkItem{Execution: x.ID, Result: BulkDone}
	done, err := b.e.desk().repeated(ctx, x.ID, b.op.by.Request, b.op.by.digest(b.op.act, b.op.content...))
	switch {
	case done != nil:
		item.Reason = bulkRepeated
	case err == nil:
		err = b.foresee(x, &item)
	}
	return b.judge(item, err), err
}

// judge makes an item of what an act returned.
func (b *bulk) judge(item BulkItem, err error) BulkItem {
	if err == nil {
		return item
	}
	item.Result, item.Reason, item.EndsAs = BulkFailed, err.Error(), ""
	if reason := skipReason(err); reason != "" {
		item.Result, item.Reason = BulkSkipped, reason
	}
	return item
}

// A skip is a reason not to act.
type skip string

func (s skip) Error() string { return "saga: skipped: " + string(s) }

// skipReason is the word for an error that lies in the execution; "" for others.
func skipReason(err error) string {
	var s skip
	if errors.As(err, &s) {
		return string(s)
	}
	var taken *store.KeyTakenError
	if errors.As(err, &taken) {
		return "key_taken"
	}
	for _, r := range []struct {
		err    error
		reason string
	}{
		{ErrFinished, "finished"}, {ErrNotFinished, "not_finished"}, {ErrNotRetryable, "not_retryable"},
		{ErrNotHalted, "not_halted"}, {ErrNoStep, "no_step"}, {ErrAttemptRunning, "attempt_running"},
		{ErrErased, "erased"}, {ErrChanged, bulkChanged}, {ErrRequestUsed, "request_used"}, {store.ErrNotFound, "gone"},
	} {
		if errors.Is(err, r.err) {
			return r.reason
		}
	}
	return ""
}
