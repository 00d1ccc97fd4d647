package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A heldEvent is an event that nobody else takes before due.
type heldEvent struct {
	e   store.StatusEvent
	due time.Time
}

// record notes the event that writing y over x is; s.mu is held.
func (s *Store) record(x, y *store.Execution) {
	if e := store.StatusEventOf(x, y); e != nil {
		s.events[e.ID()] = &heldEvent{*e, e.At}
	}
}

// ClaimEvents takes events to send; see [store.Outbox].
func (s *Store) ClaimEvents(ctx context.Context, q store.EventQuery) ([]store.StatusEvent, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := store.Micros(q.Now)
	var due []*heldEvent
	for _, h := range s.events {
		if !h.due.After(now) {
			due = append(due, h)
		}
	}
	slices.SortFunc(due, func(a, b *heldEvent) int {
		return cmp.Or(a.e.At.Compare(b.e.At), bytes.Compare(a.e.Execution[:], b.e.Execution[:]), cmp.Compare(a.e.Revision, b.e.Revision))
	})
	var out []store.StatusEvent
	for _, h := range due[:min(len(due), q.Limit)] {
		h.due = store.Micros(q.Now.Add(q.Hold))
		out = append(out, h.e)
	}
	return out, nil
}

// RemoveEvents removes events that were sent; see [store.Outbox].
func (s *Store) RemoveEvents(ctx context.Context, ids []store.EventID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.events, id)
	}
	return nil
}

// OldestEvent returns since when an event waits to be sent; see [store.Outbox].
func (s *Store) OldestEvent(ctx context.Context) (*time.Time, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var oldest *time.Time
	for _, h := range s.events {
		if at := h.e.At; oldest == nil || at.Before(*oldest) {
			oldest = &at
		}
	}
	return oldest, nil
}
