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
	found := slices.DeleteFunc(s.all(), func(x *store.Execution) bool {
		return p.After != uuid.Nil && bytes.Compare(x.ID[:], p.After[:]) >= 0 || !f.Matches(x)
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
	for _, x := range s.all() {
		if !f.Matches(x) {
			continue
		}
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
func (s *Store) all() []*store.Execution {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]*store.Execution, 0, len(s.rows))
	for _, r := range s.rows {
		list = append(list, r.x)
	}
	return list
}
