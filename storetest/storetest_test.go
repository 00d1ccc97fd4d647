package storetest

import (
	"testing"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) store.Store { return memory.New() }, &Options{
		Reopen: func(_ *testing.T, s store.Store) store.Store { return s },
	})
}
