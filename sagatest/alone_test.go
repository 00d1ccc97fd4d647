package sagatest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/sagatest"
	"github.com/leveret-go/leveret/store"
)

const (
	paid     saga.Signal[int]  = "paid"
	partName saga.Name[parcel] = "part"
)

type parcel struct{ Weight int }

func onPaid(_ context.Context, run *saga.Run[parcel]) error {
	cents, came, err := paid.Receive(run)
	if err != nil || !came {
		return saga.Fail(errors.Join(errors.New("not paid"), err))
	}
	run.State.Weight = cents
	return nil
}

// The function of a step that awaits is tested alone: with what came, without
// it, and with what does not fit.
func TestAStepThatAwaitsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		signals map[string]any
		want    int
		fails   bool
	}{
		"it came":               {map[string]any{"paid": 42}, 42, false},
		"the deadline passed":   {nil, 0, true},
		"something else came":   {map[string]any{"agreed": true}, 0, true},
		"it is of another type": {map[string]any{"paid": "a lot"}, 0, true},
	} {
		run := sagatest.NewRun(parcel{}, &sagatest.RunConfig{Signals: c.signals})
		err := onPaid(t.Context(), run)
		if (err != nil) != c.fails || run.State.Weight != c.want {
			t.Errorf("%s: %v, %+v", name, err, run.State)
		}
	}
}

func TestAStepWithChildrenAlone(t *testing.T) {
	run := sagatest.NewRun(parcel{}, &sagatest.RunConfig{Children: []sagatest.Child{
		{Saga: "part", Key: "a", State: parcel{Weight: 7}}, {Saga: "part", Key: "b", Status: store.StatusFailed},
	}})
	a, err := partName.Result(run, "a")
	if err != nil || a.Status != store.StatusCompleted || a.State.Weight != 7 {
		t.Errorf("%+v, %v", a, err)
	}
	b, err := partName.Result(run, "b")
	if err != nil || b.Status != store.StatusFailed {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := partName.Result(run, "c"); !errors.Is(err, saga.ErrNoChild) {
		t.Errorf("got error %v, want %v", err, saga.ErrNoChild)
	}
}
