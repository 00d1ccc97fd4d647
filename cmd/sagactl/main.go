// The sagactl command looks at sagas and acts on them, from a terminal or a
// script. It needs the store, and for some commands the broker, but nothing of
// the service's code:
//
//	export LEVERET_STORE=postgres://shop@db/shop
//	sagactl list -attention halted,failed
//	sagactl show 0199c1f4-6f0e-7d4c-9d0b-52a6e8f1c0aa
//	sagactl retry 0199c1f4-6f0e-7d4c-9d0b-52a6e8f1c0aa -reason "the bank answers again"
//
// docs/sagactl.md has all commands, exit codes and fields of its JSON.
//
// Flags and help are done by urfave/cli/v3: it links nothing but the standard
// library, takes flags before and after arguments with one dash or two as the
// other tools here do, and returns its errors. The standard library's flag has
// no subcommands and stops at the first argument; cobra brings pflag, which reads
// -store as five flags. Users of Leveret's packages do not link it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], ownTerminal())
	stop()
	os.Exit(code)
}
