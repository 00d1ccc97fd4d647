// Package view has what the tools show of executions, in JSON.
package view

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// An Execution is an execution in JSON. Its fields are kept: scripts read
// them.
type Execution struct {
	ID         uuid.UUID       `json:"id"`
	Saga       string          `json:"saga"`
	Version    int             `json:"version"`
	Partition  string          `json:"partition"`
	Resource   store.Resource  `json:"resource"`
	Key        string          `json:"key,omitempty"`
	Status     store.Status    `json:"status"`
	Direction  store.Direction `json:"direction"`
	Step       string          `json:"step"`
	Epoch      int             `json:"epoch"`
	Tries      int             `json:"tries"`
	Resumes    int             `json:"resumes"`
	Failure    *store.Failure  `json:"failure,omitempty"`
	Cause      *store.Failure  `json:"cause,omitempty"`
	Turn       store.Turn      `json:"turn,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	ReasonBy   string          `json:"reason_by,omitempty"`
	Request    *store.Request  `json:"request,omitempty"`
	Running    *Running        `json:"running,omitempty"`
	Gate       *store.Gate     `json:"gate,omitempty"`
	RerunOf    *uuid.UUID      `json:"rerun_of,omitempty"`
	RerunAs    *uuid.UUID      `json:"rerun_as,omitempty"`
	Parent     *store.Parent   `json:"parent,omitempty"`
	Follows    *uuid.UUID      `json:"follows,omitempty"`
	ReplacedBy *uuid.UUID      `json:"replaced_by,omitempty"`
	Continues  *uuid.UUID      `json:"continues,omitempty"`
	Continued  *uuid.UUID      `json:"continued_as,omitempty"`

	Tags       map[string]string `json:"tags,omitempty"`
	CreatedAt  time.Time         `json:"created_at"`
	UpdatedAt  time.Time         `json:"updated_at"`
	ProgressAt time.Time         `json:"progress_at"`
	DueAt      *time.Time        `json:"due_at,omitempty"`
	WakeAt     *time.Time        `json:"wake_at,omitempty"`
	Deadline   *time.Time        `json:"deadline,omitempty"`
	FinishedAt *time.Time        `json:"finished_at,omitempty"`
	ErasedAt   *time.Time        `json:"erased_at,omitempty"`
	Revision   int64             `json:"revision"`
}

// Running is the open attempt.
type Running struct {
	Attempt    int             `json:"attempt"`
	Worker     string          `json:"worker"`
	StartedAt  time.Time       `json:"started_at"`
	LeaseUntil time.Time       `json:"lease_until"`
	TimeoutAt  *time.Time      `json:"timeout_at,omitempty"`
	Progress   *store.Progress `json:"progress,omitempty"`
}

// Of returns an execution as it is shown.
func Of(x *store.Execution) Execution {
	v := Execution{
		ID: x.ID, Saga: x.Saga, Version: x.Version, Partition: x.Partition, Resource: x.Resource, Key: x.Key,
		Status: x.Status, Direction: x.Direction, Step: x.Step, Epoch: x.Epoch, Tries: x.Tries, Resumes: x.Resumes,
		Failure: x.Failure, Cause: x.Cause, Turn: x.Turn, Reason: x.Reason, ReasonBy: x.ReasonBy, Request: x.Request,
		RerunOf: x.RerunOf, RerunAs: x.RerunAs, Parent: x.Parent, Follows: x.Follows, ReplacedBy: x.ReplacedBy,
		Continues: x.Continues, Continued: x.ContinuedAs, Tags: x.Tags, Gate: x.Gate, Deadline: x.Deadline, CreatedAt: x.CreatedAt, UpdatedAt: x.UpdatedAt, ProgressAt: x.ProgressAt,
		DueAt: x.DueAt, WakeAt: x.WakeAt, FinishedAt: x.FinishedAt, ErasedAt: x.ErasedAt, Revision: x.Revision,
	}
	if a := x.Attempt; a != nil {
		v.Running = &Running{a.Number, a.Worker, a.StartedAt, a.LeaseUntil, a.TimeoutAt, a.Progress}
	}
	return v
}

// An Attempt is an attempt in JSON.
type Attempt struct {
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

// OfAttempt returns an attempt as it is shown.
func OfAttempt(a *store.Attempt) Attempt {
	return Attempt{
		a.Step, a.Direction, a.Epoch, a.Number, a.Worker, a.Status, a.StartedAt, a.FinishedAt, a.LeaseUntil,
		a.Failure, a.Stack, a.Reason, a.Late, a.LateStatus,
	}
}

// An AuditEntry is an entry of the audit trail in JSON.
type AuditEntry struct {
	At      time.Time       `json:"at"`
	Act     string          `json:"act"`
	Actor   string          `json:"actor"`
	Reason  string          `json:"reason"`
	Before  store.Status    `json:"before"`
	After   store.Status    `json:"after"`
	Request string          `json:"request,omitempty"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// OfAudit returns an entry of the audit trail as it is shown.
func OfAudit(a *store.AuditEntry) AuditEntry {
	return AuditEntry{a.At, a.Act, a.Actor, a.Reason, a.Before, a.After, a.Request, a.Detail}
}

// A Message is a signal in an execution's inbox, in JSON.
type Message struct {
	Name    string          `json:"name"`
	Key     string          `json:"key,omitempty"`
	Actor   string          `json:"actor,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	At      time.Time       `json:"at"`
	Step    string          `json:"step,omitempty"`
	Spent   bool            `json:"spent,omitempty"`
	Bytes   int             `json:"bytes"`
	Payload json.RawMessage `json:"payload,omitempty"` // for those who may see it
}

// OfMessage returns a signal as it is shown, with its payload or without.
func OfMessage(m store.Message, payload bool) Message {
	v := Message{Name: m.Name, Key: m.Key, Actor: m.Actor, Reason: m.Reason, At: m.At, Step: m.Step, Spent: m.Spent, Bytes: len(m.Payload)}
	if payload {
		v.Payload = m.Payload
	}
	return v
}
