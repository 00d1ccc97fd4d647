package sqlite

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// checkFilesystem refuses a directory on a network file system.
func checkFilesystem(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil // what is wrong with it, opening the file will say
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return fmt.Errorf("%s is on a network file system, where neither WAL nor its locks are safe", dir)
	}
	return nil
}
