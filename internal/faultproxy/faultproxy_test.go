package faultproxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leveret-go/leveret/internal/faultproxy"
)

const patience = 10 * time.Second

// echo is a server that sends back what it gets, and its address.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func start(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	p, err := faultproxy.New(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
}

// hear reads n bytes, or what comes until then.
func hear(c net.Conn, n int, within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	b := make([]byte, n)
	n, err := io.ReadFull(c, b)
	return string(b[:n]), err
}

func want(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if got, err := hear(c, len(s), patience); got != s {
		t.Fatalf("got %q, %v, want %q", got, err, s)
	}
}

func wantSilence(t *testing.T, c net.Conn) {
	t.Helper()
	if got, err := hear(c, 1, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %q, %v, want silence", got, err)
	}
}

func TestHangKeepsWhatIsSent(t *testing.T) {
	for name, d := range map[string]faultproxy.Direction{
		"to server": faultproxy.ToServer, "to client": faultproxy.ToClient, "both": faultproxy.Both,
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			c := dial(t, p)
			say(t, c, "a")
			want(t, c, "a")
			p.Hang(d)
			say(t, c, "b")
			wantSilence(t, c)
			late := dial(t, p)
			say(t, late, "c")
			wantSilence(t, late)
			p.Heal()
			want(t, c, "b")
			want(t, late, "c")
		})
	}
}

func TestSwallowLosesWhatIsSent(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	p.Swallow(faultproxy.ToClient)
	say(t, c, "a")
	wantSilence(t, c)
	p.Heal()
	say(t, c, "b")
	want(t, c, "b")
}

func TestCutAndReset(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	say(t, c, "a")
	want(t, c, "a")
	p.Cut()
	if _, err := hear(c, 1, patience); !errors.Is(err, io.EOF) {
		t.Errorf("after Cut: %v, want EOF", err)
	}
	c = dial(t, p)
	say(t, c, "a")
	want(t, c, "a")
	p.Reset()
	if _, err := hear(c, 1, patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Reset: %v, want ECONNRESET", err)
	}
	p.Refuse()
	wantTurnedAway(t, p)
	if got := p.Accepted(); got != 2 {
		t.Errorf("%d connections were accepted, want 2", got)
	}
}

// A hanging connection can be cut, and is gone then.
func TestCutWhileHanging(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	say(t, c, "a")
	want(t, c, "a")
	p.Hang(faultproxy.Both)
	say(t, c, "b")
	p.Cut()
	if _, err := hear(c, 1, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want an end", err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); p.Open() > 0; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%d connections are open", p.Open())
		}
	}
}

func TestCutAfterCutsInTheMiddle(t *testing.T) {
	p := start(t)
	p.CutAfter(faultproxy.ToClient, 4)
	c := dial(t, p)
	for _, s := range []string{"ab", "cd"} {
		say(t, c, s)
		want(t, c, s)
	}
	say(t, c, "ef")
	if got, err := hear(c, 2, patience); got != "" || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v, want an end", got, err)
	}
}

func TestInspectorDecides(t *testing.T) {
	p := start(t)
	p.Inspect(func(conn int, d faultproxy.Direction, b []byte) faultproxy.Verdict {
		switch {
		case d == faultproxy.ToServer && bytes.Contains(b, []byte("lose")):
			return faultproxy.Lose
		case d == faultproxy.ToClient && bytes.Contains(b, []byte("reset")):
			return faultproxy.Reset
		}
		return faultproxy.Pass
	})
	c := dial(t, p)
	say(t, c, "lose")
	wantSilence(t, c)
	say(t, c, "pass")
	want(t, c, "pass")
	say(t, c, "reset")
	if _, err := hear(c, 1, patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want ECONNRESET", err)
	}
}

func TestDelayAndThrottle(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	p.Delay(faultproxy.ToServer, 100*time.Millisecond)
	began := time.Now()
	say(t, c, "a")
	want(t, c, "a")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("delayed by %v, want 100ms", took)
	}
	p.Heal()
	p.Throttle(faultproxy.ToClient, 1000)
	began = time.Now()
	s := string(make([]byte, 300))
	say(t, c, s)
	want(t, c, s)
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("300 bytes at 1000 a second took %v", took)
	}
}

func TestTargetAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	p, err := faultproxy.New(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	wantTurnedAway(t, p)
}

// wantTurnedAway wants a new connection to fail, or to end before anything comes.
func wantTurnedAway(t *testing.T, p *faultproxy.Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer c.Close()
	if _, err := hear(c, 1, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want an end", err)
	}
}
