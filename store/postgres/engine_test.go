package postgres_test

import (
	"testing"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/postgres"
	"github.com/leveret-go/leveret/storetest"
)

func TestEngine(t *testing.T) {
	storetest.RunEngine(t, func(t *testing.T) store.Store {
		s, err := postgres.Open(t.Context(), testenv.Postgres(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	})
}
