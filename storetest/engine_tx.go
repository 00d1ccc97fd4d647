package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// RunEngineTx runs sagas whose steps work in transactions of these kinds, and
// starts, signals and acts in transactions of the caller's, on the stores made
// by newStore. It passes on any store that passes [RunTx].
func RunEngineTx(t *testing.T, newStore func(t *testing.T) store.Store, kinds []TxKind, opts *Options) {
	if opts == nil {
		opts = &Options{}
	}
	newStore = oneAtATime(newStore)
	for _, k := range kinds {
		for _, c := range []struct {
			name string
			run  func(t *testing.T, s store.Store, k TxKind)
		}{
			{"exactly once", runExactlyOnce},
			{"what is lost is rolled back", runLateInTx},
			{"rolled back on errors", runTxErrors},
			{"starts in a transaction", runStartTx},
			{"signals and acts in a transaction", runActTx},
		} {
			t.Run(k.Kind+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				if opts.SingleWriter && c.name == "what is lost is rolled back" {
					t.Skip("nobody takes over from who has the only writer")
				}
				c.run(t, newStore(t), k)
			})
		}
	}
}

// inTx makes a step's function that writes a row of the user's, and whatever
// else it does after that.
func inTx(k TxKind, text func(run *saga.Run[trip]) string, then func(run *saga.Run[trip]) error) store.TxFunc[*saga.Run[trip]] {
	return store.NewTxFunc(k.Kind, func(ctx context.Context, run *saga.Run[trip], tx store.Tx) error {
		if err := k.Note(ctx, tx, text(run)); err != nil {
			return err
		}
		return then(run)
	})
}

// txDefinition is that of trips whose steps book, and cancel, in a transaction.
func txDefinition(k TxKind, during func(run *saga.Run[trip]) error) saga.Definition[trip] {
	policy := saga.RetryPolicy{Attempts: 5, Initial: time.Second, Max: time.Second}
	step := func(name string) saga.Step[trip] {
		return saga.Step[trip]{
			Name: name, Retry: policy, CompensateRetry: policy,
			ExecuteTx: inTx(k, func(run *saga.Run[trip]) string { return run.Key() }, func(run *saga.Run[trip]) error {
				run.State.Booked = append(run.State.Booked, name)
				return during(run)
			}),
			CompensateTx: inTx(k, func(run *saga.Run[trip]) string { return run.ExecuteKey() + " undone" }, during),
		}
	}
	return saga.Definition[trip]{Name: "storetest-tx", Steps: []saga.Step[trip]{step("hotel"), step("flight"), step("boat")}}
}

// unlucky lets the second step fail once, and the last one for good where the
// trip is to sink: after they have written.
func unlucky(run *saga.Run[trip]) error {
	switch {
	case run.Direction != store.DirectionExecute:
	case run.Step == "flight" && run.Attempt == 1:
		return errors.New("no seat")
	case run.Step == "boat" && run.State.Sunk:
		return saga.Fail(errors.New("sunk"))
	}
	return nil
}

