//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A child is a worker process.
type child struct {
	w              *world
	name           string
	cmd            *exec.Cmd
	stdout, stderr string
	ended          chan struct{}

	mu     sync.Mutex
	killed bool // its death is wanted
}

// spawn starts the test binary as a worker.
func (w *world) spawn(s settings) *child {
	w.t.Helper()
	raw, err := json.Marshal(s)
	w.must(err)
	self, err := os.Executable()
	w.must(err)
	dir := w.t.TempDir()
	c := &child{
		w: w, name: s.Name, stdout: filepath.Join(dir, "stdout"), stderr: filepath.Join(dir, "stderr"),
		ended: make(chan struct{}), killed: s.DieInPublish != "",
	}
	stdout, err := os.Create(c.stdout)
	w.must(err)
	defer stdout.Close()
	stderr, err := os.Create(c.stderr)
	w.must(err)
	defer stderr.Close()
	c.cmd = exec.Command(self)
	c.cmd.Env = append(os.Environ(), envWorker+"="+string(raw))
	c.cmd.Stdout, c.cmd.Stderr = stdout, stderr
	// A worker outlives no test that was cut off.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.must(c.cmd.Start())
	go func() {
		_ = c.cmd.Wait() // how it ended is in its ProcessState
		close(c.ended)
	}()
	w.children = append(w.children, c)
	w.t.Cleanup(func() {
		c.signal(syscall.SIGKILL)
		<-c.ended
		c.showLog()
	})
	return c
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *child) signal(sig syscall.Signal) {
	if !c.over() { // else its id may be somebody else's by now
		_ = c.cmd.Process.Signal(sig)
	}
}

// kill ends the process as a crash does, and returns when it is gone.
func (c *child) kill() {
	c.w.t.Helper()
	if c.over() {
		c.w.t.Fatalf("%s has ended by itself: %v\n%s", c.name, c.cmd.ProcessState, c.tail())
	}
	c.mu.Lock()
	c.killed = true
	c.mu.Unlock()
	c.signal(syscall.SIGKILL)
	<-c.ended
	c.w.say("%s is killed", c.name)
}

// stop makes the process stand still (SIGSTOP) until resume.
func (c *child) stop() {
	c.signal(syscall.SIGSTOP)
	c.w.say("%s is stopped", c.name)
}

// resume makes a stopped process go on (SIGCONT).
func (c *child) resume() {
	c.signal(syscall.SIGCONT)
	c.w.say("%s goes on", c.name)
}

// term asks the process to drain and end.
func (c *child) term() { c.signal(syscall.SIGTERM) }

// exit waits for the end of a process that was told to end, and checks that it left nothing.
func (c *child) exit() {
	c.w.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.w.fail("%s goes on %v after SIGTERM", c.name, patience)
		return
	}
	var p parting
	out, err := os.ReadFile(c.stdout)
	if err == nil {
		err = json.Unmarshal(out, &p)
	}
	if code := c.cmd.ProcessState.ExitCode(); code != 0 || err != nil || p != (parting{}) {
		c.w.fail("%s: %v, want exit code 0 and nothing left: %s %v", c.name, c.cmd.ProcessState, out, err)
	}
}

func (c *child) deathWanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

func (c *child) log() string {
	b, _ := os.ReadFile(c.stderr)
	return string(b)
}

func (c *child) tail() string {
	lines := strings.Split(strings.TrimRight(c.log(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}

// showLog looks for what no process may log, and shows the logs of a failed case; those of an
// unfinished one are kept in full when LEVERET_FAULTS_LOGS names a folder.
func (c *child) showLog() {
	log := c.log()
	for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if i := strings.Index(log, bad); i >= 0 {
			c.w.t.Errorf("%s logged: %s", c.name, log[i:min(len(log), i+3000)])
		}
	}
	if !c.w.t.Failed() {
		return
	}
	if dir := os.Getenv("LEVERET_FAULTS_LOGS"); dir != "" {
		_ = os.MkdirAll(dir, 0o755)
		_ = os.WriteFile(filepath.Join(dir, c.w.fault.name+"-"+c.name+".log"), []byte(log), 0o644)
	}
	c.w.t.Logf("the end of the log of %s, pid %d, %v:\n%s", c.name, c.pid(), c.cmd.ProcessState, c.tail())
}

// count returns how often the processes have logged an event.
func (w *world) count(event string) (n int) {
	for _, c := range w.children {
		n += strings.Count(c.log(), "msg="+event+" ")
	}
	return n
}

// A local is a worker in the test process.
type local struct {
	settings settings
	stop     context.CancelFunc
	done     chan struct{}
	err      error
}

// local starts n workers inside the test process, on the store that wrap makes of the world's; nil:
// on that one. In memory all use the same store.
func (w *world) local(n int, change func(i int, s *settings), wrap func(store.Store) store.Store) []*local {
	w.t.Helper()
	var started []*local
	for i := range n {
		s := w.settings
		s.Name = "local-" + string(rune('1'+len(w.locals)))
		if change != nil {
			change(i, &s)
		}
		st, closeStore := w.observer, func() error { return nil }
		if w.set.Store == onPostgres {
			var err error
			st, closeStore, err = openStore(w.t.Context(), s)
			w.must(err)
		}
		if wrap != nil {
			st = wrap(st)
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
		l := &local{settings: s, stop: stop, done: make(chan struct{})}
		go func() {
			defer close(l.done)
			l.err = runWorker(ctx, s, st, slog.New(slog.DiscardHandler))
			if err := closeStore(); l.err == nil {
				l.err = err
			}
		}()
		w.t.Cleanup(func() {
			stop()
			<-l.done
		})
		w.locals = append(w.locals, l)
		started = append(started, l)
	}
	return started
}
