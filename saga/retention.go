package saga

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/leveret-go/leveret/store"
)

// Retention says for how long executions are kept after they have finished, by
// how they ended. 0 keeps them for ever, which is the default of each.
type Retention struct {
	Completed   time.Duration
	Compensated time.Duration
	Cancelled   time.Duration
	// Failed ones can be retried, and those whose compensation failed still need
	// a person: give these a time only if they are dealt with elsewhere.
	Failed             time.Duration
	CompensationFailed time.Duration
}

// retentionEvery is about how often Run purges.
const retentionEvery = time.Minute

// kept lists what r says, in the order in which it is purged.
func (r *Retention) kept() []keptFor {
	return []keptFor{
		{store.StatusCompleted, "Completed", r.Completed},
		{store.StatusCompensated, "Compensated", r.Compensated},
		{store.StatusCancelled, "Cancelled", r.Cancelled},
		{store.StatusFailed, "Failed", r.Failed},
		{store.StatusCompensationFailed, "CompensationFailed", r.CompensationFailed},
	}
}

type keptFor struct {
	status store.Status
	field  string
	age    time.Duration
}

// faults lists what is wrong with r.
func (r *Retention) faults() (out []string) {
	for _, k := range r.kept() {
		if k.age < 0 || k.age > 100*year {
			out = append(out, fmt.Sprintf("Retention.%s is %v, want 0 to %v", k.field, k.age, 100*year))
		}
	}
	return out
}

// canPurge returns what a purge needs of a store, or ErrNotSupported.
func canPurge(s store.Store) (store.Querier, store.Deleter, error) {
	q, lists := store.As[store.Querier](s)
	d, deletes := store.As[store.Deleter](s)
	switch {
	case !lists:
		return nil, nil, fmt.Errorf("%w: it has no store.Querier", ErrNotSupported)
	case !deletes:
		return nil, nil, fmt.Errorf("%w: it has no store.Deleter", ErrNotSupported)
	}
	return q, d, nil
}

// retentionLoop purges by Config.Retention until ctx is done. It goes on after
// any error.
func (e *Engine) retentionLoop(ctx context.Context) {
	every := func() time.Duration { return time.Duration(float64(retentionEvery) * (0.8 + 0.4*mathrand.Float64())) }
	for sleep(ctx, every()) {
		r, err := e.Purge(ctx, PurgeOptions{Retention: *e.cfg.Retention})
		if err != nil && ctx.Err() == nil {
			e.warn("saga: retention", "deleted", r.Total(), "error", err)
		}
	}
}

// checkRetention returns what is wrong with Config.Retention.
func (cfg *Config) checkRetention() error {
	if cfg.Retention == nil {
		return nil
	}
	var errs []error
	for _, f := range cfg.Retention.faults() {
		errs = append(errs, fmt.Errorf("%w: Config.%s", ErrInvalid, f))
	}
	if cfg.Store != nil {
		if _, _, err := canPurge(cfg.Store); err != nil {
			errs = append(errs, fmt.Errorf("%w: Config.Retention: %w", ErrInvalid, err))
		}
	}
	return errors.Join(errs...)
}
