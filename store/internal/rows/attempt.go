package rows

import (
	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/leveret-go/leveret/store"
)

// AttemptColumns are the columns of attempts, in the order of
// [Attempt.Values], without seq, which the database counts up with each
// insert. The key is (execution, step, direction, epoch, number), the first
// five.
var AttemptColumns = []string{
	"execution", "step", "direction", "epoch", "number", "worker", "status",
	"started_at", "finished_at", "lease_until", "failure_class", "failure_message", "failure_step",
	"stack", "reason", "late", "late_status",
}

// An Attempt is a row of attempts: a closed one.
type Attempt struct {
	bun.BaseModel `bun:"table:attempts,alias:a"`

	Execution      uuid.UUID           `bun:"execution"`
	Step           string              `bun:"step"`
	Direction      store.Direction     `bun:"direction"`
	Epoch          int                 `bun:"epoch"`
	Number         int                 `bun:"number"`
	Worker         string              `bun:"worker"`
	Status         store.AttemptStatus `bun:"status"`
	StartedAt      Time                `bun:"started_at"`
	FinishedAt     *Time               `bun:"finished_at"`
	LeaseUntil     Time                `bun:"lease_until"`
	FailureClass   *string             `bun:"failure_class"` // NULL, as the two below, when there is none
	FailureMessage *string             `bun:"failure_message"`
	FailureStep    *string             `bun:"failure_step"`
	Stack          string              `bun:"stack"`
	Reason         string              `bun:"reason"`
	Late           bool                `bun:"late"`
	LateStatus     store.AttemptStatus `bun:"late_status"` // "": none
	Seq            int64               `bun:"seq"`
}

// FromAttempt returns a as a row, without a Seq.
func FromAttempt(a *store.Attempt) *Attempt {
	r := &Attempt{
		Execution: a.Execution, Step: a.Step, Direction: a.Direction, Epoch: a.Epoch, Number: a.Number,
		Worker: a.Worker, Status: a.Status, StartedAt: NewTime(a.StartedAt), FinishedAt: newTimePtr(a.FinishedAt),
		LeaseUntil: NewTime(a.LeaseUntil), Stack: a.Stack, Reason: a.Reason, Late: a.Late, LateStatus: a.LateStatus,
	}
	if f := a.Failure; f != nil {
		class, message, step := f.Class, f.Message, f.Step
		r.FailureClass, r.FailureMessage, r.FailureStep = &class, &message, &step
	}
	return r
}

// Store returns the row as a record.
func (r *Attempt) Store() store.Attempt {
	return store.Attempt{
		Execution: r.Execution, Step: r.Step, Direction: r.Direction, Epoch: r.Epoch, Number: r.Number,
		Worker: r.Worker, Status: r.Status, StartedAt: r.StartedAt.Time, FinishedAt: timePtr(r.FinishedAt),
		LeaseUntil: r.LeaseUntil.Time, Failure: failure(r.FailureClass, r.FailureMessage, r.FailureStep),
		Stack: r.Stack, Reason: r.Reason, Late: r.Late, LateStatus: r.LateStatus,
	}
}

// Values returns what to bind for [AttemptColumns]; see [Execution.Values].
func (r *Attempt) Values(t TimeValue) []any {
	return []any{
		r.Execution.String(), r.Step, string(r.Direction), int64(r.Epoch), int64(r.Number), r.Worker, string(r.Status),
		t.of(r.StartedAt), t.ptr(r.FinishedAt), t.of(r.LeaseUntil), nullString(r.FailureClass), nullString(r.FailureMessage), nullString(r.FailureStep),
		r.Stack, r.Reason, r.Late, string(r.LateStatus),
	}
}

// AuditColumns are the columns of audit, in the order of [AuditEntry.Values],
// without seq, which the database counts up with each insert.
var AuditColumns = []string{"execution", "at", "act", "actor", "reason", "status_before", "status_after", "request", "digest", "detail"}

// An AuditEntry is a row of audit.
type AuditEntry struct {
	bun.BaseModel `bun:"table:audit,alias:d"`

	Execution    uuid.UUID    `bun:"execution"`
	At           Time         `bun:"at"`
	Act          string       `bun:"act"`
	Actor        string       `bun:"actor"`
	Reason       string       `bun:"reason"`
	StatusBefore store.Status `bun:"status_before"`
	StatusAfter  store.Status `bun:"status_after"`
	Request      string       `bun:"request"`
	Digest       string       `bun:"digest"`
	Detail       *string      `bun:"detail"` // JSON, or NULL
}

// FromAudit returns e as a row.
func FromAudit(e *store.AuditEntry) *AuditEntry {
	return &AuditEntry{
		Execution: e.Execution, At: NewTime(e.At), Act: e.Act, Actor: e.Actor, Reason: e.Reason,
		StatusBefore: e.Before, StatusAfter: e.After, Request: e.Request, Digest: e.Digest, Detail: text(e.Detail),
	}
}

// Store returns the row as a record.
func (r *AuditEntry) Store() store.AuditEntry {
	return store.AuditEntry{
		Execution: r.Execution, At: r.At.Time, Act: r.Act, Actor: r.Actor, Reason: r.Reason,
		Before: r.StatusBefore, After: r.StatusAfter, Request: r.Request, Digest: r.Digest, Detail: raw(r.Detail),
	}
}

// Values returns what to bind for [AuditColumns]; see [Execution.Values].
func (r *AuditEntry) Values(t TimeValue) []any {
	return []any{
		r.Execution.String(), t.of(r.At), r.Act, r.Actor, r.Reason, string(r.StatusBefore), string(r.StatusAfter),
		r.Request, r.Digest, nullString(r.Detail),
	}
}

// Dest returns where to scan [AttemptColumns] and seq.
func (r *Attempt) Dest() []any {
	return []any{
		&r.Execution, &r.Step, &r.Direction, &r.Epoch, &r.Number, &r.Worker, &r.Status,
		&r.StartedAt, &r.FinishedAt, &r.LeaseUntil, &r.FailureClass, &r.FailureMessage, &r.FailureStep,
		&r.Stack, &r.Reason, &r.Late, &r.LateStatus, &r.Seq,
	}
}

// Dest returns where to scan [AuditColumns].
func (r *AuditEntry) Dest() []any {
	return []any{
		&r.Execution, &r.At, &r.Act, &r.Actor, &r.Reason, &r.StatusBefore, &r.StatusAfter, &r.Request, &r.Digest, &r.Detail,
	}
}
