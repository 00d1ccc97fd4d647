package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
	"github.com/leveret-go/leveret/storetest"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func execution(due time.Time) *store.Execution {
	return &store.Execution{
		ID: uuid.Must(uuid.NewV7()), Saga: "order", Version: 1, Partition: "default",
		Status: store.StatusRunning, Direction: store.DirectionExecute, Step: "pay",
		State: []byte(`{}`), DueAt: &due, CreatedAt: start, UpdatedAt: start, ProgressAt: due,
	}
}

func create(t testing.TB, s *memory.Store, due time.Time) *store.Execution {
	t.Helper()
	x := execution(due)
	if err := s.Create(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestNowFollowsTheFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		before, _ := s.Now(t.Context())
		<-time.After(time.Hour)
		after, _ := s.Now(t.Context())
		if got := after.Sub(before); got != time.Hour {
			t.Errorf("the clock went on by %v, want 1h", got)
		}
	})
}

func TestWaitingForALockBlocksDurably(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		x := create(t, s, start)
		entered, release := make(chan bool), make(chan bool)
		go s.WithLock(t.Context(), x.ID, func(*store.Execution) (store.Change, error) {
			close(entered)
			<-release
			return store.Change{}, nil
		})
		<-entered
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		// Were the wait not durable, the clock would stand still.
		_, err := s.WithLock(ctx, x.ID, func(*store.Execution) (store.Change, error) {
			t.Error("fn ran under another's lock")
			return store.Change{}, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want a deadline", err)
		}
		close(release)
	})
}

func TestWritesThatWakeEachOtherEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := create(t, s, start), create(t, s, start)
		inside := make(chan bool)
		errs := make(chan error, 2)
		wake := func(x, other *store.Execution) {
			_, err := s.WithLock(t.Context(), x.ID, func(*store.Execution) (store.Change, error) {
				<-inside
				return store.Change{Wake: []store.Wake{{ID: other.ID, At: start}}}, nil
			})
			errs <- err
		}
		go wake(a, b)
		go wake(b, a)
		synctest.Wait() // both hold their own
		close(inside)
		first, second := <-errs, <-errs
		if (first == nil) == (second == nil) {
			t.Fatalf("got %v and %v; want a deadlock for one, success for the other", first, second)
		}
		ga, _ := s.Get(t.Context(), a.ID)
		gb, _ := s.Get(t.Context(), b.ID)
		if ga.Revision != 2 || gb.Revision != 2 {
			t.Errorf("revisions %d and %d, want one write and one wake", ga.Revision, gb.Revision)
		}
	})
}

func TestAsManyWakersAsExecutions(t *testing.T) {
	s := memory.New()
	var all []*store.Execution
	for range 8 {
		all = append(all, create(t, s, start))
	}
	done := make(chan int)
	for i := range all {
		go func() {
			wrote := 0
			for range 200 {
				_, err := s.WithLock(t.Context(), all[i].ID, func(*store.Execution) (store.Change, error) {
					var c store.Change
					for j := range all {
						if j != i {
							c.Wake = append(c.Wake, store.Wake{ID: all[j].ID, At: start})
						}
					}
					return c, nil
				})
				if err == nil {
					wrote++
				}
			}
			done <- wrote
		}()
	}
	wrote := 0
	for range all {
		wrote += <-done
	}
	for _, x := range all {
		if got, _ := s.Get(t.Context(), x.ID); got.Revision != int64(1+wrote) {
			t.Errorf("revision %d after %d writes, each of which writes all", got.Revision, wrote)
		}
	}
}

func TestClaimingFromManyAllocatesForFew(t *testing.T) {
	s := memory.New()
	for i := range 100_000 {
		create(t, s, start.Add(time.Duration(i)*time.Second))
	}
	q := store.DueQuery{Now: start.Add(24 * 365 * time.Hour), Hold: time.Hour, Limit: 100}
	if n := testing.AllocsPerRun(10, func() {
		if list, err := s.ClaimDue(t.Context(), q); err != nil || len(list) != 100 {
			t.Fatalf("got %d, %v", len(list), err)
		}
	}); n > 10_000 {
		t.Errorf("a claim of 100 allocates %v times", n)
	}
}

var abilities = []string{"Advancer", "Cells", "Deleter", "Exclusiver", "Querier", "Outbox"}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memory.New() }, &storetest.Options{
		Require: abilities,
		Reopen:  func(_ *testing.T, s store.Store) store.Store { return s },
	})
}

func TestQueries(t *testing.T) {
	storetest.RunQueries(t, func(*testing.T) store.Store { return memory.New() }, &storetest.Options{Require: abilities})
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(*testing.B) store.Store { return memory.New() })
}
