//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/leveret-go/leveret/store"
)

// lockFile locks f for as long as it is open, or returns ErrInUse. The lock is
// that of this opening of the file, not of the process: a second Store of the
// process is kept out as well.
func lockFile(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return store.ErrInUse
		}
		return err
	}
}
