//go:build unix

package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxLinks is the number of symbolic links that a path may lead through. It is the limit
// of Linux.
const maxLinks = 40

// CheckParents returns a *WeakError if a user other than root and the user of this
// process could replace the file at path. That user can do so if a directory above path,
// or a symbolic link on the way, belongs to the user, or if the user can write to such a
// directory. A directory that does not exist yet is no weakness.
//
// A directory that other users can write to is no weakness if it is sticky, as /tmp,
// because a user can replace only the user's own files there. A directory that a group
// can write to is no weakness if the group is root's or has the user as its only member.
// Homes are such directories on systems that make a group for each user and have the
// umask 002.
func CheckParents(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
	at, remaining, linkCount := "/", splitPath(filepath.Dir(filepath.Clean(path))), 0
	if err := checkParent(at); err != nil {
		return err
	}
	for len(remaining) > 0 {
		next := filepath.Join(at, remaining[0])
		remaining = remaining[1:]
		err := checkParent(next)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		to, err := os.Readlink(next)
		if err != nil { // next is not a symbolic link
			at = next
			continue
		}
		if linkCount++; linkCount > maxLinks {
			return fmt.Errorf("%s leads through more than %d symbolic links", path, maxLinks)
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		remaining = append(splitPath(to), remaining...)
	}
	return nil
}

// splitPath returns the names in a path. It keeps "..", because the parent of a symbolic
// link's target is known only when CheckParents has reached that target.
func splitPath(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// checkParent returns a *WeakError if another user could replace the entries of one
// directory, or one symbolic link.
func checkParent(path string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st := fi.Sys().(*syscall.Stat_t)
	weak := &WeakError{Path: path, Owner: int(st.Uid), Mode: fi.Mode()}
	perm, sticky := fi.Mode().Perm(), fi.Mode()&fs.ModeSticky != 0
	switch {
	case !isTrusted(int(st.Uid)):
		weak.Foreign = true
		return weak
	case !fi.IsDir() || sticky: // systems ignore the mode of a symbolic link
		return nil
	case perm&0o002 != 0, perm&0o020 != 0 && !isOwnGroup(int(st.Gid)):
		return weak
	}
	return nil
}

// isTrusted reports whether a user may own a directory above Holdfast's files: root, the
// user of this process, and the unmapped user of a user namespace. In such a namespace,
// as of a rootless container, every user without a mapping has the overflow uid, and so
// has the root of the machine. The real owner of such a directory cannot be determined,
// so isTrusted must accept it.
func isTrusted(uid int) bool {
	return uid == 0 || uid == os.Geteuid() || uid == unmappedUID()
}

// unmappedUID returns the uid that stands for all unmapped users, or -1 if this process
// is not in a user namespace.
func unmappedUID() int {
	b, err := os.ReadFile("/proc/self/uid_map")
	if f := strings.Fields(string(b)); err != nil || slices.Equal(f, []string{"0", "0", "4294967295"}) {
		return -1
	}
	b, err = os.ReadFile("/proc/sys/kernel/overflowuid")
	n, numErr := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || numErr != nil {
		return -1
	}
	return n
}

// isOwnGroup reports whether a group has no members except root and the user of this
// process. That holds for root's group, and for the user's primary group if it is named
// like the user and has no other members.
func isOwnGroup(gid int) bool {
	if gid == 0 {
		return true
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return false
	}
	groups, err := os.ReadFile("/etc/group")
	if err != nil {
		return false
	}
	me, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	return err == nil && isPrivateGroup(string(passwd), string(groups), me.Username, gid)
}

// isPrivateGroup reports whether the group gid is the primary group of the user name, is
// named like that user and has no other members. passwd and groups are the contents of
// /etc/passwd and /etc/group.
func isPrivateGroup(passwd, groups, name string, gid int) bool {
	number, primary, private := strconv.Itoa(gid), false, false
	for line := range strings.Lines(passwd) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) == 7 && f[3] == number {
			if f[0] != name {
				return false
			}
			primary = true
		}
	}
	for line := range strings.Lines(groups) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) == 4 && f[2] == number {
			private = f[0] == name && (f[3] == "" || f[3] == name)
		}
	}
	return primary && private
}
