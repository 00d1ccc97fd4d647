// Package web is a console for the engineers who look after sagas: what moves,
// what waits and why, what fails, and the acts that help, each with a plan of
// what it would do. [Handler] is a plain http.Handler that any router can mount.
//
// It needs no build step and nothing from other hosts. Without
// [Config.Authorize] it answers on the loopback interface only, and changes
// nothing.
package web

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// An Action is what somebody wants to do, for [Config.Authorize].
type Action string

// The actions. Those that change something but ActionPause and ActionSignal
// are called as the acts of the audit trail are.
const (
	ActionRead       Action = "read"       // see executions, workers and queues
	ActionReadState  Action = "read_state" // see states, checkpoints and the payloads of signals
	ActionRetry      Action = "retry"
	ActionCompensate Action = "compensate"
	ActionCancel     Action = "cancel"
	ActionHalt       Action = "halt"
	ActionResume     Action = "resume"
	ActionSkipStep   Action = "skip_step"
	ActionResolve    Action = "resolve"
	ActionEditState  Action = "edit_state" // implies no read_state
	ActionMove       Action = "move"
	ActionReschedule Action = "reschedule"
	ActionRerun      Action = "rerun"
	ActionSignal     Action = "signal"
	ActionPause      Action = "pause" // and unpause
)

// Actions returns all of them.
func Actions() []Action {
	return []Action{
		ActionRead, ActionReadState, ActionRetry, ActionCompensate, ActionCancel, ActionHalt, ActionResume, ActionSkipStep,
		ActionResolve, ActionEditState, ActionMove, ActionReschedule, ActionRerun, ActionSignal, ActionPause,
	}
}

// Config says how the console is served. The zero Config serves reads on the
// loopback interface.
type Config struct {
	// Title is what the console calls itself. Defaults to "Sagas".
	Title string

	// BasePath is the path that the console is mounted under, such as "/sagas",
	// for routers that do not strip it. With http.StripPrefix it stays empty.
	BasePath string

	// Authorize says who makes a request, and whether they may: it is called on
	// every request, for pages and assets too, with the action that the request
	// stands for, and to find out which buttons to show. A non-nil error refuses
	// it (403): its text is shown. actor is who the audit trail names: required
	// for what changes something. It may be called by many goroutines at once.
	//
	// Nil: reads are served where the peer and the Host are loopback addresses
	// and no proxy has forwarded the request, and nothing else.
	Authorize func(r *http.Request, a Action) (actor string, err error)

	// ReadOnly refuses all that changes something.
	ReadOnly bool

	// Scope, if not nil, narrows what a request may see and act on, such as to
	// one tenant: by Sagas, Partitions, Resource, Tags and Created of a filter;
	// others are refused, and the request with them. What it does not select is
	// not there. Workers, queues and pauses are shared: a scoped request sees
	// them without executions, and cannot pause.
	Scope func(r *http.Request) (store.Filter, error)

	// Origins are further origins, such as "https://ops.example.org", whose pages
	// may send what changes something. The console's own host always may.
	Origins []string

	// PollInterval is how often a page asks again, unless its user says
	// otherwise. Defaults to 5 seconds.
	PollInterval time.Duration

	// MaxRows bounds what one count looks at. Defaults to 50,000; at most
	// store.MaxCount.
	MaxRows int

	// StalledAfter is how long an execution has not moved that counts as
	// stalled, if it does not wait and is not halted. Defaults to 15 minutes.
	StalledAfter time.Duration

	// Logger gets what goes wrong. Defaults to slog.Default().
	Logger *slog.Logger
}

const maxBody = 2 << 20 // bytes of a request: a state is at most 1 MiB

func (c Config) filled() Config {
	if c.Title == "" {
		c.Title = "Sagas"
	}
	if c.PollInterval <= 0 {
		c.PollInterval = 5 * time.Second
	}
	if c.MaxRows <= 0 {
		c.MaxRows = 50_000
	}
	c.MaxRows = min(c.MaxRows, store.MaxCount)
	if c.StalledAfter <= 0 {
		c.StalledAfter = 15 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// A console serves one engine.
type console struct {
	*saga.Engine
	cfg    Config
	assets *assets
	mux    *http.ServeMux
}

// Handler returns the console of an engine: one that works, or one of a process
// of its own that has nothing registered, which draws what workers left in the
// store. Each page is served at the mount point with a slash at its end; without
// it is redirected there.
func Handler(e *saga.Engine, cfg Config) http.Handler {
	c := &console{Engine: e, cfg: cfg.filled(), mux: http.NewServeMux()}
	c.assets = newAssets(c.cfg)
	c.routes()
	return c
}
