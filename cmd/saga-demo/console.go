package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdnet "net" // check.go has a function of that name
	"net/http"
	"time"

	"github.com/leveret-go/leveret/web"
)

// serveConsole serves the console where -http says, until stop is called.
func (d *demo) serveConsole(stderr io.Writer) (stop func(), err error) {
	if d.o.http == "" {
		return func() {}, nil
	}
	l, err := stdnet.Listen("tcp", d.o.http)
	if err != nil {
		return nil, fmt.Errorf("-http: %w", err)
	}
	server := &http.Server{
		Handler: web.Handler(d.engine, web.Config{
			Title: "saga-demo", Authorize: web.LoopbackOnly("demo"), PollInterval: 2 * time.Second, StalledAfter: time.Minute,
		}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = server.Serve(l) }()
	fmt.Fprintf(stderr, "console: http://%s/\n", l.Addr())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if errors.Is(server.Shutdown(ctx), context.DeadlineExceeded) {
			_ = server.Close()
		}
	}, nil
}
