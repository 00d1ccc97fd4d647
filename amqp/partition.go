package amqp

import (
	"context"
	"sync"
	"time"

	"github.com/leveret-go/leveret/saga"
)

// The pause of a partition after an error of the store: it doubles with each
// one in a row.
const (
	pauseFirst = time.Second
	pauseMost  = 30 * time.Second
)

// A partition is consumed by one goroutine, over one channel at a time, and
// worked on by as many as there are slots.
type partition struct {
	c       *Consumer
	name    string
	slots   *saga.Slots
	stop    context.CancelCauseFunc // ends the whole consumer
	trouble trouble
	begun   sync.WaitGroup // everything that runs for it

	direct context.CancelFunc // not nil while the store is worked directly

	// mu guards what follows and the credit of the intake, so that a worker that
	// becomes free and the delivery that may come for it are seen as one.
	mu       sync.Mutex
	running  int       // deliveries that are being handled
	failures int       // of the store, in a row
	until    time.Time // no delivery is begun before
}

// run consumes until ctx is done and all that was begun has ended.
func (p *partition) run(ctx context.Context) {
	defer p.begun.Wait()
	retry := newRetries(&p.c.b.cfg)
	for ctx.Err() == nil {
		s, changed := p.c.session.get()
		if s == nil {
			p.workStore(ctx)
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := p.consume(ctx, s)
		if ctx.Err() != nil {
			return
		}
		p.workStore(ctx)
		wait := retry.wait(err, time.Since(began))
		select {
		case <-s.dead: // the connection's trouble, not the partition's
			retry.reset()
		default:
			p.trouble.warn("amqp: consuming was interrupted", err)
			sleep(ctx, wait)
		}
	}
}

// workStore lets the slots work the store, until leaveStore.
func (p *partition) workStore(ctx context.Context) {
	if p.direct != nil {
		return
	}
	ctx, p.direct = context.WithCancel(ctx)
	p.begun.Go(func() { _ = p.c.e.WorkStore(ctx, p.name, p.slots) })
}

// leaveStore ends the claiming from the store. What was claimed goes on, on its
// slots.
func (p *partition) leaveStore() {
	if p.direct != nil {
		p.direct()
		p.direct = nil
	}
}

// failed notes an error of the store. Several at a time count once.
func (p *partition) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.until) {
		return
	}
	p.until = now.Add(min(pauseFirst<<min(p.failures, 10), pauseMost))
	p.failures++
}

// worked notes that the store answers.
func (p *partition) worked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures, p.until = 0, time.Time{}
}

// pause returns how long no delivery may be begun.
func (p *partition) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.until)
}

// room returns how many more deliveries may be begun now. After a failure it is
// tried with one at a time. The caller holds mu.
func (p *partition) room() int {
	if time.Now().Before(p.until) {
		return 0
	}
	n := p.slots.Free()
	if p.failures > 0 {
		n = min(n, max(1-p.running, 0))
	}
	return n
}
