// Package agent keeps a link to the ssh agent of the viewer that came last. Sessions
// that were started with an agent have the link in SSH_AUTH_SOCK, so that they find
// one after whoever started them has logged out, and somebody is there again.
//
// Invariant: the link never leads to itself, and there is always one once there was.
//
// Not here: whose agent may be followed (apiserver).
package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Name is the link's in the runtime directory. It does not end as sockets of ours do:
// it is none.
const Name = "ssh-agent"

const (
	// answers is how long an agent may take to take a connection.
	answers = 200 * time.Millisecond
	// maxHops bounds the links that a path may lead over, as the kernel does.
	maxHops = 40
)

// A Link is one in a directory that is ours alone.
type Link struct {
	path string
	mu   sync.Mutex // held while it is changed: the new one has one name
}

// New returns the link in a directory; nothing is there before Follow.
func New(dir string) *Link { return &Link{path: filepath.Join(dir, Name)} }

// Follow has the link lead to a socket, and returns the link's path for those who are
// to find it by that. A socket that is the link itself, or leads over it, changes
// nothing. It is an error if it is no socket of this user's, or nobody listens on it.
func (l *Link) Follow(socket string) (path string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	over, err := l.leadsOver(socket)
	if err != nil || over {
		return l.path, err
	}
	if err := usable(socket); err != nil {
		return "", err
	}
	if now, err := os.Readlink(l.path); err == nil && now == socket {
		return l.path, nil
	}
	next := l.path + ".tmp"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if err := os.Symlink(socket, next); err != nil {
		return "", err
	}
	return l.path, os.Rename(next, l.path)
}

// leadsOver reports whether a path is the link, or a chain of links with it.
func (l *Link) leadsOver(path string) (bool, error) {
	if !filepath.IsAbs(path) {
		return false, fmt.Errorf("%q is no absolute path", path)
	}
	own, _ := os.Lstat(l.path) // nil while there is none
	for range maxHops {
		at, err := os.Lstat(path)
		switch {
		case err != nil:
			return false, err
		case path == l.path:
			return true, nil
		case own != nil && os.SameFile(own, at): // by another name of the directory
			return true, nil
		case at.Mode().Type() != os.ModeSymlink:
			return false, nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return false, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return false, fmt.Errorf("%s leads over too many links", path)
}

// usable returns why a socket cannot be an agent's of this user.
func usable(socket string) error {
	info, err := os.Stat(socket)
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket || !ours(info) {
		return fmt.Errorf("%s is no socket of this user's", socket)
	}
	c, err := net.DialTimeout("unix", socket, answers)
	if err != nil {
		return err
	}
	return c.Close()
}
