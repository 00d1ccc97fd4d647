package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/leveret-go/leveret/saga"
)

// The groups of commands in the help.
const (
	looking = "look"
	acting  = "act on one execution"
	onMany  = "act on many"
	running = "workers and pauses"
	around  = "store and broker"
)

// run does what the arguments say, without the program's name, and returns the
// exit code.
func run(ctx context.Context, args []string, t *terminal) int {
	var help strings.Builder
	root := t.root(&help)
	err := root.Run(ctx, append([]string{"sagactl"}, args...))
	switch {
	case err == nil:
		io.WriteString(t.stdout, help.String())
	default:
		// Both, as an address may be wrong in a flag and right in the environment.
		text := redact(clean(strings.ReplaceAll(err.Error(), "\n", "; ")), append(addresses(args), t.getenv("LEVERET_STORE"), t.getenv("LEVERET_AMQP"))...)
		fmt.Fprintln(t.stderr, "sagactl:", text)
	}
	return exitCode(ctx, err)
}

// addresses finds what may hold a password among the arguments, however they
// are written.
func addresses(args []string) []string {
	var all []string
	for _, a := range args {
		if strings.Contains(a, "://") {
			all = append(all, a)
		}
	}
	return all
}

func (t *terminal) root(help io.Writer) *cli.Command {
	root := &cli.Command{
		Name: "sagactl", Usage: "looks at sagas and acts on them", HideVersion: true,
		Description: "The store is named by -store or LEVERET_STORE, the broker by -amqp or LEVERET_AMQP.\n" +
			"Exit codes: 0 ok, 1 failure, 2 wrong usage, 3 not found, 4 refused by the execution's state, 5 changed or taken,\n" +
			"6 not confirmed, 7 -wait ran out, 8 done or found in part only, 130 interrupted.",
		Writer: help, ErrWriter: io.Discard, DisableSliceFlagSeparator: true,
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "store", Usage: "`STORE`: a postgres://… URL or the path of an SQLite file (LEVERET_STORE)"},
			&cli.StringFlag{Name: "schema", Usage: "`SCHEMA` of the store in PostgreSQL (default: the library's)"},
			&cli.StringFlag{Name: "table-prefix", Usage: "`PREFIX` of the tables in an SQLite file (default: the library's)"},
			&cli.StringFlag{Name: "amqp", Usage: "`URL` of the broker: amqp://user:password@host:5672/vhost (LEVERET_AMQP)"},
			&cli.StringFlag{Name: "prefix", Usage: "`PREFIX` of the names of exchanges and queues (LEVERET_PREFIX; default: saga)"},
			&cli.StringFlag{Name: "queues", Usage: "`TYPE` of the queues: classic or quorum", Value: "classic"},
			&cli.StringFlag{Name: "o", Usage: "output `FORMAT`: table or json", Value: "table"},
			&cli.BoolFlag{Name: "yes", Usage: "do not ask before what destroys something"},
		},
	}
	root.Commands = t.commands()
	finish(root)
	return root
}

// finish sets what all commands have in common. A group does nothing by itself:
// called with a command that it does not have it says so.
func finish(c *cli.Command) {
	c.OnUsageError = func(_ context.Context, _ *cli.Command, err error, _ bool) error { return &codeError{exitUsage, err} }
	c.DisableSliceFlagSeparator = true
	if c.Action == nil {
		c.Action = func(_ context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return usage("there is no command %s", clean(fmt.Sprintf("%q", c.Args().First())))
			}
			if c == c.Root() {
				return cli.ShowRootCommandHelp(c)
			}
			return cli.ShowSubcommandHelp(c)
		}
	}
	for _, sub := range c.Commands {
		finish(sub)
	}
}

