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
)

// trusted refuses a program that somebody else could replace: who decides is
// not for them to say. It is sshd's StrictModes: the file, and all directories
// above it, are ours or root's and nobody else may write to them. In a sticky
// directory nobody can replace what is another's.
//
// A symbolic link is judged by both ways, its own and the one to what it names.
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
	for _, from := range []string{real, filepath.Clean(path)} {
		for dir := filepath.Dir(from); ; dir = filepath.Dir(dir) {
			fi, err := os.Stat(dir)
			if err != nil {
				return unreadable(err)
			}
			if err := owned(dir, fi); err != nil {
				return err
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return nil
}

func unreadable(err error) error {
	return failure(protocol.CodePermissionDenied, fmt.Sprintf("who may replace the policy cannot be seen: %v", err))
}

// owned refuses what others can change. A file is never sticky in a way that counts.
func owned(path string, fi fs.FileInfo) error {
	stat, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid != 0 && int(stat.Uid) != os.Getuid() {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf(
			"the policy could be replaced by another user: %s is neither yours nor root's; put the policy where you own every directory", path))
	}
	sticky := fi.IsDir() && fi.Mode()&fs.ModeSticky != 0
	if fi.Mode().Perm()&0o022 != 0 && !sticky {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf(
			"the policy could be replaced by another user: %s has mode %04o; take that away with chmod go-w %s", path, fi.Mode().Perm(), path))
	}
	return nil
}
