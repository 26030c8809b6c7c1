//go:build unix

package policyhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"holdfast/protocol"
	"holdfast/shared/socket"
)

// trusted returns an error if another user could replace the program, because its answers grant
// access to sessions. The file must belong to this user or to root, and no other user may write
// to it. socket.CheckParents describes the demands on the directories above the file and above
// the target of a link.
func trusted(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return failure(protocol.CodeNotFound, fmt.Sprintf("there is no policy %s", path))
	}
	var fi fs.FileInfo
	if err == nil {
		fi, err = os.Stat(real)
	}
	if err != nil {
		return unreadable(err)
	}
	if !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0 {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf("the policy %s must be an executable file, but its mode is %v", path, fi.Mode()))
	}
	if err := owned(real, fi); err != nil {
		return err
	}
	for _, from := range []string{real, path} {
		if err := replaceable(from); err != nil {
			return err
		}
	}
	return nil
}

// replaceable returns an error if another user could replace path, by a directory above it or by
// a link on the way.
func replaceable(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return unreadable(err)
	}
	err = socket.CheckParents(path)
	var weak *socket.WeakError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &weak):
		return unreadable(err)
	case weak.Foreign:
		return foreign(weak.Path)
	}
	return writable(weak.Path, weak.Mode)
}

func foreign(path string) error {
	return failure(protocol.CodePermissionDenied, fmt.Sprintf(
		"the policy could be replaced by another user: %s belongs neither to you nor to root; put the policy into directories that you own", path))
}

func writable(path string, mode fs.FileMode) error {
	return failure(protocol.CodePermissionDenied, fmt.Sprintf(
		"the policy could be replaced by another user: %s has mode %04o; remove the write permission with chmod go-w %s", path, mode.Perm(), path))
}

func unreadable(err error) error {
	return failure(protocol.CodePermissionDenied, fmt.Sprintf("cannot check which users may replace the policy: %v", err))
}

// owned returns an error if another user can change the program's file.
func owned(path string, fi fs.FileInfo) error {
	stat, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid != 0 && int(stat.Uid) != os.Getuid() {
		return foreign(path)
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return writable(path, fi.Mode())
	}
	return nil
}
