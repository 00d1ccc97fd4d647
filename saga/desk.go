package saga

import (
	"bytes"
	"context"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A desk is where an engine's starts, signals and acts are done: on its store,
// or inside of a transaction of the caller's.
type desk struct {
	e     *Engine
	store store.Store
	tx    *Tx // nil: each call is a transaction of its own
}

func (e *Engine) desk() desk { return desk{e: e, store: e.store} }

// machine returns a machine for an execution. Inside of a transaction nobody can
// be told of it before the commit: it is due at once.
func (d desk) machine(x *store.Execution) *machine {
	m := d.e.machine(x)
	m.rules.direct = m.rules.direct || d.tx != nil
	return m
}

// decideIn lets f change an execution under its lock, and, when it did, tells the
// world after the commit. f returns an error to write nothing.
func (d desk) decideIn(ctx context.Context, id uuid.UUID, f func(m *machine) error) (*store.Execution, error) {
	var m *machine
	x, err := d.store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
		before := x.State
		m = d.machine(x)
		if err := f(m); err != nil {
			return store.Change{}, err
		}
		if !m.dirty {
			return store.Change{}, store.ErrUnchanged
		}
		m.change.SameState = bytes.Equal(before, x.State)
		return m.change, nil
	})
	if err != nil {
		return nil, err
	}
	d.committed(ctx, m, x)
	return x, nil
}

// committed does what follows a write, or leaves it to the end of the
// transaction.
func (d desk) committed(ctx context.Context, m *machine, x *store.Execution) {
	if d.tx != nil {
		d.tx.written = append(d.tx.written, written{m, x})
		return
	}
	d.e.committed(ctx, m, x)
}
