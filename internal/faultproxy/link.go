package faultproxy

import (
	"net"
	"sync"
	"time"
)

// A link is a client's connection and the one to the target that belongs to it.
type link struct {
	number         int
	client, server *net.TCPConn
	once           sync.Once
	done           chan struct{} // closed when it ends
}

// cut closes both connections.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.done)
		l.client.Close()
		l.server.Close()
	})
}

// reset closes both connections so that the peers get a reset.
func (l *link) reset() {
	_ = l.client.SetLinger(0) // fails on a closed one only
	_ = l.server.SetLinger(0)
	l.cut()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

// serve connects a client to the target and passes bytes until one side ends.
func (p *Proxy) serve(client *net.TCPConn) {
	if f, _ := p.get(); f.refuse {
		_ = client.SetLinger(0)
		client.Close()
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		_ = client.SetLinger(0)
		client.Close()
		return
	}
	l := &link{client: client, server: server.(*net.TCPConn), done: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		l.cut()
		return
	}
	p.accepted++
	l.number = p.accepted
	p.links[l] = true
	p.mu.Unlock()

	var up sync.WaitGroup
	up.Go(func() { p.pass(l, ToServer, l.server, l.client) })
	p.pass(l, ToClient, l.client, l.server)
	up.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// pass carries bytes one way until the link ends, and ends it.
func (p *Proxy) pass(l *link, d Direction, to, from *net.TCPConn) {
	defer l.cut()
	b := make([]byte, 32<<10)
	for {
		f, ok := p.settled(l, d)
		if !ok {
			return
		}
		size := len(b)
		if rate := f.rate[d]; rate > 0 {
			size = min(size, max(rate/10, 1))
		}
		n, err := from.Read(b[:size])
		if n > 0 && !p.carry(l, d, to, b[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// settled waits until nothing hangs that way, and returns what else is wrong; false when the link
// has ended.
func (p *Proxy) settled(l *link, d Direction) (faults, bool) {
	for {
		f, changed := p.get()
		if f.hang&d == 0 {
			return f, true
		}
		select {
		case <-changed:
		case <-l.done:
			return f, false
		}
	}
}

// carry does to bytes what is wrong by now, and writes them if they are to arrive.
func (p *Proxy) carry(l *link, d Direction, to *net.TCPConn, b []byte) bool {
	f, ok := p.settled(l, d) // it may hang since the read began
	if !ok {
		return false
	}
	if f.inspect != nil {
		switch f.inspect(l.number, d, b) {
		case Lose:
			return true
		case Cut:
			return false
		case Reset:
			l.reset()
			return false
		}
		// The inspector may have changed what is wrong.
		if f, ok = p.settled(l, d); !ok {
			return false
		}
	}
	wait := f.delay[d]
	if rate := f.rate[d]; rate > 0 {
		wait += time.Duration(len(b)) * time.Second / time.Duration(rate)
	}
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.done:
			return false
		}
	}
	if f.swallow&d != 0 {
		return true
	}
	_, err := to.Write(b)
	return err == nil
}
