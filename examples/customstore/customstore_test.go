package customstore_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/leveret-go/leveret/examples/customstore"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/storetest"
)

func TestConformance(t *testing.T) {
	var paths sync.Map
	open := func(t *testing.T, path string) store.Store {
		s, err := customstore.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		paths.Store(s, path)
		return s
	}
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t, filepath.Join(t.TempDir(), "sagas.db"))
	}, &storetest.Options{
		SingleWriter: true,
		Reopen: func(t *testing.T, s store.Store) store.Store {
			path, _ := paths.Load(s)
			return open(t, path.(string))
		},
	})
}
