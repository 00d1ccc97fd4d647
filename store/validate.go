package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// The limits of what a store takes, in bytes.
const (
	MaxName    = 100       // names of sagas, steps and partitions
	MaxText    = 1000      // resource type and id, key, worker, actor, error class, trace parent
	MaxMessage = 64 * 1024 // error messages, stacks, reasons
	MaxState   = 1 << 20   // the state, the initial state, a checkpoint, and the value of a cell
	MaxDetail  = 64 * 1024 // the detail of an audit entry
	MaxNote    = 1000      // the note of a progress
	MaxPayload = 64 * 1024 // the payload of a signal, and of a choice
	MaxInbox   = 1 << 20   // the payloads of an inbox together
	MaxTag     = 200       // the value of a tag; its name: MaxName
)

// The limits of lists.
const (
	MaxTags     = 32   // tags of an execution
	MaxMessages = 1000 // in an inbox
	MaxSignals  = 1000 // that a gate waits for
	MaxChoices  = 50   // of a gate
)

// Times outside of these years are refused: not every store can keep them.
var (
	minTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	maxTime = time.Date(9999, 12, 31, 23, 59, 59, int(time.Second-1), time.UTC)
)

// Validate reports, as an error that wraps [ErrInvalid] and names the field
// and the rule, whether x cannot be stored. Texts must be valid UTF-8 without
// NUL and within the limits of this package; the state must be a JSON object
// in valid UTF-8 (escapes of any kind are kept as they are); numbers must not
// be negative and must fit in 32 bits.
func (x *Execution) Validate() error {
	var v validator
	v.id("id", x.ID)
	v.name("saga", x.Saga)
	v.count("version", x.Version)
	v.name("partition", x.Partition)
	v.text("resource type", x.Resource.Type, MaxText)
	v.text("resource id", x.Resource.ID, MaxText)
	v.text("key", x.Key, MaxText)
	v.must(x.Status.Valid(), "status", "is none of the statuses")
	v.must(x.Direction.Valid(), "direction", "is neither execute nor compensate")
	v.text("step", x.Step, MaxName)
	v.count("epoch", x.Epoch)
	for i := range x.Ledger {
		e := &x.Ledger[i]
		v.name("ledger name", e.Name)
		v.must(e.InDoubt.Valid(), "ledger in_doubt", "is none of the policies")
		v.must(e.Status.Valid(), "ledger status", "is none of the step statuses")
		v.count("ledger opens", e.Opens)
		v.count("ledger round", e.Round)
		v.timePtr("ledger doubt_until", e.DoubtUntil)
		v.timePtr("ledger token", e.Token)
	}
	v.object("state", x.State)
	if x.Initial != nil {
		v.object("initial", x.Initial)
	}
	if x.Checkpoint != nil {
		v.json("checkpoint", x.Checkpoint, MaxState)
	}
	if a := x.Attempt; a != nil {
		v.count("attempt number", a.Number)
		v.text("attempt worker", a.Worker, MaxText)
		v.time("attempt started_at", a.StartedAt)
		v.time("attempt lease_until", a.LeaseUntil)
		v.timePtr("attempt timeout_at", a.TimeoutAt)
		v.progress("attempt progress", a.Progress)
	}
	v.timePtr("due_at", x.DueAt)
	v.timePtr("wake_at", x.WakeAt)
	v.timePtr("offered_at", x.OfferedAt)
	v.count("tries", x.Tries)
	v.count("resumes", x.Resumes)
	v.failure("failure", x.Failure)
	v.failure("cause", x.Cause)
	v.must(x.Turn.Valid(), "turn", "is none of the turns")
	v.text("reason", x.Reason, MaxMessage)
	v.text("reason_by", x.ReasonBy, MaxText)
	if q := x.Request; q != nil {
		v.must(q.Turn.Valid(), "request turn", "is none of the turns")
		v.text("request actor", q.Actor, MaxText)
		v.text("request reason", q.Reason, MaxMessage)
		v.time("request at", q.At)
	}
	v.text("trace parent", x.TraceParent, MaxText)
	v.time("created_at", x.CreatedAt)
	v.time("updated_at", x.UpdatedAt)
	v.time("progress_at", x.ProgressAt)
	v.timePtr("finished_at", x.FinishedAt)
	v.timePtr("erased_at", x.ErasedAt)
	v.idPtr("rerun_of", x.RerunOf)
	v.idPtr("rerun_as", x.RerunAs)
	v.tags("tags", x.Tags)
	v.gate(x.Gate)
	v.inbox(x.Inbox)
	v.timePtr("deadline", x.Deadline)
	if p := x.Parent; p != nil {
		v.id("parent", p.Execution)
		v.text("parent step", p.Step, MaxName)
		v.text("parent key", p.Key, MaxText)
	}
	v.idPtr("follows", x.Follows)
	v.idPtr("replaced_by", x.ReplacedBy)
	v.idPtr("continues", x.Continues)
	v.idPtr("continued_as", x.ContinuedAs)
	return v.err
}

