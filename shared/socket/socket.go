// Package socket makes private Unix sockets and passes open files over them.
//
// A socket lies in a directory of mode 0700 that is ours, has mode 0600, and
// is bound under a lock that is held for life and handed on with it. The
// other side's user is asked of the kernel before a byte is read, on accepting
// (Accept) and on connecting (Dial).
//
// Invariant: whoever touches the name of a socket holds its lock. The lock's
// file is never unlinked, so that two processes cannot lock two files of one
// name.
//
// Not here: what is said over a connection (packages protocol/frame and
// shared/link), where sockets lie (package shared/config), and what there is in
// their place on Windows (package shared/pipe).
package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// MaxPath is the longest path the system can bind, in bytes: 107 on Linux, 103
// on macOS. One more is the terminating NUL.
const MaxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// What one message of SendFiles carries at most. The kernel's own limit is 253
// files, and what is longer than a socket's buffer is written in pieces anyway.
const (
	MaxFiles   = 100
	MaxPayload = 64 << 10
)

// What makes Listen, Dial and the passing of files fail. They come wrapped,
// with what to do about it.
var (
	ErrPathTooLong = errors.New("socket path is too long")
	ErrUnsafeDir   = errors.New("socket directory is not private")
	ErrFilesLost   = errors.New("files were lost on the way")
	ErrTooLarge    = errors.New("message or its number of files is over the limit")
	ErrUnsupported = fmt.Errorf("private Unix sockets are not there on this system: %w", errors.ErrUnsupported)
)

// A Peer is the process at the other end as the kernel knows it. PID is the
// one that called connect, or listen: after a handoff it may be gone, so it is
// good for messages and not for identity.
type Peer struct{ UID, PID int }

// A PeerError is a peer that is refused for the user it runs as.
type PeerError struct {
	Path string
	Peer Peer
	Want int // the user that would be let through
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("%s: the other side runs as uid %d (pid %d), only uid %d is let through", e.Path, e.Peer.UID, e.Peer.PID, e.Want)
}

// A WeakError is a directory or a link above a file of ours by which another user
// could replace that file.
type WeakError struct {
	Path    string
	Foreign bool // it belongs to another user, Owner; else others can write to it
	Owner   int
	Mode    fs.FileMode
}

func (e *WeakError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("%s belongs to uid %d, who can replace what is below it", e.Path, e.Owner)
	}
	return fmt.Sprintf("%s has mode %04o, and other users can replace what is below it", e.Path, e.Mode.Perm())
}

// Is makes a WeakError an ErrUnsafeDir.
func (e *WeakError) Is(target error) bool { return target == ErrUnsafeDir }

// An InUseError says that another process listens on the path or is about to.
type InUseError struct {
	Path string
	PID  int // 0 if unknown
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return e.Path + " is in use by another process"
	}
	return fmt.Sprintf("%s is in use by process %d", e.Path, e.PID)
}

// Options tune a Listener. The zero value works.
type Options struct {
	UID      int               // the user let through; default our own
	OnRefuse func(Peer, error) // called for each connection refused, to log a security event; default nothing
}
