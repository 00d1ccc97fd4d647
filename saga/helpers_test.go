package saga_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

var anna = saga.By{Actor: "anna", Reason: "on call"}

// A rig is an engine with one saga on a memory store, in a synctest bubble.
type rig struct {
	t     *testing.T
	store store.Store
	e     *saga.Engine
	s     *saga.Saga[order]
}

func newRig(t *testing.T, cfg saga.Config, steps ...saga.Step[order]) *rig {
	t.Helper()
	return newRigFor(t, cfg, saga.Definition[order]{Name: "checkout", Steps: steps})
}

func newRigFor(t *testing.T, cfg saga.Config, d saga.Definition[order]) *rig {
	t.Helper()
	if cfg.Store == nil {
		cfg.Store = memory.New()
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	e, err := saga.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := saga.Register(e, d)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, cfg.Store, e, s}
}

func (r *rig) start(ctx context.Context) uuid.UUID {
	r.t.Helper()
	x, err := r.s.Start(ctx, saga.Resource{Type: "order", ID: "1"}, order{}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return x.ID
}

func (r *rig) get(id uuid.UUID) *store.Execution {
	r.t.Helper()
	x, err := r.store.Get(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

// wait waits for the end of an execution.
func (r *rig) wait(ctx context.Context, id uuid.UUID) *store.Execution {
	r.t.Helper()
	x, err := r.e.Wait(ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

// runOne runs the engine, starts one execution and waits for its end.
func (r *rig) runOne() *store.Execution {
	r.t.Helper()
	var x *store.Execution
	runEngine(r.t, r.e, func(ctx context.Context) { x = r.wait(ctx, r.start(ctx)) })
	return x
}

func (r *rig) attempts(id uuid.UUID) []store.Attempt {
	r.t.Helper()
	as, err := r.store.Attempts(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return as
}

// statuses lists step/status of the attempts.
func (r *rig) statuses(id uuid.UUID) (out []string) {
	for _, a := range r.attempts(id) {
		d := ""
		if a.Direction == store.DirectionCompensate {
			d = "undo "
		}
		out = append(out, d+a.Step+" "+string(a.Status))
	}
	return out
}

func ledgerOf(x *store.Execution) (out []string) {
	for _, e := range x.Ledger {
		out = append(out, e.Name+" "+string(e.Status))
	}
	return out
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// pass lets time go by in the bubble, and everything come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

type fn = saga.Func[order]

func ok(context.Context, *saga.Run[order]) error { return nil }

// results returns nil, or the next error of a list each time it is called.
func results(errs ...error) fn {
	return func(context.Context, *saga.Run[order]) error {
		if len(errs) == 0 {
			return nil
		}
		err := errs[0]
		errs = errs[1:]
		return err
	}
}

// quick is a policy that waits a second at most.
var quick = saga.RetryPolicy{Attempts: 3, Initial: time.Second, Max: time.Second}
