package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
)

// eachBackend runs a test on all stores.
func eachBackend(t *testing.T, f func(t *testing.T, storeFlag string)) {
	t.Run("memory", func(t *testing.T) { f(t, "memory") })
	t.Run("sqlite", func(t *testing.T) { f(t, "sqlite:"+filepath.Join(t.TempDir(), "demo.db")) })
	t.Run("postgres", func(t *testing.T) { f(t, testenv.Postgres(t)) })
}

func TestLedgerDoesThingsOnceAndRefusesWhatWasUndone(t *testing.T) {
	eachBackend(t, func(t *testing.T, storeFlag string) {
		b, err := openBackend(t.Context(), options{store: storeFlag, workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer b.close(false)
		l := b.ledger
		plan := planRun("r1", 2)
		for range 2 {
			if err := l.plan(t.Context(), "r1", plan); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := l.planned(t.Context(), "r1"); err != nil || !slices.Equal(got, plan) {
			t.Errorf("planned %v, %v; want %v", got, err, plan)
		}
		apply := func(key, executeKey string, want bool) {
			t.Helper()
			r := request{Order: plan[0].Order, Service: "payment", Kind: store.DirectionExecute, Key: key, ExecuteKey: key}
			if executeKey != "" {
				r.Kind, r.ExecuteKey = store.DirectionCompensate, executeKey
			}
			if ok, err := l.apply(t.Context(), r); err != nil || ok != want {
				t.Errorf("apply %s: %v, %v; want %v", key, ok, err, want)
			}
		}
		apply("a", "", true)
		apply("a", "", true)
		apply("undo a", "a", true)
		apply("undo a", "a", true)
		apply("a", "", true) // done and undone: still only a repetition
		apply("undo b", "b", true)
		apply("b", "", false)
		apply("undo b", "b", true)

		effects, err := l.effects(t.Context(), "r1")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range effects {
			if e.Order != plan[0].Order || e.Service != "payment" {
				t.Errorf("effect %+v", e)
			}
			got = append(got, strings.Join([]string{e.Key, e.Kind, e.State, string(rune('0' + e.Calls))}, " "))
		}
		slices.Sort(got)
		want := []string{"a execute done 3", "b execute marked 1", "undo a compensate done 2", "undo b compensate noop 2"}
		if !slices.Equal(got, want) {
			t.Errorf("ledger %q\nwant   %q", got, want)
		}
		if other, err := l.effects(t.Context(), "r2"); err != nil || len(other) != 0 {
			t.Errorf("effects of another run: %v, %v", other, err)
		}
	})
}
