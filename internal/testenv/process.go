package testenv

import (
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed keeper.sh
var keeperScript string

// roomNeeded is how much must be free in memory for a server's folder to go there.
const roomNeeded = 1 << 30

// A folder is the place of one server: everything it writes is in it, and every process of it works
// in it. The latter is how its keeper finds them, even those the server started itself.
type folder struct {
	path   string
	owner  *syscall.Credential // who the server runs as; nil: who we are
	keeper *exec.Cmd
	pipe   *os.File
}

// newFolder makes a folder and starts its keeper.
func newFolder() (*folder, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("servers are started on Linux only: set " + envPostgres + " and " + envAMQP)
	}
	f := &folder{}
	base := os.TempDir()
	if os.Geteuid() == 0 {
		owner, err := unprivileged()
		if err != nil {
			return nil, err
		}
		f.owner = owner
		base = "/tmp" // TMPDIR may be out of the owner's reach
	}
	if inMemory() {
		base = "/dev/shm"
	}
	path, err := os.MkdirTemp(base, "leveret-testenv-")
	if err != nil {
		return nil, err
	}
	f.path = path
	if err := f.own(path); err != nil {
		os.RemoveAll(path)
		return nil, err
	}

	// The pipe is closed in every child, so it ends with this process and with no other.
	r, w, err := os.Pipe()
	if err != nil {
		os.RemoveAll(path)
		return nil, err
	}
	defer r.Close()
	f.keeper = exec.Command("sh", "-c", keeperScript, "leveret-testenv-keeper", path)
	f.keeper.Dir = "/"
	f.keeper.Stdin = r
	f.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := f.keeper.Start(); err != nil {
		w.Close()
		os.RemoveAll(path)
		return nil, err
	}
	f.pipe = w
	return f, nil
}

// close ends every process of the folder and removes it.
func (f *folder) close() {
	f.pipe.Close()
	f.keeper.Wait()
}

func (f *folder) join(elem ...string) string {
	return filepath.Join(append([]string{f.path}, elem...)...)
}

// own gives the file to the user the server runs as.
func (f *folder) own(path string) error {
	if f.owner == nil {
		return nil
	}
	return os.Chown(path, int(f.owner.Uid), int(f.owner.Gid))
}

// mkdir makes a folder the server may write to; it may exist.
func (f *folder) mkdir(name string) (string, error) {
	path := f.join(name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", err
	}
	return path, f.own(path)
}

// write makes a file the server may read and write.
func (f *folder) write(name, content string) (string, error) {
	path := f.join(name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return "", err
	}
	return path, f.own(path)
}

// command makes a command that runs as the server's user in the folder's subfolder work, and writes
// to the log of that name.
func (f *folder) command(work string, env []string, argv ...string) (*exec.Cmd, *os.File, error) {
	dir, err := f.mkdir(work)
	if err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(f.join(work+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout = log
	cmd.Stderr = log
	// A session of its own: an interrupt from the terminal must not reach the server before the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: f.owner}
	return cmd, log, nil
}

// run runs a command to its end.
func (f *folder) run(work string, env []string, argv ...string) error {
	cmd, log, err := f.command(work, env, argv...)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(argv[0]), err, tail(log.Name()))
	}
	return nil
}

// start starts a command that goes on.
func (f *folder) start(work string, env []string, argv ...string) (*process, error) {
	cmd, log, err := f.command(work, env, argv...)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{pid: cmd.Process.Pid, work: cmd.Dir, log: log.Name()}, nil
}

// A process is a running server with all the processes it started. No goroutine waits for it, as
// the tests of a package may check that none is left over.
type process struct {
	pid  int
	work string
	log  string
	gone bool
}

// exited reports whether the first process has ended, and reaps it.
func (p *process) exited() bool {
	if p.gone {
		return true
	}
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil)
	p.gone = pid == p.pid || errors.Is(err, syscall.ECHILD)
	return p.gone
}

// end sends the first process a signal, and returns when it and all it started are gone.
func (p *process) end(sig syscall.Signal) error {
	if p.exited() {
		p.sweep()
		return fmt.Errorf("it had ended by itself\n%s", p.tail())
	}
	if err := syscall.Kill(p.pid, sig); err != nil {
		return err
	}
	if !poll(time.Minute, p.exited) {
		syscall.Kill(p.pid, syscall.SIGKILL)
		return fmt.Errorf("it goes on a minute after %v\n%s", sig, p.tail())
	}
	return p.sweep()
}

// sweep kills what works in the process' folder.
func (p *process) sweep() error {
	var pids []int
	if !poll(10*time.Second, func() bool {
		pids = living(p.work)
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0
	}) {
		return fmt.Errorf("processes %v go on after SIGKILL", pids)
	}
	return nil
}

func (p *process) tail() string { return tail(p.log) }

// tail returns the end of a log.
func tail(path string) string {
	b, _ := os.ReadFile(path)
	return string(b[max(0, len(b)-2000):])
}

// living returns the processes that work in dir or below it. A zombie works nowhere.
func living(dir string) []int {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var pids []int
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || target != dir && !strings.HasPrefix(target, dir+"/") {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// unprivileged returns the user that servers run as when we are root, which PostgreSQL and PgBouncer
// refuse to be.
func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("servers do not run as root, and there is no user postgres or nobody")
}

// inMemory reports whether /dev/shm has room for a server.
func inMemory() bool {
	var fs syscall.Statfs_t
	err := syscall.Statfs("/dev/shm", &fs)
	return err == nil && fs.Bavail*uint64(fs.Bsize) >= roomNeeded
}

// freePort returns a port nobody listens on. It lies below the range the kernel takes the ports of
// outgoing connections from, so that a restarted server finds it free.
func freePort() (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", address(port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 20000 and 32000")
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// poll calls done until it returns true, or the time is over.
func poll(limit time.Duration, done func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if done() {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return done()
		}
	}
}
