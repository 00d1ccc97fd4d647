package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A recorder stands in for a *testing.T, to be looked at afterwards.
type recorder struct {
	ctx context.Context

	mu       sync.Mutex
	failed   bool
	skipped  bool
	log      strings.Builder
	cleanups []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.log, format+"; ", args...)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	r.failed = true
	r.mu.Unlock()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// run runs f to its end, be it a Fatalf or a panic.
func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		f()
	}()
	<-done
}

// observe runs a case on a store with a fault.
func observe(ctx context.Context, c testCase, plant func(*faulty)) *recorder {
	r := &recorder{ctx: ctx}
	r.run(func() {
		newStore := func() store.Store {
			f := &faulty{Store: memory.New()}
			plant(f)
			return f
		}
		e := newEnv(r, newStore(), &Options{})
		e.newStore = newStore
		e.reopen = func() store.Store {
			if f := e.s.(*faulty); f.reopen != nil {
				return f.reopen()
			}
			return e.s
		}
		e.patience = time.Second
		c.run(e)
	})
	return r
}
