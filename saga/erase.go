package saga

import (
	"context"
	"strconv"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// EraseOptions says how [Engine.Erase] goes about it. DryRun, Limit, After and
// Rate are those of [BulkOptions].
type EraseOptions struct {
	// KeepResource leaves the resource's id, which says nothing of a person in
	// many systems, and by which the execution is found.
	KeepResource bool
	DryRun       bool
	Limit        int
	After        uuid.UUID
	Rate         float64
}

// Erase empties what may be personal data in the finished executions that f
// selects, and keeps what happened: saga, steps, statuses, times, classes of
// errors. Emptied are the state, also the one it was started with, the key, the
// resource's id (unless KeepResource), the messages of failures and their
// stacks, and all reasons and details of attempts and of the audit trail so far;
// names of actors stay. It is one transaction for each execution, with an audit
// entry that says who erased it and why: keep personal data out of that By. There
// is no way back, and such an execution is never retried or rerun ([ErrErased]).
//
// Skipped are unfinished executions (not_finished), those whose compensation
// failed (compensation_failed: they still need their state), and those that are
// erased already (erased). A rerun and what it repeats are two executions, each
// with a state of its own: select both. Copies that the engine does not hold, such
// as logs, events and archives, are not reached. A step that reports a result
// after its execution was erased may leave the message of its failure.
//
// It goes like [Engine.Bulk], also in what it returns, in the check of the filter
// under the lock and in what By.Request means. It ends with
// [ErrTooManyErrors] when half of the last 20 failed. opts may be nil.
func (e *Engine) Erase(ctx context.Context, f store.Filter, by By, opts *EraseOptions) (*BulkReport, error) {
	var o EraseOptions
	if opts != nil {
		o = *opts
	}
	check := func(x *store.Execution) error {
		switch {
		case x.Status == store.StatusCompensationFailed:
			return skip(bulkCompensationFailed)
		case !x.Status.Finished():
			return ErrNotFinished
		case x.ErasedAt != nil && (o.KeepResource || x.Resource.ID == ""):
			return ErrErased
		}
		return nil
	}
	b := &bulk{
		e: e, filter: f, o: BulkOptions{DryRun: o.DryRun, Limit: o.Limit, After: o.After, Rate: o.Rate}, name: "Erase",
		op: operation{act: ActErase, by: by, content: []string{strconv.FormatBool(o.KeepResource)}},
		do: func(m *machine) error {
			if err := check(m.x); err != nil {
				return err
			}
			return m.operate(ActErase, by, nil, func() error { return m.erase(!o.KeepResource) })
		},
		foresee: func(x *store.Execution, _ *BulkItem) error { return check(x) },
	}
	return b.run(ctx)
}
