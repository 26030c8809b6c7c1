// Package agent maintains a link to the ssh agent of the viewer that attached last. Sessions that
// were started with an agent have the link in SSH_AUTH_SOCK. If the user logs out and
// attaches to such a session again, the session finds the agent of the new viewer.
//
// Invariant: the link never leads to itself, and once it exists, it always exists.
//
// Not here: the decision which agents must not be followed (apiserver).
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

// Name is the link's name in the runtime directory. It lacks the suffix of sockets, because it is
// a link.
const Name = "ssh-agent"

const (
	// answers is how long an agent may take to accept a connection.
	answers = 200 * time.Millisecond
	// maxHops is the largest number of links on a path; the kernel has the same limit.
	maxHops = 40
)

// A Link is the link in a directory that only this user can write to.
type Link struct {
	path string
	mu   sync.Mutex // held while the link is changed, because the new link has a fixed temporary name
}

// New returns the Link in a directory. The link is made by Follow.
func New(dir string) *Link { return &Link{path: filepath.Join(dir, Name)} }

// Follow makes the link lead to a socket and returns the link's path. If the socket is the link
// itself, or leads over it, Follow leaves it unchanged. It is an error if the path is not a socket of
// this user, or if no process listens on it.
func (l *Link) Follow(socket string) (path string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leadsToSelf, err := l.leadsOver(socket)
	if err != nil || leadsToSelf {
		return l.path, err
	}
	if err := checkUsable(socket); err != nil {
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

// leadsOver reports whether a path is the link, or a chain of links that contains it.
func (l *Link) leadsOver(path string) (bool, error) {
	if !filepath.IsAbs(path) {
		return false, fmt.Errorf("%q must be an absolute path", path)
	}
	own, _ := os.Lstat(l.path) // nil if there is none
	for range maxHops {
		at, err := os.Lstat(path)
		switch {
		case err != nil:
			return false, err
		case path == l.path:
			return true, nil
		case own != nil && os.SameFile(own, at): // the same link by another path of its directory
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

// checkUsable returns an error unless the socket accepts connections and belongs to this user.
func checkUsable(socket string) error {
	info, err := os.Stat(socket)
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket || !isOwn(info) {
		return fmt.Errorf("%s must be a socket of this user", socket)
	}
	c, err := net.DialTimeout("unix", socket, answers)
	if err != nil {
		return err
	}
	return c.Close()
}
