//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// build builds the program, as it is, with the race detector.
func build(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "saga-demo")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-race", "-buildvcs=false", "-o", binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// A kennel starts processes that the test may kill. When the test has failed it
// shows the end of what each of them logged.
type kennel struct {
	t      *testing.T
	dir    string
	binary string
	common []string // flags of all processes
	all    []*process
}

func newKennel(t *testing.T, binary string, common ...string) *kennel {
	t.Helper()
	k := &kennel{t: t, dir: t.TempDir(), binary: binary, common: common}
	t.Cleanup(func() {
		for _, p := range k.all {
			p.signal(syscall.SIGKILL)
			<-p.ended
			k.checkLog(p)
		}
	})
	return k
}

// checkLog looks for what no process may log, and shows the logs of a failed test.
func (k *kennel) checkLog(p *process) {
	log := p.log()
	for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if strings.Contains(log, bad) {
			k.t.Errorf("%s: %s", p.name, bad)
		}
	}
	if !k.t.Failed() {
		return
	}
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	cut := max(0, len(lines)-100)
	k.t.Logf("the last %d of %d lines of %s (pid %d, %v):\n%s", len(lines)-cut, len(lines), p.name, p.cmd.Process.Pid,
		p.cmd.ProcessState, strings.Join(lines[cut:], "\n"))
}

// start starts a process, whose output goes to files.
func (k *kennel) start(name string, args ...string) *process {
	k.t.Helper()
	file := func(what string) *os.File {
		f, err := os.Create(filepath.Join(k.dir, name+"."+what))
		if err != nil {
			k.t.Fatal(err)
		}
		return f
	}
	stdout, stderr := file("stdout"), file("stderr")
	defer stdout.Close()
	defer stderr.Close()
	p := &process{name: name, stdout: stdout.Name(), stderr: stderr.Name(), ended: make(chan struct{})}
	p.cmd = exec.Command(k.binary, append(append([]string{}, k.common...), args...)...)
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	// The processes outlive no test that was cut off.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its ProcessState
		close(p.ended)
	}()
	k.all = append(k.all, p)
	return p
}

// count describes how often the processes have logged each of these events.
func (k *kennel) count(events ...string) string {
	var parts []string
	for _, e := range events {
		n := 0
		for _, p := range k.all {
			n += strings.Count(p.log(), "msg="+e+" ")
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, e))
	}
	return strings.Join(parts, ", ")
}

// cpu describes how much of the processors' time each process that has ended took.
func (k *kennel) cpu() string {
	var parts []string
	for _, p := range k.all {
		if s := p.cmd.ProcessState; s != nil {
			parts = append(parts, fmt.Sprintf("%s %.1f s", p.name, (s.UserTime()+s.SystemTime()).Seconds()))
		}
	}
	return strings.Join(parts, ", ")
}

// A process is one that runs, or ran, the program.
type process struct {
	name           string
	cmd            *exec.Cmd
	stdout, stderr string
	ended          chan struct{}

	mu sync.Mutex
}

func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended: // its id may be somebody else's by now
	default:
		_ = p.cmd.Process.Signal(sig)
	}
}

func (p *process) log() string {
	b, _ := os.ReadFile(p.stderr)
	return string(b)
}

// kill ends a process as a crash does.
func (p *process) kill(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
		t.Fatalf("%s has ended by itself: %v", p.name, p.cmd.ProcessState)
	default:
	}
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// exit waits for the end of a process, and fails the test if it has another
// exit code.
func (p *process) exit(t *testing.T, code int) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("%s goes on for %v", p.name, patience)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("%s: %v, want exit code %d", p.name, p.cmd.ProcessState, code)
	}
}

// report waits for the end of a starter and returns its result, which must be
// without fault.
func (p *process) report(t *testing.T, sagas int) report {
	t.Helper()
	p.exit(t, exitOK)
	out, err := os.ReadFile(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%s: stdout is no report: %v\n%s", p.name, err, out)
	}
	ended := 0
	for _, s := range statusOrder {
		if s.Finished() {
			ended += r.ByStatus[string(s)]
		}
	}
	if r.Sagas != sagas || ended != sagas || r.Ledger != "consistent" || len(r.Violations) > 0 {
		t.Errorf("%s: want %d sagas that have ended, without violations: %s", p.name, sagas, out)
	}
	return r
}

func (r report) String() string {
	return fmt.Sprintf("%d sagas in %.1f s, %.1f sagas/s, p50 %.0f ms, p99 %.0f ms; %v; %d steps, %d retries, %d undos; %d calls, %d effects",
		r.Sagas, r.Seconds, r.SagasPerSecond, r.P50, r.P99, r.ByStatus, r.Steps, r.Retries, r.Undos, r.Calls, r.Effects)
}
