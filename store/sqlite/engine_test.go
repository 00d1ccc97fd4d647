package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/sqlite"
	"github.com/leveret-go/leveret/storetest"
)

func TestEngine(t *testing.T) {
	storetest.RunEngine(t, func(t *testing.T) store.Store {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "saga.db"), &sqlite.Config{Synchronous: sqlite.Normal})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}
