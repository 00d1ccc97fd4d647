package storetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// TestEveryCaseCanFail plants one fault per case in a store that is right
// otherwise: a case that a wrong store passes proves nothing.
func TestEveryCaseCanFail(t *testing.T) {
	known := map[string]bool{}
	for _, c := range cases() {
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
// methods only.
func TestAbilitiesAreSkipped(t *testing.T) {
	n := 0
	for _, c := range cases() {
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
	if want := len(advanceCases) + len(cellCases) + len(exclusiveCases) + 2; n != want {
		t.Errorf("%d cases were skipped, want %d", n, want)
	}
}

// A recorder stands in for a *testing.T, to be looked at afterwards.
type recorder struct {
	ctx context.Context

	mu       sync.Mutex
	failed   bool
	skipped  bool
	log      strings.Builder
	cleanups []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.log, format+"; ", args...)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	r.failed = true
	r.mu.Unlock()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// run runs f to its end, be it a Fatalf or a panic.
func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		f()
	}()
	<-done
}

// observe runs a case on a store with a fault.
func observe(ctx context.Context, c testCase, plant func(*faulty)) *recorder {
	r := &recorder{ctx: ctx}
	r.run(func() {
		newStore := func() store.Store {
			f := &faulty{Store: memory.New()}
			plant(f)
			return f
		}
		e := newEnv(r, newStore(), &Options{})
		e.newStore = newStore
		e.reopen = func() store.Store {
			if f := e.s.(*faulty); f.reopen != nil {
				return f.reopen()
			}
			return e.s
		}
		e.patience = time.Second
		c.run(e)
	})
	return r
}

// A faulty is a store in memory with the methods that are set replaced.
type faulty struct {
	*memory.Store
	reopen      func() store.Store
	id          func(context.Context) (uuid.UUID, error)
	now         func(context.Context) (time.Time, error)
	create      func(context.Context, *store.Execution) error
	get         func(context.Context, uuid.UUID) (*store.Execution, error)
	withLock    func(context.Context, uuid.UUID, lockFunc) (*store.Execution, error)
	attempts    func(context.Context, uuid.UUID) ([]store.Attempt, error)
	audit       func(context.Context, uuid.UUID) ([]store.AuditEntry, error)
	stalled     func(context.Context, store.StalledQuery) ([]*store.Execution, error)
	forResource func(context.Context, store.Resource, int) ([]*store.Execution, error)
	claimDue    func(context.Context, store.DueQuery) ([]*store.Execution, error)
	renew       func(context.Context, []store.Lease, store.Renewal) ([]store.LeaseState, error)
	advance     func(context.Context, *store.Execution, store.Change) error
	cell        func(context.Context, string) (json.RawMessage, int64, error)
	setCell     func(context.Context, string, json.RawMessage, int64) (int64, error)
	listCells   func(context.Context, string) ([]store.Cell, error)
	exclusive   func(context.Context) (func() error, error)
}

type lockFunc = func(*store.Execution) (store.Change, error)

func (f *faulty) ID(ctx context.Context) (uuid.UUID, error) {
	if f.id != nil {
		return f.id(ctx)
	}
	return f.Store.ID(ctx)
}

func (f *faulty) Now(ctx context.Context) (time.Time, error) {
	if f.now != nil {
		return f.now(ctx)
	}
	return f.Store.Now(ctx)
}

func (f *faulty) Create(ctx context.Context, x *store.Execution) error {
	if f.create != nil {
		return f.create(ctx, x)
	}
	return f.Store.Create(ctx, x)
}

func (f *faulty) Get(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
	if f.get != nil {
		return f.get(ctx, id)
	}
	return f.Store.Get(ctx, id)
}

func (f *faulty) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if f.withLock != nil {
		return f.withLock(ctx, id, fn)
	}
	return f.Store.WithLock(ctx, id, fn)
}

func (f *faulty) Attempts(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
	if f.attempts != nil {
		return f.attempts(ctx, id)
	}
	return f.Store.Attempts(ctx, id)
}

func (f *faulty) Audit(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
	if f.audit != nil {
		return f.audit(ctx, id)
	}
	return f.Store.Audit(ctx, id)
}

func (f *faulty) Stalled(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
	if f.stalled != nil {
		return f.stalled(ctx, q)
	}
	return f.Store.Stalled(ctx, q)
}