// notesOf returns which rows the steps of an execution have left, and how often.
func notesOf(t *testing.T, s store.Store, k TxKind, id uuid.UUID) []string {
	t.Helper()
	all, err := k.Notes(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, text := range all {
		if rest, ok := strings.CutPrefix(text, id.String()+"/"); ok {
			list = append(list, rest)
		}
	}
	slices.Sort(list)
	return list
}

var (
	allBooked = []string{"boat/execute", "flight/execute", "hotel/execute"}
	allUndone = []string{"flight/execute", "flight/execute undone", "hotel/execute", "hotel/execute undone"}
)

// runExactlyOnce lets a process die, lose the store, and lose its answers, at
// each call in turn: what the steps write is there once, and once undone.
func runExactlyOnce(t *testing.T, s store.Store, k TxKind) {
	for _, kind := range []faultKind{crashBefore, crashAfter, errorBefore, errorAfter} {
		for _, state := range []trip{{}, {Sunk: true}} {
			want, rows := store.StatusCompleted, allBooked
			if state.Sunk {
				want, rows = store.StatusCompensated, allUndone
			}
			for at := 1; ; at++ {
				if at > 200 {
					t.Fatal("200 calls of the store for one saga")
				}
				w := newWorld(t, s)
				w.definition = txDefinition(k, unlucky)
				w.label = fmt.Sprintf("%s at call %d, sunk %v", kind, at, state.Sunk)
				f := &fault{kind: kind, at: at}
				p := w.process(f, nil)
				id := uuid.New()
				_ = w.tryStart(p, id, state)
				if _, err := s.Get(t.Context(), id); errors.Is(err, store.ErrNotFound) {
					w.close()
					continue // it never was
				}
				x := w.end(id)
				if x.Status != want {
					t.Errorf("%s: ended %s (%+v), want %s", w.label, x.Status, x.Failure, want)
				}
				if got := notesOf(t, s, k, id); !slices.Equal(got, rows) {
					t.Errorf("%s: the steps' rows are %q, want %q", w.label, got, rows)
				}
				if want == store.StatusCompleted && !strings.Contains(string(x.State), `["hotel","flight","boat"]`) {
					t.Errorf("%s: the state is %s", w.label, x.State)
				}
				w.close()
				if t.Failed() {
					return
				}
				if !f.struck() {
					break
				}
			}
		}
	}
}

// runLateInTx holds up a step for longer than its lease, until another process
// has done it: what the first one wrote is rolled back.
func runLateInTx(t *testing.T, s store.Store, k TxKind) {
	w := newWorld(t, s)
	defer w.close()
	held, release := make(chan struct{}), make(chan struct{})
	w.definition = txDefinition(k, func(run *saga.Run[trip]) error {
		if run.Step == "hotel" && run.Attempt == 1 {
			close(held)
			<-release
		}
		return nil
	})
	first := w.process(nil, nil)
	id := w.start(first, trip{})
	<-held
	x, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	w.moveTo(x.DueAt.Add(time.Second))
	w.process(nil, nil)
	w.until(id, func(x *store.Execution) bool { return x.Step != "hotel" || x.Status.Finished() })
	close(release)
	end := w.end(id)
	first.cancel()
	first.wait(w) // it has settled, or not
	if end.Status != store.StatusCompleted {
		t.Errorf("ended %s (%+v)", end.Status, end.Failure)
	}
	if got := notesOf(t, s, k, id); !slices.Equal(got, allBooked) {
		t.Errorf("the steps' rows are %q, want %q", got, allBooked)
	}
}

// runTxErrors lets steps return what is no success: nothing of it is kept.
func runTxErrors(t *testing.T, s store.Store, k TxKind) {
	w := newWorld(t, s)
	defer w.close()
	var calls atomic.Int32
	w.definition = txDefinition(k, func(run *saga.Run[trip]) error {
		if run.Step != "hotel" {
			return nil
		}
		switch calls.Add(1) {
		case 1:
			return errors.New("an error")
		case 2:
			panic("a panic")
		case 3:
			return saga.Snooze(time.Second)
		case 4:
			return saga.RetryAfter(time.Second, errors.New("later"))
		case 5, 6, 7: // of one attempt, as if the database had said so
			return store.ErrConflict
		case 8:
			return saga.Halt("a person must look")
		}
		return nil
	})
	p := w.process(nil, nil)
	id := w.start(p, trip{})
	x := w.until(id, func(x *store.Execution) bool { return x.Status == store.StatusHalted || x.Status.Finished() })
	if x.Status != store.StatusHalted {
		t.Fatalf("it is %s (%+v), want halted", x.Status, x.Failure)
	}
	if got := notesOf(t, s, k, id); len(got) > 0 {
		t.Errorf("what failed has left %q", got)
	}
	for _, e := range x.Ledger {
		if e.Status == store.StepInDoubt {
			t.Errorf("%s is in doubt, though nothing of it can be left", e.Name)
		}
	}
	by := saga.By{Actor: "ann", Reason: "looked"}
	if _, err := p.e.Resume(t.Context(), id, by, nil); err != nil {
		t.Fatal(err)
	}
	if x := w.end(id); x.Status != store.StatusCompleted {
		t.Errorf("ended %s (%+v)", x.Status, x.Failure)
	}
	if got := notesOf(t, s, k, id); !slices.Equal(got, allBooked) {
		t.Errorf("the steps' rows are %q, want %q", got, allBooked)
	}
}

// runStartTx starts in transactions of the caller's.
func runStartTx(t *testing.T, s store.Store, k TxKind) {
	ctx := t.Context()
	w := newWorld(t, s)
	defer w.close()
	p := w.process(nil, nil)
	start := func(unit *saga.Tx, id uuid.UUID, key string) (*saga.Started, error) {
		return p.s.StartTx(ctx, unit, saga.Resource{Type: "trip", ID: id.String()}, trip{}, &saga.StartOptions{ID: id, Key: key})
	}
	begin := func() (UserTx, *saga.Tx) {
		t.Helper()
		tx, err := k.Begin(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(ctx)) })
		return tx, p.e.InTx(tx.Tx())
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	// Rolled back: it never was.
	gone := uuid.New()
	tx, unit := begin()
	_, err := start(unit, gone, "gone")
	must(err)
	must(k.Note(ctx, tx.Tx(), gone.String()+"/order"))
	must(tx.Rollback(ctx))
	must(unit.Publish(ctx))
	if _, err := s.Get(ctx, gone); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after it was rolled back: got error %v, want %v", err, store.ErrNotFound)
	}
	if got := notesOf(t, s, k, gone); len(got) > 0 {
		t.Errorf("the user's row is there: %q", got)
	}

	// Committed: it runs, whether it is published or left to the sweep. A key that
	// is taken does not spoil the transaction.
	for i, publish := range []bool{true, false} {
		id, key := uuid.New(), fmt.Sprint("key", i)
		tx, unit := begin()
		_, err := start(unit, id, key)
		must(err)
		_, err = start(unit, uuid.New(), key)
		if taken, ok := errors.AsType[*store.KeyTakenError](err); !ok || taken.Execution != id {
			t.Errorf("the second start: got error %v, want that the first one has the key", err)
		}
		if _, err = start(unit, id, "other"); !errors.Is(err, store.ErrExists) {
			t.Errorf("the same id again: got error %v, want %v", err, store.ErrExists)
		}
		must(k.Note(ctx, tx.Tx(), id.String()+"/order"))
		if _, err := s.Get(ctx, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("before the commit: got error %v, want %v", err, store.ErrNotFound)
		}
		must(tx.Commit(ctx))
		if publish {
			must(unit.Publish(ctx))
		}
		w.check(w.end(id), store.StatusCompleted)
		if got := notesOf(t, s, k, id); !slices.Equal(got, []string{"order"}) {
			t.Errorf("the user's rows are %q", got)
		}
	}

	// In the place of another one.
	old := w.start(p, trip{Halts: true})
	_ = w.until(old, func(x *store.Execution) bool { return x.Status == store.StatusHalted })
	keyed, err := p.s.Start(ctx, saga.Resource{Type: "trip", ID: "keyed"}, trip{Halts: true}, &saga.StartOptions{Key: "place"})
	must(err)
	_ = w.until(keyed.ID, func(x *store.Execution) bool { return x.Status == store.StatusHalted })
	tx, unit = begin()
	next, err := p.s.StartTx(ctx, unit, saga.Resource{Type: "trip", ID: "next"}, trip{}, &saga.StartOptions{Key: "place", OnConflict: saga.OnConflictReplace})
	must(err)
	if next.Replaces == nil || *next.Replaces != keyed.ID {
		t.Errorf("it replaces %v, want %s", next.Replaces, keyed.ID)
	}
	must(tx.Commit(ctx))
	must(unit.Publish(ctx))
	if x := w.end(keyed.ID); x.Status != store.StatusCancelled && x.Status != store.StatusCompensated {
		t.Errorf("the old one ended %s", x.Status)
	}
	w.check(w.end(next.ID), store.StatusCompleted)
}

