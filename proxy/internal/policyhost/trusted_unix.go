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

// trusted refuses a program that somebody else could replace: who decides is
// not for them to say. The file is ours or root's, and nobody else may write to it;
// for the directories above it, and above what a link names, see
// socket.CheckParents.
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
		return failure(protocol.CodePermissionDenied, fmt.Sprintf("the policy %s is no executable file, but %v; it must be a program", path, fi.Mode()))
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

// replaceable returns an error if another user could put something else in the place
// of path, by a directory above it or a link on the way.
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
		"the policy could be replaced by another user: %s is neither yours nor root's; put the policy where you own every directory", path))
}

func writable(path string, mode fs.FileMode) error {
	return failure(protocol.CodePermissionDenied, fmt.Sprintf(
		"the policy could be replaced by another user: %s has mode %04o; take that away with chmod go-w %s", path, mode.Perm(), path))
}

func unreadable(err error) error {
	return failure(protocol.CodePermissionDenied, fmt.Sprintf("who may replace the policy cannot be seen: %v", err))
}

// owned refuses a program's file that others can change.
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
