package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// maxActive is the largest MaxActive.
const maxActive = 10_000

// A limit is how many executions of a saga are active at a time.
type limit struct {
	total, perGroup int // 0: any number
	group           func(r Resource, state json.RawMessage) (string, error)
}

func (l *limit) any() bool { return l.total > 0 || l.perGroup > 0 }

func limitOf[S any](codec *stateCodec[S], d Definition[S]) limit {
	l := limit{total: d.MaxActive, perGroup: d.MaxActivePerGroup}
	if d.Group == nil {
		return l
	}
	l.group = func(r Resource, state json.RawMessage) (group string, err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("%w: Group panicked: %v", ErrInvalid, v)
			}
		}()
		s, err := codec.decode(state)
		if err != nil {
			return "", err
		}
		group = d.Group(r, s)
		if len(group) > maxKey || !cleanText(group) {
			return "", fmt.Errorf("%w: Group must return valid UTF-8 without NUL of at most %d bytes", ErrInvalid, maxKey)
		}
		return group, nil
	}
	return l
}

// queueUp lets an execution that is about to begin wait for its turn, where its
// saga has a limit.
func (m *machine) queueUp() {
	x := m.x
	if m.plan == nil || !m.plan.limit.any() || x.Status.Finished() {
		return
	}
	x.Gate = &store.Gate{Kind: store.GateTurn, Since: m.now}
	if m.plan.limit.group != nil {
		group, err := m.plan.limit.group(x.Resource, x.State)
		if err != nil {
			x.Gate = nil
			m.condition(err)
			return
		}
		x.Gate.Group = group
	}
	m.park()
}

// waitForTurn is what a look at an execution that waits for its turn comes to.
func (m *machine) waitForTurn() string {
	switch admitted := m.answers.turn(); {
	case m.plan == nil:
		m.noteUnknown()
		return DropUnknown
	case !m.plan.limit.any(): // this build has no limit any more
	case admitted == nil:
		m.wants = wantTurn
		return dropAsk
	case !*admitted:
		return m.rest()
	}
	m.admit()
	return ""
}

// admit lets an execution begin whose turn it is.
func (m *machine) admit() {
	m.x.Gate, m.x.ProgressAt = nil, m.now
	m.goOnFromGate()
}

func (a *answers) turn() *bool {
	if a == nil {
		return nil
	}
	return a.admitted
}

// active is a limit's cell: who has begun, by group, in the order of beginning.
type active struct {
	Active []activeOne `json:"active"`
}

type activeOne struct {
	ID    uuid.UUID `json:"id"`
	Group string    `json:"group,omitempty"`
}

// room reports whether one more of a group may begin.
func (a *active) room(l *limit, group string) bool {
	n := 0
	for _, o := range a.Active {
		if o.Group == group {
			n++
		}
	}
	return (l.total == 0 || len(a.Active) < l.total) && (l.perGroup == 0 || n < l.perGroup)
}

func (a *active) has(id uuid.UUID) bool {
	return slices.ContainsFunc(a.Active, func(o activeOne) bool { return o.ID == id })
}

const limitPrefix = "limit/"

// admit finds out whether it is x's turn, and lets those begin whose turn it is
// before it.
func (e *Engine) admit(ctx context.Context, x *store.Execution) (bool, error) {
	admitted, err := e.admitNext(ctx, x.Saga)
	if err != nil {
		return false, fmt.Errorf("saga: limit of %q: %w", x.Saga, err)
	}
	return slices.Contains(admitted, x.ID), nil
}

// admitNext gives the free places of a saga's limit to those who have waited
// longest, and returns all who have one now and have not begun, as far as they
// were seen. A process that dies after it has given a place, and before that
// execution was let in, has given it: the next look lets it in.
func (e *Engine) admitNext(ctx context.Context, saga string) ([]uuid.UUID, error) {
	p := e.latest(saga)
	cells, ok := store.As[store.Cells](e.store)
	if p == nil || !ok || !p.limit.any() {
		return nil, nil
	}
	for try := 1; ; try++ {
		v, revision, err := cells.Cell(ctx, limitPrefix+saga)
		if err != nil {
			return nil, err
		}
		var a active
		if v != nil {
			if err := json.Unmarshal(v, &a); err != nil {
				return nil, fmt.Errorf("read the cell: %w", err)
			}
		}
		waiting, err := e.waitingForTurn(ctx, saga)
		if err != nil {
			return nil, err
		}
		changed := false
		if !e.haveRoom(&a, &p.limit, waiting) {
			if changed, err = e.dropEnded(ctx, &a); err != nil {
				return nil, err
			}
		}
		var in []uuid.UUID
		for _, x := range waiting {
			if a.has(x.ID) {
				in = append(in, x.ID)
			} else if a.room(&p.limit, x.Gate.Group) {
				a.Active = append(a.Active, activeOne{ID: x.ID, Group: x.Gate.Group})
				in = append(in, x.ID)
				changed = true
			}
		}
		if changed {
			if v, err = json.Marshal(a); err == nil {
				_, err = cells.SetCell(ctx, limitPrefix+saga, v, revision)
			}
		}
		if errors.Is(err, store.ErrConflict) && try < 100 && ctx.Err() == nil {
			continue
		}
		return in, err
	}
}

