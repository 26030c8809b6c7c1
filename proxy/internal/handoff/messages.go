// Package handoff lets a new proxy take over from the running one.
//
// The two speak over the control socket, in messages of shared/socket that can
// carry open files. The new one asks, and is offered listeners and locks; it has
// the old one look at what it looks at itself, to compare; when it says that it
// is prepared, the old one stops accepting and gives its clients' connections,
// some at a time and each with its record; when all are given the new one says
// that it serves, and the old one leaves.
//
// That word is the commit. Whatever fails before it, the old one serves on, with
// every connection that the new one did not own by then; what fails after it
// harms nothing, because the old one holds nothing any more. A side that closes
// the conversation without a word has died; then the other one serves.
//
// Invariant: at every moment some process holds the listeners open, so no
// connect is refused, and the socket's path is never unlinked.
//
// Not here: what the listeners serve, what is compared (package shadow), what a
// record says (package apiserver).
package handoff

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/shared/socket"
)

// Version counts incompatible meanings of these messages. In version 2 the
// successor served first and was given the connections afterwards.
const (
	Version    = 3
	versionMin = 2
)

// lookFirst is the first version with a commit after the last connection.
const lookFirst = 3

// Timeout is how long all before the first connection may take, unless the
// successor says otherwise, up to MaxTimeout.
const (
	Timeout    = 10 * time.Second
	MaxTimeout = 5 * time.Minute
)

// batchTime is how long the successor may take over a batch of connections, whose
// clients wait, and over its last word. On a machine with four times as much to do
// as it can it was seen to take 1 s; and a batch that is given up costs the
// connections before it.
const batchTime = 3 * time.Second

// ErrGone is of a side that has ended without a word.
var ErrGone = errors.New("the other proxy has died")

// message is all there is to say; Do says which fields count.
type message struct {
	Do        string                `json:"do"` // take, offer, look, looked, prepared, conns, attached, go, done, serving, leave; started in version 2; stop, stopping; sign_out, signed_out; error
	Versions  protocol.VersionRange `json:"versions,omitzero"`
	Records   protocol.VersionRange `json:"records,omitzero"` // of connections, that the successor can read
	PID       int                   `json:"pid,omitempty"`
	Version   string                `json:"version,omitempty"`    // the build's
	TimeoutMS int64                 `json:"timeout_ms,omitempty"` // of take
	Groups    []Group               `json:"groups,omitempty"`
	Body      json.RawMessage       `json:"body,omitempty"` // of offer, look and looked
	Closed    int                   `json:"closed,omitempty"`
	Error     *protocol.Error       `json:"error,omitempty"`
}

// A Group is some of the files of an offer, in their order: a listener and its
// lock, say.
type Group struct {
	Name  string `json:"name"`
	Files int    `json:"files"`
}

var supported = protocol.VersionRange{Min: versionMin, Max: Version}

// A line is one side of the conversation.
type line struct {
	conn  *net.UnixConn
	wait  time.Duration // for the other's next word
	until time.Time     // when the last one must have come; zero for never

	records int // the latest version that both know
}

func (l *line) deadline() error {
	at := time.Now().Add(cmp.Or(l.wait, Timeout))
	if !l.until.IsZero() && l.until.Before(at) {
		at = l.until
	}
	return l.conn.SetDeadline(at)
}

func (l *line) send(m message, files []*os.File) error {
	m.PID = os.Getpid()
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := l.deadline(); err != nil {
		return err
	}
	return gone(socket.SendFiles(l.conn, b, files))
}

// sendError says why this side gives up, however late it is; the other may have
// done so before.
func (l *line) sendError(err error) {
	l.wait, l.until = batchTime, time.Time{}
	_ = l.send(message{Do: "error", Error: protocol.AsError(err)}, nil)
}

// hear is receive for a message that brings no files; those of one that does
// are closed.
func (l *line) hear(do ...string) (message, error) {
	m, files, err := l.receive(do...)
	return m, errors.Join(err, closeAll(files))
}

// receive returns the next message, which must do one of the given things.
func (l *line) receive(do ...string) (message, []*os.File, error) {
	var m message
	if err := l.deadline(); err != nil {
		return m, nil, err
	}
	buf := make([]byte, socket.MaxPayload)
	n, files, err := socket.RecvFiles(l.conn, buf, -1)
	if err != nil {
		return m, nil, gone(err)
	}
	err = json.Unmarshal(buf[:n], &m)
	if err == nil {
		err = m.check(do)
	}
	if err == nil && total(m.Groups) != len(files) {
		err = fmt.Errorf("%d files came, %d were named", len(files), total(m.Groups))
	}
	if err != nil {
		return m, nil, errors.Join(err, closeAll(files))
	}
	return m, files, nil
}

// gone makes ErrGone of what a connection says whose other side has ended.
func gone(err error) error {
	for _, e := range []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
	}
	return err
}

func (m *message) check(do []string) error {
	if m.Error != nil {
		return m.Error
	}
	for _, g := range m.Groups {
		if g.Files < 0 || g.Files > socket.MaxFiles { // so that their sum means something
			return fmt.Errorf("a group of %d files", g.Files)
		}
	}
	for _, d := range do {
		if m.Do == d {
			return nil
		}
	}
	return fmt.Errorf("unexpected message %.40q", m.Do)
}

func total(groups []Group) int {
	n := 0
	for _, g := range groups {
		n += g.Files
	}
	return n
}

func closeAll(files []*os.File) error {
	var err error
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}
