//go:build linux

package faults

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A node is the broker's process as the machine shows it.
type node struct {
	pid  int
	env  []string
	user *syscall.Credential // nil: who we are
}

// node finds the process of a private broker, which runs.
func (w *world) node() node {
	w.t.Helper()
	u, err := url.Parse(w.rabbit.direct)
	w.must(err)
	name := "RABBITMQ_NODENAME=leveret" + u.Port() + "@localhost"
	dirs, err := filepath.Glob("/proc/[0-9]*")
	w.must(err)
	for _, dir := range dirs {
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != "beam.smp" {
			continue
		}
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(env, []byte(name+"\x00")) {
			continue
		}
		n := node{env: strings.Split(strings.TrimRight(string(env), "\x00"), "\x00")}
		n.pid, err = strconv.Atoi(filepath.Base(dir))
		w.must(err)
		info, err := os.Stat(dir)
		w.must(err)
		if s := info.Sys().(*syscall.Stat_t); int(s.Uid) != os.Geteuid() {
			n.user = &syscall.Credential{Uid: s.Uid, Gid: s.Gid}
		}
		return n
	}
	w.t.Fatalf("no process is the broker %s", name)
	return node{}
}

// signalBroker sends the broker's process a signal, such as SIGSTOP.
func (w *world) signalBroker(sig syscall.Signal) {
	w.t.Helper()
	w.must(syscall.Kill(w.node().pid, sig))
	w.say("the broker got %v", sig)
}

// rabbitmqctl runs a command on a private broker.
func (w *world) rabbitmqctl(args ...string) {
	w.t.Helper()
	n := w.node()
	scripts, err := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmqctl")
	w.must(err)
	script := append(scripts, "/opt/rabbitmq/sbin/rabbitmqctl")[0]
	cmd := exec.Command(script, append([]string{"-q"}, args...)...)
	cmd.Env, cmd.Dir = n.env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: n.user}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("rabbitmqctl %v: %v\n%s", args, err, out)
	}
	w.say("rabbitmqctl %s", strings.Join(args, " "))
}
