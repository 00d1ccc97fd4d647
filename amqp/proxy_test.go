package amqp_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// A proxy stands between client and broker. While it hangs, it reads nothing
// and writes nothing, with all sockets open.
type proxy struct {
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu    sync.Mutex
	open  *sync.Cond
	hangs bool
	conns map[net.Conn]bool
	ended bool
}

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	return u.Host
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newProxyOn(t, l, target)
}

func newProxyOn(t *testing.T, l net.Listener, target string) *proxy {
	t.Helper()
	p := &proxy{l: l, target: target, conns: map[net.Conn]bool{}}
	p.open = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		d, err := net.Dial("tcp", p.target)
		if err != nil {
			c.Close()
			continue
		}
		if !p.add(c, d) {
			return
		}
		p.wg.Go(func() { p.copy(d, c) })
		p.wg.Go(func() { p.copy(c, d) })
	}
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.ended {
			c.Close()
		}
		p.conns[c] = true
	}
	return !p.ended
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		for p.hangs {
			p.open.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = err == io.EOF
			return
		}
	}
}

func (p *proxy) hang()   { p.set(true) }
func (p *proxy) unhang() { p.set(false) }

func (p *proxy) set(hangs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs = hangs
	p.open.Broadcast()
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}

func (p *proxy) close() {
	p.l.Close()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.unhang()
	p.cut()
	p.wg.Wait()
}
