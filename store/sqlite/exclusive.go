package sqlite

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/leveret-go/leveret/store"
)

// Exclusive takes the lock of the file whose name is that of the database with
// .lock at its end; see [store.Exclusiver]. The operating system ends it with
// the process, and [Store.Close] does. It keeps nobody from the database who
// does not ask for it. One [Config.TablePrefix] or another, it is the same lock.
func (s *Store) Exclusive(ctx context.Context) (release func() error, err error) {
	const operation = "lock the store"
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exclusive != nil {
		return nil, store.ErrInUse
	}
	f, err := os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %s: %w", operation, err)
	}
	if err := lockFile(f); err != nil {
		f.Close()
		if err == store.ErrInUse {
			return nil, err
		}
		return nil, fmt.Errorf("sqlite: %s: %w", operation, err)
	}
	// In s, not only in release: a file that nobody refers to is closed, and
	// with it the lock is gone.
	s.exclusive = f
	var once sync.Once
	return func() (err error) {
		once.Do(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.exclusive != f {
				return // closed with the store
			}
			s.exclusive = nil
			// The file stays: who removed it could remove another's lock.
			if err = f.Close(); err != nil {
				err = fmt.Errorf("sqlite: unlock the store: %w", err)
			}
		})
		return err
	}, nil
}
