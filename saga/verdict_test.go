package saga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

func TestVerdictsOfErrors(t *testing.T) {
	boom := errors.New("boom")
	undo := store.DirectionCompensate
	for _, row := range []struct {
		err       error
		direction saga.Direction
		want      saga.Verdict // Failure by its class alone
		class     string
	}{
		{err: nil, want: saga.Verdict{Kind: saga.VerdictSucceeded}},
		{err: boom, want: saga.Verdict{Kind: saga.VerdictFailed}, class: "boom"},
		{err: saga.Class("card", boom), want: saga.Verdict{Kind: saga.VerdictFailed}, class: "card"},
		{err: saga.Unknown(boom), want: saga.Verdict{Kind: saga.VerdictFailed, InDoubt: true}, class: "boom"},
		{err: context.DeadlineExceeded, want: saga.Verdict{Kind: saga.VerdictFailed, InDoubt: true}, class: "context.deadlineExceededError"},
		{err: saga.RetryAfter(time.Minute, boom), want: saga.Verdict{Kind: saga.VerdictFailed, After: time.Minute}, class: "boom"},
		{err: saga.Fail(boom), want: saga.Verdict{Kind: saga.VerdictGaveUp}, class: "boom"},
		{err: saga.Skip("paid"), want: saga.Verdict{Kind: saga.VerdictSkipped, Reason: "paid"}},
		{err: saga.Complete("enough"), want: saga.Verdict{Kind: saga.VerdictCompleted, Reason: "enough"}},
		{err: saga.Complete("enough"), direction: undo, want: saga.Verdict{Kind: saga.VerdictFailed}, class: "saga: complete: enough"},
		{err: saga.Halt("look"), want: saga.Verdict{Kind: saga.VerdictHalted, InDoubt: true, Reason: "look"}},
		{err: saga.Snooze(time.Hour), want: saga.Verdict{Kind: saga.VerdictSnoozed, InDoubt: true, After: time.Hour}},
		{err: (*hollow)(nil), want: saga.Verdict{Kind: saga.VerdictFailed, InDoubt: true}, class: "panic"},
	} {
		call := saga.Call{Step: "charge", Direction: store.DirectionExecute}
		if row.direction != "" {
			call.Direction = row.direction
		}
		got := call.Verdict(row.err)
		class := ""
		if got.Failure != nil {
			if class = got.Failure.Class; got.Failure.Step != "charge" {
				t.Errorf("%v: of step %q", row.err, got.Failure.Step)
			}
			got.Failure = nil
		}
		if got != row.want || class != row.class {
			t.Errorf("%v: %+v, class %q; want %+v, %q", row.err, got, class, row.want, row.class)
		}
	}
}

// A hollow error panics when it is asked.
type hollow struct{ text string }

func (h *hollow) Error() string { return h.text }

func TestVerdictKnowsWhyTheAttemptEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var verdicts []saga.Verdict
		mw := func(ctx context.Context, call *saga.Call, next func(context.Context) error) error {
			err := next(context.WithoutCancel(ctx))
			verdicts = append(verdicts, call.Verdict(err))
			return err
		}
		wait := func(_ context.Context, run *saga.Run[order]) error {
			if run.Attempt > 1 {
				return nil
			}
			<-time.After(25 * time.Second)
			return errors.New("late")
		}
		r := newRig(t, saga.Config{Middleware: []saga.Middleware{mw}}, saga.Step[order]{Name: "a", Execute: wait, ErrorsInDoubt: true})
		runEngine(t, r.e, func(ctx context.Context) { r.start(ctx); pass(0) }) // the grace is 20 s
		runEngine(t, r.e, func(context.Context) { pass(time.Minute) })
		if len(verdicts) != 2 || verdicts[0].Kind != saga.VerdictInterrupted || !verdicts[0].InDoubt || verdicts[1].Kind != saga.VerdictSucceeded {
			t.Errorf("%+v", verdicts)
		}
	})
}
