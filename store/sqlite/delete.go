package sqlite

import (
	"context"
	"database/sql"

	"github.com/leveret-go/leveret/store"
)

// Delete removes finished executions; see [store.Deleter]. It waits for the
// write lock, and keeps it until all are removed: do not give it too many at
// once. The file does not shrink; what is written later uses the room. Until
// then what was removed, like what was erased, may still be found in the bytes
// of the file and of the one with -wal at its end; VACUUM ends that.
func (s *Store) Delete(ctx context.Context, versions []store.Version) ([]bool, error) {
	if len(versions) == 0 {
		return nil, ctx.Err()
	}
	removed := make([]bool, len(versions))
	err := s.write(ctx, "delete executions", func(t *txn) error {
		for i, v := range versions {
			n, err := t.exec(s.deleteFinished, v.ID.String(), v.Revision)
			if err != nil {
				return t.fail(err)
			}
			if n == 0 {
				continue
			}
			removed[i] = true
			for _, stmt := range []*sql.Stmt{s.deleteAttempts, s.deleteAudit} {
				if _, err := t.exec(stmt, v.ID.String()); err != nil {
					return t.fail(err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return removed, nil
}
