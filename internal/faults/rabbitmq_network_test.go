//go:build linux

package faults

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/leveret-go/leveret/internal/faultproxy"
)

// All connections to the broker are closed every 2 seconds, in order or with a reset.
func connectionsClosedAgainAndAgain(w *world) {
	w.up(rabbit(setup{}))
	w.work(2, nil)
	w.consumed(2)
	w.start(100, 80*time.Millisecond)
	for i := range 4 {
		w.pause(2 * time.Second)
		if i%2 == 0 {
			w.rabbit.proxy.Cut()
		} else {
			w.rabbit.proxy.Reset()
		}
	}
	w.lifted()
	w.finishWith(2)
}

// The connection of a publisher is cut when the broker has taken its pointers and says so: nobody
// hears it.
func cutBetweenPublishAndConfirm(w *world) {
	w.up(rabbit(setup{}))
	w.work(2, nil)
	w.consumed(2)
	var cuts atomic.Int32
	w.rabbit.proxy.Inspect(func(_ int, d faultproxy.Direction, b []byte) faultproxy.Verdict {
		if d == faultproxy.ToClient && confirms(b) && cuts.Add(1) <= 40 {
			return faultproxy.Cut
		}
		return faultproxy.Pass
	})
	w.start(100, 40*time.Millisecond)
	w.until("publishers are cut off 10 times", func() bool { return cuts.Load() >= 10 })
	w.rabbit.proxy.Heal()
	w.note("%d connections were cut", min(cuts.Load(), 40))
	w.lifted()
	w.finishWith(2)
}

// confirms reports whether what a broker sends holds a basic.ack: a method of class 60, number 80.
func confirms(b []byte) bool { return bytes.Contains(b, []byte{0, 60, 0, 80}) }

// Each connection is cut when it has carried a few thousand bytes, in small pieces: in the middle of
// frames more often than not.
func cutInTheMiddleOfFrames(w *world) {
	w.up(rabbit(setup{}))
	w.work(2, nil)
	w.consumed(2)
	w.start(150, 100*time.Millisecond)
	before := w.rabbit.proxy.Accepted()
	for i := range 4 {
		// Both add up: pieces of 500 bytes, each a little after the other.
		w.rabbit.proxy.Throttle(both, 5000)
		w.rabbit.proxy.CutAfter(both, 3000+700*i)
		w.pause(3 * time.Second)
	}
	w.rabbit.proxy.Heal()
	w.note("%d connections more than without", w.rabbit.proxy.Accepted()-before)
	w.lifted()
	w.finishWith(2)
}

// Nothing gets through that way for longer than the heartbeats bear, and nobody is told: first it is lost,
// then it is late.
func brokerIsBlackholed(way faultproxy.Direction) func(*world) {
	return func(w *world) {
		w.up(rabbit(setup{}))
		w.work(2, nil)
		w.consumed(2)
		w.start(300, 120*time.Millisecond)
		for i, fault := range []func(faultproxy.Direction){w.rabbit.proxy.Swallow, w.rabbit.proxy.Hang} {
			w.ended(10 + 60*i)
			fault(way)
			began := time.Now()
			w.away()
			w.note("known to be away after %.1f s", time.Since(began).Seconds())
			w.ended(30 + 60*i)
			w.pause(10*time.Second - time.Since(began))
			w.rabbit.proxy.Heal()
			w.until("the broker is back", w.starter.broker.Connected)
		}
		w.lifted()
		w.finishWith(2)
	}
}
