// Package faultproxy stands between a client and a server of TCP and does to their connections what
// networks do: it hangs them, cuts them, resets them, loses what they carry, slows them down, and
// turns new ones away.
//
//	p, err := faultproxy.New("127.0.0.1:5432") // clients connect to p.Addr()
//	…
//	defer p.Close()
//	p.Hang(faultproxy.ToClient) // the server hears, and is not heard
//	…
//	p.Heal()
//
// Faults hold for the connections that are open and for those to come, until [Proxy.Heal]. They
// add up. All methods are safe for concurrent use, and none waits for a peer.
package faultproxy

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// A Direction is a way that bytes take, or both.
type Direction int

// The directions.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// A Verdict is what becomes of bytes that an inspector has seen.
type Verdict int

// The verdicts.
const (
	Pass  Verdict = iota // they are passed on
	Lose                 // they are thrown away; the connection goes on
	Cut                  // they are thrown away and the connection is closed
	Reset                // they are thrown away and the connection is reset
)

// An Inspector sees all bytes before they are passed on, as they were read: a chunk may hold several
// messages or a part of one. It is called by one goroutine for each connection and direction, must
// not keep b, and may call the proxy's methods. conn numbers the connections from 1.
type Inspector func(conn int, d Direction, b []byte) Verdict

// A Proxy accepts connections and passes each on to a connection of its own to the target.
type Proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu       sync.Mutex
	faults   faults
	changed  chan struct{} // closed when faults change
	links    map[*link]bool
	accepted int
	closed   bool
}

// faults are what is wrong now.
type faults struct {
	hang    Direction
	swallow Direction
	refuse  bool
	delay   [Both]time.Duration // by direction
	rate    [Both]int           // bytes a second; 0: as fast as can be
	inspect Inspector
}

// New listens on a free port of 127.0.0.1 for clients of target, host:port. The target need not
// answer: a client is turned away as long as it does not.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{listener: l, target: target, changed: make(chan struct{}), links: map[*link]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Hang makes nothing be read nor written that way, with all sockets open: what is sent piles up and
// goes on its way after Heal. New connections are accepted, and hang.
func (p *Proxy) Hang(d Direction) { p.set(func(f *faults) { f.hang |= d }) }

// Swallow makes all that is sent that way get lost, with all sockets open. A connection that has lost
// bytes is of no use afterwards: cut it.
func (p *Proxy) Swallow(d Direction) { p.set(func(f *faults) { f.swallow |= d }) }

// Refuse turns new connections away with a reset. Open ones go on.
func (p *Proxy) Refuse() { p.set(func(f *faults) { f.refuse = true }) }

// Delay makes each chunk wait before it goes on that way, one after the other.
func (p *Proxy) Delay(d Direction, by time.Duration) {
	p.set(func(f *faults) { each(d, func(i int) { f.delay[i] = by }) })
}

// Throttle lets a connection carry no more than so many bytes a second that way, at least 1.
func (p *Proxy) Throttle(d Direction, bytesPerSecond int) {
	p.set(func(f *faults) { each(d, func(i int) { f.rate[i] = max(bytesPerSecond, 1) }) })
}

// Inspect calls f for all that is sent from now on; nil: nothing. There is one inspector at a time.
func (p *Proxy) Inspect(f Inspector) { p.set(func(x *faults) { x.inspect = f }) }

// CutAfter cuts each connection when it has carried n more bytes that way, in the middle of whatever
// they are. It is an inspector.
func (p *Proxy) CutAfter(d Direction, n int) {
	var mu sync.Mutex
	carried := map[int]int{}
	p.Inspect(func(conn int, way Direction, b []byte) Verdict {
		if way&d == 0 {
			return Pass
		}
		mu.Lock()
		defer mu.Unlock()
		if carried[conn] += len(b); carried[conn] > n {
			return Cut
		}
		return Pass
	})
}

// Heal ends all faults. Connections that were cut stay so.
func (p *Proxy) Heal() { p.set(func(f *faults) { *f = faults{} }) }

// Cut closes all connections, on both sides, in order.
func (p *Proxy) Cut() { p.endAll((*link).cut) }

// Reset closes all connections, on both sides, with a reset.
func (p *Proxy) Reset() { p.endAll((*link).reset) }

// Open returns how many connections are open.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Accepted returns how many connections there have been.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Close cuts all connections, listens no more, and returns when nothing of the proxy runs.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) set(change func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.faults)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) get() (faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

func (p *Proxy) endAll(end func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		end(l)
	}
}

// each calls f with the index of each direction in d.
func each(d Direction, f func(int)) {
	for _, one := range []Direction{ToServer, ToClient} {
		if d&one != 0 {
			f(int(one))
		}
	}
}
