// Command saga-demo shows what Leveret does when the world misbehaves. It runs
// order checkouts (reserve stock, charge a card, book a courier, send a receipt)
// and two other small sagas against simulated services that are slow, fail,
// hang, and lose answers, and then compares the services' own ledger with what
// became of each saga: nothing may be lost, nothing done twice, nothing left of
// what was undone.
//
//	go run ./cmd/saga-demo
//
// needs nothing installed. To see processes die, give them a store that they
// can share, and kill the workers as you like:
//
//	saga-demo -store sqlite:demo.db -role work &
//	saga-demo -store sqlite:demo.db -role work &
//	saga-demo -store sqlite:demo.db -role start -n 1000
//
// The starter waits for all to end, prints the result, and its exit code says
// whether the ledger is consistent.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := untilSignal(os.Stderr)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

var errSignal = errors.New("interrupted")

// untilSignal returns a ctx that ends with the first SIGINT or SIGTERM. The
// second one ends the process at once.
func untilSignal(stderr io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		fmt.Fprintln(stderr, "draining: waiting for the steps that run; once more to exit at once")
		cancel(errSignal)
		<-signals
		os.Exit(exitInterrupted)
	}()
	return ctx, func() { cancel(nil) }
}

// run is the program. It returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args)
	var help errHelp
	switch {
	case errors.As(err, &help):
		fmt.Fprint(stdout, help.Error())
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "saga-demo: %v (see -h)\n", err)
		return exitUsage
	}
	if o.seed == 0 {
		o.seed = 1 + rand.Uint64N(1_000_000)
	}
	if o.run == "" {
		o.run = newRunName()
	}
	code, err := demonstrate(ctx, o, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "saga-demo: %v\n", err)
	}
	return code
}

// newRunName returns a name that later runs on the same store do not have.
func newRunName() string {
	return fmt.Sprintf("r%s-%03x", time.Now().UTC().Format("0102-150405"), rand.IntN(1<<12))
}
