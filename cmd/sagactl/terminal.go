package main

import (
	"context"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"golang.org/x/term"
)

// A terminal is what the tool has to do with: everything from outside.
type terminal struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	isTerminal     bool // a person can be asked: stdin and stderr are terminals
	width          int  // of stdout; 0: no terminal, nothing is cut
	getenv         func(string) string
	actor          string           // who acts if -actor does not say
	now            func() time.Time // nil: the store's clock
}

func ownTerminal() *terminal {
	t := &terminal{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, actor: login(),
		isTerminal: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
	}
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		t.width = w
	}
	return t
}

// login returns user@host, or what is known of it.
func login() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return strings.Trim(name+"@"+host, "@")
}

// A call is one call of one command.
type call struct {
	*terminal
	flags
	args []string
}

// flags reads the flags of a command and of the root; *cli.Command has more
// methods than a command needs.
type flags interface {
	String(name string) string
	StringSlice(name string) []string
	Bool(name string) bool
	Int(name string) int
	Int64(name string) int64
	Float(name string) float64
	Duration(name string) time.Duration
	IsSet(name string) bool
}

// setting is a flag, or the environment variable where that is not given.
func (c *call) setting(flag, env string) string {
	if c.IsSet(flag) {
		return c.String(flag)
	}
	return c.getenv(env)
}

func (c *call) json() bool { return c.String("o") == "json" }

// A command's function. What it prints to stdout is its result.
type action func(ctx context.Context, c *call) error
