package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// A Middleware stands around every call of a step's function or its undo. It
// calls next, once, and returns what the step is to have returned: next's error
// or another one. Without calling next it answers in the step's place; the state
// is then as it was. call says which attempt it is, in which direction, and
// [Call.Verdict] what an error will be taken for. ctx goes to the step by way of
// next, and ends as the documentation of [Func] says.
//
// Those of [Config.Middleware] stand outermost, the first one first, then those
// of [Definition.Middleware], then the step; for an undo in the same order.
//
// A panic of the step goes through next: what must happen then, too, belongs in
// a defer. A panic of the middleware counts as one of the step. A call of next
// after the first one does not run the step again, but returns an error that
// leaves the step in doubt. A middleware that returns before next does is waited
// for. Where next returned nil, or an error that leaves the step in doubt, every
// other error returned in its place does so too, unless it says [NoEffect]; an
// error that is swallowed is a success.
type Middleware func(ctx context.Context, call *Call, next func(ctx context.Context) error) error

// errNextAgain is what next returns but the first time.
var errNextAgain = errors.New("saga: a middleware called next again, or after it had returned")

// through returns f with the middleware of the engine and of the saga around it.
func (e *Engine) through(p *plan, f body) body {
	for _, around := range slices.Backward(p.middleware) {
		f = around.over(f)
	}
	for _, around := range slices.Backward(e.cfg.Middleware) {
		f = around.over(f)
	}
	return f
}

func (around Middleware) over(f body) body {
	return func(ctx context.Context, call *Call, state json.RawMessage) (json.RawMessage, error, error) {
		in := &inside{f: f, call: call, state: state, done: make(chan struct{})}
		defer in.close() // when around panics
		err := around(ctx, call, in.next)
		in.close()
		if err == nil || savesState(err) {
			return in.left, in.stateErr, in.keepDoubt(err)
		}
		return nil, nil, in.keepDoubt(err)
	}
}

// An inside is what a middleware stands around, for one call of it.
type inside struct {
	f     body
	call  *Call
	state json.RawMessage

	mu     sync.Mutex
	called bool
	closed bool
	done   chan struct{} // closed when f has ended

	returned bool // f did not panic
	left     json.RawMessage
	stateErr error
	err      error
}

func (in *inside) next(ctx context.Context) error {
	in.mu.Lock()
	refused := in.called || in.closed
	if !refused {
		in.called = true
	}
	in.mu.Unlock()
	if refused {
		return Unknown(errNextAgain)
	}
	defer close(in.done)
	in.left, in.stateErr, in.err = in.f(ctx, in.call, in.state)
	in.returned = true
	return in.err
}

// close lets next do nothing more, and waits for it: the lease of the attempt
// ends when the middleware has returned.
func (in *inside) close() {
	in.mu.Lock()
	in.closed = true
	called := in.called
	in.mu.Unlock()
	if called {
		<-in.done
	}
}

// keepDoubt returns what a middleware returned, so that it does not hide an
// effect that the step had or may have had.
func (in *inside) keepDoubt(err error) error {
	if err == nil || !in.called {
		return err
	}
	if say := listen(err); say.noEffect || say.unknown || say.kind == KindComplete || say.kind == KindContinueAsNew {
		return err
	}
	if in.returned && in.err != nil {
		say := listen(in.err)
		doubt := say.unknown || !say.noEffect && (unknownOutcome(in.err) || in.call.errorsInDoubt())
		switch say.kind {
		case KindSkip:
			doubt = say.unknown
		case KindComplete, KindContinueAsNew:
			doubt = true
		case KindHalt, KindSnooze:
			doubt = !say.noEffect || say.unknown
		}
		if !doubt {
			return err
		}
	}
	return Unknown(err)
}

func middlewareFaults(all []Middleware) (faults []string) {
	for i, m := range all {
		if m == nil {
			faults = append(faults, fmt.Sprintf("Middleware[%d] is nil", i))
		}
	}
	return faults
}
