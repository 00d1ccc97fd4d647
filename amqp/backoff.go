package amqp

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	retryFirst = 100 * time.Millisecond

	// What only a person can mend is asked about less often: a broker may make
	// each wrong password wait for seconds, and lock the user in the end.
	refusedFirst = time.Second
	refusedMost  = 30 * time.Second
)

// A backoff says how long to wait before the next try: longer each time, with
// jitter, and from the start again once something has lived for a while.
type backoff struct {
	first, most time.Duration
	next        time.Duration
}

func (b *backoff) wait(lived time.Duration) time.Duration {
	if lived > b.most || b.next == 0 {
		b.next = b.first
	}
	d := b.next
	b.next = min(2*b.next, b.most)
	return d/2 + rand.N(d/2+1)
}

// retries says how long to wait after an error that ended something which had
// lived for a while: a broker that is away is one matter, one that refuses
// another.
type retries struct {
	away, refused backoff
}

func newRetries(cfg *Config) *retries {
	return &retries{
		away:    backoff{first: retryFirst, most: cfg.Reconnect},
		refused: backoff{first: refusedFirst, most: refusedMost},
	}
}

func (r *retries) wait(err error, lived time.Duration) time.Duration {
	if errors.Is(err, ErrMisconfigured) {
		return r.refused.wait(lived)
	}
	r.refused.next = 0
	return r.away.wait(lived)
}

// reset forgets what was tried.
func (r *retries) reset() { r.away.next, r.refused.next = 0, 0 }

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
