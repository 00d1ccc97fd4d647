package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/internal/view"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// id reads the first argument as the id of an execution.
func (c *call) id() (uuid.UUID, error) { return parseID(c.args[0]) }

func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil {
		return id, usage("%s is not the id of an execution (a UUID)", clean(fmt.Sprintf("%q", s)))
	}
	return id, nil
}

func show(ctx context.Context, c *call) error {
	id, err := c.id()
	if err != nil {
		return err
	}
	return c.with(ctx, func(s *session) error {
		x, err := s.Get(ctx, id)
		if err != nil {
			return err
		}
		return c.showAll(ctx, s, x)
	})
}

// live shows the execution that holds a start key.
func live(ctx context.Context, c *call) error {
	return c.with(ctx, func(s *session) error {
		x, err := s.Live(ctx, c.args[0], c.args[1])
		if err != nil {
			return err
		}
		return c.showAll(ctx, s, x)
	})
}

func (c *call) showAll(ctx context.Context, s *session, x *store.Execution) error {
	attempts, err := s.Attempts(ctx, x.ID)
	if err != nil {
		return err
	}
	audit, err := s.Audit(ctx, x.ID)
	if err != nil {
		return err
	}
	r, err := s.redactor(ctx)
	if err != nil {
		return err
	}
	x.State, x.Initial = r.State(x.Saga, x.State), r.State(x.Saga, x.Initial)
	for i := range audit {
		audit[i].Detail = r.Detail(x.Saga, audit[i].Detail)
	}
	if c.json() {
		return c.document(viewShow(x, attempts, audit, c.Bool("state")))
	}
	k, err := c.clock(ctx, s.store)
	if err != nil {
		return err
	}
	c.showExecution(k, x)
	c.showInbox(k, x)
	c.showLedger(x)
	c.showTimeline(k, x, attempts, audit)
	if c.Bool("state") {
		c.showState(x)
	}
	return nil
}

func viewShow(x *store.Execution, attempts []store.Attempt, audit []store.AuditEntry, state bool) showView {
	v := showView{executionView: viewExecution(x), Ledger: x.Ledger, Attempts: []attemptView{}, Audit: []auditView{}}
	if v.Ledger == nil {
		v.Ledger = []store.LedgerEntry{}
	}
	for i := range attempts {
		v.Attempts = append(v.Attempts, view.OfAttempt(&attempts[i]))
	}
	for i := range audit {
		v.Audit = append(v.Audit, view.OfAudit(&audit[i]))
	}
	for _, m := range x.Inbox {
		v.Inbox = append(v.Inbox, view.OfMessage(m, state))
	}
	if state {
		v.State, v.Initial, v.Checkpoint = x.State, x.Initial, x.Checkpoint
	}
	return v
}

func (c *call) showExecution(k clock, x *store.Execution) {
	failure := func(f *store.Failure) string {
		if f == nil {
			return ""
		}
		return fmt.Sprintf("%s in %s: %s", f.Class, f.Step, f.Message)
	}
	text := func(show bool, s string) string {
		if show {
			return s
		}
		return ""
	}
	var running, request string
	if a := x.Attempt; a != nil {
		running = fmt.Sprintf("attempt %d by %s since %s, lease until %s", a.Number, a.Worker, k.at(a.StartedAt), k.at(a.LeaseUntil))
		if p := a.Progress; p != nil {
			running += fmt.Sprintf(", %s", progress(p))
		}
	}
	if r := x.Request; r != nil {
		what := []string{}
		if r.Turn != "" {
			what = append(what, string(r.Turn))
		}
		if r.Halt {
			what = append(what, "halt")
		}
		request = fmt.Sprintf("%s by %s: %s, %s", strings.Join(what, " and "), r.Actor, r.Reason, k.at(r.At))
	}
	reason := x.Reason
	if x.ReasonBy != "" {
		reason += " (" + x.ReasonBy + ")"
	}
	c.fields(
		"execution", x.ID.String(),
		"saga", fmt.Sprintf("%s, version %d", x.Saga, x.Version),
		"resource", strings.Trim(x.Resource.Type+"/"+x.Resource.ID, "/"),
		"key", x.Key,
		"partition", x.Partition,
		"status", string(x.Status),
		"step", text(x.Step != "", fmt.Sprintf("%s (%s, epoch %d)", x.Step, x.Direction, x.Epoch)),
		"reason", reason,
		"failure", failure(x.Failure),
		"cause", failure(x.Cause),
		"turned by", string(x.Turn),
		"waits for", gateText(k, x),
		"running", running,
		"requested", request,
		"rerun of", idText(x.RerunOf),
		"rerun as", idText(x.RerunAs),
		"parent", parentText(x.Parent),
		"follows", idText(x.Follows),
		"replaced by", idText(x.ReplacedBy),
		"continues", idText(x.Continues),
		"continued as", idText(x.ContinuedAs),
		"tags", tagsText(x.Tags),
		"started", k.at(x.CreatedAt),
		"moved", k.at(x.ProgressAt),
		"due", k.atPtr(x.DueAt),
		"not before", k.atPtr(x.WakeAt),
		"deadline", k.atPtr(x.Deadline),
		"finished", k.atPtr(x.FinishedAt),
		"erased", k.atPtr(x.ErasedAt),
		"revision", fmt.Sprint(x.Revision),
	)
}

