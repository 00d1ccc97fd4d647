package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// A TxKind is a way in which users have transactions on a store's database: what
// [RunTx] has to know of it.
type TxKind struct {
	// Kind is what TxKind of the wrapped transactions returns.
	Kind string

	// Begin begins a transaction as a user does, on a connection that is not the
	// store's own if there can be one.
	Begin func(ctx context.Context, s store.Store) (UserTx, error)

	// Note writes a text into a table of the user's, in a transaction of this kind,
	// and Notes returns, in any order, the texts that are committed. They are of
	// the database that s is in, so there has to be such a table before.
	Note  func(ctx context.Context, tx store.Tx, text string) error
	Notes func(ctx context.Context, s store.Store) ([]string, error)
}

// A UserTx is a user's transaction.
type UserTx interface {
	Tx() store.Tx // wrapped for the store
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error // does nothing after an end
}

// RunTx proves that the stores made by newStore keep the contracts of
// [store.Binder] and [store.Transactor] for each of these kinds of
// transactions. What [Run] says of newStore holds here too.
func RunTx(t *testing.T, newStore func(t *testing.T) store.Store, kinds []TxKind, opts *Options) {
	for _, k := range kinds {
		t.Run(k.Kind, func(t *testing.T) { runCases(t, txCases(k), newStore, opts) })
	}
}

// A txEnv is what a case of transactions works with.
type txEnv struct {
	*env
	kind TxKind
}

// begin begins a user's transaction, and binds the store to it.
func (e *txEnv) begin() (UserTx, store.Store) {
	e.Helper()
	tx, err := e.kind.Begin(e.Context(), e.s)
	e.ok(err)
	e.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(e.Context())) })
	if got := tx.Tx().TxKind(); got != e.kind.Kind {
		e.Errorf("the kind is %q, want %q", got, e.kind.Kind)
	}
	s, err := ability[store.Binder](e.env, "Binder").Bind(tx.Tx())
	e.ok(err)
	return tx, s
}

func (e *txEnv) note(tx store.Tx, text string) {
	e.Helper()
	e.ok(e.kind.Note(e.Context(), tx, e.tag+text))
}

