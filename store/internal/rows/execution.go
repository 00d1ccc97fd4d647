package rows

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/leveret-go/leveret/store"
)

// Columns are the columns of executions, in the order of [Execution.Values]
// and [Execution.Dest].
var Columns = []string{
	"id", "saga", "version", "partition", "resource_type", "resource_id", "key",
	"status", "direction", "step", "epoch", "ledger",
	"attempt_number", "attempt_worker", "attempt_started_at", "attempt_lease_until", "attempt_timeout_at", "attempt_progress",
	"due_at", "wake_at", "offered_at", "tries", "resumes",
	"failure_class", "failure_message", "failure_step", "cause", "turn", "reason", "reason_by", "request",
	"trace_parent", "updated_at", "progress_at", "finished_at", "revision", "checkpoint",
	"rerun_of", "rerun_as", "erased_at", "gate", "inbox", "waits_at", "waits_since", "follows", "replaced_by", "continued_as", "events",
	"created_at", "deadline", "parent", "parent_step", "parent_key", "continues", "tags",
	"state", "initial",
}

// FixedColumns are the columns that an update never sets, but for tags, which an
// erasure empties.
var FixedColumns = []string{"id", "created_at", "deadline", "parent", "parent_step", "parent_key", "continues", "tags"}

// StateColumns are the columns that are written only when the state did
// change, in the order of [Execution.StateValues].
var StateColumns = []string{"state", "initial"}

// RareColumns are NULL, all of them, in most rows: an update may set them to that
// without binding values. Their order is that of [Execution.RareValues].
var RareColumns = []string{
	"rerun_of", "rerun_as", "erased_at", "gate", "inbox", "waits_at", "waits_since", "follows", "replaced_by", "continued_as",
	"events",
}

// UpdateColumns are the columns that every update sets, in the order of
// [Execution.UpdateValues]: all but [FixedColumns], [RareColumns] and
// [StateColumns].
var UpdateColumns = func() []string {
	var columns []string
	for _, c := range Columns {
		if !slices.Contains(FixedColumns, c) && !slices.Contains(RareColumns, c) && !slices.Contains(StateColumns, c) {
			columns = append(columns, c)
		}
	}
	return columns
}()

// An Execution is a row of executions. It is nothing but data: a field for
// each column, JSON as text.
type Execution struct {
	bun.BaseModel `bun:"table:executions,alias:x"`

	ID           uuid.UUID       `bun:"id"`
	Saga         string          `bun:"saga"`
	Version      int             `bun:"version"`
	Partition    string          `bun:"partition"`
	ResourceType string          `bun:"resource_type"`
	ResourceID   string          `bun:"resource_id"`
	Key          string          `bun:"key"`
	Status       store.Status    `bun:"status"`
	Direction    store.Direction `bun:"direction"`
	Step         string          `bun:"step"`
	Epoch        int             `bun:"epoch"`
	Ledger       string          `bun:"ledger"`

	AttemptNumber     *int    `bun:"attempt_number"` // NULL, as the five below, when none is open
	AttemptWorker     *string `bun:"attempt_worker"`
	AttemptStartedAt  *Time   `bun:"attempt_started_at"`
	AttemptLeaseUntil *Time   `bun:"attempt_lease_until"`
	AttemptTimeoutAt  *Time   `bun:"attempt_timeout_at"`
	AttemptProgress   *string `bun:"attempt_progress"`

	DueAt     *Time `bun:"due_at"`
	WakeAt    *Time `bun:"wake_at"`
	OfferedAt *Time `bun:"offered_at"`
	Tries     int   `bun:"tries"`
	Resumes   int   `bun:"resumes"`

	FailureClass   *string `bun:"failure_class"` // NULL, as the two below, when there is none
	FailureMessage *string `bun:"failure_message"`
	FailureStep    *string `bun:"failure_step"`
	Cause          *string `bun:"cause"`

	Turn     store.Turn `bun:"turn"`
	Reason   string     `bun:"reason"`
	ReasonBy string     `bun:"reason_by"`
	Request  *string    `bun:"request"`

	TraceParent string  `bun:"trace_parent"`
	UpdatedAt   Time    `bun:"updated_at"`
	ProgressAt  Time    `bun:"progress_at"`
	FinishedAt  *Time   `bun:"finished_at"`
	Revision    int64   `bun:"revision"`
	Checkpoint  *string `bun:"checkpoint"`

	RerunOf     *uuid.UUID `bun:"rerun_of"`
	RerunAs     *uuid.UUID `bun:"rerun_as"`
	ErasedAt    *Time      `bun:"erased_at"`
	Gate        *string    `bun:"gate"`
	Inbox       *string    `bun:"inbox"`       // NULL when it is empty
	WaitsAt     *string    `bun:"waits_at"`    // the kind of the gate at which it waits: for an index; NULL, as the one below, when it does not
	WaitsSince  *Time      `bun:"waits_since"` // its progress_at
	Follows     *uuid.UUID `bun:"follows"`
	ReplacedBy  *uuid.UUID `bun:"replaced_by"`
	ContinuedAs *uuid.UUID `bun:"continued_as"`
	Events      *bool      `bun:"events"` // true, or NULL

	CreatedAt  Time       `bun:"created_at"`
	Deadline   *Time      `bun:"deadline"`
	Parent     *uuid.UUID `bun:"parent"` // NULL, as the two below, when there is none
	ParentStep *string    `bun:"parent_step"`
	ParentKey  *string    `bun:"parent_key"`
	Continues  *uuid.UUID `bun:"continues"`
	Tags       *string    `bun:"tags"` // NULL when there are none

	State   string  `bun:"state"`
	Initial *string `bun:"initial"`
}