func progress(p *store.Progress) string {
	text := fmt.Sprint(p.Done)
	if p.Total > 0 {
		text += fmt.Sprintf(" of %d", p.Total)
	}
	if p.Note != "" {
		text += ": " + p.Note
	}
	return text
}

func idText(id *uuid.UUID) string {
	if id == nil {
		return ""
	}
	return id.String()
}

func (c *call) showLedger(x *store.Execution) {
	fmt.Fprintln(c.stdout)
	if len(x.Ledger) == 0 {
		fmt.Fprintln(c.stdout, "No worker has looked at it yet: its plan is not known.")
		return
	}
	t := &table{heads: []string{"STEP", "STATUS", "UNDO", "IN DOUBT", "ATTEMPTS", "NOTE"}, flex: 5}
	for _, e := range x.Ledger {
		undo, note := "no", ""
		if e.Compensable {
			undo = "yes"
		}
		if e.Name == x.Step && !x.Status.Finished() {
			note = "← here"
		}
		if e.Stray {
			note = strings.TrimSpace(note + " an effect came after its undo")
		}
		t.add(e.Name, string(e.Status), undo, string(e.InDoubt), fmt.Sprint(e.Opens), note)
	}
	c.table(t)
}

// A moment is one line of a timeline.
type moment struct {
	at                 time.Time
	what, step, detail string
}

func (c *call) showTimeline(k clock, x *store.Execution, attempts []store.Attempt, audit []store.AuditEntry) {
	fmt.Fprintln(c.stdout)
	t := &table{heads: []string{"TIME", "AGE", "WHAT", "STEP", "DETAIL"}, flex: 4}
	for _, m := range timeline(x, attempts, audit) {
		t.add(m.at.UTC().Format("2006-01-02T15:04:05.000Z"), k.ago(m.at), m.what, m.step, m.detail)
	}
	c.table(t)
}

// timeline merges what is known of an execution by time; at one time what
// somebody did comes before the attempt that it led to.
func timeline(x *store.Execution, attempts []store.Attempt, audit []store.AuditEntry) []moment {
	all := []moment{{x.CreatedAt, "started", "", x.Saga + " in " + x.Partition}}
	for _, a := range audit {
		detail := fmt.Sprintf("%s: %s", a.Actor, a.Reason)
		if a.Before != a.After {
			detail = fmt.Sprintf("%s → %s, %s", a.Before, a.After, detail)
		}
		all = append(all, moment{a.At, a.Act, "", detail})
	}
	for i := range attempts {
		a := &attempts[i]
		all = append(all, moment{a.StartedAt, string(a.Direction), a.Step, attemptText(a)})
	}
	if x.FinishedAt != nil {
		all = append(all, moment{*x.FinishedAt, "finished", "", string(x.Status)})
	}
	slices.SortStableFunc(all, func(a, b moment) int { return a.at.Compare(b.at) })
	return all
}

func attemptText(a *store.Attempt) string {
	text := fmt.Sprintf("#%d %s", a.Number, a.Status)
	if a.Epoch > 0 {
		text = fmt.Sprintf("#%d.%d %s", a.Epoch, a.Number, a.Status)
	}
	if a.FinishedAt != nil {
		text += " in " + span(a.FinishedAt.Sub(a.StartedAt))
	}
	text += ", " + a.Worker
	if a.Late {
		text += fmt.Sprintf(", late: %s", cmp.Or(a.LateStatus, "?"))
	}
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	if a.Failure != nil {
		text += fmt.Sprintf(": %s: %s", a.Failure.Class, a.Failure.Message)
	}
	return text
}

func (c *call) showState(x *store.Execution) {
	for _, part := range []struct {
		name string
		json json.RawMessage
	}{{"state", x.State}, {"started with", x.Initial}, {"checkpoint", x.Checkpoint}} {
		if part.json == nil {
			continue
		}
		var b bytes.Buffer
		if err := json.Indent(&b, part.json, "", "  "); err != nil {
			b.Reset()
			b.Write(part.json)
		}
		fmt.Fprintf(c.stdout, "\n%s:\n", part.name)
		for line := range strings.SplitSeq(b.String(), "\n") {
			fmt.Fprintln(c.stdout, clean(line))
		}
	}
}

func diagnose(ctx context.Context, c *call) error {
	id, err := c.id()
	if err != nil {
		return err
	}
	return c.withBroker(ctx, func(s *session) error {
		d, err := s.Diagnose(ctx, id)
		if err != nil {
			return err
		}
		if c.json() {
			return c.document(d)
		}
		k, err := c.clock(ctx, s.store)
		if err != nil {
			return err
		}
		help := string(d.Act)
		if d.Act == saga.ActSkipStep {
			help = "skip"
		}
		c.fields("code", string(d.Code), "why", d.Sentence, "since", k.at(d.Since), "until", k.atPtr(d.Until), "step", d.Step,
			"worker", d.Worker, "behind", idText(d.Behind), "by", d.By, "because", d.Because, "try", help)
		return nil
	})
}
