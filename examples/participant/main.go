// Command participant shows both sides of a call: a saga whose steps call a
// service over HTTP, and that service, which keeps its accounts in SQLite behind
// a fence. Between them is a network that loses an answer, and delivers a request
// long after everybody has given it up.
//
//	go run ./examples/participant
//
// The first order's answer is lost: its step is tried again, and the charge is
// not. The second cannot be shipped: the charge is paid back. The third's charge
// hangs in the network while the saga is undone, and arrives afterwards: it is
// refused.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/memory"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "leveret-participant")
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(run(ctx, dir, os.Stdout), os.RemoveAll(dir))
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string, out io.Writer) (err error) {
	// The participant: in real life a service of its own.
	p, err := openPayments(ctx, filepath.Join(dir, "payments.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.db.Close()) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: p.handler()}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { _ = server.Close(); <-served }()

	// The saga.
	network := newNetwork()
	c := &client{url: "http://" + listener.Addr().String(), http: &http.Client{Transport: network}}
	engine, err := saga.New(saga.Config{Store: memory.New()})
	if err != nil {
		return err
	}
	checkout, err := saga.Register(engine, c.checkout())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- engine.Run(ctx) }()
	defer func() { stop(); err = errors.Join(err, <-ran) }()

	for n := 1; n <= 3; n++ {
		started, err := checkout.Start(ctx, saga.Resource{Type: "order", ID: strconv.Itoa(n)}, Order{Amount: 100}, nil)
		if err != nil {
			return err
		}
		x, err := engine.Wait(ctx, started.ID)
		if err != nil {
			return err
		}
		if err := p.report(ctx, out, fmt.Sprintf("order %d: %s", n, x.Status)); err != nil {
			return err
		}
	}
	late, err := network.deliver(ctx)
	if err != nil {
		return err
	}
	return p.report(ctx, out, "the charge of order 3, late: "+late)
}
