package saga

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A startCommand starts an execution.
type startCommand struct {
	head
	Saga       string            `json:"saga"`
	Resource   Resource          `json:"resource"`
	State      json.RawMessage   `json:"state"`
	Key        string            `json:"key"`
	OnConflict OnConflict        `json:"on_conflict"`
	Deadline   time.Time         `json:"deadline"`
	StartAfter time.Time         `json:"start_after"`
	Tags       map[string]string `json:"tags"`
	Partition  string            `json:"partition"`
	Signals    []struct {
		Name    string          `json:"name"`
		Key     string          `json:"key"`
		Payload json.RawMessage `json:"payload"`
	} `json:"signals"`
}

func (e *Engine) startByCommand(ctx context.Context, m *CommandMessage, a *CommandAnswer) error {
	c := &startCommand{}
	if err := readCommand(m.Body, c); err != nil {
		return err
	}
	if !nameRule.MatchString(c.Saga) {
		return fmt.Errorf("%w: saga %s", ErrInvalid, nameFault(c.Saga))
	}
	o := c.order(commandID(c.Saga, m.ID))
	if t := m.TraceParent; len(t) <= store.MaxText && cleanText(t) {
		o.TraceParent = t
	}
	if err := e.fillByCommand(ctx, o, c.State); err != nil {
		return err
	}
	started, err := e.desk().start(ctx, o)
	if errors.Is(err, store.ErrExists) {
		return e.startedBefore(ctx, o, a)
	}
	if err != nil {
		return err
	}
	a.Execution, a.ExecutionStatus = &started.ID, started.Status
	a.Existing, a.Differs, a.Replaces = started.Existing, started.Differs, started.Replaces
	return nil
}

func (c *startCommand) order(id uuid.UUID) *order {
	o := &order{saga: c.Saga, resource: c.Resource, StartOptions: StartOptions{
		ID: id, Key: c.Key, OnConflict: c.OnConflict, Deadline: c.Deadline, StartAfter: c.StartAfter, Tags: c.Tags, Partition: c.Partition,
	}}
	for _, s := range c.Signals {
		in := StartSignal{Name: s.Name, Key: s.Key}
		if s.Payload != nil {
			in.Payload = s.Payload
		}
		o.Signals = append(o.Signals, in)
	}
	return o
}

// fillByCommand adds what the definition says, or, where the saga is not
// registered, what a worker has left of it.
func (e *Engine) fillByCommand(ctx context.Context, o *order, state json.RawMessage) error {
	if len(state) == 0 {
		state = json.RawMessage("{}")
	}
	if p := e.latest(o.saga); p != nil {
		if err := p.schema.check(state); err != nil {
			return err
		}
		o.plan, o.version = p, p.version
		setDefault(&o.Partition, p.partition)
		return p.starter.fill(o, state)
	}
	outline, err := e.storedOutline(ctx, o.saga)
	if err != nil {
		return err
	}
	if outline.Schema != nil {
		s, err := parseSchema(outline.Schema)
		if err != nil {
			return fmt.Errorf("%w: the schema that a worker has left %w", errUnknownSaga, err)
		}
		if err := s.check(state); err != nil {
			return err
		}
	}
	switch {
	case o.Key != "":
		if err := checkKey(o.Key); err != nil {
			return err
		}
	case outline.Keyed:
		return fmt.Errorf("%w: the start key is worked out by the definition, which is not registered here: give a key", errUnknownSaga)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, state); err != nil {
		return fmt.Errorf("%w: the state is not valid JSON", ErrInvalid)
	}
	o.state = b.Bytes()
	setDefault(&o.Partition, outline.Partition)
	setDefault(&o.OnConflict, OnConflictReject)
	return nil
}

// storedOutline returns what a worker has left of a saga's highest version.
func (e *Engine) storedOutline(ctx context.Context, saga string) (*Outline, error) {
	cells, ok := store.As[store.Cells](e.store)
	if !ok {
		return nil, errUnknownSaga
	}
	list, err := cells.ListCells(ctx, outlinePrefix+saga+"/")
	if err != nil {
		return nil, err
	}
	var found *Outline
	for _, c := range list {
		o := &Outline{}
		if json.Unmarshal(c.Value, o) == nil && o.Saga == saga && (found == nil || found.Version < o.Version) {
			found = o
		}
	}
	if found == nil {
		return nil, errUnknownSaga
	}
	return found, nil
}

// startedBefore answers a start whose execution is there: by this command, which
// came before, or by another one.
func (e *Engine) startedBefore(ctx context.Context, o *order, a *CommandAnswer) error {
	x, err := e.store.Get(ctx, o.ID)
	if err != nil {
		return err
	}
	if x.Saga != o.saga || x.Resource != o.resource || x.ErasedAt == nil && !bytes.Equal(startedWith(x), o.state) {
		return fmt.Errorf("%w: a start of saga %q with another resource or state", ErrRequestUsed, o.saga)
	}
	a.Execution, a.ExecutionStatus, a.Repeated = &x.ID, x.Status, true
	return nil
}

// commandSpace is the name space of the ids of executions that commands start.
var commandSpace = uuid.MustParse("5d1d8a3e-3c1a-5a4b-8a8e-0d6c1f2e7b40")

// commandID returns the execution id of a start, always the same. When the
// command's own id is a UUIDv7 it begins with its time: lists are ordered by ids.
func commandID(saga, command string) uuid.UUID {
	id := uuid.NewSHA1(commandSpace, []byte(saga+"/"+command))
	if c, err := uuid.Parse(command); err == nil && c.Version() == 7 {
		copy(id[:6], c[:6])
		id[6] = 0x70 | id[6]&0x0f
	}
	return id
}