// noted checks which texts of this case are committed.
func (e *txEnv) noted(want ...string) {
	e.Helper()
	all, err := e.kind.Notes(e.Context(), e.s)
	e.ok(err)
	var got []string
	for _, text := range all {
		if len(text) > len(e.tag) && text[:len(e.tag)] == e.tag {
			got = append(got, text[len(e.tag):])
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	e.same("the user's rows", got, want)
}

// work does one of everything that is written with s: it locks and changes one
// execution, advances one, wakes one, and creates two.
func (e *txEnv) work(s store.Store, x, y, woken *store.Execution) (created []uuid.UUID) {
	e.Helper()
	ctx := e.Context()
	first, second := e.execution(func(x *store.Execution) { x.Tags = map[string]string{"t": "1"} }), e.execution()
	e.ok(s.Create(ctx, first))
	if first.Revision != 1 {
		e.Errorf("the revision after Create is %d", first.Revision)
	}
	got, err := s.WithLock(ctx, x.ID, func(x *store.Execution) (store.Change, error) {
		x.Step, x.Tries = "ship", 7
		return store.Change{
			Attempts: []store.Attempt{closed(x.ID, "pay", 1)}, Audit: []store.AuditEntry{entry(x.ID, "act")},
			Create: []*store.Execution{second}, Wake: []store.Wake{{ID: woken.ID, At: base}},
		}, nil
	})
	e.ok(err)
	if got.Revision != x.Revision+1 || got.Step != "ship" || second.Revision != 1 {
		e.Errorf("WithLock returned revision %d at %s, and created revision %d", got.Revision, got.Step, second.Revision)
	}
	if a, ok := store.As[store.Advancer](s); ok {
		next := y.Clone()
		next.Step = "ship"
		e.ok(a.Advance(ctx, next, store.Change{Audit: []store.AuditEntry{entry(y.ID, "act")}, SameState: true}))
		if next.Revision != y.Revision+1 {
			e.Errorf("the revision after Advance is %d", next.Revision)
		}
	} else {
		e.Errorf("the bound store is no Advancer, though the store is")
	}
	return []uuid.UUID{first.ID, second.ID}
}

// inside checks what is seen with s, in the transaction, after work.
func (e *txEnv) inside(s store.Store, x, y, woken *store.Execution, created []uuid.UUID) {
	e.Helper()
	ctx := e.Context()
	for _, x := range []*store.Execution{x, y} {
		got, err := s.Get(ctx, x.ID)
		e.ok(err)
		if got.Revision != x.Revision+1 || got.Step != "ship" {
			e.Errorf("inside, Get returned revision %d at %s", got.Revision, got.Step)
		}
		list, err := s.Audit(ctx, x.ID)
		e.ok(err)
		e.same("inside, Audit", list, []store.AuditEntry{entry(x.ID, "act")})
	}
	list, err := s.Attempts(ctx, x.ID)
	e.ok(err)
	e.same("inside, Attempts", list, []store.Attempt{closed(x.ID, "pay", 1)})
	got, err := s.Get(ctx, woken.ID)
	e.ok(err)
	if got.Revision != woken.Revision+1 || !got.DueAt.Equal(base) {
		e.Errorf("inside, the woken one has revision %d and is due at %v", got.Revision, got.DueAt)
	}
	for _, id := range created {
		_, err := s.Get(ctx, id)
		e.ok(err)
	}
}

func txCases(k TxKind) []testCase {
	var list []testCase
	add := func(name, promise string, run func(e *txEnv)) {
		list = append(list, testCase{name: name, promise: promise, run: func(e *env) { run(&txEnv{env: e, kind: k}) }})
	}
	late := func(x *store.Execution) { x.DueAt = at(time.Hour) }

	add("Commits", "Bind returns a Store whose calls are part of tx: what they write is seen by others when the caller commits tx.", func(e *txEnv) {
		x, y, woken := e.create(), e.create(), e.create(late)
		was := []record{e.stored(x.ID), e.stored(y.ID), e.stored(woken.ID)}
		tx, s := e.begin()
		e.note(tx.Tx(), "1")
		created := e.work(s, x, y, woken)
		e.inside(s, x, y, woken, created)
		e.note(tx.Tx(), "2")
		e.soon("a look at what is not committed yet", func(context.Context) error {
			for i, id := range []uuid.UUID{x.ID, y.ID, woken.ID} {
				e.untouched("before the commit", id, was[i])
			}
			for _, id := range created {
				e.absent(id)
			}
			e.noted()
			return nil
		})
		e.ok(tx.Commit(e.Context()))
		e.inside(e.s, x, y, woken, created)
		e.noted("1", "2")
		if q, ok := store.As[store.Querier](e.s); ok {
			l := e.list(q, store.Filter{Tags: map[string]string{"t": "1"}, IDs: created}, store.Page{})
			e.same("found by its tag", ids(l.Executions), created[:1])
		}
	})
	add("RollsBack", "It is gone when the caller rolls tx back.", func(e *txEnv) {
		x, y, woken := e.create(), e.create(), e.create(late)
		was := []record{e.stored(x.ID), e.stored(y.ID), e.stored(woken.ID)}
		tx, s := e.begin()
		e.note(tx.Tx(), "1")
		created := e.work(s, x, y, woken)
		e.ok(tx.Rollback(e.Context()))
		for i, id := range []uuid.UUID{x.ID, y.ID, woken.ID} {
			e.untouched("after it was rolled back", id, was[i])
			e.free(id)
		}
		for _, id := range created {
			e.absent(id)
		}
		e.noted()
	})
	add("KeepsItsLocks", "Rows that WithLock and Advance have written, and those it has locked, stay locked until then.", func(e *txEnv) {
		locked, written, advanced := e.create(), e.create(), e.create()
		tx, s := e.begin()
		_, err := s.WithLock(e.Context(), locked.ID, func(*store.Execution) (store.Change, error) { return store.Change{}, store.ErrUnchanged })
		e.ok(err)
		_, err = s.WithLock(e.Context(), written.ID, func(*store.Execution) (store.Change, error) { return store.Change{}, nil })
		e.ok(err)
		a, _ := store.As[store.Advancer](s)
		e.ok(a.Advance(e.Context(), advanced.Clone(), store.Change{}))
		for _, x := range []*store.Execution{locked, written, advanced} {
			e.waits("WithLock while a transaction has the row", func(ctx context.Context) error {
				_, err := e.s.WithLock(ctx, x.ID, func(*store.Execution) (store.Change, error) { return store.Change{}, store.ErrUnchanged })
				return err
			})
			e.soon("Get while a transaction has the row", func(ctx context.Context) error {
				_, err := e.s.Get(ctx, x.ID)
				return err
			})
		}
		e.ok(tx.Commit(e.Context()))
		for _, x := range []*store.Execution{locked, written, advanced} {
			e.free(x.ID)
		}
	})
	add("GoesOnAfterErrors", "No error that this package names, nor one that fn returns, leaves the transaction unusable: what the failed call had written is taken back, and the transaction goes on.", func(e *txEnv) {
		ctx := e.Context()
		holder, x, follower := e.create(held), e.create(), e.create(held, func(x *store.Execution) { x.Follows = &uuid.UUID{1} })
		e.update(x.ID, func(x *store.Execution) store.Change {
			return store.Change{Audit: []store.AuditEntry{requested(x.ID, "r")}}
		})
		was := []record{e.stored(holder.ID), e.stored(x.ID), e.stored(follower.ID)}
		tx, s := e.begin()
		a, _ := store.As[store.Advancer](s)
		mine := errors.New("mine")
		half := e.execution() // is created before the call fails
		lock := func(change func(x *store.Execution) (store.Change, error)) error {
			_, err := s.WithLock(ctx, x.ID, func(x *store.Execution) (store.Change, error) {
				x.Step = "ship"
				c, err := change(x)
				c.Create = append([]*store.Execution{half}, c.Create...)
				c.Audit = append(c.Audit, entry(x.ID, "act"))
				return c, err
			})
			return err
		}
		taken := func(err error) error {
			if _, ok := errors.AsType[*store.KeyTakenError](err); ok {
				return mine
			}
			return err
		}
		for _, c := range []struct {
			what string
			want error
			do   func() error
		}{
			{"an id that exists", store.ErrExists, func() error { return s.Create(ctx, x.Clone()) }},
			{"a key that is taken", mine, func() error { return taken(s.Create(ctx, e.execution(held))) }},
			{"a value that is refused", store.ErrInvalid, func() error {
				return s.Create(ctx, e.execution(func(x *store.Execution) { x.State = []byte("[]") }))
			}},
			{"an unknown execution", store.ErrNotFound, func() error {
				_, err := s.WithLock(ctx, uuid.New(), func(*store.Execution) (store.Change, error) { panic("called") })
				return err
			}},
			{"Get of an unknown one", store.ErrNotFound, func() error { _, err := s.Get(ctx, uuid.New()); return err }},
			{"Live of a key that nobody holds", store.ErrNotFound, func() error { _, err := s.Live(ctx, x.Saga, "nobody's"); return err }},
			{"fn's own error", mine, func() error {
				return lock(func(*store.Execution) (store.Change, error) { return store.Change{}, mine })
			}},
			{"a change of what is fixed", store.ErrInvalid, func() error {
				return lock(func(x *store.Execution) (store.Change, error) { x.Deadline = at(0); return store.Change{}, nil })
			}},
			{"a change that creates what exists", store.ErrExists, func() error {
				return lock(func(*store.Execution) (store.Change, error) {
					return store.Change{Create: []*store.Execution{holder.Clone()}}, nil
				})
			}},
			{"a change that creates what has a taken key", mine, func() error {
				return taken(lock(func(*store.Execution) (store.Change, error) {
					return store.Change{Create: []*store.Execution{e.execution(held)}}, nil
				}))
			}},
			{"a key that is taken, by a change", mine, func() error {
				return taken(lock(func(x *store.Execution) (store.Change, error) { x.Key = "key"; return store.Change{}, nil }))
			}},
			{"a release of a taken key", mine, func() error {
				return taken(lock(func(x *store.Execution) (store.Change, error) {
					return store.Change{Wake: []store.Wake{{ID: follower.ID, At: base, Release: true}}}, nil
				}))
			}},
			{"a request that was used", store.ErrRequestUsed, func() error {
				return lock(func(x *store.Execution) (store.Change, error) {
					return store.Change{Audit: []store.AuditEntry{requested(x.ID, "r")}}, nil
				})
			}},
			{"an old revision", store.ErrConflict, func() error {
				old := holder.Clone()
				old.Revision += 3
				return a.Advance(ctx, old, store.Change{Create: []*store.Execution{half}, Audit: []store.AuditEntry{entry(old.ID, "act")}})
			}},
			{"Advance with a request that was used", store.ErrRequestUsed, func() error {
				return a.Advance(ctx, e.get(x.ID), store.Change{Create: []*store.Execution{half}, Audit: []store.AuditEntry{requested(x.ID, "r")}})
			}},
		} {
			if err := c.do(); !errors.Is(err, c.want) {
				e.Errorf("%s: got error %v, want %v", c.what, err, c.want)
			}
			if err := e.kind.Note(ctx, tx.Tx(), e.tag+c.what); err != nil {
				e.Fatalf("after %s the transaction does not go on: %v", c.what, err)
			}
			if _, err := s.Get(ctx, half.ID); !errors.Is(err, store.ErrNotFound) {
				e.Errorf("after %s something of it is left", c.what)
			}
		}
		func() {
			defer func() {
				if v := recover(); v != "mine" {
					e.Errorf("the panic that came back is %v", v)
				}
			}()
			_ = lock(func(*store.Execution) (store.Change, error) { panic("mine") })
		}()
		e.note(tx.Tx(), "at last")
		other := e.execution()
		e.ok(s.Create(ctx, other))
		e.ok(tx.Commit(ctx))
		for i, id := range []uuid.UUID{holder.ID, x.ID, follower.ID} {
			e.untouched("after calls that failed", id, was[i])
		}
		e.get(other.ID)
		e.absent(half.ID)
	})
	add("ReadsItsOwnWrites", "The bound store has Create, Get, Live, WithLock, Attempts, Audit, Children, ID and Now; ClaimDue, Renew, Stalled and ForResource return ErrNotSupported.", func(e *txEnv) {
		ctx := e.Context()
		parent := e.create()
		id, err := e.s.ID(ctx)
		e.ok(err)
		tx, s := e.begin()
		x := e.full()
		x.Key, x.Follows, x.Parent = "key", nil, &store.Parent{Execution: parent.ID, Step: "pay", Key: "k"}
		e.ok(s.Create(ctx, x))
		got, err := s.Get(ctx, x.ID)
		e.ok(err)
		e.same("Get", got, x)
		got, err = s.Live(ctx, x.Saga, "key")
		e.ok(err)
		e.same("Live", got, x)
		list, err := s.Children(ctx, store.ChildQuery{Parent: parent.ID, Step: "pay", Limit: 2})
		e.ok(err)
		e.same("Children", list, []*store.Execution{x})
		attempts, err := s.Attempts(ctx, x.ID)
		e.ok(err)
		open, _ := x.OpenAttempt()
		e.same("Attempts", attempts, []store.Attempt{open})
		here, err := s.ID(ctx)
		e.ok(err)
		if here != id {
			e.Errorf("the bound store's ID is %s, want %s", here, id)
		}
		first, err := s.Now(ctx)
		e.ok(err)
		second, err := s.Now(ctx)
		e.ok(err)
		if second.Before(first) || time.Since(second).Abs() > time.Hour {
			e.Errorf("Now returned %v and then %v", first, second)
		}
		_, err = s.ClaimDue(ctx, store.DueQuery{Now: base, Limit: 1})
		e.is(err, store.ErrNotSupported)
		_, err = s.Renew(ctx, nil, store.Renewal{})
		e.is(err, store.ErrNotSupported)
		_, err = s.Stalled(ctx, store.StalledQuery{ProgressBefore: base, Limit: 1})
		e.is(err, store.ErrNotSupported)
		_, err = s.ForResource(ctx, x.Resource, 1)
		e.is(err, store.ErrNotSupported)
		e.ok(tx.Commit(ctx))
		e.same("after the commit", e.get(x.ID), x)
	})
	add("ForeignTransactions", "A tx of another driver or of another database's kind is ErrForeignTx.", func(e *txEnv) {
		b := ability[store.Binder](e.env, "Binder")
		if _, err := b.Bind(strangeTx{}); !errors.Is(err, store.ErrForeignTx) {
			e.Errorf("Bind of a strange transaction: got error %v, want %v", err, store.ErrForeignTx)
		}
		other := e.newStore()
		tx, err := e.kind.Begin(e.Context(), other)
		e.ok(err)
		e.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(e.Context())) })
		if s, err := b.Bind(tx.Tx()); err == nil {
			// Where two stores are in one database the transaction is one of both.
			if err = s.Create(e.Context(), e.execution()); err != nil {
				e.is(err, store.ErrForeignTx)
			}
		} else {
			e.is(err, store.ErrForeignTx)
		}
		e.ok(e.kind.Note(e.Context(), tx.Tx(), e.tag+"foreign")) // it still goes on
		e.ok(tx.Rollback(e.Context()))
	})
	add("RunTx", "RunTx begins a transaction of this kind and calls fn with it and with a Store bound to it. It commits when fn returns nil, and rolls back when it returns an error or panics; the error, or the panic, is passed on.", func(e *txEnv) {
		tr := ability[store.Transactor](e.env, "Transactor")
		if !slices.Contains(tr.TxKinds(), e.kind.Kind) {
			e.Errorf("TxKinds %v lack %q", tr.TxKinds(), e.kind.Kind)
		}
		ctx := e.Context()
		x, y, woken := e.create(), e.create(), e.create(late)
		was := []record{e.stored(x.ID), e.stored(y.ID), e.stored(woken.ID)}
		mine := errors.New("mine")
		var created []uuid.UUID
		err := tr.RunTx(ctx, e.kind.Kind, func(tx store.Tx, s store.Store) error {
			e.note(tx, "in vain")
			created = e.work(s, x, y, woken)
			return mine
		})
		e.is(err, mine)
		func() {
			defer func() {
				if v := recover(); v != "mine" {
					e.Errorf("the panic that came back is %v", v)
				}
			}()
			_ = tr.RunTx(ctx, e.kind.Kind, func(tx store.Tx, s store.Store) error {
				e.note(tx, "in vain")
				created = append(created, e.work(s, x, y, woken)...)
				panic("mine")
			})
		}()
		for i, id := range []uuid.UUID{x.ID, y.ID, woken.ID} {
			e.untouched("after an error and a panic", id, was[i])
			e.free(id)
		}
		for _, id := range created {
			e.absent(id)
		}
		e.noted()
		e.ok(tr.RunTx(ctx, e.kind.Kind, func(tx store.Tx, s store.Store) error {
			if got := tx.TxKind(); got != e.kind.Kind {
				e.Errorf("the kind is %q, want %q", got, e.kind.Kind)
			}
			e.note(tx, "kept")
			created = e.work(s, x, y, woken)
			e.inside(s, x, y, woken, created)
			return nil
		}))
		e.inside(e.s, x, y, woken, created)
		e.noted("kept")
		err = tr.RunTx(ctx, "unknown", func(store.Tx, store.Store) error { panic("called") })
		e.is(err, store.ErrNotSupported)
	})
	add("RunTxIsFenced", "A write of an execution that has been written since conflicts, also inside of a transaction that began before.", func(e *txEnv) {
		if e.opts.SingleWriter {
			return // nobody writes meanwhile
		}
		tr := ability[store.Transactor](e.env, "Transactor")
		x := e.create()
		err := tr.RunTx(e.Context(), e.kind.Kind, func(tx store.Tx, s store.Store) error {
			e.note(tx, "late")
			e.update(x.ID, func(x *store.Execution) store.Change { x.Step = "ship"; return store.Change{} })
			a, _ := store.As[store.Advancer](s)
			return a.Advance(e.Context(), x.Clone(), store.Change{})
		})
		e.is(err, store.ErrConflict)
		e.noted()
	})
	return list
}

// A strangeTx is of no store's.
type strangeTx struct{}

func (strangeTx) TxKind() string { return "strange" }
