package pipe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"

	"holdfast/shared/socket"
)

// bufferBytes is what a pipe holds each way before a writer waits.
const bufferBytes = 64 << 10

// Waits between tries when the system is short of something, doubling from the
// first to the last.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = 100 * time.Millisecond
)

// Own returns the Name of our own user's pipe.
func Own(dir, socket string) (string, error) {
	sid, err := ownSID()
	if err != nil {
		return "", fmt.Errorf("name the pipe of %s: %w", socket, err)
	}
	return Name(sid, dir, socket), nil
}

// A Listener is a pipe that we serve. Any goroutine may call its methods.
type Listener struct {
	name string
	sid  string // ours, and so the one let through
	opts Options
	ln   net.Listener
	shut sync.Once
	done chan struct{} // closed by Close
}

// Listen makes the pipe. It returns a *socket.InUseError where another process,
// of whatever user, has the name: there is no lock beside it, for the system
// makes the first instance of a pipe once only, and it goes with its process.
func Listen(name string, opts Options) (*Listener, error) {
	sid, err := ownSID()
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", name, err)
	}
	ln, err := winio.ListenPipe(name, &winio.PipeConfig{
		SecurityDescriptor: SecurityDescriptor(sid), InputBufferSize: bufferBytes, OutputBufferSize: bufferBytes,
	})
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_ALREADY_EXISTS) || errors.Is(err, windows.ERROR_PIPE_BUSY) {
		err = errors.Join(&socket.InUseError{Path: name}, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", name, err)
	}
	return &Listener{name: name, sid: sid, opts: opts, ln: ln, done: make(chan struct{})}, nil
}

// Name returns the name as it was given to Listen.
func (l *Listener) Name() string { return l.name }

// Accept returns the next connection of our own user, and who it is. Others are
// refused before a byte of theirs is read, and accepting goes on; it goes on,
// too, when the system is short of something. After Close the error is
// net.ErrClosed.
//
// Whoever comes while nobody accepts finds the pipe busy and tries again.
func (l *Listener) Accept() (net.Conn, Peer, error) {
	wait := firstWait
	for {
		conn, err := l.ln.Accept()
		switch {
		case err == nil:
			peer, err := l.admit(conn)
			if err == nil {
				return conn, peer, nil
			}
			_ = conn.Close() // there is nobody to tell
			if l.opts.OnRefuse != nil {
				l.opts.OnRefuse(peer, err)
			}
			wait = firstWait
		case isShortage(err):
			select {
			case <-l.done:
			case <-time.After(wait):
			}
			wait = min(2*wait, lastWait)
		default:
			return nil, Peer{}, fmt.Errorf("accept on %s: %w", l.name, err)
		}
	}
}

// admit says who has connected, and whether it may. The access list has been
// asked already, and not by pid, which may be another process's by now: this
// finds out whether the list is what it should be.
func (l *Listener) admit(conn net.Conn) (Peer, error) {
	peer, err := peerOf(conn, windows.GetNamedPipeClientProcessId)
	if err != nil {
		return peer, fmt.Errorf("%s: the other side's user is unknown: %w", l.name, err)
	}
	if peer.SID != l.sid {
		return peer, &PeerError{l.name, peer, l.sid}
	}
	return peer, nil
}

// Close stops accepting and frees the name. Connections stay.
func (l *Listener) Close() error {
	l.shut.Do(func() { close(l.done) })
	return l.ln.Close()
}

// isShortage tells errors that pass by themselves.
func isShortage(err error) bool {
	for _, e := range []error{windows.ERROR_NO_SYSTEM_RESOURCES, windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_TOO_MANY_OPEN_FILES, windows.ERROR_PIPE_BUSY} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Dial connects to a pipe and makes sure that our own user serves it; if another
// one does, it returns a *PeerError. Where nobody listens the error is
// fs.ErrNotExist. While nobody accepts, Dial tries again until ctx is done.
//
// The other side learns nothing of us before that and can do nothing in our
// name: we connect as an anonymous client.
func Dial(ctx context.Context, name string) (net.Conn, Peer, error) {
	sid, err := ownSID()
	if err != nil {
		return nil, Peer{}, fmt.Errorf("connect to %s: %w", name, err)
	}
	conn, err := winio.DialPipeAccessImpLevel(ctx, name, windows.GENERIC_READ|windows.GENERIC_WRITE, winio.PipeImpLevelAnonymous)
	if err != nil {
		return nil, Peer{}, fmt.Errorf("connect to %s: %w", name, err)
	}
	peer, err := serverOf(conn, name, sid)
	if err != nil {
		return nil, peer, fmt.Errorf("connect to %s: %w", name, errors.Join(err, conn.Close()))
	}
	return conn, peer, nil
}

// serverOf says who serves a pipe, and fails unless it is the user with this
// SID. It asks for the pipe's owner first, whom nobody but an administrator can
// choose: a pid alone may be another process's by now, if who made the pipe
// passed it on and ended.
func serverOf(conn net.Conn, name, sid string) (Peer, error) {
	sd, err := windows.GetSecurityInfo(handle(conn), windows.SE_KERNEL_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return Peer{}, fmt.Errorf("the pipe's owner is unknown: %w", err)
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return Peer{}, fmt.Errorf("the pipe's owner is unknown: %w", err)
	}
	if owner.String() != sid {
		return Peer{SID: owner.String()}, &PeerError{name, Peer{SID: owner.String()}, sid}
	}
	peer, err := peerOf(conn, windows.GetNamedPipeServerProcessId)
	if err != nil {
		return peer, fmt.Errorf("the other side's user is unknown: %w", err)
	}
	if peer.SID != sid {
		return peer, &PeerError{name, peer, sid}
	}
	return peer, nil
}

// peerOf asks the system for the process at one end of a pipe, and its user.
func peerOf(conn net.Conn, which func(windows.Handle, *uint32) error) (Peer, error) {
	var pid uint32
	if err := which(handle(conn), &pid); err != nil {
		return Peer{}, fmt.Errorf("ask for its pid: %w", err)
	}
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return Peer{PID: int(pid)}, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer func() { _ = windows.CloseHandle(process) }() // nothing depends on it
	var token windows.Token
	if err := windows.OpenProcessToken(process, windows.TOKEN_QUERY, &token); err != nil {
		return Peer{PID: int(pid)}, fmt.Errorf("open the token of process %d: %w", pid, err)
	}
	defer func() { _ = token.Close() }()
	sid, err := userOf(token)
	return Peer{SID: sid, PID: int(pid)}, err
}

func ownSID() (string, error) { return userOf(windows.GetCurrentProcessToken()) }

func userOf(token windows.Token) (string, error) {
	user, err := token.GetTokenUser()
	if err != nil {
		return "", fmt.Errorf("ask for the user's SID: %w", err)
	}
	return user.User.Sid.String(), nil
}

// handle returns a connection's handle, which stays the connection's.
func handle(conn net.Conn) windows.Handle {
	return windows.Handle(conn.(interface{ Fd() uintptr }).Fd())
}