// Validate reports, as an error that wraps [ErrInvalid], whether c cannot be
// written together with the execution of this id.
func (c *Change) Validate(id uuid.UUID) error {
	var v validator
	for i := range c.Attempts {
		a := &c.Attempts[i]
		v.must(a.Execution == id, "attempt", "belongs to another execution")
		v.must(a.Status.Valid() && a.Status != AttemptRunning, "attempt status", "is not that of a closed attempt")
		v.must(a.LateStatus == "" || a.LateStatus.Valid(), "attempt late_status", "is none of the attempt statuses")
		v.must(a.Direction.Valid(), "attempt direction", "is neither execute nor compensate")
		v.text("attempt step", a.Step, MaxName)
		v.count("attempt epoch", a.Epoch)
		v.count("attempt number", a.Number)
		v.text("attempt worker", a.Worker, MaxText)
		v.time("attempt started_at", a.StartedAt)
		v.time("attempt lease_until", a.LeaseUntil)
		v.timePtr("attempt finished_at", a.FinishedAt)
		v.failure("attempt failure", a.Failure)
		v.text("attempt stack", a.Stack, MaxMessage)
		v.text("attempt reason", a.Reason, MaxMessage)
	}
	for i := range c.Audit {
		e := &c.Audit[i]
		v.must(e.Execution == id, "audit entry", "belongs to another execution")
		v.name("audit act", e.Act)
		v.text("audit actor", e.Actor, MaxText)
		v.text("audit reason", e.Reason, MaxMessage)
		v.must(e.Before.Valid() && e.After.Valid(), "audit status", "is none of the statuses")
		v.time("audit at", e.At)
		v.text("audit request", e.Request, MaxText)
		v.text("audit digest", e.Digest, MaxName)
		if e.Detail != nil {
			v.json("audit detail", e.Detail, MaxDetail)
			v.must(bytes.HasPrefix(bytes.TrimLeft(e.Detail, " \t\r\n"), []byte("{")), "audit detail", "is not a JSON object")
		}
		for j := range i {
			v.must(e.Request == "" || c.Audit[j].Request != e.Request, "audit request", "is given twice")
		}
	}
	if len(c.Create) == 0 && len(c.Wake) == 0 {
		return v.err
	}
	other := map[uuid.UUID]bool{id: true}
	for _, x := range c.Create {
		v.must(x != nil, "created execution", "is nil")
		if v.err != nil {
			return v.err
		}
		other[x.ID] = true
	}
	for _, w := range c.Wake {
		v.id("wake id", w.ID)
		v.must(!other[w.ID], "wake id", "is the execution's own, created with it, or given twice")
		other[w.ID] = true
		v.time("wake at", w.At)
	}
	if v.err != nil {
		return v.err
	}
	for _, x := range c.Create {
		if err := x.Validate(); err != nil {
			return fmt.Errorf("created execution: %w", err)
		}
	}
	return nil
}

