package saga

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// Archived is a line of an archive: an execution and all that was recorded of
// it. See [PurgeOptions].
type Archived struct {
	Execution ArchivedExecution    `json:"execution"`
	Attempts  []ArchivedAttempt    `json:"attempts"` // in the order in which they were opened
	Audit     []ArchivedAuditEntry `json:"audit"`    // in the order in which it was written
}

// ArchivedExecution is a finished [store.Execution].
type ArchivedExecution struct {
	ID          uuid.UUID           `json:"id"`
	Saga        string              `json:"saga"`
	Version     int                 `json:"version"`
	Partition   string              `json:"partition"`
	Resource    store.Resource      `json:"resource"`
	Key         string              `json:"key,omitempty"`
	Status      store.Status        `json:"status"`
	Direction   store.Direction     `json:"direction"`
	Step        string              `json:"step"`
	Epoch       int                 `json:"epoch"`
	Ledger      []store.LedgerEntry `json:"ledger"`
	State       json.RawMessage     `json:"state"`
	Initial     json.RawMessage     `json:"initial,omitempty"`
	Checkpoint  json.RawMessage     `json:"checkpoint,omitempty"`
	Failure     *store.Failure      `json:"failure,omitempty"`
	Cause       *store.Failure      `json:"cause,omitempty"`
	Turn        store.Turn          `json:"turn,omitempty"`
	Reason      string              `json:"reason,omitempty"`
	ReasonBy    string              `json:"reason_by,omitempty"`
	Tags        map[string]string   `json:"tags,omitempty"`
	Gate        *store.Gate         `json:"gate,omitempty"`
	Inbox       []store.Message     `json:"inbox,omitempty"`
	Deadline    *time.Time          `json:"deadline,omitempty"`
	Parent      *store.Parent       `json:"parent,omitempty"`
	Follows     *uuid.UUID          `json:"follows,omitempty"`
	ReplacedBy  *uuid.UUID          `json:"replaced_by,omitempty"`
	Continues   *uuid.UUID          `json:"continues,omitempty"`
	ContinuedAs *uuid.UUID          `json:"continued_as,omitempty"`
	RerunOf     *uuid.UUID          `json:"rerun_of,omitempty"`
	RerunAs     *uuid.UUID          `json:"rerun_as,omitempty"`
	ErasedAt    *time.Time          `json:"erased_at,omitempty"`
	TraceParent string              `json:"trace_parent,omitempty"`
	Events      bool                `json:"events,omitempty"`
	CreatedAt   time.Time           `json:"created_at"`
	UpdatedAt   time.Time           `json:"updated_at"`
	ProgressAt  time.Time           `json:"progress_at"`
	FinishedAt  *time.Time          `json:"finished_at"`
	Revision    int64               `json:"revision"`
}

// ArchivedAttempt is a [store.Attempt] of the execution.
type ArchivedAttempt struct {
	Step       string              `json:"step"`
	Direction  store.Direction     `json:"direction"`
	Epoch      int                 `json:"epoch"`
	Number     int                 `json:"number"`
	Worker     string              `json:"worker"`
	Status     store.AttemptStatus `json:"status"`
	StartedAt  time.Time           `json:"started_at"`
	FinishedAt *time.Time          `json:"finished_at,omitempty"`
	LeaseUntil time.Time           `json:"lease_until"`
	Failure    *store.Failure      `json:"failure,omitempty"`
	Stack      string              `json:"stack,omitempty"`
	Reason     string              `json:"reason,omitempty"`
	Late       bool                `json:"late,omitempty"`
	LateStatus store.AttemptStatus `json:"late_status,omitempty"`
}

