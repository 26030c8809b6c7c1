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

// bufferBytes is the size of a pipe's buffer in each direction. A writer waits while it is full.
const bufferBytes = 64 << 10

// A retry after a shortage of a system resource waits firstWait. The pause doubles with each
// further retry, up to lastWait.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = 100 * time.Millisecond
)

// Own returns the name of the pipe that replaces the file socket in dir for the user of this
// process.
func Own(dir, socket string) (string, error) {
	sid, err := ownSID()
	if err != nil {
		return "", fmt.Errorf("name the pipe of %s: %w", socket, err)
	}
	return Name(sid, dir, socket), nil
}

// A Listener is a pipe that this process serves. Its methods are safe for concurrent use.
type Listener struct {
	name string
	sid  string // the user of this process; no other user is allowed
	opts Options
	ln   net.Listener
	shut sync.Once
	done chan struct{} // Close closes it
}

// Listen makes the pipe. It returns a *socket.InUseError if a process of any user serves a
// pipe of this name. A lock is not needed, because Windows creates the first instance of a pipe
// only once and removes it when the process ends.
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

// Name returns the name that was passed to Listen.
func (l *Listener) Name() string { return l.name }

// Accept waits for the next connection of the user of this process and returns it with its
// peer. It closes connections of other users before it reads a byte from them, and continues.
// If the system lacks a resource, Accept retries until it has it. After Close the error is
// net.ErrClosed.
//
// A client that connects while no Accept runs finds the pipe busy and must retry.
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
			_ = conn.Close() // the connection is dropped, so a failure changes nothing
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

// admit returns the peer of conn, and an error unless the peer's user is the user of this
// process. Windows has checked the access list already, without a pid, which may belong to
// another process by now. admit detects a pipe with another access list than the intended one.
func (l *Listener) admit(conn net.Conn) (Peer, error) {
	peer, err := peerOf(conn, windows.GetNamedPipeClientProcessId)
	if err != nil {
		return peer, fmt.Errorf("%s: the system did not tell the user of the peer: %w", l.name, err)
	}
	if peer.SID != l.sid {
		return peer, &PeerError{l.name, peer, l.sid}
	}
	return peer, nil
}

// Close stops accepting and frees the name. Accepted connections stay open.
func (l *Listener) Close() error {
	l.shut.Do(func() { close(l.done) })
	return l.ln.Close()
}

// isShortage reports whether err is a shortage of a system resource, which may end without
// action of this process.
func isShortage(err error) bool {
	for _, e := range []error{windows.ERROR_NO_SYSTEM_RESOURCES, windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_TOO_MANY_OPEN_FILES, windows.ERROR_PIPE_BUSY} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Dial connects to a pipe and checks that a process of the user of this process serves it.
// Otherwise it returns a *PeerError. If no process serves the pipe, the error is
// fs.ErrNotExist. If the server does not accept, Dial retries until ctx is done.
//
// Dial connects as an anonymous client. Before the check has succeeded, the server therefore
// learns nothing about this process and cannot act with its rights.
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

// serverOf returns the process that serves a pipe, and an error unless its user has this SID.
// It first checks the owner of the pipe, which only an administrator can set to another user.
// The pid alone would not suffice: if the process that made the pipe has handed it on and
// ended, another process may have its pid by now.
func serverOf(conn net.Conn, name, sid string) (Peer, error) {
	sd, err := windows.GetSecurityInfo(handle(conn), windows.SE_KERNEL_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return Peer{}, fmt.Errorf("the system did not tell the owner of the pipe: %w", err)
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return Peer{}, fmt.Errorf("the system did not tell the owner of the pipe: %w", err)
	}
	if owner.String() != sid {
		return Peer{SID: owner.String()}, &PeerError{name, Peer{SID: owner.String()}, sid}
	}
	peer, err := peerOf(conn, windows.GetNamedPipeServerProcessId)
	if err != nil {
		return peer, fmt.Errorf("the system did not tell the user of the server: %w", err)
	}
	if peer.SID != sid {
		return peer, &PeerError{name, peer, sid}
	}
	return peer, nil
}

// peerOf returns the process at one end of a pipe, and its user. pidOf selects the end: it
// returns the pid of the client or of the server.
func peerOf(conn net.Conn, pidOf func(windows.Handle, *uint32) error) (Peer, error) {
	var pid uint32
	if err := pidOf(handle(conn), &pid); err != nil {
		return Peer{}, fmt.Errorf("query the pid of the peer: %w", err)
	}
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return Peer{PID: int(pid)}, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer func() { _ = windows.CloseHandle(process) }() // the handle was only read from
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
		return "", fmt.Errorf("query the SID of the user: %w", err)
	}
	return user.User.Sid.String(), nil
}

// handle returns the handle of a connection. The connection still owns it.
func handle(conn net.Conn) windows.Handle {
	return windows.Handle(conn.(interface{ Fd() uintptr }).Fd())
}
