package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// Progress counts what happens and shows it on stderr: as a block that is
// redrawn in place on a terminal, else as a line every few seconds. A quiet one
// shows trouble only.
type progress struct {
	role  string
	quiet bool
	total int // 0: not known
	begun time.Time

	mu       sync.Mutex
	w        io.Writer
	terminal bool
	drawn    int // lines of the block on the screen
	said     string

	started  int
	finished map[store.Status]int
	steps    int
	retries  int
	undos    int
	running  int
}

func newProgress(o options, stderr io.Writer) *progress {
	p := &progress{role: o.role, w: stderr, terminal: isTerminal(stderr), begun: time.Now(), finished: map[store.Status]int{}}
	if o.role != roleWork {
		p.total = o.n
	}
	p.quiet = o.json && !p.terminal
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// colors reports whether w is a terminal whose user has nothing against colors.
func colors(w io.Writer) paint { return paint(isTerminal(w) && os.Getenv("NO_COLOR") == "") }

// observe counts an event of this process's engine.
func (p *progress) observe(_ context.Context, e saga.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case saga.EventStepStarted:
		p.running++
		if e.Attempt > 1 {
			p.retries++
		}
	case saga.EventStepFinished, saga.EventStepSkipped:
		p.running--
		if e.Direction == store.DirectionCompensate {
			p.undos++
		} else {
			p.steps++
		}
	case saga.EventStepFailed, saga.EventSnoozed, saga.EventAttemptLate:
		p.running--
	case saga.EventCompleted, saga.EventCompensated, saga.EventFailed, saga.EventCompensationFailed, saga.EventCancelled:
		if p.role == roleWork {
			p.finished[e.Status]++
		}
	}
}

// start counts a saga that was started, and end one that has ended.
func (p *progress) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started++
}

func (p *progress) end(s store.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished[s]++
}

// println writes a line above the block.
func (p *progress) println(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintln(p.w, line)
}

// show draws until ctx is done.
func (p *progress) show(ctx context.Context) {
	if p.quiet {
		return
	}
	every := 3 * time.Second
	if p.terminal {
		every = 100 * time.Millisecond
		p.draw()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if p.terminal {
				p.draw()
			}
			return
		case <-tick.C:
			p.draw()
		}
	}
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal {
		if line := strings.Join(p.lines(paint(false)), "; "); line != p.said {
			p.said = line
			fmt.Fprintf(p.w, "%4.0fs  %s\n", time.Since(p.begun).Seconds(), line)
		}
		return
	}
	p.clear()
	lines := p.lines(colors(p.w))
	for _, l := range lines {
		fmt.Fprintf(p.w, "  %s\n", l)
	}
	p.drawn = len(lines)
}

// clear takes the block off the screen.
func (p *progress) clear() {
	if p.drawn > 0 {
		fmt.Fprintf(p.w, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
}

func (p *progress) lines(c paint) []string {
	ended := 0
	var by []string
	for _, s := range statusOrder {
		if n := p.finished[s]; n > 0 {
			ended += n
			by = append(by, fmt.Sprintf("%d %s", n, strings.ReplaceAll(string(s), "_", " ")))
		}
	}
	seconds := time.Since(p.begun).Seconds()
	var first string
	if p.total > 0 {
		first = fmt.Sprintf("%d of %d sagas have ended", ended, p.total)
		if p.terminal {
			first = fmt.Sprintf("%s  %s  %s", p.bar(c, ended), c.bold(fmt.Sprintf("%d/%d", ended, p.total)), c.dim(fmt.Sprintf("%.1f s", seconds)))
		}
		if under := p.started - ended; under > 0 {
			by = append(by, fmt.Sprintf("%d under way", under))
		}
	} else {
		first = fmt.Sprintf("working: %d sagas ended here", ended)
	}
	lines := []string{first}
	if len(by) > 0 {
		lines = append(lines, strings.Join(by, ", "))
	}
	if p.role != roleStart {
		lines = append(lines, fmt.Sprintf("%d steps done, %d running, %d retries, %d undos", p.steps, max(p.running, 0), p.retries, p.undos))
	}
	return lines
}

func (p *progress) bar(c paint, ended int) string {
	const width = 36
	full := width * ended / p.total
	return c.in("32", strings.Repeat("█", full)) + c.dim(strings.Repeat("░", width-full))
}

// A troubleLog shows what is wrong with the outside of the demo: a store or a
// broker that does not answer. Failed steps are what the demo is about; they are
// shown only with -v.
type troubleLog struct {
	slog.Handler
	p       *progress
	verbose bool
	last    *sync.Map // message -> time it was last shown
}

func newLogger(o options, p *progress) *slog.Logger {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelInfo
	}
	w := writerFunc(func(b []byte) (int, error) {
		p.println(strings.TrimRight(string(b), "\n"))
		return len(b), nil
	})
	h := slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})
	return slog.New(&troubleLog{Handler: h, p: p, verbose: o.verbose, last: &sync.Map{}})
}

func (h *troubleLog) Handle(ctx context.Context, r slog.Record) error {
	if !h.verbose {
		// Events have names without spaces.
		if !strings.Contains(r.Message, " ") {
			return nil
		}
		if last, ok := h.last.Load(r.Message); ok && r.Time.Sub(last.(time.Time)) < 5*time.Second {
			return nil
		}
		h.last.Store(r.Message, r.Time)
	}
	return h.Handler.Handle(ctx, r)
}

func (h *troubleLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.Handler = h.Handler.WithAttrs(attrs)
	return &c
}

func (h *troubleLog) WithGroup(name string) slog.Handler {
	c := *h
	c.Handler = h.Handler.WithGroup(name)
	return &c
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
