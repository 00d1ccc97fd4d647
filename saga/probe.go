package saga

import (
	"context"
	"errors"
	"sync"
)

// errProbeHangs: an earlier question about this queue has not come back.
var errProbeHangs = errors.New("saga: depth: the publisher has not answered an earlier question about this queue")

// probes asks a publisher for depths, and is not held up when that ignores the
// end of its ctx. Such a call is left behind in a goroutine that nobody waits
// for: it cannot be ended, its answer is of no use to anybody, and a sweep, a
// health check or a shutdown must not hang with it. While one is left behind no
// other is begun about its partition, so that they do not pile up.
type probes struct {
	mu   sync.Mutex
	left map[string]int // calls left behind, by partition
}

// depth is p.Depth, and returns when ctx is done.
func (ps *probes) depth(ctx context.Context, p DepthProber, partition string) (ready, consumers int, err error) {
	ps.mu.Lock()
	hangs := ps.left[partition] > 0
	ps.mu.Unlock()
	if hangs {
		return 0, 0, errProbeHangs
	}
	done := make(chan struct{})
	var answer struct {
		ready, consumers int
		err              error
	}
	left := false // behind, under mu
	go func() {
		answer.ready, answer.consumers, answer.err = p.Depth(ctx, partition)
		ps.mu.Lock()
		defer ps.mu.Unlock()
		close(done)
		if left {
			ps.add(partition, -1)
		}
	}()
	select {
	case <-done:
		return answer.ready, answer.consumers, answer.err
	case <-ctx.Done():
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	select {
	case <-done:
		return answer.ready, answer.consumers, answer.err
	default:
	}
	left = true
	ps.add(partition, 1)
	return 0, 0, ctx.Err()
}

func (ps *probes) add(partition string, n int) {
	if ps.left == nil {
		ps.left = map[string]int{}
	}
	if ps.left[partition] += n; ps.left[partition] == 0 {
		delete(ps.left, partition)
	}
}
