package storetest

import (
	"maps"
	"slices"
	"testing"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// allCases returns the cases of all suites of stores.
func allCases() []testCase { return slices.Concat(cases(), queryCases, countCases, statisticsCases) }

// faults has the faults of all cases, by name.
var faults = merge(
	createFaults,
	lockFaults,
	valueFaults,
	attemptFaults,
	changeFaults,
	advanceFaults,
	claimFaults,
	renewFaults,
	listFaults,
	waitingFaults,
	cellFaults,
	outboxFaults,
	requestFaults,
	refuseFaults,
	deleteFaults,
	queryFaults,
	countFaults,
	statisticsFaults,
)

func merge(list ...map[string]func(*faulty)) map[string]func(*faulty) {
	all := map[string]func(*faulty){}
	for _, m := range list {
		maps.Copy(all, m)
	}
	return all
}

// TestEveryCaseCanFail plants one fault per case in a store that is right
// otherwise: a case that a wrong store passes proves nothing.
func TestEveryCaseCanFail(t *testing.T) {
	known := map[string]bool{}
	for _, c := range allCases() {
		if known[c.name] {
			t.Errorf("two cases are called %s", c.name)
		}
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			plant := faults[c.name]
			if plant == nil {
				t.Fatal("no fault is planted for this case")
			}
			right := observe(t.Context(), c, func(*faulty) {})
			if right.failed || right.skipped {
				t.Fatalf("the case does not pass on the store without the fault: %s", right.log.String())
			}
			wrong := observe(t.Context(), c, plant)
			if !wrong.failed {
				t.Errorf("the case passes on a store with the fault; it logged: %s", wrong.log.String())
			}
			t.Logf("%s", wrong.log.String())
		})
	}
	for name := range faults {
		if !known[name] {
			t.Errorf("a fault is planted for %s, which is no case", name)
		}
	}
}

// TestSingleWriterSkipsOneCase also proves that the other cases pass on a
// store that has one lock for all rows.
func TestSingleWriterSkipsOneCase(t *testing.T) {
	var skipped []string
	for _, c := range cases() {
		r := &recorder{ctx: t.Context()}
		r.run(func() {
			opts := &Options{SingleWriter: true}
			e := newEnv(r, newSingleWriter(), opts)
			e.newStore = func() store.Store { return newSingleWriter() }
			e.reopen = func() store.Store { return e.s }
			c.run(e)
		})
		if r.failed {
			t.Errorf("%s fails: %s", c.name, r.log.String())
		}
		if r.skipped {
			skipped = append(skipped, c.name)
		}
	}
	if want := []string{"WithLockIsPerExecution"}; !slices.Equal(skipped, want) {
		t.Errorf("skipped %v, want %v", skipped, want)
	}
}

// TestAbilitiesAreSkipped runs the cases on a store that has the required
// methods only: the cases of abilities are skipped, or fail where these are
// required.
func TestAbilitiesAreSkipped(t *testing.T) {
	n := 0
	for _, c := range allCases() {
		r := &recorder{ctx: t.Context()}
		r.run(func() {
			e := newEnv(r, struct{ store.Store }{memory.New()}, &Options{})
			e.newStore = func() store.Store { return memory.New() }
			c.run(e)
		})
		if r.failed {
			t.Errorf("%s fails: %s", c.name, r.log.String())
		}
		if r.skipped {
			n++
		}
	}
	for _, c := range []testCase{advanceCases[0], cellCases[0], exclusiveCases[0], deleteCases[0], queryCases[0], outboxCases[0]} {
		r := &recorder{ctx: t.Context()}
		r.run(func() {
			c.run(newEnv(r, struct{ store.Store }{memory.New()}, &Options{
				Require: []string{"Advancer", "Cells", "Exclusiver", "Deleter", "Querier", "Outbox"},
			}))
		})
		if !r.failed || r.skipped {
			t.Errorf("%s does not fail although the ability is required", c.name)
		}
	}
	optional := slices.Concat(advanceCases, cellCases, exclusiveCases, deleteCases, outboxCases, queryCases, countCases, statisticsCases)
	if want := len(optional) + 2; n != want { // and those of Reopen
		t.Errorf("%d cases were skipped, want %d", n, want)
	}
}