func (f *faulty) ForResource(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
	if f.forResource != nil {
		return f.forResource(ctx, r, limit)
	}
	return f.Store.ForResource(ctx, r, limit)
}

func (f *faulty) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	if f.claimDue != nil {
		return f.claimDue(ctx, q)
	}
	return f.Store.ClaimDue(ctx, q)
}

func (f *faulty) Renew(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if f.renew != nil {
		return f.renew(ctx, leases, r)
	}
	return f.Store.Renew(ctx, leases, r)
}

func (f *faulty) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	if f.advance != nil {
		return f.advance(ctx, x, c)
	}
	return f.Store.Advance(ctx, x, c)
}

func (f *faulty) Cell(ctx context.Context, name string) (json.RawMessage, int64, error) {
	if f.cell != nil {
		return f.cell(ctx, name)
	}
	return f.Store.Cell(ctx, name)
}

func (f *faulty) SetCell(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
	if f.setCell != nil {
		return f.setCell(ctx, name, value, revision)
	}
	return f.Store.SetCell(ctx, name, value, revision)
}

func (f *faulty) ListCells(ctx context.Context, prefix string) ([]store.Cell, error) {
	if f.listCells != nil {
		return f.listCells(ctx, prefix)
	}
	return f.Store.ListCells(ctx, prefix)
}

func (f *faulty) Exclusive(ctx context.Context) (func() error, error) {
	if f.exclusive != nil {
		return f.exclusive(ctx)
	}
	return f.Store.Exclusive(ctx)
}

// Faults that more than one case has to find.

// stores makes the store change executions on their way in.
func stores(change func(*store.Execution)) func(*faulty) {
	return func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			y := *x
			change(&y)
			err := f.Store.Create(ctx, &y)
			x.Revision = y.Revision
			return err
		}
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				change(x)
				return c, err
			})
		}
	}
}

// changes makes the store change the Changes it is given.
func changes(change func(*store.Change)) func(*faulty) {
	return func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				c.Attempts, c.Audit, c.Wake = slices.Clone(c.Attempts), slices.Clone(c.Audit), slices.Clone(c.Wake)
				change(&c)
				return c, err
			})
		}
	}
}

// locks makes WithLock do something else than to call fn.
func locks(call func(fn lockFunc, x *store.Execution) (store.Change, error)) func(*faulty) {
	return func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) { return call(fn, x) })
		}
	}
}

// lockless makes WithLock hold no lock while fn runs.
func lockless(f *faulty) {
	f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
		x, err := f.Store.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		was := x.Clone()
		c, err := fn(x)
		if errors.Is(err, store.ErrUnchanged) {
			return was, nil
		}
		if err != nil {
			return nil, err
		}
		return f.Store.WithLock(ctx, id, func(y *store.Execution) (store.Change, error) {
			x.Revision = y.Revision
			*y = *x
			return c, nil
		})
	}
}

// claims makes ClaimDue change what it was asked and what it answers.
func claims(ask func(*store.DueQuery), answer func([]*store.Execution) []*store.Execution) func(*faulty) {
	return func(f *faulty) {
		f.claimDue = func(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
			ask(&q)
			list, err := f.Store.ClaimDue(ctx, q)
			return answer(list), err
		}
	}
}

// fix makes a text one that can be stored.
func fix(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "") }

