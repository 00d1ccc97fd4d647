package saga

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// ResumeOptions selects for [Engine.ResumeStuck].
type ResumeOptions struct {
	// OlderThan is how long ago an execution must have last moved. Defaults to
	// 15 minutes.
	OlderThan time.Duration
	// Limit is how many executions are acted on at most; those that are passed
	// over do not count. Defaults to 100.
	Limit int
	// MaxResumes defaults to the engine's.
	MaxResumes int
}

// A ResumeItem is what ResumeStuck did about one execution.
type ResumeItem struct {
	Execution uuid.UUID
	Result    ResumeResult
	// Reason says why it was passed over, in the words of a [DiagnosisCode],
	// or what went wrong.
	Reason string
}

// A ResumeResult is what ResumeStuck did.
type ResumeResult string

// The results of ResumeStuck.
const (
	ResumeDone    ResumeResult = "resumed"
	ResumeGaveUp  ResumeResult = "gave_up" // lost too often: see Config.OnStalled
	ResumeSkipped ResumeResult = "skipped"
	ResumeFailed  ResumeResult = "failed" // the store returned an error
)

// A ResumeReport lists what ResumeStuck did, those that moved longest ago first.
type ResumeReport struct {
	Items []ResumeItem
}

// ResumeStuck does by hand, and at once, what the sweep does by itself: it
// publishes pointers of executions that have not moved for a while and that
// nobody works on. Passed over, with the reason, are those that are halted,
// waiting, running under a live lease, or whose retry is not due. It goes by the
// sweep's rules: a pointer in a backlog is not published again, and one that was
// lost counts as a resume, with more than MaxResumes of which in a row the
// execution is given up. opts may be nil. An error of a query ends it; the
// report has what was done until then.
func (e *Engine) ResumeStuck(ctx context.Context, by By, opts *ResumeOptions) (*ResumeReport, error) {
	var o ResumeOptions
	if opts != nil {
		o = *opts
	}
	setDefault(&o.OlderThan, 15*time.Minute)
	setDefault(&o.Limit, 100)
	setDefault(&o.MaxResumes, e.cfg.MaxResumes)
	report := &ResumeReport{}
	if err := by.check(); err != nil {
		return report, err
	}
	if o.OlderThan < 0 || o.Limit < 0 || o.MaxResumes < 0 {
		return report, fmt.Errorf("%w: ResumeOptions must not be negative", ErrInvalid)
	}
	if err := e.clock.ready(ctx); err != nil {
		return report, err
	}
	s := &sweeper{e: e, depth: map[string]depth{}, attended: map[string]time.Time{}}
	q := store.StalledQuery{ProgressBefore: e.clock.now().Add(-o.OlderThan), Limit: sweepBatch}
	for acted := 0; ; {
		xs, err := e.store.Stalled(ctx, q)
		if err != nil {
			return report, fmt.Errorf("saga: list stalled executions: %w", err)
		}
		for _, x := range xs {
			if acted >= o.Limit {
				return report, nil
			}
			q.After = &store.StalledCursor{ProgressAt: x.ProgressAt, ID: x.ID}
			item := e.resumeOne(ctx, s, x, by, o.MaxResumes)
			if item.Result != ResumeSkipped {
				acted++
			}
			report.Items = append(report.Items, item)
		}
		if len(xs) < q.Limit {
			return report, nil
		}
	}
}

func (e *Engine) resumeOne(ctx context.Context, s *sweeper, x *store.Execution, by By, maxResumes int) ResumeItem {
	item := ResumeItem{Execution: x.ID, Result: ResumeSkipped}
	d := depth{known: true, consumers: 1}
	if !e.direct() {
		d, _ = s.probe(ctx, x.Partition, e.clock.now())
	}
	_, err := e.decideIn(ctx, x.ID, func(m *machine) error {
		item.Result = ResumeSkipped
		switch standing := e.standing(m, d, time.Time{}); standing {
		case DiagnosisFinished, DiagnosisHalted, DiagnosisRunning, DiagnosisWaiting, DiagnosisRetry, DiagnosisDoubt,
			DiagnosisPaused, DiagnosisBacklog:
			item.Reason = string(standing)
		default:
			before := x.Status
			item.Result = ResumeDone
			if standing == DiagnosisLost && m.lost(nil, maxResumes, by) {
				if m.x.Resumes == 0 {
					item.Result = ResumeGaveUp
					return nil // lost has written the audit entry
				}
			} else {
				m.republish()
			}
			m.audit(ActResumeStuck, by, before)
		}
		return nil
	})
	if err != nil {
		item.Result, item.Reason = ResumeFailed, err.Error()
	}
	return item
}
