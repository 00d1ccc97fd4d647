package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// network carries requests, some of them badly.
type network struct {
	base *http.Transport

	mu   sync.Mutex
	seen map[string]bool // the paths that were asked for
	held *http.Request
}

func newNetwork() *network { return &network{base: &http.Transport{}, seen: map[string]bool{}} }

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	again := n.seen[r.URL.Path]
	n.seen[r.URL.Path] = true
	n.mu.Unlock()
	switch r.URL.Path {
	case "/orders/1/charge":
		resp, err := n.base.RoundTrip(r)
		if err == nil && !again {
			return nil, errors.Join(errors.New("the answer was lost"), resp.Body.Close())
		}
		return resp, err
	case "/orders/3/charge":
		if !again {
			n.hold(r)
		}
		return nil, errors.Join(errors.New("no answer came"), r.Body.Close())
	}
	return n.base.RoundTrip(r)
}

// hold keeps a request as it was sent, whatever its sender does.
func (n *network) hold(r *http.Request) {
	held := r.Clone(context.WithoutCancel(r.Context()))
	held.Body, _ = r.GetBody() // of a bytes.Reader, which cannot fail
	n.mu.Lock()
	n.held = held
	n.mu.Unlock()
}

// deliver sends the request that was held, and returns the answer, which
// nobody waits for any more.
func (n *network) deliver(ctx context.Context) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	resp, err := n.base.RoundTrip(n.held.WithContext(ctx))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	defer n.base.CloseIdleConnections()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Status, err
}
