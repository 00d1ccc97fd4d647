package saga

import "sync"

// A lifecycle lets calls in while the engine runs.
type lifecycle struct {
	mu       sync.Mutex
	running  bool
	draining bool
	stopped  bool // Run has returned, perhaps before the last call has left
	inflight int
	idle     chan struct{} // closed when the last call has left a draining engine
}

func (l *lifecycle) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running || l.draining {
		return false
	}
	l.inflight++
	return true
}

func (l *lifecycle) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inflight--
	if l.draining && l.inflight == 0 {
		close(l.idle)
		if l.stopped {
			l.running = false
		}
	}
}

func (l *lifecycle) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

func (l *lifecycle) isRunning() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

func (l *lifecycle) start() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		return false
	}
	l.running, l.draining, l.stopped, l.idle = true, false, false, make(chan struct{})
	return true
}

// drain lets no more calls in, and returns a channel that is closed when all
// have left.
func (l *lifecycle) drain() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.draining {
		l.draining = true
		if l.inflight == 0 {
			close(l.idle)
		}
	}
	return l.idle
}

func (l *lifecycle) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Calls that never end stay counted: the engine keeps draining for them.
	l.stopped, l.running = true, l.inflight > 0
}
