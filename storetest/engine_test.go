package storetest_test

import (
	"testing"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
	"github.com/leveret-go/leveret/storetest"
)

func TestEngineOnMemory(t *testing.T) {
	storetest.RunEngine(t, func(t *testing.T) store.Store { return memory.New() })
}

// A store without Advancer: everything goes through WithLock.
func TestEngineOnMemoryWithLocksOnly(t *testing.T) {
	storetest.RunEngine(t, func(t *testing.T) store.Store { return locksOnly{memory.New()} })
}

type locksOnly struct{ store.Store }