var faults = map[string]func(f *faulty){
	"IDIsStable": func(f *faulty) {
		f.id = func(context.Context) (uuid.UUID, error) { return uuid.UUID{1}, nil } // the same for all stores
	},
	"IDSurvivesReopening": func(f *faulty) { f.reopen = func() store.Store { return memory.New() } },
	"ReopenedSeesAll":     func(f *faulty) { f.reopen = func() store.Store { return memory.New() } },
	"Now": func(f *faulty) {
		f.now = func(context.Context) (time.Time, error) {
			return time.Now().UTC().Truncate(time.Microsecond).Add(1), nil
		}
	},

	"CreateSetsRevision": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error { return f.Store.Create(ctx, x.Clone()) }
	},
	"CreateExists": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			err := f.Store.Create(ctx, x)
			if errors.Is(err, store.ErrExists) && x.Step == "ship" { // tells it from a repetition
				return store.ErrConflict
			}
			return err
		}
	},
	"CreateExistsRace": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			if err := f.Store.Create(ctx, x); !errors.Is(err, store.ErrExists) {
				return err
			}
			return nil
		}
	},
	"CreateKeyTaken": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			err := f.Store.Create(ctx, x)
			if taken, ok := errors.AsType[*store.KeyTakenError](err); ok {
				taken.Execution = uuid.Nil
			}
			return err
		}
	},
	"CreateExistsAndKeyTaken": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			err := f.Store.Create(ctx, x)
			if errors.Is(err, store.ErrExists) && x.Key != "" {
				return &store.KeyTakenError{Saga: x.Saga, Key: x.Key, Execution: x.ID}
			}
			return err
		}
	},
	"CreateKeyRace": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			y := x.Clone()
			y.Key += x.ID.String() // never taken
			return f.Store.Create(ctx, y)
		}
	},
	"KeyIsFreed": func(f *faulty) {
		f.create = func(ctx context.Context, x *store.Execution) error {
			err := f.Store.Create(ctx, x)
			if taken, ok := errors.AsType[*store.KeyTakenError](err); ok {
				if holder, _ := f.Store.Get(ctx, taken.Execution); holder.Status == store.StatusCompensationFailed {
					return nil
				}
			}
			return err
		}
	},
	"KeyIsTakenBack": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			x, err := f.Store.WithLock(ctx, id, fn)
			if _, ok := errors.AsType[*store.KeyTakenError](err); ok {
				return f.Store.Get(ctx, id)
			}
			return x, err
		}
	},
	"GetNotFound": func(f *faulty) {
		f.get = func(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
			x, err := f.Store.Get(ctx, id)
			if errors.Is(err, store.ErrNotFound) {
				err = nil
			}
			return x, err
		}
	},
	"CopiesIn": func(f *faulty) {
		var kept *store.Execution
		f.create = func(ctx context.Context, x *store.Execution) error {
			kept = x
			return f.Store.Create(ctx, x)
		}
		f.get = func(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
			x, err := f.Store.Get(ctx, id)
			x.State = kept.State
			return x, err
		}
	},
	"CopiesOut": func(f *faulty) {
		cached := map[uuid.UUID]*store.Execution{}
		f.get = func(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
			x, err := f.Store.Get(ctx, id)
			if c := cached[id]; c != nil && err == nil && c.Revision == x.Revision {
				return c, nil
			}
			cached[id] = x
			return x, err
		}
	},

	"WithLockWrites": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			x, err := f.Store.WithLock(ctx, id, fn)
			x.Revision--
			return x, err
		}
	},
	"WithLockLosesNoUpdate": func(f *faulty) {
		var mu sync.Mutex
		var stale *store.Execution
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				mu.Lock()
				defer mu.Unlock()
				if stale == nil || x.Revision%2 == 0 {
					stale = x.Clone() // read before somebody else wrote
				}
				x.Tries = stale.Tries
				return fn(x)
			})
		}
	},
	"WithLockExcludes":       lockless,
	"WithLockIsPerExecution": func(f *faulty) { f.withLock = newSingleWriterOver(f.Store).WithLock },
	"ReadersDoNotWait": func(f *faulty) {
		var mu sync.Mutex
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				mu.Lock()
				defer mu.Unlock()
				return fn(x)
			})
		}
		f.audit = func(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
			mu.Lock()
			defer mu.Unlock()
			return f.Store.Audit(ctx, id)
		}
	},
	"WithLockNotFound": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			x, err := f.Store.WithLock(ctx, id, fn)
			if errors.Is(err, store.ErrNotFound) {
				_, _ = fn(&store.Execution{ID: id})
			}
			return x, err
		}
	},
	"WithLockFnError": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			x, err := f.Store.WithLock(ctx, id, fn)
			if err != nil {
				err = fmt.Errorf("rolled back: %v", err)
			}
			return x, err
		}
	},
	"WithLockFnPanics": locks(func(fn lockFunc, x *store.Execution) (c store.Change, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return fn(x)
	}),
	"WithLockFnCancels": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(context.WithoutCancel(ctx), id, fn)
		}
	},
	"WithLockUnchanged": locks(func(fn lockFunc, x *store.Execution) (store.Change, error) {
		c, err := fn(x)
		if errors.Is(err, store.ErrUnchanged) {
			return c, nil
		}
		return c, err
	}),
	"WithLockNested": func(f *faulty) {
		var inside *store.Execution // the lock lets its holder in again
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			if inside != nil {
				_, err := fn(inside)
				return inside.Clone(), err
			}
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				inside = x
				defer func() { inside = nil }()
				return fn(x)
			})
		}
	},
	"WithLockImmutable": locks(func(fn lockFunc, x *store.Execution) (store.Change, error) {
		id, created, revision := x.ID, x.CreatedAt, x.Revision
		c, err := fn(x)
		x.ID, x.CreatedAt, x.Revision = id, created, revision
		return c, err
	}),
	"DoneContext": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			return f.Store.Renew(context.WithoutCancel(ctx), leases, r)
		}
	},

	"ExecutionIsKept": stores(func(x *store.Execution) { x.TraceParent = "" }),
	"ExecutionIsReplaced": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				failure := x.Failure
				c, err := fn(x)
				x.Failure = cmp.Or(x.Failure, failure) // never taken away again
				return c, err
			})
		}
	},
	"TimesAreMicroseconds": stores(func(x *store.Execution) { x.CreatedAt = x.CreatedAt.Round(time.Microsecond) }),
	"TimesAreKept": stores(func(x *store.Execution) {
		if x.ProgressAt.IsZero() {
			x.ProgressAt = time.Unix(0, 0)
		}
	}),
	"StateIsKept": stores(func(x *store.Execution) {
		var b bytes.Buffer
		if json.Compact(&b, x.State) == nil {
			x.State = b.Bytes()
		}
	}),
	"StateIsRefused": stores(func(x *store.Execution) { x.State = bytes.ToValidUTF8(x.State, nil) }),
	"TextsAreKept":   stores(func(x *store.Execution) { x.Reason = strings.ReplaceAll(x.Reason, "?", "$1") }),
	"LongTextsAreKept": changes(func(c *store.Change) {
		for i := range c.Attempts {
			c.Attempts[i].Stack = c.Attempts[i].Stack[:min(len(c.Attempts[i].Stack), 4096)]
		}
	}),
	"TextsAreRefused": stores(func(x *store.Execution) {
		if x.Failure != nil {
			x.Failure.Message = fix(x.Failure.Message)
		}
	}),
	"TextsOfChangesAreRefused": changes(func(c *store.Change) {
		for i := range c.Audit {
			c.Audit[i].Actor = fix(c.Audit[i].Actor)
		}
	}),
	"NumbersAreKept": stores(func(x *store.Execution) { x.Resumes = min(x.Resumes, 1<<15-1) }),
	"RequiredFields": stores(func(x *store.Execution) { x.Partition = cmp.Or(x.Partition, "default") }),

	"AttemptsInOrder": func(f *faulty) {
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			slices.SortStableFunc(list, func(a, b store.Attempt) int { return a.StartedAt.Compare(b.StartedAt) })
			return list, err
		}
	},
	"AttemptsShowTheOpenOne": func(f *faulty) {
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			return slices.DeleteFunc(list, func(a store.Attempt) bool { return a.Status == store.AttemptRunning }), err
		}
	},
	"AttemptsAtOneMoment": func(f *faulty) {
		// The open one is read some time after the history.
		old := map[uuid.UUID][]store.Attempt{}
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			history := old[id]
			old[id] = slices.Clone(list[:len(list)-1])
			return append(history, list[len(list)-1]), err
		}
	},
	"AttemptsOfUnknown": func(f *faulty) {
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			if _, err := f.Store.Get(ctx, id); err != nil {
				return nil, err
			}
			return f.Store.Attempts(ctx, id)
		}
	},
	"AttemptsBelongToOne": func(f *faulty) {
		var all []store.Attempt
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			all = append(all, list...)
			return all, err
		}
	},
	"AttemptIsKept": changes(func(c *store.Change) {
		for i := range c.Attempts {
			if c.Attempts[i].Failure == nil {
				c.Attempts[i].Failure = &store.Failure{}
			}
		}
	}),
	"AttemptIsKnownByItsKey": changes(func(c *store.Change) {
		seen := map[string]bool{}
		c.Attempts = slices.DeleteFunc(c.Attempts, func(a store.Attempt) bool { // the epoch is forgotten
			k := fmt.Sprint(a.Step, a.Direction, a.Number)
			known := seen[k]
			seen[k] = true
			return known
		})
	}),
	"ClosedAttemptIsNotRewritten": func(f *faulty) {
		written := map[string]store.AttemptStatus{}
		key := func(a store.Attempt) string { return fmt.Sprint(a.Execution, a.Step, a.Number) }
		changes(func(c *store.Change) {
			for _, a := range c.Attempts {
				written[key(a)] = a.Status
			}
		})(f)
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			for i := range list {
				list[i].Status = written[key(list[i])]
			}
			return list, err
		}
	},
	"LateResultIsTakenOnce": func(f *faulty) {
		var last store.AttemptStatus
		changes(func(c *store.Change) {
			for _, a := range c.Attempts {
				last = cmp.Or(a.LateStatus, last)
			}
		})(f)
		f.attempts = func(ctx context.Context, id uuid.UUID) ([]store.Attempt, error) {
			list, err := f.Store.Attempts(ctx, id)
			for i := range list {
				list[i].LateStatus = last
			}
			return list, err
		}
	},
	"AuditIsKept": changes(func(c *store.Change) {
		for i := range c.Audit {
			c.Audit[i].After = c.Audit[i].Before
		}
	}),
	"AuditInOrder": func(f *faulty) {
		f.audit = func(ctx context.Context, id uuid.UUID) ([]store.AuditEntry, error) {
			list, err := f.Store.Audit(ctx, id)
			slices.SortStableFunc(list, func(a, b store.AuditEntry) int { return a.At.Compare(b.At) })
			return list, err
		}
	},

	"ChangeIsRefused": changes(func(c *store.Change) {
		c.Attempts = slices.DeleteFunc(c.Attempts, func(a store.Attempt) bool { return a.Status == store.AttemptRunning })
	}),
	"ChangeCreates": changes(func(c *store.Change) { c.Create = c.Create[:min(len(c.Create), 1)] }),
	"ChangeCreateFails": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			var wake []store.Wake
			x, err := f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				wake, c.Wake = c.Wake, nil
				return c, err
			})
			if len(wake) > 0 { // in a transaction of its own
				_, _ = f.Store.WithLock(ctx, id, func(*store.Execution) (store.Change, error) { return store.Change{Wake: wake}, nil })
			}
			return x, err
		}
	},
	"ChangeWakes": func(f *faulty) {
		changes(func(c *store.Change) {
			for i, w := range c.Wake { // later ones stay
				if x, _ := f.Store.Get(context.Background(), w.ID); x != nil && x.DueAt != nil && x.Attempt == nil {
					c.Wake[i].At = *x.DueAt
				}
			}
		})(f)
	},
	"ChangeWakesOnlyWhatCanGoOn": func(f *faulty) {
		changes(func(c *store.Change) {
			c.Wake = slices.DeleteFunc(c.Wake, func(w store.Wake) bool {
				x, _ := f.Store.Get(context.Background(), w.ID)
				if x == nil || x.Status != store.StatusHalted {
					return false
				}
				_, _ = f.Store.WithLock(context.Background(), w.ID, func(x *store.Execution) (store.Change, error) {
					x.DueAt = &w.At
					return store.Change{}, nil
				})
				return true
			})
		})(f)
	},
	"WakeWaitsForLock": changes(func(c *store.Change) { c.Wake = nil }),
	"WakesOfEachOther": changes(func(c *store.Change) { c.Wake = nil }),
	"ChangeIsAtomic": func(f *faulty) {
		held := map[uuid.UUID][]store.AuditEntry{} // until the next write
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				c.Audit, held[id] = held[id], c.Audit
				return c, err
			})
		}
	},
	"SameState": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				c, err := fn(x)
				c.SameState = true
				return c, err
			})
		}
	},

	"AdvanceWrites": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			return f.Store.Advance(ctx, x.Clone(), c)
		}
	},
	"AdvanceConflicts": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			if err := f.Store.Advance(ctx, x, c); !errors.Is(err, store.ErrConflict) {
				return err
			}
			_, err := f.Store.WithLock(ctx, x.ID, func(*store.Execution) (store.Change, error) {
				return store.Change{Audit: c.Audit}, nil
			})
			return errors.Join(store.ErrConflict, err)
		}
	},
	"AdvanceAfterWake": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			stored, err := f.Store.Get(ctx, x.ID)
			if err != nil {
				return err
			}
			x.Revision = stored.Revision
			return f.Store.Advance(ctx, x, c)
		}
	},
	"AdvanceEqualsWithLock": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			c.Wake = nil
			return f.Store.Advance(ctx, x, c)
		}
	},
	"AdvanceOverClaimAndRenewal": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			y := x.Clone()
			if stored, err := f.Store.Get(ctx, x.ID); err == nil && stored.OfferedAt != nil {
				y.OfferedAt = stored.OfferedAt
			}
			err := f.Store.Advance(ctx, y, c)
			x.Revision = y.Revision
			return err
		}
	},
	"AdvanceIsRefused": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			err := f.Store.Advance(ctx, x, c)
			if _, ok := errors.AsType[*store.KeyTakenError](err); ok {
				return store.ErrConflict
			}
			return err
		}
	},
	"AdvanceRace": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			if err := f.Store.Advance(ctx, x, c); !errors.Is(err, store.ErrConflict) {
				return err
			}
			return nil
		}
	},
	"AdvanceWaitsForLock": func(f *faulty) {
		f.advance = func(ctx context.Context, x *store.Execution, c store.Change) error {
			if err := f.Store.Advance(ctx, x, c); !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return store.ErrConflict
		}
	},

	"ClaimDueHolds": claims(func(*store.DueQuery) {}, func(list []*store.Execution) []*store.Execution {
		for _, x := range list {
			x.Revision++
		}
		return list
	}),
	"ClaimDueInOrder": claims(func(*store.DueQuery) {}, func(list []*store.Execution) []*store.Execution {
		slices.SortFunc(list, func(a, b *store.Execution) int { return bytes.Compare(a.ID[:], b.ID[:]) })
		return list
	}),
	"ClaimDueTakesWhatIsDue": claims(func(q *store.DueQuery) { q.Now = q.Now.Add(-time.Microsecond) },
		func(list []*store.Execution) []*store.Execution { return list }),
	"ClaimDueOfAPartition": claims(func(q *store.DueQuery) { q.Partition = "" },
		func(list []*store.Execution) []*store.Execution { return list }),
	"ClaimDueOnce": func(f *faulty) {
		var mu sync.Mutex
		var first []*store.Execution
		f.claimDue = func(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
			mu.Lock()
			defer mu.Unlock()
			list, err := f.Store.ClaimDue(ctx, q)
			if len(first) == 0 {
				first = list
			} else if len(list) > 0 {
				list = append(list[1:], first[0])
			}
			return list, err
		}
	},
	"ClaimDuePassesLocked": lockless,
	"ClaimDueRefuses": claims(func(q *store.DueQuery) { q.Limit = max(q.Limit, 1) },
		func(list []*store.Execution) []*store.Execution { return list }),

	"RenewProlongs": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			states, err := f.Store.Renew(ctx, leases, r)
			for _, l := range leases {
				_, _ = f.Store.WithLock(ctx, l.Execution, func(*store.Execution) (store.Change, error) { return store.Change{}, nil })
			}
			return states, err
		}
	},
	"RenewCutsTimes": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			r.Until = r.Until.Round(time.Microsecond)
			return f.Store.Renew(ctx, leases, r)
		}
	},
	"RenewOfALapsedLease": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			r.Now = r.Now.Add(-time.Microsecond)
			return f.Store.Renew(ctx, leases, r)
		}
	},
	"RenewComparesTheWholeToken": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			leases = slices.Clone(leases)
			for i, l := range leases {
				if x, _ := f.Store.Get(ctx, l.Execution); x != nil {
					leases[i].Epoch = x.Epoch
				}
			}
			return f.Store.Renew(ctx, leases, r)
		}
	},
	"RenewInterrupts": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			states, err := f.Store.Renew(ctx, leases, r)
			for i, l := range leases {
				if x, _ := f.Store.Get(ctx, l.Execution); x != nil && x.Request != nil && states[i] == store.LeaseHeld {
					states[i] = store.LeaseInterrupted // for any request
				}
			}
			return states, err
		}
	},
	"RenewPassesLocked": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			states, err := f.Store.Renew(ctx, leases, r)
			for i := range states {
				if states[i] == store.LeaseLocked {
					states[i] = store.LeaseHeld
				}
			}
			return states, err
		}
	},
	"RenewAnswersInOrder": func(f *faulty) {
		f.renew = func(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
			seen := map[store.Lease]bool{}
			leases = slices.DeleteFunc(slices.Clone(leases), func(l store.Lease) bool {
				known := seen[l]
				seen[l] = true
				return known
			})
			return f.Store.Renew(ctx, leases, r)
		}
	},

	"Stalled": func(f *faulty) {
		f.stalled = func(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
			q.ProgressBefore = q.ProgressBefore.Add(time.Microsecond) // at or before
			return f.Store.Stalled(ctx, q)
		}
	},
	"StalledInPages": func(f *faulty) {
		f.stalled = func(ctx context.Context, q store.StalledQuery) ([]*store.Execution, error) {
			if q.After != nil {
				q.After = &store.StalledCursor{ProgressAt: q.After.ProgressAt, ID: uuid.Max} // by time alone
			}
			return f.Store.Stalled(ctx, q)
		}
	},
	"ForResource": func(f *faulty) {
		f.forResource = func(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
			list, err := f.Store.ForResource(ctx, r, limit)
			r.ID += " " // as in columns that pad
			more, _ := f.Store.ForResource(ctx, r, limit)
			return append(list, more...), err
		}
	},
	"ForResourceNewestFirst": func(f *faulty) {
		f.forResource = func(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
			list, err := f.Store.ForResource(ctx, r, 1000)
			slices.Reverse(list)
			return list[:min(limit, len(list))], err
		}
	},
	"LimitsAreRefused": func(f *faulty) {
		f.forResource = func(ctx context.Context, r store.Resource, limit int) ([]*store.Execution, error) {
			return f.Store.ForResource(ctx, r, max(limit, 1))
		}
	},

	"CellIsWritten": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			if string(value) == "null" {
				value = nil
			}
			return f.Store.SetCell(ctx, name, value, revision)
		}
	},
	"CellConflicts": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			got, err := f.Store.SetCell(ctx, name, value, revision)
			if errors.Is(err, store.ErrConflict) && value == nil {
				return 0, nil // there is nothing to delete
			}
			return got, err
		}
	},
	"CellIsDeleted": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			if value == nil {
				value = []byte("null")
			}
			return f.Store.SetCell(ctx, name, value, revision)
		}
	},
	"CellRace": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			got, err := f.Store.SetCell(ctx, name, value, revision)
			if errors.Is(err, store.ErrConflict) {
				err = nil
			}
			return got, err
		}
	},
	"CellValueIsKept": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			var b bytes.Buffer
			if json.Compact(&b, value) == nil {
				value = b.Bytes()
			}
			return f.Store.SetCell(ctx, name, value, revision)
		}
	},
	"CellNames": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			return f.Store.SetCell(ctx, strings.ToLower(name), value, revision)
		}
	},
	"ListCells": func(f *faulty) {
		f.listCells = func(ctx context.Context, prefix string) ([]store.Cell, error) {
			list, err := f.Store.ListCells(ctx, prefix)
			slices.SortFunc(list, func(a, b store.Cell) int {
				return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) // as a collation does
			})
			return list, err
		}
	},
	"CellsAreCopies": func(f *faulty) {
		cached := map[string]json.RawMessage{}
		f.cell = func(ctx context.Context, name string) (json.RawMessage, int64, error) {
			value, revision, err := f.Store.Cell(ctx, name)
			if cached[name] == nil {
				cached[name] = value
			}
			return cached[name], revision, err
		}
	},

	"ExclusiveIsExclusive": func(f *faulty) {
		f.exclusive = func(context.Context) (func() error, error) { return func() error { return nil }, nil }
	},
	"ExclusiveReleasedTwice": func(f *faulty) {
		held := false
		f.exclusive = func(context.Context) (func() error, error) {
			if held {
				return nil, store.ErrInUse
			}
			held = true
			return func() error { held = false; return nil }, nil // whoever holds it now
		}
	},
}

// A singleWriter has one lock for all rows.
type singleWriter struct {
	*memory.Store
	slot chan struct{}
}

func newSingleWriter() *singleWriter { return newSingleWriterOver(memory.New()) }

func newSingleWriterOver(s *memory.Store) *singleWriter {
	return &singleWriter{s, make(chan struct{}, 1)}
}

func (s *singleWriter) lock(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case s.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *singleWriter) unlock() { <-s.slot }

func (s *singleWriter) Create(ctx context.Context, x *store.Execution) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	return s.Store.Create(ctx, x)
}

func (s *singleWriter) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (*store.Execution, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	return s.Store.WithLock(ctx, id, fn)
}

func (s *singleWriter) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	return s.Store.Advance(ctx, x, c)
}

func (s *singleWriter) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	return s.Store.ClaimDue(ctx, q)
}

func (s *singleWriter) Renew(ctx context.Context, leases []store.Lease, r store.Renewal) ([]store.LeaseState, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	return s.Store.Renew(ctx, leases, r)
}