// ValidateUpdate reports, as an error that wraps [ErrInvalid], whether x may
// not be written over old, with c: besides [Execution.Validate] and
// [Change.Validate] the ID, CreatedAt, Revision, Parent, Continues, Deadline and,
// unless c erases, Tags must be those of old.
func ValidateUpdate(old, x *Execution, c *Change) error {
	var v validator
	v.must(x.ID == old.ID, "id", "must not change")
	v.must(x.Revision == old.Revision, "revision", "must not change")
	v.must(Micros(x.CreatedAt).Equal(Micros(old.CreatedAt)), "created_at", "must not change")
	v.must(equalPtr(x.Parent, old.Parent), "parent", "must not change")
	v.must(equalPtr(x.Continues, old.Continues), "continues", "must not change")
	v.must(equalPtr(microsPtr(x.Deadline), microsPtr(old.Deadline)), "deadline", "must not change")
	v.must(c.Erase || maps.Equal(x.Tags, old.Tags), "tags", "must not change")
	if v.err != nil {
		return v.err
	}
	if err := x.Validate(); err != nil {
		return err
	}
	return c.Validate(x.ID)
}

// ValidateCell reports, as an error that wraps [ErrInvalid], whether a cell
// cannot be written.
func ValidateCell(name string, value json.RawMessage) error {
	var v validator
	v.must(name != "", "cell name", "is empty")
	v.text("cell name", name, 200)
	if value != nil {
		v.must(len(value) <= MaxState, "cell value", "is longer than 1 MiB")
		v.must(utf8.Valid(value), "cell value", "is not valid UTF-8")
		v.must(json.Valid(value), "cell value", "is not valid JSON")
	}
	return v.err
}

// Validate reports, as an error that wraps [ErrInvalid], whether q is no query.
func (q *DueQuery) Validate() error {
	var v validator
	v.must(q.Limit >= 1, "limit", "is below 1")
	v.must(q.Hold >= 0, "hold", "is negative")
	for _, list := range [][]string{q.NotPartitions, q.NotSagas, q.Sagas} {
		v.must(len(list) <= MaxFilter, "names", "are more than a query takes")
		for _, s := range list {
			v.text("name", s, MaxName)
		}
	}
	v.time("now", q.Now)
	return v.err
}

// Validate reports, as an error that wraps [ErrInvalid], whether r cannot be
// given to Renew with n leases.
func (r *Renewal) Validate(n int) error {
	var v validator
	v.time("now", r.Now)
	v.time("until", r.Until)
	v.time("due_at", r.DueAt)
	v.must(r.Progress == nil || len(r.Progress) == n, "progress", "is not one for each lease")
	for _, p := range r.Progress {
		v.progress("progress", p)
	}
	return v.err
}

// Validate reports, as an error that wraps [ErrInvalid], whether q is no query.
func (q *StalledQuery) Validate() error {
	var v validator
	v.must(q.Limit >= 1, "limit", "is below 1")
	v.time("progress_before", q.ProgressBefore)
	v.text("saga", q.Saga, MaxName)
	v.must(q.Gate == "" || q.Gate.Valid(), "gate", "is none of the kinds")
	return v.err
}

// Validate reports, as an error that wraps [ErrInvalid], whether q is no query.
func (q *ChildQuery) Validate() error {
	var v validator
	v.must(q.Limit >= 1, "limit", "is below 1")
	v.text("step", q.Step, MaxName)
	return v.err
}

// A validator keeps the first fault it is told of.
type validator struct{ err error }

func (v *validator) must(ok bool, field, rule string) {
	if !ok && v.err == nil {
		v.err = fmt.Errorf("%w: %s %s", ErrInvalid, field, rule)
	}
}

func (v *validator) id(field string, id uuid.UUID) { v.must(id != uuid.Nil, field, "is the nil UUID") }

func (v *validator) idPtr(field string, id *uuid.UUID) {
	if id != nil {
		v.id(field, *id)
	}
}

func (v *validator) name(field, s string) {
	v.must(s != "", field, "is empty")
	v.text(field, s, MaxName)
}