// ArchivedAuditEntry is a [store.AuditEntry] of the execution.
type ArchivedAuditEntry struct {
	At      time.Time       `json:"at"`
	Act     string          `json:"act"`
	Actor   string          `json:"actor"`
	Reason  string          `json:"reason"`
	Before  store.Status    `json:"before"`
	After   store.Status    `json:"after"`
	Request string          `json:"request,omitempty"`
	Digest  string          `json:"digest,omitempty"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// archiveRedactor hides what definitions say of the states in an archive.
func (e *Engine) archiveRedactor(ctx context.Context) (*Redactor, error) {
	outlines, err := e.StoredOutlines(ctx)
	if err != nil && !errors.Is(err, ErrNotSupported) {
		return nil, err
	}
	return NewRedactor(append(outlines, e.Outlines()...)...), nil
}

// archive writes a line for each execution, and makes sure that w has passed
// them on.
func (e *Engine) archive(ctx context.Context, w io.Writer, r *Redactor, xs []*store.Execution) error {
	for _, x := range xs {
		line, err := e.archiveLine(ctx, r, x)
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("saga: write the archive: %w", err)
		}
	}
	if f, ok := w.(interface{ Flush() error }); ok {
		if err := f.Flush(); err != nil {
			return fmt.Errorf("saga: flush the archive: %w", err)
		}
	}
	if f, ok := w.(interface{ Sync() error }); ok {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("saga: sync the archive: %w", err)
		}
	}
	return nil
}

func (e *Engine) archiveLine(ctx context.Context, r *Redactor, x *store.Execution) ([]byte, error) {
	attempts, err := e.store.Attempts(ctx, x.ID)
	if err != nil {
		return nil, fmt.Errorf("saga: archive %s: %w", x.ID, err)
	}
	trail, err := e.store.Audit(ctx, x.ID)
	if err != nil {
		return nil, fmt.Errorf("saga: archive %s: %w", x.ID, err)
	}
	hide := func(state json.RawMessage) json.RawMessage { return r.State(x.Saga, state) }
	detail := func(d json.RawMessage) json.RawMessage { return r.Detail(x.Saga, d) }
	if !r.Knows(x.Saga) { // a wish to hide something would be known
		hide = func(state json.RawMessage) json.RawMessage { return state }
		detail = hide
	}
	line := Archived{
		Execution: ArchivedExecution{
			ID: x.ID, Saga: x.Saga, Version: x.Version, Partition: x.Partition, Resource: x.Resource, Key: x.Key,
			Status: x.Status, Direction: x.Direction, Step: x.Step, Epoch: x.Epoch, Ledger: x.Ledger,
			State: hide(x.State), Initial: hide(x.Initial), Checkpoint: x.Checkpoint,
			Failure: x.Failure, Cause: x.Cause, Turn: x.Turn, Reason: x.Reason, ReasonBy: x.ReasonBy,
			Tags: x.Tags, Gate: x.Gate, Inbox: x.Inbox, Deadline: x.Deadline, Parent: x.Parent,
			Follows: x.Follows, ReplacedBy: x.ReplacedBy, Continues: x.Continues, ContinuedAs: x.ContinuedAs,
			RerunOf: x.RerunOf, RerunAs: x.RerunAs, ErasedAt: x.ErasedAt, TraceParent: x.TraceParent, Events: x.Events,
			CreatedAt: x.CreatedAt, UpdatedAt: x.UpdatedAt, ProgressAt: x.ProgressAt, FinishedAt: x.FinishedAt, Revision: x.Revision,
		},
		Attempts: []ArchivedAttempt{}, Audit: []ArchivedAuditEntry{},
	}
	for i := range attempts {
		a := &attempts[i]
		line.Attempts = append(line.Attempts, ArchivedAttempt{
			Step: a.Step, Direction: a.Direction, Epoch: a.Epoch, Number: a.Number, Worker: a.Worker, Status: a.Status,
			StartedAt: a.StartedAt, FinishedAt: a.FinishedAt, LeaseUntil: a.LeaseUntil,
			Failure: a.Failure, Stack: a.Stack, Reason: a.Reason, Late: a.Late, LateStatus: a.LateStatus,
		})
	}
	for i := range trail {
		a := &trail[i]
		line.Audit = append(line.Audit, ArchivedAuditEntry{
			At: a.At, Act: a.Act, Actor: a.Actor, Reason: a.Reason, Before: a.Before, After: a.After,
			Request: a.Request, Digest: a.Digest, Detail: detail(a.Detail),
		})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b) // ends the line
	enc.SetEscapeHTML(false)
	if err := enc.Encode(line); err != nil {
		return nil, fmt.Errorf("saga: archive %s: %w", x.ID, err)
	}
	return b.Bytes(), nil
}
