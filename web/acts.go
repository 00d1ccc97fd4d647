package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/internal/view"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// An actRequest asks for an act on one execution.
type actRequest struct {
	Act    Action `json:"act"`
	Reason string `json:"reason"`
	// Request names this one act: sent twice it is done once.
	Request  string `json:"request,omitempty"`
	Force    bool   `json:"force,omitempty"`
	Revision int64  `json:"revision,omitempty"` // refuse it if the execution is at another one

	Step      string           `json:"step,omitempty"`       // resolve
	Is        store.StepStatus `json:"is,omitempty"`         // resolve: done or pending
	State     json.RawMessage  `json:"state,omitempty"`      // edit_state
	StateText string           `json:"state_text,omitempty"` // edit_state: the same as a text
	Partition string           `json:"partition,omitempty"`  // move
	At        time.Time        `json:"at,omitzero"`          // reschedule
}

type acted struct {
	Execution view.Execution `json:"execution"`
	RerunAs   *uuid.UUID     `json:"rerun_as,omitempty"`
}

func (c *console) act(r *http.Request, b actRequest) (any, error) {
	ctx := r.Context()
	if b.Act == ActionRead || b.Act == ActionReadState || b.Act == ActionPause || b.Act == ActionSignal || !slices.Contains(Actions(), b.Act) {
		return nil, invalid("act", "is none that there is")
	}
	actor, err := c.authorize(r, b.Act)
	if err != nil {
		return nil, err
	}
	x, err := c.find(r)
	if err != nil {
		return nil, err
	}
	by := saga.By{Actor: actor, Reason: b.Reason, Request: b.Request}
	opts := &saga.ActOptions{Force: b.Force, IfRevision: b.Revision}
	switch b.Act {
	case ActionResolve:
		x, err = c.Resolve(ctx, x.ID, b.Step, b.Is, by, opts)
	case ActionEditState:
		if b.StateText != "" {
			b.State = json.RawMessage(b.StateText)
		}
		var redactor *saga.Redactor
		if redactor, err = c.redactor(ctx); err != nil {
			return nil, err
		}
		var state json.RawMessage
		if state, err = redactor.Restore(x.Saga, b.State, x.State); err != nil {
			return nil, err
		}
		if opts.IfRevision == 0 {
			opts.IfRevision = x.Revision // what is put back is of this one
		}
		x, err = c.EditState(ctx, x.ID, state, by, opts)
	case ActionMove:
		x, err = c.Move(ctx, x.ID, b.Partition, by, opts)
	case ActionReschedule:
		if b.At.IsZero() {
			return nil, invalid("at", "is required")
		}
		x, err = c.Reschedule(ctx, x.ID, b.At, by)
	case ActionRerun:
		started, err := c.Rerun(ctx, x.ID, by, nil)
		if err != nil {
			return nil, err
		}
		return acted{view.Of(x), &started.ID}, nil
	default:
		x, err = c.Act(ctx, x.ID, saga.Act(b.Act), by, opts)
	}
	if err != nil {
		return nil, err
	}
	return acted{Execution: view.Of(x)}, nil
}

// A signalRequest sends a signal to one execution.
type signalRequest struct {
	Name    string          `json:"name"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Key     string          `json:"key,omitempty"`
	Reason  string          `json:"reason"`
}

func (c *console) signal(r *http.Request, b signalRequest) (any, error) {
	actor, err := c.authorize(r, ActionSignal)
	if err != nil {
		return nil, err
	}
	x, err := c.find(r)
	if err != nil {
		return nil, err
	}
	var payload any
	if b.Payload != nil {
		payload = b.Payload
	}
	result, err := c.Signal(r.Context(), x.ID, b.Name, payload, &saga.SignalOptions{Key: b.Key, By: saga.By{Actor: actor, Reason: b.Reason}})
	if err != nil {
		return nil, err
	}
	return struct {
		Result saga.SignalResult `json:"result"`
	}{result}, nil
}

// A bulkRequest asks for an act on all that a filter selects.
type bulkRequest struct {
	Act     Action     `json:"act"`
	Filter  string     `json:"filter"` // as the query of the list of executions
	Reason  string     `json:"reason"`
	Request string     `json:"request,omitempty"`
	DryRun  bool       `json:"dry_run,omitempty"`
	Limit   int        `json:"limit,omitempty"` // defaults to 100
	After   *uuid.UUID `json:"after,omitempty"`
}

func (c *console) bulk(r *http.Request, b bulkRequest) (any, error) {
	if !slices.Contains(saga.Acts(), saga.Act(b.Act)) {
		return nil, invalid("act", "is none that there is")
	}
	actor, err := c.authorize(r, b.Act)
	if err != nil {
		return nil, err
	}
	q, err := url.ParseQuery(b.Filter)
	if err != nil {
		return nil, invalid("filter", "is no query")
	}
	now, err := c.Store().Now(r.Context())
	if err != nil {
		return nil, err
	}
	f, err := c.filterOf(q, now)
	if err != nil {
		return nil, err
	}
	if f.IsZero() {
		return nil, invalid("filter", "selects everything: say at least one thing")
	}
	f, ok := narrow(f, visitOf(r).scope)
	if !ok {
		return &saga.BulkReport{Act: saga.Act(b.Act), DryRun: b.DryRun, Items: []saga.BulkItem{}}, nil
	}
	opts := &saga.BulkOptions{DryRun: b.DryRun, Limit: b.Limit}
	if b.After != nil {
		opts.After = *b.After
	}
	report, err := c.Bulk(r.Context(), f, saga.Act(b.Act), saga.By{Actor: actor, Reason: b.Reason, Request: b.Request}, opts)
	if err != nil && (report == nil || len(report.Items) == 0) {
		return nil, err
	}
	out := struct {
		*saga.BulkReport
		Error string `json:"error,omitempty"` // what ended it before its time
	}{BulkReport: report}
	if err != nil {
		c.cfg.Logger.WarnContext(r.Context(), "console bulk act ended early", "act", b.Act, "error", err)
		out.Error = "it ended early: too many acts failed, or the store did not answer"
	}
	return out, nil
}

// A pauseRequest pauses or unpauses a scope.
type pauseRequest struct {
	saga.Scope
	Pause  bool   `json:"pause"`
	Reason string `json:"reason"`
}

func (c *console) pause(r *http.Request, b pauseRequest) (any, error) {
	actor, err := c.authorize(r, ActionPause)
	if err != nil {
		return nil, err
	}
	if visitOf(r).scoped {
		return nil, refuse(http.StatusForbidden, "forbidden", "what is paused is shared with others")
	}
	by := saga.By{Actor: actor, Reason: b.Reason}
	if b.Pause {
		err = c.Pause(r.Context(), b.Scope, by)
	} else {
		err = c.Unpause(r.Context(), b.Scope, by)
	}
	return struct{}{}, err
}
