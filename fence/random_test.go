package fence_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/leveret-go/leveret/fence"
)

// Calls in any order, of which some die before they commit: the verdicts are
// those of the model.
func TestRandomCallsFollowTheModel(t *testing.T) {
	onEach(t, func(t *testing.T, p participant) {
		for seed := range uint64(10) {
			random := rand.New(rand.NewPCG(seed, 1))
			var executions [4]string
			for i := range executions {
				executions[i] = newExecution()
			}
			model := map[string]past{}
			for n := range 40 {
				execution, k := executions[random.IntN(len(executions))], kinds[random.IntN(len(kinds))]
				dies := random.IntN(4) == 0
				was := cmp.Or(model[execution], nothing)
				want, then := was.after(k)

				tx, err := p.begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got, err := call(t.Context(), tx, k, execution)
				if err != nil || got != want {
					t.Errorf("seed %d, call %d: %s on %s: got %s, %v, want %s", seed, n, k, was, got, err, want)
				}
				if dies {
					err = tx.rollback(t.Context())
				} else {
					err, model[execution] = tx.commit(t.Context()), then
				}
				if err != nil {
					t.Fatal(err)
				}
				if got, want := inForce(t, p, execution), (map[past]int{done: 1}[model[execution]]); got != want {
					t.Fatalf("seed %d, call %d: in force %d times, want %d", seed, n, got, want)
				}
			}
		}
	})
}

// callers is how many call at once in the test below, and each makes so many
// transactions.
const (
	callers      = 6
	transactions = 25
)

// Calls at once, of which some die, and some pass two effects in one
// transaction: whoever is told that an effect is undone can rely on it from then
// on, and in the end each effect has happened as often as it should.
func TestRandomCallersAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, p participant) {
		for seed := range uint64(3) {
			var executions [6]string
			for i := range executions {
				executions[i] = newExecution()
			}
			slices.Sort(executions[:]) // the order in which two are passed
			l := &ledger{committed: map[string][]verdict{}}
			var all sync.WaitGroup
			for c := range uint64(callers) {
				all.Go(func() {
					random := rand.New(rand.NewPCG(seed, c))
					for range transactions {
						if err := l.transaction(t.Context(), p, random, executions[:]); err != nil {
							t.Errorf("seed %d: %v", seed, err)
							return
						}
					}
				})
			}
			all.Wait()
			for _, execution := range executions {
				l.check(t, p, seed, execution)
			}
		}
	})
}

type verdict struct {
	kind
	fence.Verdict
}

// A ledger has what callers were told.
type ledger struct {
	sync.Mutex
	committed map[string][]verdict
}

func (l *ledger) transaction(ctx context.Context, p participant, random *rand.Rand, executions []string) (err error) {
	first := random.IntN(len(executions))
	chosen := []string{executions[first]}
	if rest := executions[first+1:]; len(rest) > 0 && random.IntN(5) == 0 {
		chosen = append(chosen, rest[random.IntN(len(rest))])
	}
	dies := random.IntN(5) == 0
	tx, err := p.begin(ctx)
	if err != nil {
		return err
	}
	told := map[string]verdict{}
	for _, execution := range chosen {
		k := kinds[random.IntN(len(kinds))]
		v, err := call(ctx, tx, k, execution)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", k, err), tx.rollback(ctx))
		}
		told[execution] = verdict{k, v}
	}
	if dies {
		return tx.rollback(ctx)
	}
	if err := tx.commit(ctx); err != nil {
		return err
	}
	l.Lock()
	for execution, v := range told {
		l.committed[execution] = append(l.committed[execution], v)
	}
	l.Unlock()
	for execution, v := range told {
		if v.kind == effect && v.Verdict != fence.Refuse {
			continue
		}
		n, err := p.number(ctx, "SELECT COALESCE(SUM(delta), 0) FROM entries WHERE effect = $1", execution)
		if err != nil {
			return err
		}
		if n != 0 {
			return fmt.Errorf("after %s was told %s the effect is in force %d times", v.kind, v.Verdict, n)
		}
	}
	return nil
}

// check compares the end with what callers were told.
func (l *ledger) check(t *testing.T, p participant, seed uint64, execution string) {
	t.Helper()
	count := map[verdict]int{}
	for _, v := range l.committed[execution] {
		if v.kind == again {
			v.kind = undo
		}
		count[v]++
	}
	done, undone := count[verdict{effect, fence.First}], count[verdict{undo, fence.First}]
	void := count[verdict{undo, fence.Noop}]
	undos := undone + void + count[verdict{undo, fence.Repeat}]
	switch {
	case done > 1, undone > done:
		t.Errorf("seed %d: done %d times, undone %d times", seed, done, undone)
	case done == 1 && void > 0:
		t.Errorf("seed %d: %d undos were told that nothing had happened, of an effect that has", seed, void)
	case done == 1 && undos > 0 && undone == 0:
		t.Errorf("seed %d: %d undos and none did it", seed, undos)
	case count[verdict{effect, fence.Refuse}] > 0 && undos == 0:
		t.Errorf("seed %d: refused without an undo", seed)
	case count[verdict{effect, fence.Repeat}] > 0 && done == 0:
		t.Errorf("seed %d: repeated without a first time", seed)
	}
	if got := inForce(t, p, execution); got != done-undone {
		t.Errorf("seed %d: in force %d times, done %d times and undone %d times", seed, got, done, undone)
	}
}
