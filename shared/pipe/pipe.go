// Package pipe makes private named pipes. They replace the sockets of package socket on
// Windows.
//
// The name of a pipe is computed from the user and from the directory that would contain the
// socket, so that two users or two directories never share a pipe. The access list of a pipe
// allows only its user, and Windows checks it when a process opens the pipe. Each side then
// asks Windows for the user of the other side.
//
// Invariant: a process must not send or accept a byte on a pipe before it knows that the peer
// is a process of the same user.
//
// Not here: the messages on a connection (package protocol/frame), and the paths of
// directories (package shared/config).
package pipe

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// Here reports whether private connections on this system are named pipes instead of Unix
// sockets. The proxy and its clients choose by this constant only.
//
// Windows has Unix sockets, too. They are not used, because they do not tell the user of the
// peer, and because net.connect of Node does not support them.
const Here = runtime.GOOS == "windows"

// ErrUnsupported is wrapped in the errors of all functions on a system without named pipes,
// except Name and SecurityDescriptor, which work everywhere.
var ErrUnsupported = fmt.Errorf("only Windows has named pipes: %w", errors.ErrUnsupported)

// A Peer is the process at the other end of a connection, as Windows reports it.
type Peer struct {
	SID string // the user of the process
	PID int
}

// A PeerError reports a connection that is refused because of the user of the peer.
type PeerError struct {
	Name string
	Peer Peer
	Want string // the SID of the allowed user
}

func (e *PeerError) Error() string {
	peer := "runs as " + e.Peer.SID
	if e.Peer.PID != 0 {
		peer += fmt.Sprintf(" (pid %d)", e.Peer.PID)
	}
	return fmt.Sprintf("%s: the peer %s, but only %s is allowed", e.Name, peer, e.Want)
}

// Options configure a Listener. The zero value is valid.
type Options struct {
	OnRefuse func(Peer, error) // called for each refused connection, to log a security event; may be nil
}

// Name returns the name of the pipe that replaces the file socket in dir, an absolute path,
// for the user with this SID. The name contains no version, so that all releases use the same
// pipe for the same user and directory.
//
// Paths that differ only in case have the same name, because they are the same directory on
// Windows.
func Name(sid, dir, socket string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(dir) + "\n" + sid))
	return `\\.\pipe\holdfast-` + hex.EncodeToString(sum[:8]) + "-" + socket
}

// SecurityDescriptor returns the owner and the access list of a pipe of the user with this
// SID, in the security descriptor definition language.
//
// The user is the owner (O:) and has all rights (A;;GA). The list inherits no entry (D:P) and
// allows no other user. It does not allow SYSTEM either: an administrator has access in any
// case, and a service that opens every pipe it finds must not. A network logon (NU) is denied,
// even if it is the user's own. That is a second barrier, because go-winio already makes
// Windows refuse other machines.
func SecurityDescriptor(sid string) string {
	return fmt.Sprintf("O:%[1]sD:P(D;;GA;;;NU)(A;;GA;;;%[1]s)", sid)
}
