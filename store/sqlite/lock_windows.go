package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"

	"github.com/leveret-go/leveret/store"
)

// lockFile locks f for as long as it is open, or returns ErrInUse.
func lockFile(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return store.ErrInUse
	}
	return err
}
