// Package socket makes private Unix sockets and passes open files over them.
//
// A socket is in a directory of mode 0700 that belongs to the user of this process. The
// socket has mode 0600. A process that listens holds a lock for as long as it listens,
// and hands the lock on together with the socket. Accept and Dial ask the kernel for the
// user of the peer before a byte is read.
//
// Invariant: a process must hold the lock before it makes, renames or removes a socket.
// The lock's file is never unlinked, because two processes could otherwise lock two files
// of the same name.
//
// Not here: the messages on a connection (packages protocol/frame and shared/link), the
// paths of the sockets (package shared/config), and the named pipes that replace sockets
// on Windows (package shared/pipe).
package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// MaxPath is the longest path that the system can bind, in bytes: 107 on Linux, 103 on
// macOS. It leaves room for the terminating NUL.
const MaxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// Limits of one message of SendFiles. The kernel allows 253 files a message. A payload
// that is larger than the socket's buffer is sent in pieces in any case.
const (
	MaxFiles   = 100
	MaxPayload = 64 << 10
)

// Errors of Listen, Dial, SendFiles and RecvFiles. These functions wrap them in an error
// that tells the next step.
var (
	ErrPathTooLong = errors.New("socket path is too long")
	ErrUnsafeDir   = errors.New("socket directory is not private")
	ErrFilesLost   = errors.New("files were lost between sender and receiver")
	ErrTooLarge    = errors.New("message is too large or has too many files")
	ErrUnsupported = fmt.Errorf("this system has no private Unix sockets: %w", errors.ErrUnsupported)
)

// IsAbsent reports whether err, which Dial returned, proves that no process listens on the socket.
func IsAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// A Peer is the process at the other end of a connection, as the kernel reports it. PID
// is the process that called connect or listen. That process may have ended after a
// handoff, so PID is good for messages but must not serve as an identity.
type Peer struct{ UID, PID int }

// A PeerError reports a connection that is refused because of the user of the peer.
type PeerError struct {
	Path string
	Peer Peer
	Want int // the allowed user
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("%s: the peer runs as uid %d (pid %d), but only uid %d is allowed", e.Path, e.Peer.UID, e.Peer.PID, e.Want)
}

// A WeakError reports a directory or a symbolic link above one of Holdfast's files. Another
// user could replace the file by means of it.
type WeakError struct {
	Path    string
	Foreign bool // the path belongs to another user, Owner; otherwise, other users can write to it
	Owner   int
	Mode    fs.FileMode
}

func (e *WeakError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("%s belongs to uid %d, and that user can replace the files below it", e.Path, e.Owner)
	}
	return fmt.Sprintf("%s has mode %04o, and other users can replace the files below it", e.Path, e.Mode.Perm())
}

// Is reports that a WeakError is an ErrUnsafeDir.
func (e *WeakError) Is(target error) bool { return target == ErrUnsafeDir }

// An InUseError reports that another process listens on the path or has locked it.
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

// Options configure a Listener. The zero value is valid.
type Options struct {
	UID      int               // the allowed user; 0: the user of this process
	OnRefuse func(Peer, error) // called for each refused connection, to log a security event; may be nil

	// AnyDir makes Adopt accept a directory that is not private any more. The socket refuses the
	// connections of other users also there. Listen does not accept such a directory.
	AnyDir bool
}
