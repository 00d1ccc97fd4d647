package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// The roles of a process.
const (
	roleAll   = "all"
	roleStart = "start"
	roleWork  = "work"
)

// Options are what the command line says, checked.
type options struct {
	n       int
	store   string // memory, sqlite:FILE, postgres://…; "": SQLite in a folder that lives as long as the demo
	amqp    string
	prefix  string // "": from the store's id
	workers int
	fail    float64
	seed    uint64 // 0: any
	role    string
	run     string // "": a new one
	lease   time.Duration
	drain   bool
	http    string // where the console is served; "": nowhere
	json    bool
	verbose bool
}

var (
	runRule    = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	prefixRule = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
)

// errHelp is returned by parse for -h, with the help as its text.
type errHelp string

func (e errHelp) Error() string { return string(e) }

// parse reads the command line. Its errors are one line each, except errHelp.
func parse(args []string) (options, error) {
	var o options
	var once bool
	fs := flag.NewFlagSet("saga-demo", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.IntVar(&o.n, "n", 200, "`number` of sagas to start")
	fs.StringVar(&o.store, "store", "", "`store`: memory, sqlite:FILE or postgres://… (default: a SQLite file in a temporary folder)")
	fs.StringVar(&o.amqp, "amqp", "", "RabbitMQ to carry the pointers, as an amqp:// `URL` (default: queues in the process)")
	fs.StringVar(&o.prefix, "prefix", "", "`prefix` of the names of exchanges and queues (default: one for each store)")
	fs.IntVar(&o.workers, "workers", 10, "`number` of sagas worked on at once, in each of the two partitions")
	fs.Float64Var(&o.fail, "fail", 0.05, "`rate` of steps that fail for good, 0 to 1; a tenth of it for undos")
	fs.Uint64Var(&o.seed, "seed", 0, "`seed` of latencies and faults; the same one gives the same faults (default: a random one)")
	fs.StringVar(&o.role, "role", roleAll, "what this process does: start sagas, work on them, or all; `role`s start and work share a store")
	fs.StringVar(&o.run, "run", "", "`name` of the run; with the same one a starter goes on where a dead one stopped (default: a random one)")
	fs.DurationVar(&o.lease, "lease", 10*time.Second, "`time` for which a dead worker's step is left alone, at least 1s")
	fs.BoolVar(&o.drain, "drain", false, "with -role work: exit when nothing is left to do")
	fs.BoolVar(&once, "once", false, "exit after the run, and serve no console")
	fs.StringVar(&o.http, "http", "", "`address` of a console, such as 127.0.0.1:9292, which stays after the run until the demo is interrupted; everybody on this machine may act there")
	fs.BoolVar(&o.json, "json", false, "print the result as one JSON object, and nothing else on stdout")
	fs.BoolVar(&o.verbose, "v", false, "log failed steps and the like on stderr")

	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return o, errHelp(help(fs))
	case err != nil:
		return o, oneLine(err.Error())
	case fs.NArg() > 0:
		return o, oneLine(fmt.Sprintf("unexpected argument %q", fs.Arg(0)))
	}
	if once {
		o.http = ""
	}
	return o, o.check()
}

func (o *options) check() error {
	// The flag package has checked the syntax of numbers.
	switch {
	case o.n < 1 || o.n > 1_000_000:
		return oneLine(fmt.Sprintf("-n is %d, want 1 to 1000000", o.n))
	case o.workers < 1 || o.workers > 1000:
		return oneLine(fmt.Sprintf("-workers is %d, want 1 to 1000", o.workers))
	case !(o.fail >= 0 && o.fail <= 1): // NaN too
		return oneLine(fmt.Sprintf("-fail is %v, want 0 to 1", o.fail))
	case o.lease < time.Second || o.lease > time.Hour:
		return oneLine(fmt.Sprintf("-lease is %v, want 1s to 1h", o.lease))
	case o.role != roleAll && o.role != roleStart && o.role != roleWork:
		return oneLine(fmt.Sprintf("-role is %q, want all, start or work", o.role))
	case o.run != "" && !runRule.MatchString(o.run):
		return oneLine(fmt.Sprintf("-run is %q, want up to 32 of a-z, 0-9, - and _", o.run))
	case o.prefix != "" && !prefixRule.MatchString(o.prefix):
		return oneLine(fmt.Sprintf("-prefix is %q, want up to 64 of a-z, 0-9, dots, - and _", o.prefix))
	case o.drain && o.role != roleWork:
		return oneLine("-drain is for -role work; the other roles end by themselves")
	}
	if err := o.checkStore(); err != nil {
		return err
	}
	if o.amqp != "" {
		// The URL holds a password: it is never shown.
		u, err := url.Parse(o.amqp)
		if err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Host == "" {
			return oneLine("-amqp is not a URL like amqp://user:password@host:5672/vhost")
		}
	}
	return nil
}

func (o *options) checkStore() error {
	switch file, isFile := strings.CutPrefix(o.store, "sqlite:"); {
	case o.role != roleAll && (o.store == "" || o.store == "memory"):
		return oneLine(fmt.Sprintf("-role %s needs a -store that other processes can reach: sqlite:FILE or postgres://…", o.role))
	case o.store == "", o.store == "memory", isFile && file != "" && !strings.HasPrefix(file, "//") && file != ":memory:":
		return nil
	case strings.HasPrefix(o.store, "postgres://"), strings.HasPrefix(o.store, "postgresql://"):
		if _, err := url.Parse(o.store); err == nil {
			return nil
		}
	}
	return oneLine("-store is none of memory, sqlite:FILE and postgres://…")
}

type usageError string

func (e usageError) Error() string { return string(e) }

func oneLine(s string) error {
	return usageError(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 || r == 0x85 {
			return ' '
		}
		return r
	}, s))
}

func help(fs *flag.FlagSet) string {
	var b strings.Builder
	b.WriteString(`saga-demo runs order checkouts and two other small sagas against simulated services
that are slow, fail, hang and lose replies, and checks at the end that nothing was
lost or done twice. With no flags it needs nothing installed.

`)
	fs.VisitAll(func(f *flag.Flag) {
		arg, text := flag.UnquoteUsage(f)
		switch f.DefValue {
		case "", "0", "false":
		default:
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(&b, "  %-15s %s\n", strings.TrimSpace("-"+f.Name+" "+arg), text)
	})
	b.WriteString("\nExit code: 0 all is consistent, 1 it is not or something broke, 2 a wrong flag, 130 interrupted.\n")
	return b.String()
}
