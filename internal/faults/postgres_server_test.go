//go:build linux

package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// The database is ended at once (pg_ctl -m immediate) and recovers from its log, twice under load.
func databaseRestarted(w *world) {
	w.upPrivate(setup{}, nil)
	w.mayReportLate() // who could not renew its lease
	w.work(2, nil)
	w.consumed(2)
	w.start(120, 50*time.Millisecond)
	for i := range 2 {
		w.ended(10 + 30*i)
		w.postgres.server.StopImmediate(w.t)
		w.bites(3)
		w.postgres.server.Start(w.t)
	}
	w.lifted()
	w.finishStore()
}

// Each backend is terminated once a second, whatever it does: those of workers, starter and observer.
func backendsTerminated(w *world) {
	w.up(setup{Store: onPostgres, Rabbit: true})
	w.work(2, nil)
	w.consumed(2)
	w.start(120, 50*time.Millisecond)
	admin := w.sql()
	killed := 0
	for range 6 {
		w.pause(time.Second)
		var n int
		w.must(admin.QueryRow(w.t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&n))
		killed += n
	}
	w.note("%d backends were terminated", killed)
	w.lifted()
	w.finishStore()
}

// Somebody else takes all connections that the server has. Those of the workers are cut, and they get no
// other one.
func noMoreConnections(w *world) {
	w.upPrivate(setup{}, nil)
	w.mayReportLate() // who could not renew its lease
	w.work(2, nil)
	w.consumed(2)
	var most int
	w.must(w.sql().QueryRow(w.t.Context(), "SELECT current_setting('max_connections')::int").Scan(&most))
	var taken []*pgx.Conn
	take := func(most int) {
		for len(taken) < most {
			conn, err := pgx.Connect(w.t.Context(), w.postgres.direct)
			if err != nil {
				return
			}
			w.t.Cleanup(func() { conn.Close(context.Background()) })
			taken = append(taken, conn)
		}
	}
	take(most - 40) // which takes its time, before there is work
	w.start(250, 60*time.Millisecond)
	w.ended(10)
	take(most)
	failed := w.starter.failures()
	w.start(10, 10*time.Millisecond)
	w.until("nobody gets a connection", func() bool {
		w.postgres.proxy.Cut()
		take(most) // somebody may have been faster
		return w.starter.failures() >= failed+5
	})
	w.pause(2*w.settings.Lease + time.Second)
	for _, conn := range taken {
		w.check(conn.Close(w.t.Context()))
	}
	w.lifted()
	w.finishStore()
	n := w.errors("SQLSTATE 53300")
	if n == 0 {
		w.fail("no worker was refused")
	}
	w.note("%d connections were taken, and %d times the workers got none", len(taken), n)
}

// The disk of the tables is full for a while.
func databaseDiskFull(w *world) {
	disk := w.smallDisk(24)
	w.upPrivate(setup{}, func(conn *pgx.Conn) {
		var data string
		w.must(conn.QueryRow(w.t.Context(), "SHOW data_directory").Scan(&data))
		info, err := os.Stat(data)
		w.must(err)
		owner := info.Sys().(*syscall.Stat_t)
		w.must(os.Chown(disk, int(owner.Uid), int(owner.Gid)))
		w.must(os.Chmod(disk, 0o700))
		for _, q := range []string{
			"CREATE TABLESPACE small LOCATION '" + disk + "'",
			"ALTER DATABASE postgres SET default_tablespace = small", // of those who come from now on
		} {
			_, err := conn.Exec(w.t.Context(), q)
			w.must(err)
		}
	})
	w.mayReportLate() // who could not renew its lease
	w.work(2, nil)
	w.consumed(2)
	w.start(200, 60*time.Millisecond)
	w.ended(10)
	free := w.fill(disk)
	w.bites(3)
	w.pause(2*w.settings.Lease + time.Second)
	free()
	w.lifted()
	w.finishStore()
	w.note("%d times the workers were told that the disk is full", w.errors("SQLSTATE 53100"))
	if w.errors("SQLSTATE 53100") == 0 {
		w.fail("no worker felt that the disk was full")
	}
}

// smallDisk mounts a disk of so many MiB, and returns where. It needs root: without, the case is skipped.
func (w *world) smallDisk(mib int) string {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.skip("a disk that is full needs root, to mount a tmpfs of its own; run as root")
	}
	dir, err := os.MkdirTemp("", "leveret-disk")
	w.must(err)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+strconv.Itoa(mib)+"m", "leveret-faults", dir).CombinedOutput(); err != nil {
		w.check(os.Remove(dir))
		w.skip("a disk that is full needs a tmpfs, which cannot be mounted here: %v: %s", err, out)
	}
	w.t.Cleanup(func() { // when all servers have ended
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			w.t.Errorf("umount %s: %v: %s", dir, err, out)
		}
		w.check(os.Remove(dir))
	})
	return dir
}

// skip ends a case that cannot be tried here. The table says so, and the fault counts as not passed.
func (w *world) skip(format string, args ...any) {
	w.t.Helper()
	w.result.Failure = "SKIPPED, NOT TESTED: " + fmt.Sprintf(format, args...)
	w.t.Skip(w.result.Failure)
}

// fill takes all room that is left on a disk, until free.
func (w *world) fill(disk string) (free func()) {
	w.t.Helper()
	name := filepath.Join(disk, "filler")
	f, err := os.Create(name)
	w.must(err)
	total := 0
	for _, size := range []int{1 << 20, 4 << 10} {
		b := make([]byte, size)
		for {
			n, err := f.Write(b)
			total += n
			if err != nil {
				break
			}
		}
	}
	w.must(f.Close())
	w.say("the disk is full: %d KiB were left", total>>10)
	return func() {
		w.must(os.Remove(name))
		w.say("there is room again")
	}
}
