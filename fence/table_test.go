package fence_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leveret-go/leveret/fence"
)

func TestMigrateAtOnceAndAgain(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			p := b.open(t)
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() {
					if err := p.migrate(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if err := p.exec(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
			execution := newExecution()
			whole(t, p, effect, execution)
			if err := p.migrate(t.Context()); err != nil {
				t.Error(err)
			}
			if v := whole(t, p, effect, execution); v != fence.Repeat {
				t.Errorf("after another Migrate: got %s, want repeat", v)
			}
		})
	}
}

// Schema, run by other means, is what Migrate makes.
func TestSchemaIsEnough(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			p := b.open(t)
			for statement := range strings.SplitSeq(strings.TrimSpace(fence.Schema), ";\n") {
				if err := p.exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(p.exec(t.Context(), entries), p.exec(t.Context(), "DROP INDEX leveret_fence_at")); err != nil {
				t.Fatal(err)
			}
			if v := whole(t, p, undo, newExecution()); v != fence.Noop {
				t.Errorf("got %s, want noop", v)
			}
		})
	}
}

func TestWithoutTheTableNothingPasses(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			p := b.open(t)
			tx, err := p.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.rollback(t.Context()) }()
			v, err := tx.pass(t.Context(), "a", "a")
			if v != "" || err == nil || errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "leveret_fence") {
				t.Errorf("got %q, %v, want the database's error", v, err)
			}
		})
	}
}

func TestPruneForgetsWhatIsOldOnly(t *testing.T) {
	onEach(t, func(t *testing.T, p participant) {
		calls := func(execution string, list ...kind) {
			for _, k := range list {
				whole(t, p, k, execution)
			}
		}
		old, oldUndone, oldVoid, called, young := newExecution(), newExecution(), newExecution(), newExecution(), newExecution()
		calls(old, effect)
		calls(oldUndone, effect, undo)
		calls(oldVoid, undo)
		calls(called, undo)
		if err := p.exec(t.Context(), "UPDATE leveret_fence SET at = at - 100 * 86400"); err != nil {
			t.Fatal(err)
		}
		calls(called, effect) // refused, and seen
		calls(young, effect, undo)

		n, err := p.prune(t.Context(), time.Now().AddDate(0, 0, -90))
		if err != nil || n != 3 {
			t.Errorf("pruned %d, %v, want 3", n, err)
		}
		for _, row := range []struct {
			execution string
			kind      kind
			want      fence.Verdict
		}{
			// What the comment of Prune warns of.
			{old, undo, fence.Noop}, {oldUndone, effect, fence.First}, {oldVoid, effect, fence.First},
			{called, effect, fence.Refuse}, {young, effect, fence.Refuse}, {young, again, fence.Repeat},
		} {
			if got := whole(t, p, row.kind, row.execution); got != row.want {
				t.Errorf("%s: got %s, want %s", row.kind, got, row.want)
			}
		}
		if n, err := p.prune(t.Context(), time.Now().AddDate(0, 0, -90)); err != nil || n != 0 {
			t.Errorf("pruned %d again, %v", n, err)
		}
	})
}

func TestPruneGoesOnUntilAllIsGone(t *testing.T) {
	onEach(t, func(t *testing.T, p participant) {
		const many = `INSERT INTO leveret_fence (effect, done, effects, undos, at)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
SELECT 'old-' || i, 1, 1, 0, i FROM n`
		if err := p.exec(t.Context(), many); err != nil {
			t.Fatal(err)
		}
		if n, err := p.prune(t.Context(), time.Unix(2500, 0)); err != nil || n != 2499 {
			t.Errorf("pruned %d, %v, want 2499", n, err)
		}
		if n, err := p.number(t.Context(), "SELECT count(*) FROM leveret_fence"); err != nil || n != 1 {
			t.Errorf("%d are left, %v, want 1", n, err)
		}
	})
}

// A row that is old when Prune looks at it, and is called meanwhile, stays.
func TestPruneLeavesWhatIsCalledMeanwhile(t *testing.T) {
	for _, b := range backends[2:] { // SQLite has one writer
		t.Run(b.name, func(t *testing.T) {
			p := b.open(t)
			if err := errors.Join(p.migrate(t.Context()), p.exec(t.Context(), entries)); err != nil {
				t.Fatal(err)
			}
			execution := newExecution()
			whole(t, p, effect, execution)
			if err := p.exec(t.Context(), "UPDATE leveret_fence SET at = 1"); err != nil {
				t.Fatal(err)
			}
			tx, err := p.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := call(t.Context(), tx, undo, execution); err != nil {
				t.Fatal(err)
			}
			pruned := make(chan error, 1)
			go func() {
				n, err := p.prune(t.Context(), time.Unix(2, 0))
				if n != 0 {
					err = errors.Join(err, errors.New("it is gone"))
				}
				pruned <- err
			}()
			blocked(t, p)
			if err := tx.commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-pruned; err != nil {
				t.Error(err)
			}
			if v := whole(t, p, effect, execution); v != fence.Refuse {
				t.Errorf("the late effect: got %s, want refuse", v)
			}
		})
	}
}
