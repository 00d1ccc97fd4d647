package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/leveret-go/leveret/store"
)

// Cell returns a cell; see [store.Cells].
func (s *Store) Cell(ctx context.Context, name string) (json.RawMessage, int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if err := store.ValidateCell(name, nil); err != nil {
		return nil, 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.cells[name]
	return bytes.Clone(c.Value), c.Revision, nil
}

// SetCell writes a cell; see [store.Cells].
func (s *Store) SetCell(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := store.ValidateCell(name, value); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cells[name].Revision != revision {
		return 0, store.ErrConflict
	}
	if value == nil {
		delete(s.cells, name)
		return 0, nil
	}
	s.cells[name] = store.Cell{Name: name, Value: bytes.Clone(value), Revision: revision + 1}
	return revision + 1, nil
}

// ListCells returns the cells with a prefix; see [store.Cells].
func (s *Store) ListCells(ctx context.Context, prefix string) ([]store.Cell, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var list []store.Cell
	s.mu.RLock()
	for name, c := range s.cells {
		if strings.HasPrefix(name, prefix) {
			c.Value = bytes.Clone(c.Value)
			list = append(list, c)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(list, func(a, b store.Cell) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Exclusive makes sure that one engine alone uses this value of Store; see
// [store.Exclusiver].
func (s *Store) Exclusive(ctx context.Context) (release func() error, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exclusive {
		return nil, store.ErrInUse
	}
	s.exclusive = true
	var once sync.Once // a second call must not end the lock of the next holder
	return func() error {
		once.Do(func() {
			s.mu.Lock()
			s.exclusive = false
			s.mu.Unlock()
		})
		return nil
	}, nil
}
