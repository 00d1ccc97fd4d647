package saga

import "context"

// Slots bound how many executions a consumer works on at once, whether their
// pointers came from its queues or it found them in the store itself
// ([Engine.WorkStore]). Safe for concurrent use.
type Slots struct {
	taken chan struct{}
}

// NewSlots returns n free slots; n below 1 counts as 1.
func NewSlots(n int) *Slots { return &Slots{taken: make(chan struct{}, max(n, 1))} }

// Acquire takes a slot, waiting for one until ctx is done, and then returns
// ctx's error.
func (s *Slots) Acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case s.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryAcquire takes a slot if one is free.
func (s *Slots) TryAcquire() bool {
	select {
	case s.taken <- struct{}{}:
		return true
	default:
		return false
	}
}

// Release gives a slot back.
func (s *Slots) Release() { <-s.taken }

// Free returns how many slots are free now, and Len how many there are.
func (s *Slots) Free() int { return cap(s.taken) - len(s.taken) }

// Len returns how many slots there are.
func (s *Slots) Len() int { return cap(s.taken) }
