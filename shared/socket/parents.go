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

// maxLinks is how many symbolic links a path may lead through: as many as Linux
// follows.
const maxLinks = 40

// CheckParents returns a *WeakError if a user other than root and our own could
// put something else in the place of path: a directory above it, or a symbolic link
// on the way, belongs to such a user, or such a user can write to one of the
// directories. What does not exist yet is no weakness.
//
// A directory that others can write is no weakness if it is sticky, as /tmp: there
// nobody replaces what is another's. Nor is one that a group can write whose only
// member is the user, as in homes that systems with a group for each user make with
// the umask 002, or the group of root.
func CheckParents(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is no absolute path", path)
	}
	at, left, links := "/", splitPath(filepath.Dir(filepath.Clean(path))), 0
	if err := checkParent(at); err != nil {
		return err
	}
	for len(left) > 0 {
		next := filepath.Join(at, left[0])
		left = left[1:]
		err := checkParent(next)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		to, err := os.Readlink(next)
		if err != nil { // it is no link
			at = next
			continue
		}
		if links++; links > maxLinks {
			return fmt.Errorf("%s leads through more than %d symbolic links", path, maxLinks)
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		left = append(splitPath(to), left...)
	}
	return nil
}

// splitPath returns the names of a path. ".." stays one: with links on the way it
// must be taken where it stands.
func splitPath(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// checkParent judges one directory or link on the way.
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
	case !fi.IsDir() || sticky: // the mode of a link means nothing
		return nil
	case perm&0o002 != 0, perm&0o020 != 0 && !isOwnGroup(int(st.Gid)):
		return weak
	}
	return nil
}

// isTrusted reports whether a user may own what leads to our files: root, and our
// own. In a user namespace, such as that of a container without root, every user
// that has no number there has the overflow number, the machine's root as well: who
// owns such a directory cannot be told, and it counts as trusted.
func isTrusted(uid int) bool {
	return uid == 0 || uid == os.Geteuid() || uid == unmappedUID()
}

// unmappedUID returns the number of users that have none here, or -1 outside of
// a user namespace.
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

// isOwnGroup reports whether nobody but root and the user is in a group: it is
// root's, or the user's primary group, named like the user, without other members.
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

// isPrivateGroup is isOwnGroup by the texts of /etc/passwd and /etc/group.
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
