// Package pipe makes private named pipes: on Windows they are what package
// socket makes elsewhere.
//
// A pipe's name is made of its owner and of the directory that a socket would
// lie in, so that neither two users nor two directories meet. Its access list
// names the owner and nobody else; it is asked by the system when a pipe is
// opened. Then each side asks the system who the other one is.
//
// Invariant: no byte goes over a pipe before its other side is known to be a
// process of our own user.
//
// Not here: what is said over a connection (package protocol/frame), and where
// directories lie (package shared/config).
package pipe

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// Here says whether this system's private connections are named pipes and not
// Unix sockets. It is the one place where that is chosen, for the proxy and for
// its clients.
//
// Windows has Unix sockets, too, but they do not tell who is at the other end,
// and Node's net.connect does not know them there.
const Here = runtime.GOOS == "windows"

// ErrUnsupported comes wrapped from everything but Name and SecurityDescriptor
// where there are no named pipes.
var ErrUnsupported = fmt.Errorf("named pipes are there on Windows alone: %w", errors.ErrUnsupported)

// A Peer is the process at the other end as the system knows it.
type Peer struct {
	SID string // of the user it runs as
	PID int
}

// A PeerError is a peer that is refused for the user it runs as.
type PeerError struct {
	Name string
	Peer Peer
	Want string // the user that would be let through
}

func (e *PeerError) Error() string {
	who := "runs as " + e.Peer.SID
	if e.Peer.PID != 0 {
		who += fmt.Sprintf(" (pid %d)", e.Peer.PID)
	}
	return fmt.Sprintf("%s: the other side %s, only %s is let through", e.Name, who, e.Want)
}

// Options tune a Listener. The zero value works.
type Options struct {
	OnRefuse func(Peer, error) // called for each connection refused, to log a security event; default nothing
}

// Name returns the name of the pipe that stands for the socket's file of this
// name in dir, an absolute path, for the user with this SID. It carries no
// version: whoever means the same user and directory means the same pipe.
//
// Paths that differ only in case are one on Windows, and so have one name here.
func Name(sid, dir, socket string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(dir) + "\n" + sid))
	return `\\.\pipe\holdfast-` + hex.EncodeToString(sum[:8]) + "-" + socket
}

// SecurityDescriptor returns who may open a pipe of the user with this SID, in
// the security descriptor definition language.
//
// The user owns it (O:) and may do everything (A;;GA); the list inherits nothing
// (D:P) and names nobody else. Not even SYSTEM: an administrator gets in
// whatever stands here, and services that open every pipe they find need not.
// Whoever is logged on over the network (NU) is denied, the user included: on
// top of the system's refusal of other machines, which go-winio asks for.
func SecurityDescriptor(sid string) string {
	return fmt.Sprintf("O:%[1]sD:P(D;;GA;;;NU)(A;;GA;;;%[1]s)", sid)
}
