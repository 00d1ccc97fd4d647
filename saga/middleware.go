package saga

import (
	"context"
	"encoding/json"
	"slices"
)

// A Middleware stands around every call of a step's function or its undo. It
// calls next, once, and returns what the step is to have returned: next's error
// or another one. Without calling next it answers in the step's place; the state
// is then as it was. call says which attempt it is. ctx goes to the step by way
// of next, and ends as the documentation of [Func] says.
type Middleware func(ctx context.Context, call *Call, next func(ctx context.Context) error) error

// through returns f with the engine's middleware around it.
func (e *Engine) through(f body) body {
	for _, around := range slices.Backward(e.cfg.Middleware) {
		inner := f
		f = func(ctx context.Context, call *Call, state json.RawMessage) (next json.RawMessage, stateErr, err error) {
			err = around(ctx, call, func(ctx context.Context) (err error) {
				next, stateErr, err = inner(ctx, call, state)
				return err
			})
			if err != nil && !savesState(err) {
				next, stateErr = nil, nil
			}
			return next, stateErr, err
		}
	}
	return f
}
