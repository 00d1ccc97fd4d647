package storetest_test

import (
	"testing"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
	"github.com/leveret-go/leveret/storetest"
)

// The test of a store is one call. Write it in the store's package:
//
//	func TestConformance(t *testing.T) { … }
//	func TestQueries(t *testing.T) { … }
//	func BenchmarkStore(b *testing.B) { … }
func ExampleRun() {
	testConformance := func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) store.Store {
			s := memory.New() // or mystore.Open(t.TempDir()), closed by t.Cleanup
			return s
		}, nil)
	}
	testQueries := func(t *testing.T) { // where it is a store.Querier
		storetest.RunQueries(t, func(t *testing.T) store.Store { return memory.New() }, nil)
	}
	_, _ = testConformance, testQueries
}

// A store whose lock covers all its executions says so, and one that outlives
// a process shows how it is opened again.
func ExampleOptions() {
	testConformance := func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) store.Store { return memory.New() }, &storetest.Options{
			SingleWriter: false,
			Reopen:       func(t *testing.T, s store.Store) store.Store { return s },
			Require:      []string{"Advancer", "Cells", "Exclusiver", "Deleter", "Querier", "Outbox"},
		})
	}
	_ = testConformance
}
