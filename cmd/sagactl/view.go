package main

import (
	"encoding/json"

	"github.com/leveret-go/leveret/internal/view"
	"github.com/leveret-go/leveret/store"
)

type (
	executionView = view.Execution
	attemptView   = view.Attempt
	auditView     = view.AuditEntry
	messageView   = view.Message
)

func viewExecution(x *store.Execution) executionView { return view.Of(x) }

// A showView is what show prints in JSON.
type showView struct {
	executionView
	Ledger     []store.LedgerEntry `json:"ledger"`
	Inbox      []messageView       `json:"inbox,omitempty"`
	Attempts   []attemptView       `json:"attempts"`
	Audit      []auditView         `json:"audit"`
	State      json.RawMessage     `json:"state,omitempty"`
	Initial    json.RawMessage     `json:"initial,omitempty"`
	Checkpoint json.RawMessage     `json:"checkpoint,omitempty"`
}