// runActTx signals and acts in transactions of the caller's.
func runActTx(t *testing.T, s store.Store, k TxKind) {
	ctx := t.Context()
	w := newWorld(t, s)
	defer w.close()
	const paid saga.Signal[int] = "paid"
	w.definition = saga.Definition[trip]{Name: "storetest-acts", Steps: []saga.Step[trip]{{
		Name: "pay", Await: &saga.Await[trip]{Signal: paid},
		Execute: func(_ context.Context, run *saga.Run[trip]) error {
			v, ok, err := paid.Receive(run)
			if err != nil || !ok || v != 42 {
				return saga.Fail(fmt.Errorf("received %d, %v, %v", v, ok, err))
			}
			return nil
		},
	}}}
	p := w.process(nil, nil)
	waits := func(x *store.Execution) bool { return x.Status == store.StatusWaiting }
	in := func(commit bool, f func(unit *saga.Tx) error) {
		t.Helper()
		tx, err := k.Begin(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(ctx)) })
		unit := p.e.InTx(tx.Tx())
		if err := f(unit); err != nil {
			t.Fatal(err)
		}
		if err := k.Note(ctx, tx.Tx(), "acts/row"); err != nil {
			t.Fatal(err)
		}
		if commit {
			err = tx.Commit(ctx)
		} else {
			err = tx.Rollback(ctx)
		}
		if err := errors.Join(err, unit.Publish(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	signalled, cancelled := w.start(p, trip{}), w.start(p, trip{})
	w.until(signalled, waits)
	w.until(cancelled, waits)
	by := saga.By{Actor: "ann", Reason: "because"}
	for _, commit := range []bool{false, true} {
		in(commit, func(unit *saga.Tx) error {
			got, err := unit.Signal(ctx, signalled, string(paid), 42, &saga.SignalOptions{Key: "once"})
			if got != saga.SignalDelivered {
				t.Errorf("the signal was %q (%v), want delivered", got, err)
			}
			again, errAgain := unit.Signal(ctx, signalled, string(paid), 42, &saga.SignalOptions{Key: "once"})
			if again != saga.SignalDuplicate {
				t.Errorf("the signal once more was %q, want a duplicate", again)
			}
			unknown, errUnknown := unit.Signal(ctx, uuid.New(), string(paid), 42, nil)
			if unknown != saga.SignalUnknown {
				t.Errorf("a signal to nobody was %q, want unknown", unknown)
			}
			_, errAct := unit.Act(ctx, cancelled, saga.ActCancel, by, nil)
			return errors.Join(err, errAgain, errUnknown, errAct)
		})
		if !commit {
			for _, id := range []uuid.UUID{signalled, cancelled} {
				x, err := s.Get(ctx, id)
				if err != nil || x.Status != store.StatusWaiting || len(x.Inbox) > 0 {
					t.Errorf("after it was rolled back: %s, %v, %v", x.Status, x.Inbox, err)
				}
			}
		}
	}
	if x := w.end(signalled); x.Status != store.StatusCompleted {
		t.Errorf("ended %s (%+v), want completed", x.Status, x.Failure)
	}
	if x := w.end(cancelled); x.Status != store.StatusCancelled {
		t.Errorf("ended %s (%+v), want cancelled", x.Status, x.Failure)
	}
}
