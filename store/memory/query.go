package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// List returns a page of executions; see [store.Querier]. It looks at all that
// there are.
func (s *Store) List(ctx context.Context, f store.Filter, p store.Page) (*store.List, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	p, err := p.Filled()
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(s.selected(&f), func(x *store.Execution) bool {
		return p.After != uuid.Nil && bytes.Compare(x.ID[:], p.After[:]) >= 0
	})
	slices.SortFunc(found, func(a, b *store.Execution) int { return bytes.Compare(b.ID[:], a.ID[:]) })
	var next *uuid.UUID
	if len(found) > p.Limit {
		found = found[:p.Limit]
		last := found[p.Limit-1].ID
		next = &last
	}
	return &store.List{Executions: clones(found), Next: next}, nil
}

// Count counts executions; see [store.Querier].
func (s *Store) Count(ctx context.Context, f store.Filter, by []store.Dimension, most int) (*store.Counts, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	most, err := store.ValidateCount(by, most)
	if err != nil {
		return nil, err
	}
	var counts store.Counts
	groups := make(map[string]int) // index in counts.Groups
	counted := 0
	if len(by) == 0 {
		groups[""], counts.Groups = 0, []store.CountGroup{{Values: []string{}}}
	}
	for _, x := range s.selected(&f) {
		if counted++; counted > most {
			counts.Truncated = true
			break
		}
		values := make([]string, len(by))
		for i, d := range by {
			values[i] = d.Value(x)
		}
		key := strings.Join(values, "\x00") // which no value contains
		i, ok := groups[key]
		if !ok {
			i = len(counts.Groups)
			groups[key] = i
			counts.Groups = append(counts.Groups, store.CountGroup{Values: values})
		}
		counts.Groups[i].N++
	}
	slices.SortFunc(counts.Groups, func(a, b store.CountGroup) int {
		return cmp.Or(cmp.Compare(b.N, a.N), slices.Compare(a.Values, b.Values))
	})
	return &counts, nil
}

// all returns what is stored at one moment, in no order: the list is the
// caller's, the executions are not to be changed.
func (s *Store) all() []*store.Execution { return s.having(nil) }

// having returns those of all that have such an attempt; nil: all.
func (s *Store) having(f *store.FailedAttempt) []*store.Execution {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]*store.Execution, 0, len(s.rows))
	for _, r := range s.rows {
		if f == nil || slices.ContainsFunc(r.attempts, func(a store.Attempt) bool { return f.Matches(&a) }) {
			list = append(list, r.x)
		}
	}
	return list
}

// selected returns those of all that f selects.
func (s *Store) selected(f *store.Filter) []*store.Execution {
	return slices.DeleteFunc(s.having(f.Failed), func(x *store.Execution) bool { return !f.Matches(x) })
}

// A ran is an attempt that has finished, and the saga it belongs to.
type ran struct {
	saga string
	store.Attempt
}

// ran returns the attempts of the executions that f selects.
func (s *Store) ran(f *store.Filter) (list []ran) {
	selected := s.selected(f)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, x := range selected {
		if r := s.rows[x.ID]; r != nil {
			for i := range r.attempts {
				list = append(list, ran{x.Saga, r.attempts[i]})
			}
		}
	}
	return list
}
