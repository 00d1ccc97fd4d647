package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

type payment struct {
	Amount int `json:"amount"`
}

const paidSignal saga.Signal[payment] = "paid"

// receive notes what came.
func receive(log *[]string, result error) fn {
	return func(_ context.Context, run *saga.Run[order]) error {
		v, ok, err := paidSignal.Receive(run)
		*log = append(*log, fmt.Sprint(v.Amount, ok, err))
		return result
	}
}

func (r *rig) diagnose(id uuid.UUID) *saga.Diagnosis {
	r.t.Helper()
	d, err := r.e.Diagnose(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func (r *rig) send(id uuid.UUID, amount int, key string) saga.SignalResult {
	r.t.Helper()
	got, err := paidSignal.Send(r.t.Context(), r.e, id, payment{amount}, &saga.SignalOptions{Key: key})
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func TestSignal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: ok},
			saga.Step[order]{Name: "b", Await: &saga.Await[order]{Signal: paidSignal, Timeout: time.Hour}, Execute: receive(&log, nil)})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Minute)
			x := r.get(id)
			if x.Status != store.StatusWaiting || x.Gate == nil || !slices.Equal(x.Gate.Signals, []string{"paid"}) || !x.DueAt.Equal(x.CreatedAt.Add(time.Hour)) {
				t.Errorf("%s, %+v, %v", x.Status, x.Gate, x.DueAt)
			}
			if got := r.send(id, 7, "k"); got != saga.SignalDelivered {
				t.Error(got)
			}
			x = r.wait(ctx, id)
			if x.Status != store.StatusCompleted || x.FinishedAt.Sub(x.CreatedAt) > 62*time.Second {
				t.Errorf("%s at %v", x.Status, x.FinishedAt)
			}
			if got := r.send(id, 9, ""); got != saga.SignalFinished {
				t.Error(got)
			}
			if got := r.send(uuid.New(), 9, ""); got != saga.SignalUnknown {
				t.Error(got)
			}
		})
		if !slices.Equal(log, []string{"7 true <nil>"}) {
			t.Errorf("%q", log)
		}
	})
}

func TestSignalThatComesEarly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Wait: time.Hour, Execute: ok},
			saga.Step[order]{Name: "b", Await: &saga.Await[order]{Signal: paidSignal}, Execute: receive(&log, nil)},
			saga.Step[order]{Name: "c", Await: &saga.Await[order]{Signal: paidSignal}, Execute: receive(&log, nil)})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			for i, key := range []string{"x", "y", "x"} {
				if got := r.send(id, i, key); got != saga.SignalBuffered && (i < 2 || got != saga.SignalDuplicate) {
					t.Error(got)
				}
			}
			if _, err := r.e.Halt(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			if _, err := r.e.Resume(ctx, id, anna, nil); err != nil { // another epoch
				t.Error(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
		})
		if !slices.Equal(log, []string{"0 true <nil>", "1 true <nil>"}) {
			t.Errorf("%q", log)
		}
	})
}

func TestStartWithSignals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "b", Await: &saga.Await[order]{Signal: paidSignal}, Execute: receive(&log, nil)})
		runEngine(t, r.e, func(ctx context.Context) {
			x, err := r.s.Start(ctx, saga.Resource{}, order{}, &saga.StartOptions{Signals: []saga.StartSignal{{Name: "paid", Payload: payment{5}}}})
			if err != nil {
				t.Fatal(err)
			}
			r.wait(ctx, x.ID)
			_, err = r.s.Start(ctx, saga.Resource{}, order{}, &saga.StartOptions{Signals: []saga.StartSignal{{Name: "paid", Payload: "five"}}})
			if !errors.Is(err, saga.ErrInvalid) || strings.Contains(err.Error(), "five") {
				t.Error(err)
			}
		})
		if !slices.Equal(log, []string{"5 true <nil>"}) {
			t.Errorf("%q", log)
		}
	})
}

func TestAwaitDeadline(t *testing.T) {
	until := func(order) time.Time { return time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC) }
	for name, a := range map[string]*saga.Await[order]{
		"Timeout": {Signal: paidSignal, Timeout: time.Hour}, "Until": {Signal: paidSignal, Until: until},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var log []string
				r := newRig(t, saga.Config{}, saga.Step[order]{Name: "b", Await: a, Execute: receive(&log, nil)})
				x := r.runOne()
				if took := x.FinishedAt.Sub(x.CreatedAt); x.Status != store.StatusCompleted || took != time.Hour {
					t.Errorf("%s after %v", x.Status, took)
				}
				if !slices.Equal(log, []string{"0 false <nil>"}) {
					t.Errorf("%q", log)
				}
			})
		})
	}
}

