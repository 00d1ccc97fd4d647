package store

import (
	"bytes"
	"encoding/json"
	"maps"
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
	// Key is the start key, "" for none: see [Execution.HoldsKey].
	Key string
	// Tags are words by which people find it; they do not change, but an erasure
	// empties them.
	Tags map[string]string

	Status    Status
	Direction Direction
	Step      string // the cursor; "" until a worker has taken over a declared start
	Epoch     int    // rises with every act of an operator that moves the execution
	Ledger    []LedgerEntry
	State     json.RawMessage // a JSON object
	// Initial is the state that it was started with; nil while State still is
	// that one.
	Initial json.RawMessage
	// Checkpoint is how far a loop inside the cursor's step has come, in the
	// step's own words: any JSON value. Nil for none.
	Checkpoint json.RawMessage

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
	// Failure is what went wrong last: the failure of the last attempt at the
	// cursor, or what the execution was given up with. Nil when the step that
	// it belongs to has succeeded since.
	Failure *Failure
	// Cause is what it is being, or was, compensated for; nil when that was an
	// operator's wish.
	Cause *Failure
	// Turn is the operator's act that turned it around; TurnNone: a failure
	// did, or nothing.
	Turn     Turn
	Reason   string // why it halted or ended, where a word for it was given
	ReasonBy string // who gave the Reason; "": the step or the engine
	Request  *Request

	// Gate is what the cursor's step waits for, or has waited for, before its
	// attempts; nil when there is nothing to wait for, or nobody has asked the
	// step yet.
	Gate *Gate
	// Inbox are the signals that came and are still needed, by their arrival.
	Inbox []Message
	// Deadline is when an execution that still goes forward is turned around;
	// nil: never. It does not change.
	Deadline *time.Time

	// Parent is the execution and step that started it; nil for none. It does
	// not change.
	Parent *Parent
	// Follows is the execution whose key this one takes over when that has
	// ended; nil: it follows none (any more).
	Follows *uuid.UUID
	// ReplacedBy is the last execution that was started to follow this one.
	ReplacedBy *uuid.UUID
	// Continues is the completed execution that this one goes on from, and
	// ContinuedAs the one that goes on from this one. Continues does not change.
	Continues   *uuid.UUID
	ContinuedAs *uuid.UUID

	RerunOf *uuid.UUID // the finished execution that this one repeats
	RerunAs *uuid.UUID // the last execution that repeats this one
	// ErasedAt is when its personal data was erased; nil: it was not.
	ErasedAt *time.Time

	TraceParent string // W3C trace context of the start; "" for none

	// Events says that the changes of its status are recorded for other services
	// to be told of; see [Outbox].
	Events bool

	CreatedAt  time.Time
	UpdatedAt  time.Time
	ProgressAt time.Time // when cursor, direction or epoch last moved
	FinishedAt *time.Time

	// Revision rises with every write but those of ClaimDue and Renew.
	Revision int64
}

// HoldsKey reports whether x keeps its start key from being held by another
// execution of its saga: it has one, does not wait for another execution to end
// that holds it (Follows), and its status says so (see [Status.HoldsKey]).
func (x *Execution) HoldsKey() bool {
	return x.Key != "" && x.Follows == nil && x.Status.HoldsKey()
}

// A LedgerEntry is one step of an execution's plan, written at its start.
type LedgerEntry struct {
	Name        string  `json:"name"`
	Compensable bool    `json:"compensable,omitempty"`
	InDoubt     InDoubt `json:"in_doubt"`
	// Pivot says that from this step's success on the execution goes forward
	// only.
	Pivot bool `json:"pivot,omitempty"`
	// Atomic says that the step's effect and the write that settles it are one
	// transaction: an attempt that was lost has had none.
	Atomic bool       `json:"atomic,omitempty"`
	Status StepStatus `json:"status"`
	// Opens counts the attempts opened in the current direction and epoch:
	// the number of the last one.
	Opens int `json:"opens,omitempty"`
	// DoubtUntil is the time before which the undo of the step must not be
	// opened, because a body that nobody saw return may still be at work.
	DoubtUntil *time.Time `json:"doubt_until,omitempty"`
	// Token is when an attempt may be opened within the rate of the step's
	// budget: a place in it that has been reserved.
	Token *time.Time `json:"token,omitempty"`
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
	// Progress is what the step last said of its progress; nil: nothing.
	Progress *Progress
}

