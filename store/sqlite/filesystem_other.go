//go:build !linux

package sqlite

import (
	"fmt"
	"strings"
)

// checkFilesystem refuses a directory on another machine, as far as its name
// says so.
func checkFilesystem(dir string) error {
	if strings.HasPrefix(dir, `\\`) && !strings.HasPrefix(dir, `\\?\`) && !strings.HasPrefix(dir, `\\.\`) {
		return fmt.Errorf("%s is on a network file system, where neither WAL nor its locks are safe", dir)
	}
	return nil
}
