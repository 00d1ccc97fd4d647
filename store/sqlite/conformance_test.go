package sqlite_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/sqlite"
	"github.com/leveret-go/leveret/storetest"
)

func open(t testing.TB, path string, cfg *sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var abilities = []string{"Advancer", "Cells", "Deleter", "Exclusiver", "Querier", "Outbox"}

func TestConformance(t *testing.T) {
	for _, mode := range []sqlite.Synchronous{sqlite.Full, sqlite.Normal} {
		t.Run(string(mode), func(t *testing.T) {
			cfg := &sqlite.Config{Synchronous: mode}
			var paths sync.Map
			newStore := func(t *testing.T, path string) store.Store {
				s := open(t, path, cfg)
				paths.Store(store.Store(s), path)
				return s
			}
			storetest.Run(t, func(t *testing.T) store.Store {
				return newStore(t, filepath.Join(t.TempDir(), "sagas.db"))
			}, &storetest.Options{
				SingleWriter: true,
				Require:      abilities,
				Reopen: func(t *testing.T, s store.Store) store.Store {
					path, _ := paths.Load(s)
					return newStore(t, path.(string))
				},
			})
		})
	}
}

func TestQueries(t *testing.T) {
	storetest.RunQueries(t, func(t *testing.T) store.Store {
		return open(t, filepath.Join(t.TempDir(), "sagas.db"), &sqlite.Config{Synchronous: sqlite.Normal})
	}, &storetest.Options{SingleWriter: true, Require: abilities})
}

func BenchmarkStore(b *testing.B) {
	for _, mode := range []sqlite.Synchronous{sqlite.Full, sqlite.Normal} {
		b.Run(string(mode), func(b *testing.B) {
			storetest.Benchmark(b, func(b *testing.B) store.Store {
				return open(b, filepath.Join(b.TempDir(), "sagas.db"), &sqlite.Config{Synchronous: mode})
			})
		})
	}
}
