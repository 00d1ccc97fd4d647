package web

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/internal/view"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// maxDiagnosed is how many executions one page by diagnosis looks at.
const maxDiagnosed = 2000

type listed struct {
	view.Execution
	Code string `json:"diagnosis,omitempty"` // where it was asked for
}

type executionList struct {
	Executions []listed   `json:"executions"`
	Next       *uuid.UUID `json:"next,omitempty"`
	// Truncated says that the page is not full although more may be found: Next
	// goes on.
	Truncated bool `json:"truncated,omitempty"`
}

func (c *console) executions(r *http.Request) (any, error) {
	ctx, q := r.Context(), r.URL.Query()
	now, err := c.Store().Now(ctx)
	if err != nil {
		return nil, err
	}
	f, err := c.filterOf(q, now, "limit", "after", "diagnosis")
	if err != nil {
		return nil, err
	}
	p, err := pageOf(q)
	if err != nil {
		return nil, err
	}
	out := executionList{Executions: []listed{}}
	f, ok := narrow(f, visitOf(r).scope)
	if !ok {
		return out, nil
	}
	if codes := values(q, "diagnosis"); len(codes) > 0 {
		return c.diagnosed(ctx, f, p, codes)
	}
	list, err := c.List(ctx, f, p)
	if err != nil {
		return nil, err
	}
	for _, x := range list.Executions {
		out.Executions = append(out.Executions, listed{view.Of(x), ""})
	}
	out.Next = list.Next
	return out, nil
}

// diagnosed lists the unfinished executions with one of these diagnoses.
func (c *console) diagnosed(ctx context.Context, f store.Filter, p store.Page, codes []string) (any, error) {
	p, err := p.Filled()
	if err != nil {
		return nil, err
	}
	f.Unfinished = true
	out, want := executionList{Executions: []listed{}}, p.Limit
	for looked := 0; ; {
		list, err := c.List(ctx, f, store.Page{Limit: 100, After: p.After})
		if err != nil {
			return nil, err
		}
		diagnoses, err := c.DiagnoseAll(ctx, list.Executions)
		if err != nil {
			return nil, err
		}
		for i, x := range list.Executions {
			p.After = x.ID
			if code := string(diagnoses[i].Code); slices.Contains(codes, code) {
				out.Executions = append(out.Executions, listed{view.Of(x), code})
			}
			if len(out.Executions) == want {
				out.Next = &x.ID
				return out, nil
			}
		}
		looked += len(list.Executions)
		if list.Next == nil {
			return out, nil
		}
		if looked >= maxDiagnosed {
			out.Next, out.Truncated = list.Next, true
			return out, nil
		}
	}
}

// A whole is all that is known of one execution.
type whole struct {
	view.Execution
	Ledger     []store.LedgerEntry `json:"ledger"`
	Attempts   []view.Attempt      `json:"attempts"`
	Audit      []view.AuditEntry   `json:"audit"`
	Inbox      []view.Message      `json:"inbox"`
	Children   []view.Execution    `json:"children"`
	Related    []view.Execution    `json:"related"` // other executions of the resource
	Diagnosis  *saga.Diagnosis     `json:"diagnosis,omitempty"`
	State      json.RawMessage     `json:"state,omitempty"`
	Initial    json.RawMessage     `json:"initial,omitempty"`
	Checkpoint json.RawMessage     `json:"checkpoint,omitempty"`
	// The same as texts with line breaks, for those whose numbers are not as
	// exact as the state's may be: JavaScript's.
	StateText      string `json:"state_text,omitempty"`
	InitialText    string `json:"initial_text,omitempty"`
	CheckpointText string `json:"checkpoint_text,omitempty"`
	// Hidden says that the visitor may not see states.
	Hidden bool      `json:"state_hidden,omitempty"`
	Now    time.Time `json:"now"`
}

const relatedShown = 50

// find returns the execution that a path names, if the visitor may see it.
func (c *console) find(r *http.Request) (*store.Execution, error) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		return nil, invalid("id", "is not an id (a UUID)")
	}
	x, err := c.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if scope := visitOf(r).scope; !scope.Matches(x) {
		return nil, store.ErrNotFound
	}
	return x, nil
}

func (c *console) execution(r *http.Request) (any, error) {
	ctx := r.Context()
	x, err := c.find(r)
	if err != nil {
		return nil, err
	}
	out := whole{Execution: view.Of(x), Ledger: x.Ledger, Attempts: []view.Attempt{}, Audit: []view.AuditEntry{}, Inbox: []view.Message{},
		Children: []view.Execution{}, Related: []view.Execution{}}
	if out.Ledger == nil {
		out.Ledger = []store.LedgerEntry{}
	}
	if out.Now, err = c.Store().Now(ctx); err != nil {
		return nil, err
	}
	redactor, err := c.redactor(ctx)
	if err != nil {
		return nil, err
	}
	attempts, err := c.Attempts(ctx, x.ID)
	if err != nil {
		return nil, err
	}
	for i := range attempts {
		out.Attempts = append(out.Attempts, view.OfAttempt(&attempts[i]))
	}
	_, hidden := c.authorize(r, ActionReadState)
	trail, err := c.Audit(ctx, x.ID)
	if err != nil {
		return nil, err
	}
	for i := range trail {
		trail[i].Detail = redactor.Detail(x.Saga, trail[i].Detail)
		if hidden != nil && trail[i].Act == string(saga.ActEditState) {
			trail[i].Detail = nil
		}
		out.Audit = append(out.Audit, view.OfAudit(&trail[i]))
	}
	for _, m := range x.Inbox {
		out.Inbox = append(out.Inbox, view.OfMessage(m, hidden == nil))
	}
	if hidden == nil {
		out.State, out.Initial, out.Checkpoint = redactor.State(x.Saga, x.State), redactor.State(x.Saga, x.Initial), x.Checkpoint
		out.StateText, out.InitialText, out.CheckpointText = indented(out.State), indented(out.Initial), indented(out.Checkpoint)
	}
	out.Hidden = hidden != nil
	if d, err := c.Diagnose(ctx, x.ID); err == nil {
		out.Diagnosis = d
	}
	scope := visitOf(r).scope
	children, err := c.Store().Children(ctx, store.ChildQuery{Parent: x.ID, Limit: relatedShown})
	if err != nil {
		return nil, err
	}
	for _, y := range children {
		if scope.Matches(y) {
			out.Children = append(out.Children, view.Of(y))
		}
	}
	if x.Resource.ID == "" {
		return out, nil
	}
	related, err := c.Store().ForResource(ctx, x.Resource, relatedShown)
	if err != nil {
		return nil, err
	}
	for _, y := range related {
		if y.ID != x.ID && scope.Matches(y) {
			out.Related = append(out.Related, view.Of(y))
		}
	}
	return out, nil
}

func indented(v json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, v, "", "  ") != nil {
		return ""
	}
	return b.String()
}

func (c *console) plan(r *http.Request) (any, error) {
	x, err := c.find(r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	act := saga.Act(q.Get("act"))
	if !slices.Contains(saga.Acts(), act) {
		return nil, invalid("act", "is none that can be planned")
	}
	if _, err := c.authorize(r, Action(act)); err != nil {
		return nil, err
	}
	return c.Plan(r.Context(), x.ID, act, &saga.ActOptions{Force: q.Get("force") == "true"})
}
