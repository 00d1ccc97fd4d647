package sagatest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A Fault is a place in a saga where something goes wrong: see [Harness.At].
// Each of its methods plans what happens to one attempt more, so that
//
//	h.At("charge").Fail(errors.New("503")).CrashAfter()
//
// makes the first attempt of the step fail and the second crash; the third is
// undisturbed.
type Fault struct {
	h     *Harness
	place place
}

// A place is a step in one direction. saga is "" for the step of any.
type place struct {
	saga, step string
	direction  saga.Direction
}

func (p place) String() string {
	s := fmt.Sprintf("%q", p.step)
	if p.saga != "" {
		s = fmt.Sprintf("%q", p.saga+"/"+p.step)
	}
	if p.direction == store.DirectionCompensate {
		s = "the undo of " + s
	}
	return s
}

// At returns the place of a step's Execute, in any saga that has such a step;
// "checkout/charge" names one saga's. A step that no saga has ends the test.
// Faults are met by the attempts that come next, in the order in which they
// were planned; one that is not met by the end of the test fails it.
func (h *Harness) At(step string) Fault {
	h.t.Helper()
	return h.at(step, store.DirectionExecute)
}

// AtUndo returns the place of a step's Compensate.
func (h *Harness) AtUndo(step string) Fault {
	h.t.Helper()
	return h.at(step, store.DirectionCompensate)
}

func (h *Harness) at(step string, d saga.Direction) Fault {
	h.t.Helper()
	p := place{step: step, direction: d}
	if sagaName, name, ok := strings.Cut(step, "/"); ok {
		p.saga, p.step = sagaName, name
	}
	for _, o := range h.Engine.Outlines() {
		for _, s := range o.Steps {
			if s.Name == p.step && (p.saga == "" || p.saga == o.Saga) {
				return Fault{h, p}
			}
		}
	}
	h.t.Fatalf("sagatest: no saga that is registered has a step %q", step)
	return Fault{}
}

// Fail makes an attempt return err without running the step's function. An
// ordinary error is tried again; wrap it with saga.Fail, saga.Unknown and the
// like to say more.
func (f Fault) Fail(err error) Fault { return f.plan(fault{kind: fails, err: err}) }

// TimeOut makes an attempt end by its time-out, without running the step's
// function: the engine does not know whether the step had its effect.
func (f Fault) TimeOut() Fault { return f.plan(fault{kind: fails, err: context.DeadlineExceeded}) }

// CrashBefore kills the worker after it has opened an attempt and before the
// step's function runs. The attempt is abandoned when its lease is over.
func (f Fault) CrashBefore() Fault { return f.plan(fault{kind: crashesBefore}) }

// CrashAfter kills the worker when the step's function has returned and before
// anything of that is written: the effect is there, but nobody knows, and what
// the function did to the state is gone. The attempt is abandoned when its lease
// is over.
func (f Fault) CrashAfter() Fault { return f.plan(fault{kind: crashesAfter}) }

func (f Fault) plan(what fault) Fault {
	f.h.faults.mu.Lock()
	defer f.h.faults.mu.Unlock()
	what.place = f.place
	f.h.faults.planned = append(f.h.faults.planned, what)
	return f
}

type faultKind int

const (
	fails faultKind = iota
	crashesBefore
	crashesAfter
)

type fault struct {
	place place
	kind  faultKind
	err   error
}

// A crash is what the store panics with where a process is to die: on the line
// that would write the result.
type crash struct{}

type faults struct {
	mu      sync.Mutex
	planned []fault
	// dying: the worker has crashed, and must not write any more.
	dying bool
}

// take returns the fault that an attempt meets.
func (fs *faults) take(c *saga.Call) (fault, bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i, f := range fs.planned {
		if p := f.place; p.step == c.Step && p.direction == c.Direction && (p.saga == "" || p.saga == c.Saga) {
			fs.planned = append(fs.planned[:i:i], fs.planned[i+1:]...)
			return f, true
		}
	}
	return fault{}, false
}

func (fs *faults) left() (places []string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.planned {
		places = append(places, f.place.String())
	}
	return places
}

// around is the middleware that puts the faults into the steps.
func (fs *faults) around(ctx context.Context, c *saga.Call, next func(context.Context) error) error {
	f, ok := fs.take(c)
	if !ok {
		return next(ctx)
	}
	if f.kind == fails {
		return f.err
	}
	if f.kind == crashesAfter {
		_ = next(ctx)
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.dying = true
	return nil
}

// dies reports whether the worker that wants to write has crashed. The next one
// is another one.
func (fs *faults) dies() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	d := fs.dying
	fs.dying = false
	return d
}
