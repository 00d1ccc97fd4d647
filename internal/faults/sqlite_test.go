//go:build linux

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/leveret-go/leveret/store/sqlite"
)

var sqliteFaults = []fault{
	{name: "processes-on-one-file", group: "sqlite", core: true, run: processesOnOneFile},
	{name: "file-locked-by-somebody-else", group: "sqlite", run: fileLocked},
	{name: "file-made-immutable", group: "sqlite", run: fileImmutable},
	{name: "file-disk-full", group: "sqlite", run: fileDiskFull},
}

// upFile is up on a file in that folder. No other process of the world may open it here: see package
// sqlite. So all that looks at it, or changes it, does so through the observer or in a process of its own.
func (w *world) upFile(dir string, s setup) (path string) {
	w.t.Helper()
	path = filepath.Join(dir, "sagas.db")
	s.Store = onSQLite
	w.set, w.settings = s, s.Worker.filled()
	w.settings.Store = "sqlite:" + path
	w.begin()
	return path
}

// finishFile is finishStore, and wants the file to be whole.
func (w *world) finishFile() {
	w.t.Helper()
	w.finishStore()
	var answer string
	w.must(w.observer.(*sqlite.Store).DB().QueryRowContext(w.t.Context(), "PRAGMA integrity_check").Scan(&answer))
	if answer != "ok" {
		w.fail("the file is damaged: %s", answer)
	}
}

// Three processes write one file. One of them is killed in a step, another one in the middle of writes,
// again and again.
func processesOnOneFile(w *world) {
	w.upFile(w.t.TempDir(), setup{})
	workers := w.work(3, nil)
	gate := w.participants.hold(afterEffect, executes("charge"))
	w.start(100, 40*time.Millisecond)
	held := gate.next()
	w.worker(held.PID).kill()
	gate.release()
	for _, c := range workers {
		if !c.over() {
			c.kill()
			break
		}
	}
	w.work(2, nil)
	w.lifted()
	w.finishFile()
}

// Somebody's transaction keeps all writers waiting for longer than they do.
func fileLocked(w *world) {
	w.upFile(w.t.TempDir(), setup{})
	w.mayReportLate() // who could not renew its lease
	w.work(2, nil)
	w.start(120, 50*time.Millisecond)
	w.ended(10)
	tx, err := w.observer.(*sqlite.Store).DB().BeginTx(w.t.Context(), nil) // IMMEDIATE
	w.must(err)
	w.say("the file is locked")
	w.pause(12 * time.Second)
	w.must(tx.Rollback())
	w.lifted()
	w.finishFile()
}

// The file becomes immutable under its writers: first that of the database alone, which only checkpoints
// write, then the log as well.
func fileImmutable(w *world) {
	dir := w.t.TempDir()
	if reason := immutable(filepath.Join(dir, "probe")); reason != "" {
		w.skip("a file that is made immutable: %s; run as root, with TMPDIR on ext4, xfs or btrfs", reason)
	}
	path := w.upFile(dir, setup{})
	w.mayReportLate() // who could not renew its lease
	w.work(2, nil)
	w.start(150, 60*time.Millisecond)
	w.ended(10)
	defer w.attribute("-i", path, path+"-wal") // whatever happens, else the folder cannot be removed
	w.attribute("+i", path)
	w.ended(30) // work goes on
	w.attribute("+i", path+"-wal")
	w.bites(3)
	w.pause(2*w.settings.Lease + time.Second)
	w.attribute("-i", path, path+"-wal")
	w.lifted()
	w.finishFile()
	n := w.errors("disk I/O error")
	if n == 0 {
		w.fail("no worker felt it")
	}
	w.note("%d times the workers could not write", n)
}

// immutable tries chattr, and returns why it does not do; "": it does.
func immutable(probe string) (reason string) {
	if os.Geteuid() != 0 {
		return "that needs root"
	}
	if err := os.WriteFile(probe, nil, 0o600); err != nil {
		return err.Error()
	}
	defer os.Remove(probe)
	if out, err := exec.Command("chattr", "+i", probe).CombinedOutput(); err != nil {
		return fmt.Sprintf("chattr +i: %v %s", err, out)
	}
	err := os.WriteFile(probe, nil, 0o600)
	if out, e := exec.Command("chattr", "-i", probe).CombinedOutput(); e != nil {
		return fmt.Sprintf("chattr -i: %v %s", e, out)
	}
	if err == nil {
		return "the file system lets root write an immutable file"
	}
	return ""
}

// attribute changes an attribute of files, in a process of its own.
func (w *world) attribute(change string, files ...string) {
	w.t.Helper()
	out, err := exec.Command("chattr", append([]string{change}, files...)...).CombinedOutput()
	if err != nil {
		w.fail("chattr %s: %v %s", change, err, out)
	}
	w.say("chattr %s %s", change, strings.Join(files, " "))
}

// The disk is full for a while.
func fileDiskFull(w *world) {
	disk := w.smallDisk(16)
	w.upFile(disk, setup{})
	w.mayReportLate() // who could not renew its lease
	w.work(2, nil)
	w.start(200, 60*time.Millisecond)
	w.ended(10)
	free := w.fill(disk)
	w.bites(3)
	w.pause(2*w.settings.Lease + time.Second)
	free()
	w.lifted()
	w.finishFile()
	n := w.errors("database or disk is full")
	if n == 0 {
		w.fail("no worker felt that the disk was full")
	}
	w.note("%d times the workers were told that the disk is full", n)
}