func (v *validator) text(field, s string, limit int) {
	v.must(utf8.ValidString(s), field, "is not valid UTF-8")
	v.must(!strings.ContainsRune(s, 0), field, "contains NUL")
	if len(s) > limit {
		v.must(false, field, fmt.Sprintf("is longer than %d bytes", limit))
	}
}

func (v *validator) count(field string, n int) {
	v.must(n >= 0 && n <= math.MaxInt32, field, "is negative or too large")
}

func (v *validator) time(field string, t time.Time) {
	v.must(!t.Before(minTime) && !t.After(maxTime), field, "is outside of the years 1 to 9999")
}

func (v *validator) timePtr(field string, t *time.Time) {
	if t != nil {
		v.time(field, *t)
	}
}

func (v *validator) failure(field string, f *Failure) {
	if f == nil {
		return
	}
	v.text(field+" class", f.Class, MaxText)
	v.text(field+" message", f.Message, MaxMessage)
	v.text(field+" step", f.Step, MaxName)
}

func (v *validator) progress(field string, p *Progress) {
	if p == nil {
		return
	}
	v.must(p.Done >= 0 && p.Total >= 0, field, "is negative")
	v.text(field+" note", p.Note, MaxNote)
	v.time(field+" at", p.At)
}

// ValidateTags reports, as an error that wraps [ErrInvalid], whether tags cannot
// be stored.
func ValidateTags(tags map[string]string) error {
	var v validator
	v.tags("tags", tags)
	return v.err
}

func (v *validator) tags(field string, tags map[string]string) {
	if len(tags) > MaxTags {
		v.must(false, field, fmt.Sprintf("are more than %d", MaxTags))
	}
	for name, value := range tags {
		v.name(field+" name", name)
		v.text(field+" value", value, MaxTag)
	}
}

func (v *validator) gate(g *Gate) {
	if g == nil {
		return
	}
	v.must(g.Kind.Valid(), "gate kind", "is none of the kinds")
	v.time("gate since", g.Since)
	v.timePtr("gate until", g.Until)
	v.must(len(g.Signals) <= MaxSignals, "gate signals", "are too many")
	for _, s := range g.Signals {
		v.name("gate signal", s)
	}
	v.text("gate prompt", g.Prompt, MaxText)
	v.text("gate group", g.Group, MaxText)
	v.must(len(g.Choices) <= MaxChoices, "gate choices", "are too many")
	for _, c := range g.Choices {
		v.text("gate choice label", c.Label, MaxText)
		v.name("gate choice signal", c.Signal)
		if c.Payload != nil {
			v.json("gate choice payload", c.Payload, MaxPayload)
		}
	}
}

func (v *validator) inbox(in []Message) {
	v.must(len(in) <= MaxMessages, "inbox", "has too many messages")
	total := 0
	for i := range in {
		m := &in[i]
		v.name("message name", m.Name)
		v.text("message key", m.Key, MaxText)
		v.text("message actor", m.Actor, MaxText)
		v.text("message reason", m.Reason, MaxMessage)
		v.text("message step", m.Step, MaxName)
		v.time("message at", m.At)
		if m.Payload != nil {
			v.json("message payload", m.Payload, MaxPayload)
		}
		total += len(m.Payload)
	}
	v.must(total <= MaxInbox, "inbox", "is longer than 1 MiB")
}

func equalPtr[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// json takes any JSON value.
func (v *validator) json(field string, b json.RawMessage, limit int) {
	if len(b) > limit {
		v.must(false, field, fmt.Sprintf("is longer than %d bytes", limit))
	}
	v.must(utf8.Valid(b), field, "is not valid UTF-8")
	if v.err == nil {
		v.must(json.Valid(b), field, "is not valid JSON")
	}
}

func (v *validator) object(field string, b json.RawMessage) {
	v.must(len(b) <= MaxState, field, "is longer than 1 MiB")
	v.must(utf8.Valid(b), field, "is not valid UTF-8")
	if v.err != nil {
		return
	}
	trimmed := bytes.TrimLeft(b, " \t\r\n")
	v.must(len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(b), field, "is not a JSON object")
}
