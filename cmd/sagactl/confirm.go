package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// canConfirm returns an error when nobody said -yes and nobody can be asked.
// Commands that destroy something call it before anything else.
func (c *call) canConfirm() error {
	if c.Bool("yes") || c.isTerminal {
		return nil
	}
	return fail(exitUnconfirmed, "not confirmed: there is no terminal to ask on; -yes does it without asking")
}

// confirm asks a person, after explain has shown what would be done, unless
// -yes says not to. What is shown and asked goes to stderr, as the question is
// no result.
func (c *call) confirm(ctx context.Context, explain func(c *call), question string) error {
	if c.Bool("yes") {
		return nil
	}
	if err := c.canConfirm(); err != nil {
		return err
	}
	shown := *c.terminal
	shown.stdout = c.stderr
	explain(&call{terminal: &shown, flags: c.flags, args: c.args})
	fmt.Fprintf(c.stderr, "%s [y/N] ", clean(question))
	line, err := readLine(ctx, c.stdin)
	if err != nil {
		fmt.Fprintln(c.stderr)
		return err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return fail(exitUnconfirmed, "not confirmed, nothing was done")
}

// readLine reads a line, or gives up when ctx ends: nothing ends a read of a
// terminal but its answer, so that the goroutine may stay until the process ends.
func readLine(ctx context.Context, r io.Reader) (string, error) {
	type answer struct {
		line string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(r).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
		answered <- answer{line, err}
	}()
	select {
	case a := <-answered:
		return a.line, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
