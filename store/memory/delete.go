package memory

import (
	"context"

	"github.com/leveret-go/leveret/store"
)

// Delete removes finished executions that nobody has locked; see
// [store.Deleter].
func (s *Store) Delete(ctx context.Context, versions []store.Version) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	removed := make([]bool, len(versions))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, v := range versions {
		r := s.rows[v.ID]
		if r == nil || r.lock.locked() || r.x.Revision != v.Revision || !r.x.Status.Finished() {
			continue
		}
		s.remove(r)
		removed[i] = true
	}
	return removed, nil
}
