package saga

import (
	"context"
	"fmt"
	"time"

	"github.com/leveret-go/leveret/store"
)

const (
	eventBatch = 100
	// eventsLate is for how long an event may wait before Health says so.
	eventsLate = time.Minute
)

// A relay sends the status events that the store has recorded.
type relay struct {
	to   EventPublisher // nil: nobody is told
	bell chan struct{}  // holds a token when this process may have recorded some
}

func newRelay(cfg *Config) relay {
	r := relay{to: cfg.Events, bell: make(chan struct{}, 1)}
	if r.to == nil {
		r.to, _ = cfg.Publisher.(EventPublisher)
	}
	return r
}

func (r *relay) ring() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// announces reports whether a saga that is registered here has its events
// published.
func (e *Engine) announces() bool {
	e.plans.RLock()
	defer e.plans.RUnlock()
	for _, versions := range e.plans.byName {
		for _, p := range versions {
			if p.events {
				return true
			}
		}
	}
	return false
}

// relayLoop sends events until ctx is done, and then what the last steps have
// recorded. It goes on after any error; nothing is lost by it.
func (e *Engine) relayLoop(ctx context.Context) {
	outbox, ok := store.As[store.Outbox](e.store)
	if !ok || e.relay.to == nil {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if e.announces() && !e.mute() {
			if err := e.sendEvents(ctx, outbox); err != nil && ctx.Err() == nil {
				e.warn("saga: publish status events", "error", err)
			}
		}
		if ctx.Err() != nil {
			return
		}
		timer.Reset(e.sweepPause())
		select {
		case <-ctx.Done():
		case <-e.relay.bell:
		case <-timer.C:
		}
	}
}

// mute reports whether events would go to a broker that is away: then they are
// left alone, to be sent as soon as it is back.
func (e *Engine) mute() bool {
	c, ok := e.relay.to.(Connector)
	return ok && !c.Connected()
}

// sendEvents sends all that are there. What is claimed by a process that dies, or
// could not be sent, is claimed again after PickupWithin.
func (e *Engine) sendEvents(ctx context.Context, outbox store.Outbox) error {
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	if err := e.clock.ready(ctx); err != nil {
		return err
	}
	id, err := e.identity(ctx)
	if err != nil {
		return err
	}
	for {
		list, err := outbox.ClaimEvents(ctx, store.EventQuery{Now: e.clock.now(), Hold: e.cfg.PickupWithin, Limit: eventBatch})
		if err != nil || len(list) == 0 {
			return err
		}
		events, ids := make([]StatusEvent, len(list)), make([]store.EventID, len(list))
		for i := range list {
			events[i], ids[i] = statusEvent(id, &list[i]), list[i].ID()
		}
		if err := e.publishEvents(ctx, events); err != nil {
			return err
		}
		if err := outbox.RemoveEvents(ctx, ids); err != nil {
			return err
		}
		if len(list) < eventBatch {
			return nil
		}
	}
}

func (e *Engine) publishEvents(ctx context.Context, events []StatusEvent) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("saga: the event publisher panicked: %v", v)
		}
	}()
	return e.relay.to.PublishEvents(ctx, events)
}

// events looks for status events that nobody sends.
func (c *checkup) events(ctx context.Context) {
	outbox, ok := store.As[store.Outbox](c.e.store)
	if !ok {
		c.unasked(HealthEventsLate)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, healthProbe)
	defer cancel()
	at, err := outbox.OldestEvent(ctx)
	if err != nil {
		c.unanswered(HealthEventsLate, err)
		return
	}
	if at != nil && c.h.At.Sub(*at) > max(10*c.e.cfg.SweepEvery, eventsLate) {
		c.cause(HealthDegraded, HealthEventsLate, "", 0, "status events wait since %s; no process that lives publishes them", clock3339(*at))
		c.since(*at)
	}
}