func TestRescheduleEndsAnAwait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "b", Await: &saga.Await[order]{Signal: paidSignal}, Execute: receive(&log, nil)})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Hour)
			if x := r.get(id); x.DueAt != nil || x.Status != store.StatusWaiting {
				t.Errorf("%s, due %v", x.Status, x.DueAt)
			}
			if _, err := r.e.Reschedule(ctx, id, time.Now(), anna); err != nil {
				t.Error(err)
			}
			r.wait(ctx, id)
		})
		if !slices.Equal(log, []string{"0 false <nil>"}) {
			t.Errorf("%q", log)
		}
	})
}

func TestAwaitSeveral(t *testing.T) {
	const bo, cy saga.Signal[bool] = "approval.bo", "approval.cy"
	signals := []saga.AnySignal{bo, cy}
	for name, a := range map[string]*saga.Await[order]{
		"any": {Signals: signals}, "all": {Signals: signals, All: true},
		"computed": {SignalsFunc: func(order) []saga.AnySignal { return signals }, All: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var got []string
				r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Await: a, Execute: func(_ context.Context, run *saga.Run[order]) error {
					for _, s := range []saga.Signal[bool]{bo, cy} {
						v, ok, err := s.Receive(run)
						got = append(got, fmt.Sprint(v, ok, err))
					}
					if n := len(run.Received()); n != len(got)/2 && !a.All {
						t.Errorf("received %d", n)
					}
					return nil
				}})
				runEngine(t, r.e, func(ctx context.Context) {
					id := r.start(ctx)
					pass(time.Minute)
					if got, err := cy.Send(ctx, r.e, id, true, nil); got != saga.SignalDelivered || err != nil {
						t.Error(got, err)
					}
					pass(time.Minute)
					if a.All {
						if x := r.get(id); x.Status != store.StatusWaiting {
							t.Errorf("%s", x.Status)
						}
						if got, err := bo.Send(ctx, r.e, id, false, nil); got != saga.SignalDelivered || err != nil {
							t.Error(got, err)
						}
					}
					r.wait(ctx, id)
				})
				want := []string{"false false <nil>", "true true <nil>"}
				if a.All {
					want[0] = "false true <nil>"
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// What came survives failures, panics and lost workers: each attempt sees the same.
func TestSignalSurvivesItsHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		n := 0
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Retry: quick, Await: &saga.Await[order]{Signal: paidSignal, Timeout: time.Hour},
			Execute: func(ctx context.Context, run *saga.Run[order]) error {
				_ = receive(&log, nil)(ctx, run)
				switch n++; n {
				case 1:
					return errors.New("no")
				case 2:
					panic("oh")
				}
				return nil
			}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Minute)
			r.send(id, 1, "")
			r.send(id, 2, "")
			if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
		})
		if one := "1 true <nil>"; !slices.Equal(log, []string{one, one, one}) {
			t.Errorf("%q", log)
		}
	})
}

func TestSignalSurvivesRetryByHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		fail := saga.Fail(errors.New("no"))
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Await: &saga.Await[order]{Signal: paidSignal, Timeout: time.Hour},
			Execute: func(ctx context.Context, run *saga.Run[order]) error {
				_ = receive(&log, nil)(ctx, run)
				err := fail
				if len(log)%2 == 0 {
					err = nil
				}
				return err
			}})
		runEngine(t, r.e, func(ctx context.Context) {
			for _, send := range []bool{true, false} {
				id := r.start(ctx)
				pass(time.Minute)
				if send {
					r.send(id, 1, "")
				}
				if x := r.wait(ctx, id); x.Status != store.StatusFailed {
					t.Errorf("%s", x.Status)
				}
				if _, err := r.e.Retry(ctx, id, anna, nil); err != nil {
					t.Error(err)
				}
				pass(time.Minute)
				if !send { // it awaits again
					if x := r.get(id); x.Status != store.StatusWaiting {
						t.Errorf("%s", x.Status)
					}
					r.send(id, 2, "")
				}
				if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
					t.Errorf("%s", x.Status)
				}
			}
		})
		if !slices.Equal(log, []string{"1 true <nil>", "1 true <nil>", "0 false <nil>", "2 true <nil>"}) {
			t.Errorf("%q", log)
		}
	})
}

func TestHaltAndSnoozeAwaitAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		n := 0
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Await: &saga.Await[order]{Signal: paidSignal, Timeout: time.Hour},
			Execute: func(ctx context.Context, run *saga.Run[order]) error {
				_ = receive(&log, nil)(ctx, run)
				switch n++; n {
				case 1:
					return saga.Halt("look")
				case 2:
					return saga.Snooze(0)
				}
				return nil
			}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(30 * time.Minute)
			r.send(id, 1, "k")
			pass(time.Second)
			if x := r.get(id); x.Status != store.StatusHalted {
				t.Errorf("%s", x.Status)
			}
			if got := r.send(id, 1, "k"); got != saga.SignalDuplicate {
				t.Error(got)
			}
			pass(2 * time.Hour)
			if x, err := r.e.Resume(ctx, id, anna, nil); err != nil || x.Status == store.StatusHalted {
				t.Error(x.Status, err)
			}
			pass(50 * time.Minute) // the deadline is a new one
			if got := r.send(id, 2, ""); got != saga.SignalDelivered {
				t.Error(got)
			}
			pass(50 * time.Minute)
			if x := r.get(id); x.Status != store.StatusWaiting {
				t.Errorf("%s", x.Status)
			}
			r.wait(ctx, id)
		})
		if !slices.Equal(log, []string{"1 true <nil>", "2 true <nil>", "0 false <nil>"}) {
			t.Errorf("%q", log)
		}
	})
}

// A halt by hand, while what came is being worked on, does not lose it.
func TestHaltByHandKeepsWhatCame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Await: &saga.Await[order]{Signal: paidSignal}, Retry: quick,
			Execute: func(ctx context.Context, run *saga.Run[order]) error {
				_ = receive(&log, nil)(ctx, run)
				if len(log) == 1 {
					<-time.After(time.Minute)
					return errors.New("no")
				}
				return nil
			}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Second)
			r.send(id, 1, "")
			pass(2 * time.Second)
			if _, err := r.e.Halt(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			pass(2 * time.Minute)
			if x, err := r.e.Resume(ctx, id, anna, nil); err != nil {
				t.Error(x, err)
			}
			r.wait(ctx, id)
		})
		if one := "1 true <nil>"; !slices.Equal(log, []string{one, one}) {
			t.Errorf("%q", log)
		}
	})
}

func TestRetryOnSignal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const fixed saga.Signal[string] = "fixed"
		var log []string
		n, undone := 0, 0
		r := newRig(t, saga.Config{},
			saga.Step[order]{Name: "a", Execute: ok, Compensate: func(context.Context, *saga.Run[order]) error { undone++; return nil }},
			saga.Step[order]{Name: "b", Retry: quick, RetryOnSignal: fixed, Execute: func(_ context.Context, run *saga.Run[order]) error {
				v, ok, _ := fixed.Receive(run)
				log = append(log, fmt.Sprint(v, ok))
				if n++; n < 8 {
					return errors.New("no")
				}
				return nil
			}})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Hour)
			x := r.get(id)
			if x.Status != store.StatusWaiting || x.Gate.Kind != store.GateRetry || x.Failure == nil || x.DueAt != nil {
				t.Errorf("%s, %+v, %v", x.Status, x.Gate, x.Failure)
			}
			if got, err := fixed.Send(ctx, r.e, id, "one", nil); got != saga.SignalDelivered || err != nil {
				t.Error(got, err)
			}
			pass(time.Hour)
			if x := r.get(id); x.Status != store.StatusWaiting {
				t.Errorf("%s", x.Status)
			}
			if _, err := r.e.Retry(ctx, id, anna, nil); err != nil { // a person may do it as well
				t.Error(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
			n = 0
			id = r.start(ctx)
			pass(time.Hour)
			if _, err := r.e.Cancel(ctx, id, anna, nil); err != nil {
				t.Error(err)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompensated {
				t.Errorf("%s", x.Status)
			}
		})
		if log[0] != "false" || log[3] != "onetrue" || undone != 1 {
			t.Errorf("%q, undone %d", log, undone)
		}
	})
}

func TestSignalByKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log []string
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "b", Await: &saga.Await[order]{Signal: paidSignal}, Execute: receive(&log, nil)})
		runEngine(t, r.e, func(ctx context.Context) {
			x, err := r.s.Start(ctx, saga.Resource{}, order{}, &saga.StartOptions{Key: "o1"})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := paidSignal.SendKey(ctx, r.e, "checkout", "o2", payment{1}, nil); got != saga.SignalUnknown || err != nil {
				t.Error(got, err)
			}
			pass(time.Second)
			if got, err := paidSignal.SendKey(ctx, r.e, "checkout", "o1", payment{1}, nil); got != saga.SignalDelivered || err != nil {
				t.Error(got, err)
			}
			r.wait(ctx, x.ID)
			if got, err := paidSignal.SendKey(ctx, r.e, "checkout", "o1", payment{1}, nil); got != saga.SignalUnknown || err != nil {
				t.Error(got, err)
			}
		})
	})
}

