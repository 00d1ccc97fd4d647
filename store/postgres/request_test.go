package postgres_test

import (
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
)

// Of many acts with one request at once, one is written, and the others write
// nothing, whichever way they go.
func TestOneRequestIsWrittenOnce(t *testing.T) {
	s := migrated(t, with(testenv.Postgres(t), "pool_max_conns", "8"), nil)
	x := create(t, s)
	change := func(n int) store.Change {
		a, _ := x.OpenAttempt()
		a.Status, a.Number = store.AttemptSucceeded, n+1
		c := store.Change{
			Attempts: []store.Attempt{a},
			Audit: []store.AuditEntry{{
				Execution: x.ID, At: start, Act: "retry", Actor: "ann", Before: x.Status, After: x.Status,
				Request: "ticket 7", Digest: "d", Detail: []byte(`{"n":1}`),
			}},
		}
		if n%4 > 1 { // no longer one statement
			y := execution()
			y.ID = uuid.New()
			c.Create, c.Erase = []*store.Execution{y}, n%8 > 3
		}
		return c
	}
	ways := []func(n int) error{
		func(n int) error {
			_, err := s.WithLock(t.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
				x.State = []byte(`{"b":2}`)
				return change(n), nil
			})
			return err
		},
		func(n int) error {
			for {
				y, err := s.Get(t.Context(), x.ID)
				if err != nil {
					return err
				}
				y.State = []byte(`{"b":2}`)
				if err := s.Advance(t.Context(), y, change(n)); !errors.Is(err, store.ErrConflict) {
					return err
				}
			}
		},
	}
	var written atomic.Int32
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() {
			switch err := ways[n%2](n); {
			case err == nil:
				written.Add(1)
			case !errors.Is(err, store.ErrRequestUsed):
				t.Errorf("got %v, want ErrRequestUsed", err)
			}
		})
	}
	all.Wait()
	if n := written.Load(); n != 1 {
		t.Errorf("%d were written", n)
	}
	got, err := s.Get(t.Context(), x.ID)
	if err != nil || got.Revision != 2 {
		t.Errorf("revision %d, %v", got.Revision, err)
	}
	audit, err := s.Audit(t.Context(), x.ID)
	if err != nil || !reflect.DeepEqual(audit, change(0).Audit) {
		t.Errorf("audit: %+v, %v", audit, err)
	}
	attempts, err := s.Attempts(t.Context(), x.ID)
	if err != nil || len(attempts) != 2 { // and the open one
		t.Errorf("%d attempts, %v", len(attempts), err)
	}
	list, err := s.List(t.Context(), store.Filter{}, store.Page{})
	if err != nil || len(list.Executions) > 2 {
		t.Errorf("%d executions, %v", len(list.Executions), err)
	}
	pool, control, lists := s.Connections()
	if pool+control+lists > 0 {
		t.Errorf("connections in use: %d, %d, %d", pool, control, lists)
	}
}

// A checkpoint of null is not nil, whichever way it is read: pgx scans the null
// of a json column as NULL.
func TestCheckpointOfNull(t *testing.T) {
	s := migrated(t, testenv.Postgres(t), nil)
	x := execution()
	x.Checkpoint = []byte("null")
	if err := s.Create(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	check := func(way string, y *store.Execution, err error) {
		t.Helper()
		if err != nil || string(y.Checkpoint) != "null" {
			t.Errorf("%s: got %q, %v", way, y.Checkpoint, err)
		}
	}
	y, err := s.Get(t.Context(), x.ID)
	check("Get", y, err)
	y, err = s.WithLock(t.Context(), x.ID, func(y *store.Execution) (store.Change, error) {
		check("WithLock", y, nil)
		return store.Change{}, nil
	})
	check("after WithLock", y, err)
	first := func(list []*store.Execution, err error) (*store.Execution, error) {
		if err == nil && len(list) == 0 {
			err = store.ErrNotFound
		}
		if err != nil {
			return &store.Execution{}, err
		}
		return list[0], nil
	}
	y, err = first(s.ClaimDue(t.Context(), store.DueQuery{Now: *at(2 * time.Minute), Limit: 1}))
	check("ClaimDue", y, err)
	y, err = first(s.ForResource(t.Context(), x.Resource, 1))
	check("ForResource", y, err)
	list, err := s.List(t.Context(), store.Filter{}, store.Page{})
	if err != nil {
		t.Fatal(err)
	}
	y, err = first(list.Executions, nil)
	check("List", y, err)
}
