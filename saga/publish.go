package saga

import (
	"context"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store"
)

// direct reports whether there is nobody to publish to now.
func (e *Engine) direct() bool {
	if e.pub == nil {
		return true
	}
	c, ok := e.pub.(Connector)
	return ok && !c.Connected()
}

func (e *Engine) pointer(ctx context.Context, x *store.Execution) (Pointer, error) {
	id, err := e.identity(ctx)
	return Pointer{
		V: PointerVersion, Store: id, Execution: x.ID, Saga: x.Saga, Step: x.Step,
		Direction: x.Direction, Epoch: x.Epoch, TraceParent: x.TraceParent,
	}, err
}

// publish sends a pointer to an execution's position. The execution comes due
// again if that fails.
func (e *Engine) publish(ctx context.Context, x *store.Execution) {
	if e.pub == nil {
		return
	}
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	p, err := e.pointer(ctx, x)
	if err == nil {
		err = e.pub.Publish(ctx, x.Partition, p)
	}
	if err != nil {
		e.reported(x.Partition, p, EventPointerUnpublished, err)
	}
}

// reported turns what a transport says of a pointer into an event.
func (e *Engine) reported(partition string, p Pointer, kind EventKind, err error) {
	if kind != EventPointerDead {
		e.refused.note(partition, e.clock.now())
	}
	e.emit(context.Background(), Event{
		Kind: kind, At: e.clock.now(), Execution: p.Execution, Saga: p.Saga, Partition: partition,
		Step: p.Step, Direction: p.Direction, Epoch: p.Epoch, Err: err,
	})
}

// refusals are, by partition, when a pointer last turned out not to have been
// sent.
type refusals struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (r *refusals) note(partition string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = map[string]time.Time{}
	}
	r.at[partition] = at
}

// since reports whether a pointer of the partition turned out not to have been
// sent at or after a time: what was offered then may be one of those.
func (r *refusals) since(partition string, offered time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[partition]
	return ok && !at.Before(offered)
}