// haveRoom reports whether all who wait could begin now.
func (e *Engine) haveRoom(a *active, l *limit, waiting []*store.Execution) bool {
	b := active{Active: slices.Clone(a.Active)}
	for _, x := range waiting {
		if b.has(x.ID) {
			continue
		}
		if !b.room(l, x.Gate.Group) {
			return false
		}
		b.Active = append(b.Active, activeOne{ID: x.ID, Group: x.Gate.Group})
	}
	return true
}

// dropEnded takes out of a limit who has ended, or is gone.
func (e *Engine) dropEnded(ctx context.Context, a *active) (changed bool, err error) {
	left := a.Active[:0:0]
	for _, o := range a.Active {
		x, err := e.store.Get(ctx, o.ID)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return false, err
		case !x.Status.Finished():
			left = append(left, o)
		}
	}
	changed = len(left) < len(a.Active)
	a.Active = left
	return changed, nil
}

// turnBatch is how many are looked at, at a time, that wait for their turn.
const turnBatch = 100

// waitingForTurn returns those who have waited longest.
func (e *Engine) waitingForTurn(ctx context.Context, saga string) ([]*store.Execution, error) {
	q := store.StalledQuery{ProgressBefore: e.clock.now().Add(time.Second), Saga: saga, Gate: store.GateTurn, Limit: turnBatch}
	return e.store.Stalled(ctx, q)
}

// limits tells the loop that lets executions begin of what it should look at.
type limits struct {
	mu    sync.Mutex
	sagas map[string]bool
	bell  chan struct{} // holds a token when there is something
}

func (l *limits) ring(saga string) {
	l.mu.Lock()
	l.sagas[saga] = true
	l.mu.Unlock()
	select {
	case l.bell <- struct{}{}:
	default:
	}
}

func (l *limits) rung() (sagas []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.sagas {
		sagas = append(sagas, s)
	}
	clear(l.sagas)
	return sagas
}

// limitLoop lets executions begin whose turn it is: when one has started or ended
// here, and every some sweeps, for those of processes that died.
func (e *Engine) limitLoop(ctx context.Context) {
	every := time.NewTicker(10 * e.cfg.SweepEvery)
	defer every.Stop()
	for {
		var sagas []string
		select {
		case <-ctx.Done():
			return
		case <-e.limits.bell:
			sagas = e.limits.rung()
		case <-every.C:
			sagas = e.limited()
		}
		for _, s := range sagas {
			if err := e.letIn(ctx, s); err != nil && ctx.Err() == nil {
				e.warn("saga: limit", "saga", s, "error", err)
			}
		}
	}
}

// limited lists the sagas with a limit that are registered here.
func (e *Engine) limited() (sagas []string) {
	e.plans.RLock()
	defer e.plans.RUnlock()
	for name, p := range e.plans.latest {
		if p.limit.any() {
			sagas = append(sagas, name)
		}
	}
	return sagas
}

// letIn lets those of a saga begin whose turn it is.
func (e *Engine) letIn(ctx context.Context, saga string) error {
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	ids, err := e.admitNext(ctx, saga)
	for _, id := range ids {
		_, one := e.decideIn(ctx, id, func(m *machine) error {
			if m.closed() && m.x.Gate.Kind == store.GateTurn && m.x.Status == store.StatusWaiting {
				m.admit()
				m.offer()
			}
			return nil
		})
		if !errors.Is(one, store.ErrNotFound) {
			err = errors.Join(err, one)
		}
	}
	if err == nil && len(ids) >= turnBatch {
		e.limits.ring(saga)
	}
	return err
}

// ringFor tells the loop of limits of an execution that has been written. A process
// that only starts has none: it lets in whose turn it is itself, and leaves
// the rest to those that work.
func (e *Engine) ringFor(ctx context.Context, x *store.Execution) {
	waits := x.Gate != nil && !x.Gate.Open && x.Gate.Kind == store.GateTurn
	if !waits && !x.Status.Finished() {
		return
	}
	switch p := e.latest(x.Saga); {
	case p == nil || !p.limit.any():
	case e.life.isRunning():
		e.limits.ring(x.Saga)
	default:
		if err := e.letIn(ctx, x.Saga); err != nil {
			e.warn("saga: limit", "saga", x.Saga, "error", err)
		}
	}
}
