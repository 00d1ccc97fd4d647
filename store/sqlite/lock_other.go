//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package sqlite

import (
	"errors"
	"os"
)

func lockFile(*os.File) error { return errors.ErrUnsupported }