// FromExecution returns x as a row. It shares nothing with x but strings. x
// must have passed [store.Execution.Validate].
func FromExecution(x *store.Execution) (*Execution, error) {
	r := &Execution{
		ID: x.ID, Saga: x.Saga, Version: x.Version, Partition: x.Partition,
		ResourceType: x.Resource.Type, ResourceID: x.Resource.ID, Key: x.Key,
		Status: x.Status, Direction: x.Direction, Step: x.Step, Epoch: x.Epoch,
		DueAt: newTimePtr(x.DueAt), WakeAt: newTimePtr(x.WakeAt), OfferedAt: newTimePtr(x.OfferedAt),
		Tries: x.Tries, Resumes: x.Resumes, Turn: x.Turn, Reason: x.Reason, ReasonBy: x.ReasonBy,
		RerunOf: copyID(x.RerunOf), RerunAs: copyID(x.RerunAs), ErasedAt: newTimePtr(x.ErasedAt), TraceParent: x.TraceParent,
		Follows: copyID(x.Follows), ReplacedBy: copyID(x.ReplacedBy), ContinuedAs: copyID(x.ContinuedAs), Continues: copyID(x.Continues),
		CreatedAt: NewTime(x.CreatedAt), Deadline: newTimePtr(x.Deadline), UpdatedAt: NewTime(x.UpdatedAt), ProgressAt: NewTime(x.ProgressAt),
		FinishedAt: newTimePtr(x.FinishedAt), Revision: x.Revision,
		Checkpoint: text(x.Checkpoint), State: string(x.State), Initial: text(x.Initial),
	}
	var err error
	if r.Ledger, err = encodeLedger(x.Ledger); err != nil {
		return nil, err
	}
	if a := x.Attempt; a != nil {
		number, worker, started, lease := a.Number, a.Worker, NewTime(a.StartedAt), NewTime(a.LeaseUntil)
		r.AttemptNumber, r.AttemptWorker, r.AttemptStartedAt, r.AttemptLeaseUntil = &number, &worker, &started, &lease
		r.AttemptTimeoutAt = newTimePtr(a.TimeoutAt)
		if r.AttemptProgress, err = EncodeProgress(a.Progress); err != nil {
			return nil, err
		}
	}
	if f := x.Failure; f != nil {
		class, message, step := f.Class, f.Message, f.Step
		r.FailureClass, r.FailureMessage, r.FailureStep = &class, &message, &step
	}
	if x.Cause != nil {
		if r.Cause, err = encode("cause", x.Cause); err != nil {
			return nil, err
		}
	}
	if x.Request != nil {
		q := *x.Request
		q.At = store.Micros(q.At)
		if r.Request, err = encode("request", &q); err != nil {
			return nil, err
		}
	}
	if x.Events {
		r.Events = new(true)
	}
	if r.Gate, err = encodeGate(x.Gate); err != nil {
		return nil, err
	}
	if g := x.Gate; g != nil && !g.Open && x.Status == store.StatusWaiting {
		kind, since := string(g.Kind), r.ProgressAt
		r.WaitsAt, r.WaitsSince = &kind, &since
	}
	if r.Inbox, err = encodeInbox(x.Inbox); err != nil {
		return nil, err
	}
	if p := x.Parent; p != nil {
		id, step, key := p.Execution, p.Step, p.Key
		r.Parent, r.ParentStep, r.ParentKey = &id, &step, &key
	}
	if len(x.Tags) > 0 {
		if r.Tags, err = encode("tags", x.Tags); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Store returns the row as a record that shares nothing with r but strings.
func (r *Execution) Store() (*store.Execution, error) {
	x, err := r.Fixed()
	if err != nil {
		return nil, err
	}
	x.Saga, x.Version, x.Partition, x.Key = r.Saga, r.Version, r.Partition, r.Key
	x.Resource = store.Resource{Type: r.ResourceType, ID: r.ResourceID}
	x.Status, x.Direction, x.Step, x.Epoch = r.Status, r.Direction, r.Step, r.Epoch
	x.State, x.Initial, x.Checkpoint = json.RawMessage(r.State), raw(r.Initial), raw(r.Checkpoint)
	x.DueAt, x.WakeAt, x.OfferedAt = timePtr(r.DueAt), timePtr(r.WakeAt), timePtr(r.OfferedAt)
	x.Tries, x.Resumes, x.Turn, x.Reason, x.ReasonBy = r.Tries, r.Resumes, r.Turn, r.Reason, r.ReasonBy
	x.RerunOf, x.RerunAs, x.ErasedAt, x.TraceParent = copyID(r.RerunOf), copyID(r.RerunAs), timePtr(r.ErasedAt), r.TraceParent
	x.Follows, x.ReplacedBy, x.ContinuedAs = copyID(r.Follows), copyID(r.ReplacedBy), copyID(r.ContinuedAs)
	x.Events = r.Events != nil && *r.Events
	x.UpdatedAt, x.ProgressAt, x.FinishedAt = r.UpdatedAt.Time, r.ProgressAt.Time, timePtr(r.FinishedAt)
	if x.Ledger, err = decodeLedger(r.Ledger); err != nil {
		return nil, fmt.Errorf("rows: execution %s: %w", r.ID, err)
	}
	if r.AttemptNumber != nil {
		if r.AttemptWorker == nil || r.AttemptStartedAt == nil || r.AttemptLeaseUntil == nil {
			return nil, fmt.Errorf("rows: execution %s: open attempt lacks worker, start or lease", r.ID)
		}
		x.Attempt = &store.OpenAttempt{
			Number: *r.AttemptNumber, Worker: *r.AttemptWorker, StartedAt: r.AttemptStartedAt.Time,
			LeaseUntil: r.AttemptLeaseUntil.Time, TimeoutAt: timePtr(r.AttemptTimeoutAt),
		}
		if x.Attempt.Progress, err = decode[store.Progress](r.AttemptProgress); err != nil {
			return nil, fmt.Errorf("rows: execution %s: decode progress: %w", r.ID, err)
		}
		if p := x.Attempt.Progress; p != nil {
			p.At = store.Micros(p.At)
		}
	}
	x.Failure = failure(r.FailureClass, r.FailureMessage, r.FailureStep)
	if x.Cause, err = decode[store.Failure](r.Cause); err != nil {
		return nil, fmt.Errorf("rows: execution %s: decode cause: %w", r.ID, err)
	}
	if x.Request, err = decode[store.Request](r.Request); err != nil {
		return nil, fmt.Errorf("rows: execution %s: decode request: %w", r.ID, err)
	}
	if x.Request != nil {
		x.Request.At = store.Micros(x.Request.At)
	}
	if x.Gate, err = decodeGate(r.Gate); err != nil {
		return nil, fmt.Errorf("rows: execution %s: decode gate: %w", r.ID, err)
	}
	if x.Inbox, err = decodeInbox(r.Inbox); err != nil {
		return nil, fmt.Errorf("rows: execution %s: decode inbox: %w", r.ID, err)
	}
	return x, nil
}

// Fixed returns what of the record an update must leave as it is, and nothing
// else; see [store.ValidateUpdate].
func (r *Execution) Fixed() (*store.Execution, error) {
	x := &store.Execution{
		ID: r.ID, CreatedAt: r.CreatedAt.Time, Deadline: timePtr(r.Deadline), Continues: copyID(r.Continues), Revision: r.Revision,
	}
	if r.Parent != nil {
		x.Parent = &store.Parent{Execution: *r.Parent, Step: deref(r.ParentStep), Key: deref(r.ParentKey)}
	}
	if r.Tags != nil {
		if err := json.Unmarshal([]byte(*r.Tags), &x.Tags); err != nil {
			return nil, fmt.Errorf("rows: execution %s: decode tags: %w", r.ID, err)
		}
	}
	return x, nil
}

// HasState reports whether the state of x and its initial one are byte for byte
// those of r.
func (r *Execution) HasState(x *store.Execution) bool {
	return r.State == string(x.State) && (r.Initial != nil) == (x.Initial != nil) && deref(r.Initial) == string(x.Initial)
}

// GiveState gives x the state of r and its initial one.
func (r *Execution) GiveState(x *store.Execution) {
	x.State, x.Initial = json.RawMessage(r.State), raw(r.Initial)
}

// Dest returns pointers to the fields, in the order of [Columns], for Scan of
// database/sql and of pgx.
func (r *Execution) Dest() []any {
	return []any{
		&r.ID, &r.Saga, &r.Version, &r.Partition, &r.ResourceType, &r.ResourceID, &r.Key,
		&r.Status, &r.Direction, &r.Step, &r.Epoch, &r.Ledger,
		&r.AttemptNumber, &r.AttemptWorker, &r.AttemptStartedAt, &r.AttemptLeaseUntil, &r.AttemptTimeoutAt, &r.AttemptProgress,
		&r.DueAt, &r.WakeAt, &r.OfferedAt, &r.Tries, &r.Resumes,
		&r.FailureClass, &r.FailureMessage, &r.FailureStep, &r.Cause, &r.Turn, &r.Reason, &r.ReasonBy, &r.Request,
		&r.TraceParent, &r.UpdatedAt, &r.ProgressAt, &r.FinishedAt, &r.Revision, &r.Checkpoint,
		&r.RerunOf, &r.RerunAs, &r.ErasedAt, &r.Gate, &r.Inbox, &r.WaitsAt, &r.WaitsSince, &r.Follows, &r.ReplacedBy, &r.ContinuedAs, &r.Events,
		&r.CreatedAt, &r.Deadline, &r.Parent, &r.ParentStep, &r.ParentKey, &r.Continues, &r.Tags,
		&r.State, &r.Initial,
	}
}

// Values returns what to bind for [Columns]: strings, int64s, bools, what t makes of
// times, and nil for NULL. JSON is bound as a string, never as []byte, and an
// id as its canonical text.
func (r *Execution) Values(t TimeValue) []any {
	values := append(make([]any, 0, len(Columns)), r.ID.String())
	values = append(append(values, r.UpdateValues(t)...), r.RareValues(t)...)
	values = append(values, t.of(r.CreatedAt), t.ptr(r.Deadline),
		nullID(r.Parent), nullString(r.ParentStep), nullString(r.ParentKey), nullID(r.Continues), nullString(r.Tags))
	return append(values, r.StateValues()...)
}

// StateValues returns what to bind for [StateColumns]; see Values.
func (r *Execution) StateValues() []any { return []any{r.State, nullString(r.Initial)} }

// Rare reports whether any of [RareColumns] is not NULL.
func (r *Execution) Rare() bool {
	return r.RerunOf != nil || r.RerunAs != nil || r.ErasedAt != nil || r.Gate != nil || r.Inbox != nil ||
		r.WaitsAt != nil || r.WaitsSince != nil || r.Follows != nil || r.ReplacedBy != nil || r.ContinuedAs != nil || r.Events != nil
}

// RareValues returns what to bind for [RareColumns]; see Values.
func (r *Execution) RareValues(t TimeValue) []any {
	return []any{
		nullID(r.RerunOf), nullID(r.RerunAs), t.ptr(r.ErasedAt), nullString(r.Gate), nullString(r.Inbox),
		nullString(r.WaitsAt), t.ptr(r.WaitsSince), nullID(r.Follows), nullID(r.ReplacedBy), nullID(r.ContinuedAs), nullBool(r.Events),
	}
}

// UpdateValues returns what to bind for [UpdateColumns]; see Values. Its capacity
// has room for the other values of an update.
func (r *Execution) UpdateValues(t TimeValue) []any {
	return append(make([]any, 0, len(Columns)+2),
		r.Saga, int64(r.Version), r.Partition, r.ResourceType, r.ResourceID, r.Key,
		string(r.Status), string(r.Direction), r.Step, int64(r.Epoch), r.Ledger,
		nullInt(r.AttemptNumber), nullString(r.AttemptWorker),
		t.ptr(r.AttemptStartedAt), t.ptr(r.AttemptLeaseUntil), t.ptr(r.AttemptTimeoutAt), nullString(r.AttemptProgress),
		t.ptr(r.DueAt), t.ptr(r.WakeAt), t.ptr(r.OfferedAt), int64(r.Tries), int64(r.Resumes),
		nullString(r.FailureClass), nullString(r.FailureMessage), nullString(r.FailureStep),
		nullString(r.Cause), string(r.Turn), r.Reason, r.ReasonBy, nullString(r.Request),
		r.TraceParent, t.of(r.UpdatedAt), t.of(r.ProgressAt), t.ptr(r.FinishedAt), r.Revision, nullString(r.Checkpoint),
	)
}

// EncodeProgress returns what to bind for attempt_progress, nil for nil.
func EncodeProgress(p *store.Progress) (*string, error) {
	if p == nil {
		return nil, nil
	}
	return encode("progress", p.Clone())
}

func encode(what string, v any) (*string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("rows: encode %s: %w", what, err)
	}
	s := string(b)
	return &s, nil
}

func decode[T any](s *string) (*T, error) {
	if s == nil {
		return nil, nil
	}
	v := new(T)
	return v, json.Unmarshal([]byte(*s), v)
}

// encodeLedger never writes null: an empty ledger is [] in the database, and
// nil in the record.
func encodeLedger(ledger []store.LedgerEntry) (string, error) {
	if len(ledger) == 0 {
		return "[]", nil
	}
	if slices.ContainsFunc(ledger, func(e store.LedgerEntry) bool { return e.DoubtUntil != nil || e.Token != nil }) {
		x := store.Execution{Ledger: ledger}
		ledger = x.Clone().Ledger // with its times as a store keeps them
	}
	b, err := json.Marshal(ledger)
	if err != nil {
		return "", fmt.Errorf("rows: encode ledger: %w", err)
	}
	return string(b), nil
}

func decodeLedger(s string) ([]store.LedgerEntry, error) {
	if s == "[]" {
		return nil, nil
	}
	var ledger []store.LedgerEntry
	if err := json.Unmarshal([]byte(s), &ledger); err != nil {
		return nil, fmt.Errorf("decode ledger: %w", err)
	}
	return ledger, nil
}

func failure(class, message, step *string) *store.Failure {
	if class == nil {
		return nil
	}
	return &store.Failure{Class: *class, Message: deref(message), Step: deref(step)}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func nullString(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

func nullInt(n *int) any {
	if n == nil {
		return nil
	}
	return int64(*n)
}

func nullBool(b *bool) any {
	if b == nil {
		return nil
	}
	return *b
}

func nullID(id *uuid.UUID) any {
	if id == nil {
		return nil
	}
	return id.String()
}

func copyID(id *uuid.UUID) *uuid.UUID {
	if id == nil {
		return nil
	}
	c := *id
	return &c
}

// text and raw turn JSON that may be missing into a column and back.
func text(b json.RawMessage) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

func raw(s *string) json.RawMessage {
	if s == nil {
		return nil
	}
	return json.RawMessage(*s)
}