// command makes a command that takes as many arguments as argsUsage has words,
// or any number when that ends with "...".
func (t *terminal) command(category, name, argsUsage, use string, f action, flags ...[]cli.Flag) *cli.Command {
	c := &cli.Command{Name: name, Category: category, ArgsUsage: argsUsage, Usage: use, HideHelpCommand: true}
	for _, some := range flags {
		c.Flags = append(c.Flags, some...)
	}
	c.Action = func(ctx context.Context, cmd *cli.Command) error {
		args := cmd.Args().Slice()
		if want := len(strings.Fields(argsUsage)); len(args) != want && !strings.HasSuffix(argsUsage, "...") {
			return usage("%s takes %d arguments (%s), not %d", cmd.FullName(), want, argsUsage, len(args))
		}
		if o := cmd.String("o"); o != "table" && o != "json" {
			return usage("-o is neither table nor json")
		}
		return f(ctx, &call{terminal: t, flags: cmd, args: args})
	}
	return c
}

func (t *terminal) commands() []*cli.Command {
	one := func(flags ...cli.Flag) []cli.Flag { return flags }
	revised := append(byFlags(), revisionFlag())
	acts := append(append(byFlags(), revisionFlag(), forceFlag(forceUsage)), waitFlags()...)
	page := one(
		&cli.IntFlag{Name: "limit", Usage: "list `N` executions at most", Value: 50},
		&cli.StringFlag{Name: "after", Usage: "begin after the execution with this `ID`"},
	)
	return []*cli.Command{
		t.command(looking, "list", "", "list executions, newest first", list, page, filterFlags()),
		t.command(looking, "count", "", "count executions in groups", count, one(
			&cli.StringSliceFlag{Name: "by", Usage: "group by these `DIMENSION`s: saga, status, step, partition, error_class", Value: []string{"status"}},
			&cli.IntFlag{Name: "most", Usage: "count `N` executions at most (default: 100000)", HideDefault: true},
		), filterFlags()),
		t.command(looking, "show", "ID", "show an execution: its ledger, and what happened by time", show, one(
			&cli.BoolFlag{Name: "state", Usage: "show its state too: it may hold personal data"})),
		t.command(looking, "live", "SAGA KEY", "show the execution that holds a start key", live, one(
			&cli.BoolFlag{Name: "state", Usage: "show its state too: it may hold personal data"})),
		t.command(looking, "diagnose", "ID", "say why an execution is where it is", diagnose),
		t.command(looking, "plan", "ACT ID", "say what an act would do: retry, compensate, cancel, halt, resume or skip", plan,
			one(forceFlag("plan it as if done with -force"))),

		t.command(acting, "retry", "ID", "give a failed or stuck execution another try", act(saga.ActRetry, false), acts),
		t.command(acting, "compensate", "ID", "undo what an unfinished execution has done (asks)", act(saga.ActCompensate, true), acts),
		t.command(acting, "cancel", "ID", "the same for what nobody wants any more (asks)", act(saga.ActCancel, true), acts),
		t.command(acting, "halt", "ID", "park an unfinished execution", act(saga.ActHalt, false), acts),
		t.command(acting, "resume", "ID", "let a halted execution go on", act(saga.ActResume, false), acts),
		t.command(acting, "skip", "ID", "skip the step at which an execution stands (asks)", act(saga.ActSkipStep, true), acts),
		t.command(acting, "resolve", "ID STEP done|pending", "say whether a step in doubt had its effect (asks)", resolve, revised, one(forceFlag(forceUsage))),
		t.command(acting, "edit-state", "ID", "replace the state of a halted or failed execution (asks)", editState, revised, one(
			forceFlag("take the state unseen: required, as sagactl does not know the service's types"),
			&cli.StringFlag{Name: "file", Usage: "`FILE` with the new state, a JSON object; - for stdin"})),
		t.command(acting, "move", "ID PARTITION", "give an unfinished execution to another partition", move, revised, one(forceFlag(forceUsage))),
		t.command(acting, "signal", "ID NAME", "hand a signal to an execution", sendSignal, signalFlags()),
		t.command(acting, "signal-key", "SAGA KEY NAME", "hand a signal to the execution that holds a start key", sendSignalKey, signalFlags()),
		t.command(acting, "reschedule", "ID TIME", "move the time for which an execution waits: RFC 3339, now, or from now on (+36h, +7d)", reschedule, byFlags()),
		t.command(acting, "rerun", "ID", "start a new execution with what a finished one was started with (asks)", rerun, revised, one(
			&cli.StringFlag{Name: "partition", Usage: "`PARTITION` of the new one (default: the same)"})),

		t.command(onMany, "bulk", "ACT", "do an act to all executions that are selected (asks)", bulk, byFlags(), bulkFlags(), filterFlags()),
		t.command(onMany, "erase", "", "empty what may be personal data in finished executions (asks)", erase, byFlags(), bulkFlags(), one(
			&cli.BoolFlag{Name: "keep-resource", Usage: "leave the resource's id"}), filterFlags()),
		t.command(onMany, "purge", "", "delete what finished long ago, for good (asks)", purge, purgeFlags()),
		t.command(onMany, "resume-stuck", "", "publish again what has not moved for a while", resumeStuck, byFlags(), one(
			&cli.DurationFlag{Name: "older-than", Usage: "what has not moved for this `TIME`", Value: 15 * time.Minute},
			&cli.IntFlag{Name: "limit", Usage: "act on `N` executions at most", Value: 100},
			&cli.IntFlag{Name: "max-resumes", Usage: "give up what was lost `N` times in a row (default: the engine's)", HideDefault: true})),

		t.command(running, "workers", "", "list the processes that work on the store", workers),
		t.command(running, "schedules", "", "list the schedules, and what they started last", schedules),
		t.command(running, "health", "", "say what a person should know: exits with 8 when it is degraded or down", health),
		t.command(running, "pause", "", "keep new attempts from being opened", pause, scopeFlags(), byFlags()),
		t.command(running, "unpause", "", "take a pause back", unpause, scopeFlags(), byFlags()),
		t.command(running, "pauses", "", "list what is paused", pauses, one(
			&cli.BoolFlag{Name: "log", Usage: "list who paused and unpaused what"})),

		t.command(around, "check", "", "say which executions a build could not carry: exits with 1 when there are any", check, one(
			&cli.StringFlag{Name: "outlines", Usage: "`FILE` that the build has written, - for stdin (default: what workers left in the store)"})),
		t.command(around, "schema", "SAGA", "print the JSON Schema that the state of a saga has to fit", schema, one(
			&cli.IntFlag{Name: "version", Usage: "of this `VERSION` (default: the highest)", HideDefault: true})),
		t.command(around, "outlines", "", "print the sagas that workers left in the store, as check reads them", outlines),
		t.command(around, "migrate", "", "bring the store's schema to the version of this build (PostgreSQL: asks)", migrate, one(
			&cli.BoolFlag{Name: "print", Usage: "print the SQL for PostgreSQL instead"},
			&cli.IntFlag{Name: "from", Usage: "with -print: from this `VERSION`, without asking the store (0: there is none)", HideDefault: true})),
		t.command(around, "topology", "[PARTITION]...", "print what has to be in the broker", topology, one(
			&cli.BoolFlag{Name: "create", Usage: "declare what is missing (asks)"},
			&cli.BoolFlag{Name: "check", Usage: "compare it with what is there"},
			&cli.BoolFlag{Name: "commands", Usage: "with the queue for commands"})),
		{Name: "dead", Category: around, Usage: "messages that nobody could make sense of", Commands: []*cli.Command{
			t.command("", "list", "", "list dead letters", deadList, deadFlags()),
			t.command("", "replay", "", "publish what dead letters were again: pointers and commands (asks)", deadReplay, deadFlags(), one(allLettersFlag())),
			t.command("", "purge", "", "remove dead letters for good (asks)", deadPurge, deadFlags(), one(allLettersFlag())),
		}},
	}
}
