package saga

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/leveret-go/leveret/store"
)

// A longWork is what a step says of itself while it runs. One without an engine,
// of a step that is tested alone, only remembers.
type longWork struct {
	mu         sync.Mutex
	checkpoint json.RawMessage
	closed     bool // the step has returned

	engine  *Engine
	session *session
	x       *store.Execution // as this worker last wrote it
	inTx    bool             // the step works in a transaction
}

func (c *Call) longWork() *longWork {
	if c.long == nil {
		c.long = &longWork{}
	}
	return c.long
}

// Progress says how far a long step has come: done of total, 0 for a total that
// is not known, and a note of at most 1,000 bytes for people (what is longer is
// cut; negative numbers count as 0). It is kept with the next renewal of the
// attempt's lease, every third of a lease, costs no write of its own, and is
// gone with the attempt. It may be called from any goroutine of the step; what
// comes after the step has returned is dropped.
func (c *Call) Progress(done, total int64, note string) {
	w := c.longWork()
	if w.engine == nil {
		return
	}
	note = cut(note, store.MaxNote)
	p := &store.Progress{Done: max(done, 0), Total: max(total, 0), Note: note, At: store.Micros(c.Now())}
	w.engine.sessions.progress(w.session, p)
}

// Checkpoint keeps v, as JSON of at most 1 MiB, as how far a loop inside the
// step has come. When it returns nil it is durable: the next attempt of the
// step, here or elsewhere, finds it with [Call.LoadCheckpoint]. It stays over
// failures, interruptions, snoozes, halts and Retry of a failed saga, and is
// cleared when the saga leaves the step or turns around.
//
// It is a write to the store and renews the attempt's lease. It returns
// [ErrAttemptLost], having changed nothing, when this attempt is not the open
// one any more, or its step has ignored the end of its ctx for a whole lease:
// return then. An error that wraps [ErrInvalid] means that v is no
// JSON or too much; any other one that it may have been kept or not. It may be
// called from any goroutine of the step, one call at a time goes through; after
// the step has returned it is ErrAttemptLost. A step that works in a transaction
// ([Step.ExecuteTx]) has no checkpoints: [ErrNotSupported].
func (c *Call) Checkpoint(ctx context.Context, v any) error {
	b, err := json.Marshal(v)
	switch {
	case err != nil: // not wrapped: it may quote the value
		return fmt.Errorf("%w: saga: checkpoint: %T cannot be encoded as JSON", ErrInvalid, v)
	case len(b) > store.MaxState:
		return fmt.Errorf("%w: saga: checkpoint: %d bytes long, at most %d are kept", ErrInvalid, len(b), store.MaxState)
	case !utf8.Valid(b):
		return fmt.Errorf("%w: saga: checkpoint: not valid UTF-8", ErrInvalid)
	}
	w := c.longWork()
	if w.inTx { // which may hold the store's only writer
		return fmt.Errorf("%w: saga: checkpoint: step %q works in a transaction, which has none", ErrNotSupported, c.Step)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine != nil {
		if err := w.write(ctx, b); err != nil {
			return fmt.Errorf("saga: checkpoint: %w", err)
		}
	}
	w.checkpoint = b
	return nil
}

// LoadCheckpoint decodes the last checkpoint of the step in this direction into
// v, and reports false, leaving v alone, when there is none. It does no I/O.
func (c *Call) LoadCheckpoint(v any) (ok bool, err error) {
	w := c.longWork()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.checkpoint == nil {
		return false, nil
	}
	if err := json.Unmarshal(w.checkpoint, v); err != nil {
		return false, fmt.Errorf("saga: the checkpoint does not fit %T%s", v, jsonField(err))
	}
	return true, nil
}

// write keeps a checkpoint: by one write if the row is as this worker last saw
// it, else under its lock.
func (w *longWork) write(ctx context.Context, b json.RawMessage) error {
	if w.closed {
		return ErrAttemptLost
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e, lease := w.engine, w.session.lease
	if e.sessions.isGiven(w.session) {
		return ErrAttemptLost // a body that ignores the end of its ctx cannot hold its lease by this
	}
	asked := time.Now()
	defer func() { e.sessions.atMost(w.session, asked.Add(e.cfg.Lease)) }()
	if e.advancer != nil {
		y := w.x.Clone()
		m := e.machine(y)
		e.sessions.noteProgress(w.session, y)
		if err := m.checkpoint(lease, b); err != nil {
			return err
		}
		m.change.SameState = true
		actx, cancel := context.WithTimeout(ctx, storeTimeout)
		err := e.advancer.Advance(actx, y, m.change)
		cancel()
		if err == nil {
			*w.x = *y
			return nil
		}
		if errors.Is(err, store.ErrInvalid) || ctx.Err() != nil {
			return err
		}
	}
	actx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	y, err := e.decideIn(actx, lease.Execution, func(m *machine) error { return m.checkpoint(lease, b) })
	if errors.Is(err, store.ErrNotFound) {
		return ErrAttemptLost
	}
	if err == nil {
		*w.x = *y
	}
	return err
}

// close ends the writing, and waits for a write under way.
func (w *longWork) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// checkpoint keeps how far the open attempt has come, and renews its lease.
func (m *machine) checkpoint(lease store.Lease, b json.RawMessage) error {
	if open, ok := m.x.Lease(); !ok || open != lease {
		return ErrAttemptLost
	}
	m.x.Checkpoint = bytes.Clone(b)
	m.renew()
	return nil
}

// progress notes what is to go with the next renewal.
func (ss *sessions) progress(s *session, p *store.Progress) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.progress, s.told = p, false
}

// noteProgress puts what a step last said of itself onto the row.
func (ss *sessions) noteProgress(s *session, x *store.Execution) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s.progress != nil && x.Attempt != nil {
		x.Attempt.Progress = s.progress.Clone()
	}
}

// isGiven reports whether a session's lease is renewed no more.
func (ss *sessions) isGiven(s *session) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return s.given
}

// atMost bounds until when a session believes in its lease: a write that began
// before the last renewal may have put its end back.
func (ss *sessions) atMost(s *session, until time.Time) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if until.Before(s.until) {
		s.until = until
	}
}