// Progress says how far an attempt has come.
type Progress struct {
	Done  int64     `json:"done"`
	Total int64     `json:"total,omitempty"` // 0: not known
	Note  string    `json:"note,omitempty"`
	At    time.Time `json:"at"`
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
	// Request is the caller's name for this act, "" for none: an execution has
	// at most one entry with it. Digest tells whether a repetition asks for the
	// same.
	Request string
	Digest  string
	// Detail is what else there is to say, such as what was changed: a JSON
	// object, or nil.
	Detail json.RawMessage
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
		y.Ledger[i].DoubtUntil, y.Ledger[i].Token = microsPtr(y.Ledger[i].DoubtUntil), microsPtr(y.Ledger[i].Token)
	}
	y.State, y.Initial, y.Checkpoint = bytes.Clone(x.State), bytes.Clone(x.Initial), bytes.Clone(x.Checkpoint)
	if x.Attempt != nil {
		a := *x.Attempt
		a.StartedAt, a.LeaseUntil, a.TimeoutAt = Micros(a.StartedAt), Micros(a.LeaseUntil), microsPtr(a.TimeoutAt)
		a.Progress = a.Progress.Clone()
		y.Attempt = &a
	}
	y.Failure, y.Cause = copyPtr(x.Failure), copyPtr(x.Cause)
	y.RerunOf, y.RerunAs = copyPtr(x.RerunOf), copyPtr(x.RerunAs)
	if x.Request != nil {
		q := *x.Request
		q.At = Micros(q.At)
		y.Request = &q
	}
	y.DueAt, y.WakeAt, y.OfferedAt, y.FinishedAt = microsPtr(x.DueAt), microsPtr(x.WakeAt), microsPtr(x.OfferedAt), microsPtr(x.FinishedAt)
	y.ErasedAt, y.Deadline = microsPtr(x.ErasedAt), microsPtr(x.Deadline)
	y.Tags = maps.Clone(x.Tags)
	y.Gate, y.Inbox = x.Gate.Clone(), cloneInbox(x.Inbox)
	y.Parent = copyPtr(x.Parent)
	y.Follows, y.ReplacedBy = copyPtr(x.Follows), copyPtr(x.ReplacedBy)
	y.Continues, y.ContinuedAs = copyPtr(x.Continues), copyPtr(x.ContinuedAs)
	y.CreatedAt, y.UpdatedAt, y.ProgressAt = Micros(x.CreatedAt), Micros(x.UpdatedAt), Micros(x.ProgressAt)
	return &y
}

// Clone returns a copy that shares nothing with a, with all times as stores
// keep them.
func (a *Attempt) Clone() Attempt {
	b := *a
	b.StartedAt, b.LeaseUntil, b.FinishedAt = Micros(a.StartedAt), Micros(a.LeaseUntil), microsPtr(a.FinishedAt)
	b.Failure = copyPtr(a.Failure)
	return b
}

// Clone returns a copy that shares nothing with p, with its time as stores keep
// it; nil for nil.
func (p *Progress) Clone() *Progress {
	if p == nil {
		return nil
	}
	q := *p
	q.At = Micros(q.At)
	return &q
}

// Clone returns a copy that shares nothing with e, with its time as stores keep
// it.
func (e *AuditEntry) Clone() AuditEntry {
	f := *e
	f.At, f.Detail = Micros(e.At), bytes.Clone(e.Detail)
	return f
}

func copyPtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
