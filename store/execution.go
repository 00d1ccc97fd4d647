package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
)

// A Resource names what a saga is about, such as an order: Type "order", ID
// "4711". Both may be empty.
type Resource struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// An Execution is one run of a saga: the whole truth about it, kept in one row.
type Execution struct {
	ID        uuid.UUID // a UUIDv7 where the engine made it
	Saga      string
	Version   int // of the definition; 0 until a worker has taken over a declared start
	Partition string
	Resource  Resource
	Key       string // start key; "" for none

	Status    Status
	Direction Direction
	Step      string // the cursor; "" until a worker has taken over a declared start
	Epoch     int    // rises with every act of an operator that moves the execution
	Ledger    []LedgerEntry
	State     json.RawMessage // a JSON object

	Attempt *OpenAttempt // nil when none is open

	// DueAt is when somebody must look at the execution again if nothing else
	// happens. Nil only when it is finished or halted, or waits without a
	// deadline.
	DueAt *time.Time
	// WakeAt is the time before which no attempt may be opened; nil: now.
	WakeAt *time.Time
	// OfferedAt is when a pointer to this position was first planned, or the
	// execution first came due, since an attempt was last opened.
	OfferedAt *time.Time

	Tries   int // opens of the current step, direction and epoch that count against its attempts
	Resumes int // pointers in a row that were lost
	Failure *Failure
	Reason  string // why it halted or ended, where a word for it was given
	Request *Request

	TraceParent string // W3C trace context of the start; "" for none

	CreatedAt  time.Time
	UpdatedAt  time.Time
	ProgressAt time.Time // when cursor, direction or epoch last moved
	FinishedAt *time.Time

	// Revision rises with every write but those of ClaimDue and Renew.
	Revision int64
}

// A LedgerEntry is one step of an execution's plan, written at its start.
type LedgerEntry struct {
	Name        string     `json:"name"`
	Compensable bool       `json:"compensable,omitempty"`
	InDoubt     InDoubt    `json:"in_doubt"`
	Status      StepStatus `json:"status"`
	// Opens counts the attempts opened in the current direction and epoch:
	// the number of the last one.
	Opens int `json:"opens,omitempty"`
	// DoubtUntil is the time before which the undo of the step must not be
	// opened, because a body that nobody saw return may still be at work.
	DoubtUntil *time.Time `json:"doubt_until,omitempty"`
	// Round is 0 until an undo of the step was opened, then the number of the
	// idempotency key that its undos carry.
	Round int `json:"round,omitempty"`
	// Stray says that an effect of the step was reported after an undo of it
	// had been opened.
	Stray bool `json:"stray,omitempty"`
}

// An OpenAttempt is the attempt under way. It belongs to the execution's
// cursor, direction and epoch.
type OpenAttempt struct {
	Number     int
	Worker     string
	StartedAt  time.Time
	LeaseUntil time.Time
	// TimeoutAt is when the step's time-out ends the body; nil for none.
	TimeoutAt *time.Time
}

// A Failure says what went wrong, and in which step.
type Failure struct {
	Class   string `json:"class"`
	Message string `json:"message"`
	Step    string `json:"step"`
}

// A Request is an operator's act that waits for the open attempt to settle.
type Request struct {
	Turn   Turn      `json:"turn,omitempty"`
	Halt   bool      `json:"halt,omitempty"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// An Attempt is one try of one step in one direction.
type Attempt struct {
	Execution  uuid.UUID
	Step       string
	Direction  Direction
	Epoch      int
	Number     int
	Worker     string
	Status     AttemptStatus
	StartedAt  time.Time
	FinishedAt *time.Time // nil while it is open
	LeaseUntil time.Time
	Failure    *Failure // of a failed one; its Step is Step
	Stack      string   // of a panic
	Reason     string   // what Skip, Halt or Complete said
	// Late says that a result came after the attempt had been closed by
	// somebody else, and LateStatus what it was.
	Late       bool
	LateStatus AttemptStatus
}

// An AuditEntry says who did what to an execution, and why.
type AuditEntry struct {
	Execution     uuid.UUID
	At            time.Time
	Act           string
	Actor         string
	Reason        string
	Before, After Status
}

// Lease returns the token of the open attempt, and false when none is open.
func (x *Execution) Lease() (Lease, bool) {
	if x.Attempt == nil {
		return Lease{}, false
	}
	return Lease{
		Execution: x.ID, Step: x.Step, Direction: x.Direction, Epoch: x.Epoch,
		Number: x.Attempt.Number, Worker: x.Attempt.Worker,
	}, true
}

// OpenAttempt returns the open attempt as [Store.Attempts] shows it, and false
// when none is open.
func (x *Execution) OpenAttempt() (Attempt, bool) {
	if x.Attempt == nil {
		return Attempt{}, false
	}
	return Attempt{
		Execution: x.ID, Step: x.Step, Direction: x.Direction, Epoch: x.Epoch,
		Number: x.Attempt.Number, Worker: x.Attempt.Worker, Status: AttemptRunning,
		StartedAt: x.Attempt.StartedAt, LeaseUntil: x.Attempt.LeaseUntil,
	}, true
}

// Lease returns the token of the attempt.
func (a *Attempt) Lease() Lease {
	return Lease{Execution: a.Execution, Step: a.Step, Direction: a.Direction, Epoch: a.Epoch, Number: a.Number, Worker: a.Worker}
}

// Entry returns the ledger's entry of a step, or nil.
func (x *Execution) Entry(step string) *LedgerEntry {
	for i := range x.Ledger {
		if x.Ledger[i].Name == step {
			return &x.Ledger[i]
		}
	}
	return nil
}

// Micros returns t as stores keep it: in UTC, without a monotonic reading, cut
// to whole microseconds.
func Micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func microsPtr(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := Micros(*t)
	return &u
}

// Clone returns a copy that shares nothing with x, with all times as stores
// keep them.
func (x *Execution) Clone() *Execution {
	y := *x
	y.Ledger = slices.Clone(x.Ledger)
	for i := range y.Ledger {
		y.Ledger[i].DoubtUntil = microsPtr(y.Ledger[i].DoubtUntil)
	}
	y.State = bytes.Clone(x.State)
	if x.Attempt != nil {
		a := *x.Attempt
		a.StartedAt, a.LeaseUntil, a.TimeoutAt = Micros(a.StartedAt), Micros(a.LeaseUntil), microsPtr(a.TimeoutAt)
		y.Attempt = &a
	}
	if x.Failure != nil {
		f := *x.Failure
		y.Failure = &f
	}
	if x.Request != nil {
		q := *x.Request
		q.At = Micros(q.At)
		y.Request = &q
	}
	y.DueAt, y.WakeAt, y.OfferedAt, y.FinishedAt = microsPtr(x.DueAt), microsPtr(x.WakeAt), microsPtr(x.OfferedAt), microsPtr(x.FinishedAt)
	y.CreatedAt, y.UpdatedAt, y.ProgressAt = Micros(x.CreatedAt), Micros(x.UpdatedAt), Micros(x.ProgressAt)
	return &y
}

// Clone returns a copy that shares nothing with a, with all times as stores
// keep them.
func (a *Attempt) Clone() Attempt {
	b := *a
	b.StartedAt, b.LeaseUntil, b.FinishedAt = Micros(a.StartedAt), Micros(a.LeaseUntil), microsPtr(a.FinishedAt)
	if a.Failure != nil {
		f := *a.Failure
		b.Failure = &f
	}
	return b
}