func TestSignalsAreChecked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "b", Await: &saga.Await[order]{Signal: paidSignal}, Execute: ok})
		id := r.start(t.Context())
		big := strings.Repeat("x", store.MaxPayload)
		for name, send := range map[string]func() (saga.SignalResult, error){
			"name":     func() (saga.SignalResult, error) { return r.e.Signal(t.Context(), id, "Paid!", nil, nil) },
			"no name":  func() (saga.SignalResult, error) { return r.e.Signal(t.Context(), id, "", nil, nil) },
			"type":     func() (saga.SignalResult, error) { return r.e.Signal(t.Context(), id, "paid", "secret", nil) },
			"size":     func() (saga.SignalResult, error) { return r.e.Signal(t.Context(), id, "other", big, nil) },
			"encoding": func() (saga.SignalResult, error) { return r.e.Signal(t.Context(), id, "other", func() {}, nil) },
			"raw": func() (saga.SignalResult, error) {
				return r.e.Signal(t.Context(), id, "other", json.RawMessage("{"), nil)
			},
			"key": func() (saga.SignalResult, error) {
				return r.e.Signal(t.Context(), id, "other", nil, &saga.SignalOptions{Key: big})
			},
			"by": func() (saga.SignalResult, error) {
				return r.e.Signal(t.Context(), id, "other", nil, &saga.SignalOptions{By: saga.By{Actor: "anna"}})
			},
		} {
			if got, err := send(); !errors.Is(err, saga.ErrInvalid) || got != "" || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		for range store.MaxMessages {
			if _, err := r.e.Signal(t.Context(), id, "other", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.e.Signal(t.Context(), id, "other", nil, nil); !errors.Is(err, saga.ErrInboxFull) {
			t.Error(err)
		}
		if _, err := r.e.Signal(t.Context(), id, "paid", payment{1}, &saga.SignalOptions{By: anna}); !errors.Is(err, saga.ErrInboxFull) {
			t.Error(err)
		}
	})
}

func TestSignalByAPersonIsAudited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ask := &saga.Await[order]{Signal: paidSignal, Prompt: "Is it paid?", Choices: []saga.Choice{paidSignal.Choice("Yes", payment{1})}}
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "b", Await: ask, Execute: ok})
		runEngine(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Second)
			g := r.get(id).Gate
			if g.Prompt != "Is it paid?" || len(g.Choices) != 1 || g.Choices[0].Label != "Yes" {
				t.Fatalf("%+v", g)
			}
			if got, err := r.e.Signal(ctx, id, g.Choices[0].Signal, g.Choices[0].Payload, &saga.SignalOptions{By: anna}); got != saga.SignalDelivered || err != nil {
				t.Error(got, err)
			}
			trail, _ := r.e.Audit(ctx, id)
			if len(trail) != 1 || trail[0].Act != "signal" || trail[0].Actor != "anna" {
				t.Errorf("%+v", trail)
			}
		})
	})
}

// A signal and its deadline within a millisecond of each other, 10,000 times: the
// answer to the sender, and what the step sees, agree.
func TestSignalAgainstDeadline(t *testing.T) {
	const batches, atOnce = 20, 500
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		saw := map[uuid.UUID]bool{}
		await := &saga.Await[order]{Signal: paidSignal, Timeout: time.Second}
		r := newRig(t, saga.Config{Workers: 50}, saga.Step[order]{Name: "b", Await: await, Execute: func(_ context.Context, run *saga.Run[order]) error {
			_, ok, err := paidSignal.Receive(run)
			mu.Lock()
			defer mu.Unlock()
			saw[run.Execution] = ok
			return err
		}})
		won := map[saga.SignalResult]int{}
		runEngine(t, r.e, func(ctx context.Context) {
			for range batches {
				told := make([]saga.SignalResult, atOnce)
				ids := make([]uuid.UUID, atOnce)
				for n := range ids {
					ids[n] = r.start(ctx)
				}
				var senders sync.WaitGroup
				for n, id := range ids {
					senders.Go(func() {
						<-time.After(time.Second - 500*time.Microsecond + time.Duration(n)*2*time.Microsecond)
						told[n] = r.send(id, 1, "")
					})
				}
				senders.Wait()
				for n, id := range ids {
					r.wait(ctx, id)
					won[told[n]]++
					if delivered := told[n] == saga.SignalDelivered; delivered != saw[id] {
						t.Fatalf("the sender was told %s, the step saw %v", told[n], saw[id])
					}
				}
			}
		})
		if won[saga.SignalDelivered] < 1000 || won[saga.SignalBuffered]+won[saga.SignalFinished] < 1000 {
			t.Errorf("one side always won: %v", won)
		}
	})
}
