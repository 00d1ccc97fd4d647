package saga

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// storeTimeout bounds one call of the store. Writes of the engine never end
// with a step's or a caller's ctx.
const storeTimeout = 15 * time.Second

func storeCtx(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}

// decide lets f change an execution under its lock, and, when it did, tells the
// world after the commit. f returns an error to write nothing.
func (e *Engine) decide(ctx context.Context, id uuid.UUID, f func(m *machine) error) (*store.Execution, error) {
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	return e.decideIn(ctx, id, f)
}

// decideIn is decide for a caller whose ctx may end it.
func (e *Engine) decideIn(ctx context.Context, id uuid.UUID, f func(m *machine) error) (*store.Execution, error) {
	return e.desk().decideIn(ctx, id, f)
}

// committed does what follows a write: events, the pointer, the alarm.
func (e *Engine) committed(ctx context.Context, m *machine, x *store.Execution) {
	for _, ev := range m.events {
		e.emit(ctx, ev)
	}
	if m.publish {
		e.publish(ctx, x)
	}
	if x.Events && x.Status != m.was {
		e.relay.ring()
	}
	if x.Status.Finished() {
		e.waiters.tell(x.ID)
	}
	if x.Attempt == nil && x.DueAt != nil && (x.OfferedAt == nil || !x.DueAt.After(m.now)) {
		e.alarms.set(*x.DueAt)
	}
	e.ringFor(ctx, x)
	if len(m.change.Wake) > 0 {
		e.alarms.set(m.now)
	}
	for _, c := range m.created {
		e.committed(ctx, c, c.x)
	}
}

// definite reports whether an error of a write says for sure that nothing was
// written.
func definite(err error) bool {
	var taken *store.KeyTakenError
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrInvalid) ||
		errors.Is(err, store.ErrRequestUsed) ||
		errors.Is(err, errLost) || errors.Is(err, ErrNotRunning) || errors.As(err, &taken)
}

// errGaveUp ends the attempts to learn what became of a write.
var errGaveUp = errors.New("saga: gave up on the store")

// again calls f until it returns no error or a definite one, waiting longer and
// longer in between, while the engine is not being cut off and until the time
// bound is over (0: none). An outage makes many calls wait, each with many
// tries: only the first of each is logged.
func (e *Engine) again(ctx context.Context, id uuid.UUID, bound time.Duration, f func() error) error {
	start := time.Now()
	told := false
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := f()
		if err == nil || definite(err) {
			return err
		}
		if !told {
			told = true
			e.warn("saga: the store does not answer, trying again", "execution", id, "error", err)
		}
		if bound > 0 && time.Since(start) > bound {
			return errors.Join(errGaveUp, err)
		}
		select {
		case <-time.After(wait):
		case <-e.sessions.cutOff():
			return errors.Join(errGaveUp, err)
		}
	}
}
