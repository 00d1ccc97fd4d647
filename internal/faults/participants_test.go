//go:build linux

package faults

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
)

// A call is what a step asks a participant for.
type call struct {
	Key, ExecuteKey string
	Execution       uuid.UUID
	Step            string
	Direction       saga.Direction
	Epoch, Attempt  int
	Order           order
	PID             int
	Worker          string
}

// participants are the systems that the steps of a world call. They run in the test process, on an
// abstract socket, and know every idempotency key. An undo of an effect that has not happened makes
// them refuse the effect later on: without that no engine could promise what is checked here.
type participants struct {
	w    *world
	addr string

	mu    sync.Mutex
	known map[string]*effect // by key
	undos map[string]bool    // the ExecuteKeys that were undone, before or after they had an effect
	tried map[string]bool    // the keys that were called at all
	calls []call
	hello map[int]bool
	gates []*gate
}

// An effect is what a key did, once.
type effect struct {
	call    call
	repeats int
	empty   bool // an undo that found nothing
}

func newParticipants(w *world) *participants {
	l, err := net.Listen("unix", "@leveret-faults-"+rand.Text())
	w.must(err)
	p := &participants{
		w: w, addr: l.Addr().String(), known: map[string]*effect{}, undos: map[string]bool{},
		tried: map[string]bool{}, hello: map[int]bool{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hello", func(_ http.ResponseWriter, r *http.Request) {
		var pid int
		if json.NewDecoder(r.Body).Decode(&pid) == nil {
			p.mu.Lock()
			p.hello[pid] = true
			p.mu.Unlock()
		}
	})
	mux.HandleFunc("POST /call", func(rw http.ResponseWriter, r *http.Request) {
		var c call
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		rw.WriteHeader(p.serve(c))
	})
	server := &http.Server{Handler: mux}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	w.t.Cleanup(func() {
		p.releaseAll()
		server.Close()
		served.Wait()
	})
	return p
}

// serve does what a call asks for, whatever has become of the caller, and returns the answer.
func (p *participants) serve(c call) int {
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	p.pass(beforeEffect, c)
	status := p.effect(c)
	p.pass(afterEffect, c)
	return status
}

func (p *participants) effect(c call) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.known[c.Key]; e != nil {
		e.repeats++
		return http.StatusOK
	}
	first := !p.tried[c.Key]
	p.tried[c.Key] = true
	execute := c.Direction == "execute"
	switch {
	case first && c.Order.flaky(c.Step, c.Direction):
		return http.StatusServiceUnavailable
	case execute && p.undos[c.Key]:
		return http.StatusGone
	case execute && c.Order.fails() == c.Step:
		return http.StatusUnprocessableEntity
	}
	e := &effect{call: c}
	if !execute {
		e.empty = p.known[c.ExecuteKey] == nil
		p.undos[c.ExecuteKey] = true
	}
	p.known[c.Key] = e
	return http.StatusOK
}

// effects returns all that has happened, each once.
func (p *participants) effects() (all []*effect) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.known {
		all = append(all, e)
	}
	return all
}

func (p *participants) greeted(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hello[pid]
}

// callsOf returns the calls that match, in the order in which they came.
func (p *participants) callsOf(match func(call) bool) (calls []call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if match(c) {
			calls = append(calls, c)
		}
	}
	return calls
}

// A moment is one in a call at which it can be held.
type moment int

const (
	beforeEffect moment = iota
	afterEffect         // and before the answer
)

func executes(step string) func(call) bool {
	return func(c call) bool { return c.Direction == "execute" && c.Step == step }
}

func undoes(step string) func(call) bool {
	return func(c call) bool { return c.Direction == "compensate" && c.Step == step }
}

// A gate holds calls.
type gate struct {
	p     *participants
	when  moment
	match func(call) bool
	held  chan call
	open  chan struct{}
	once  sync.Once
}

// hold makes the calls that match wait, from now on and until the gate is released.
func (p *participants) hold(when moment, match func(call) bool) *gate {
	g := &gate{p: p, when: when, match: match, held: make(chan call, 10_000), open: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gates = append(p.gates, g)
	return g
}

// next waits for a call that waits here, each but once.
func (g *gate) next() (c call) {
	g.p.w.t.Helper()
	g.p.w.until("a call is held", func() bool {
		select {
		case c = <-g.held:
			return true
		default:
			return false
		}
	})
	return c
}

// release lets go what is held, and holds no more.
func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func (p *participants) pass(when moment, c call) {
	p.mu.Lock()
	var wait []*gate
	for _, g := range p.gates {
		if g.when == when && g.match(c) {
			wait = append(wait, g)
		}
	}
	p.mu.Unlock()
	for _, g := range wait {
		select {
		case <-g.open:
		default:
			select {
			case g.held <- c:
			default: // nobody asks for as many
			}
			<-g.open
		}
	}
}

func (p *participants) releaseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.gates {
		g.release()
	}
}

// A client is a worker's way to the participants.
type client struct {
	http   *http.Client
	worker string
}

func newClient(addr, worker string) *client {
	return &client{worker: worker, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", addr)
		},
		MaxIdleConnsPerHost: 100,
	}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (c *client) hello(ctx context.Context) error {
	_, err := c.post(ctx, "hello", os.Getpid())
	return err
}

// call does the work of a step. Whatever is not an answer leaves the step in doubt.
func (c *client) call(ctx context.Context, run *saga.Call, o order) error {
	status, err := c.post(ctx, "call", call{
		Key: run.Key(), ExecuteKey: run.ExecuteKey(), Execution: run.Execution, Step: run.Step, Direction: run.Direction,
		Epoch: run.Epoch, Attempt: run.Attempt, Order: o, PID: os.Getpid(), Worker: c.worker,
	})
	switch {
	case err != nil:
		return saga.Unknown(err)
	case status == http.StatusOK:
		return nil
	case status == http.StatusGone:
		return saga.Fail(saga.NoEffect(errFenced))
	case status == http.StatusUnprocessableEntity:
		return saga.Fail(saga.NoEffect(errRefused))
	case status == http.StatusServiceUnavailable:
		return errOnce
	}
	return saga.Unknown(fmt.Errorf("status %d", status))
}

func (c *client) post(ctx context.Context, path string, body any) (status int, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://participants/"+path, bytes.NewReader(b))
	if err != nil {
		return 0, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
