// Package storetest proves that a store keeps the contract of package store.
// Whoever writes a store runs it in a test:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return mystore.New(t.TempDir()) }, nil)
//	}
//
// Every promise of the contract is a case of its own. When one fails, the
// sentence it stands for is printed below the failure. The abilities a store
// may have or not are found with [store.As]; the cases of those it lacks are
// skipped, unless Options.Require names them. They are
//
//   - [store.Advancer]: without it the engine writes the end of a step with
//     WithLock, which is slower;
//   - [store.Cells]: without it nothing can be paused;
//   - [store.Exclusiver]: without it saga.Config.Exclusive is refused;
//   - [store.Deleter]: without it finished executions are never purged;
//   - [store.Outbox]: without it no status events are published;
//   - [store.Querier]: without it there are no lists and counts. It has a suite
//     of its own, [RunQueries];
//   - [store.Binder] and [store.Transactor]: without them nothing is started in a
//     transaction of the caller's, and no step works in one. Their suites are
//     [RunTx] and [RunEngineTx].
//
// Everything else is required of every store: also what a person's act writes
// ([store.Change].Erase, the Request of an audit entry) and what is left alone
// while it is paused ([store.DueQuery].NotPartitions and NotSagas).
//
// The cases say little about load; run them with -race, and measure with
// [Benchmark].
package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// Options says of a store what cannot be found out by asking it.
type Options struct {
	// SingleWriter: a lock on one execution blocks every other write to the
	// store, as [store.Store] allows where it is documented. The case that
	// forbids this is skipped, and ClaimDue and Renew have to wait for a lock
	// where those of other stores have to pass it over.
	SingleWriter bool

	// Reopen opens the store behind s once more, as another process would,
	// while s stays open. Nil: the cases that need it are skipped.
	Reopen func(t *testing.T, s store.Store) store.Store

	// Require names the abilities that the store must have, such as
	// "Advancer" and "Querier": the cases of one of these that it lacks fail
	// instead of being skipped. So a method that is lost in a change is missed.
	Require []string
}

// Run proves that the stores made by newStore keep the contract of
// [store.Store], and those of the optional abilities they have. Nil opts are
// zero Options.
//
// newStore returns a new, empty store and leaves its closing to t.Cleanup. It
// is called a few times, once at a time, from several goroutines: most cases share one store, in which each keeps to
// executions, partitions, resources and cells of its own. The cases run in
// parallel, and the last of them end after Run has returned, before the
// cleanups of t. Nothing else may use the stores meanwhile.
func Run(t *testing.T, newStore func(t *testing.T) store.Store, opts *Options) {
	runCases(t, cases(), newStore, opts)
}

func runCases(t *testing.T, list []testCase, newStore func(t *testing.T) store.Store, opts *Options) {
	if opts == nil {
		opts = &Options{}
	}
	newStore = oneAtATime(newStore)
	shared := newStore(t)
	var people once
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the contract says: %s", c.promise)
				}
			})
			e := newEnv(t, shared, opts)
			e.people = &people
			if c.fresh {
				e.s, e.people = newStore(t), new(once)
			}
			e.newStore = func() store.Store { return newStore(t) }
			if opts.Reopen != nil {
				e.reopen = func() store.Store { return opts.Reopen(t, e.s) }
			}
			c.run(e)
		})
	}
}

// oneAtATime keeps parallel cases from making stores at once: what a test does
// for that need not be safe for it.
func oneAtATime(newStore func(t *testing.T) store.Store) func(t *testing.T) store.Store {
	var mu sync.Mutex
	return func(t *testing.T) store.Store {
		mu.Lock()
		defer mu.Unlock()
		return newStore(t)
	}
}

// A testCase is one promise.
type testCase struct {
	name    string
	promise string // the sentence of the contract
	fresh   bool   // needs a store in which nothing else happens
	run     func(e *env)
}

// cases returns all cases.
func cases() []testCase {
	return slices.Concat(
		identityCases, createCases, copyCases, lockCases, valueCases, jsonCases, refuseCases,
		attemptCases, changeCases, requestCases, advanceCases, claimCases, renewCases, listCases, waitingCases,
		deleteCases, cellCases, outboxCases, exclusiveCases,
	)
}

// A tb is what cases need of a *testing.T: little, so that the test of this
// package can watch them fail.
type tb interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
	Cleanup(func())
	Context() context.Context
}

// An env is what a case works with.
type env struct {
	tb
	s        store.Store
	opts     *Options
	newStore func() store.Store
	reopen   func() store.Store // nil where that is not possible
	people   *once              // the population of s

	tag      string        // names nothing else in the store has
	n        int           // of values handed out
	deadline time.Duration // of a wait that is to end with it
	patience time.Duration // before something that must not wait counts as waiting
}

func newEnv(t tb, s store.Store, opts *Options) *env {
	return &env{
		tb: t, s: s, opts: opts, people: new(once),
		tag:      "t" + uuid.NewString()[:8],
		deadline: 50 * time.Millisecond,
		patience: 20 * time.Second,
	}
}
