// Package handoff lets a new proxy take over from the running one.
//
// The two proxies speak over the control socket, in messages of shared/socket, which can carry
// open files. The conversation has these steps:
//
//  1. The new proxy asks, and the old one offers its listeners and locks.
//  2. The new proxy lets the old one describe the state that it has read itself, and
//     compares the two descriptions.
//  3. The new proxy reports that it is prepared. The old one stops accepting, and sends
//     its clients' connections in batches, each connection with its state.
//  4. After the last batch the new proxy reports that it serves. The old one confirms that, and
//     leaves.
//
// The report in step 4 is the commit point. If a step before it fails, the old proxy continues to
// serve all connections that the new one did not own by then. A failure after it harms no client,
// because the old proxy holds no connections any more. If one side closes the conversation
// without a message, it has died, and the other side serves.
//
// The report may come too late, after the old proxy has given up and serves again. The old proxy
// has sent an error then, and the new one must end. The new proxy therefore reads the answer to its
// report before it accepts connections.
//
// Invariant: at every moment a process holds the listeners open, so that no connect is refused,
// and the socket's path is never unlinked.
//
// Not here: the use of the listeners, the comparison (package shadow), the content of a
// connection state (package apiserver).
package handoff

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/shared/socket"
)

// Version counts incompatible changes of these messages. Version 3 is the oldest that a release
// speaks.
const Version = 3

// Timeout is the time limit of all steps before the first connection moves. The successor may ask
// for another limit, up to MaxTimeout.
const (
	Timeout    = 10 * time.Second
	MaxTimeout = 5 * time.Minute
)

// batchTime is how long the successor may take for a batch of connections, whose clients wait,
// and for its last message. On a machine with a load of four times its capacity a batch took
// 1 s. The limit should not be shorter, because the connections of all earlier batches are lost
// if a batch fails: they belong to the successor, and the successor ends.
const batchTime = 3 * time.Second

// lastTime is how long a successor may take between Prepared and Serving. If it takes longer it must give up:
// the old side may soon serve again, and both would serve.
const lastTime = batchTime / 2

// answerTime is how long a successor waits for the answer to its last message. The old proxy of a
// release before the answer sends none, and closes the conversation only when its clients have left.
// A successor that has waited in vain serves: if the old proxy had given up, its error would have
// arrived.
const answerTime = 250 * time.Millisecond

// lastLook is how long the old proxy looks for the last message after its time limit. Its process may
// not have run while the message arrived, and must then not serve again.
const lastLook = 10 * time.Millisecond

// ErrGone means that the other side has ended without a message.
var ErrGone = errors.New("the other proxy has ended without a message")

// A message is any message of the conversation; Do determines which fields count.
type message struct {
	Do        string                `json:"do"` // take, offer, look, looked, prepared, conns, attached, go, done, serving, committed, leave; stop, stopping; sign_out, signed_out; error
	Versions  protocol.VersionRange `json:"versions,omitzero"`
	Records   protocol.VersionRange `json:"records,omitzero"` // range of connection state versions that the successor can read
	PID       int                   `json:"pid,omitempty"`
	Version   string                `json:"version,omitempty"`    // version of the build
	TimeoutMS int64                 `json:"timeout_ms,omitempty"` // of take, in milliseconds
	Groups    []Group               `json:"groups,omitempty"`
	Body      json.RawMessage       `json:"body,omitempty"` // of offer, look and looked
	Closed    int                   `json:"closed,omitempty"`
	Error     *protocol.Error       `json:"error,omitempty"`
}

// A Group names a number of consecutive files of a message, for example a listener and its lock.
type Group struct {
	Name  string `json:"name"`
	Files int    `json:"files"`
}

var supported = protocol.VersionRange{Min: Version, Max: Version}

// A peer is the other side of the conversation.
type peer struct {
	conn  *net.UnixConn // time limit of its next message; 0 means Timeout
	wait  time.Duration // time limit of the present step; zero means none
	until time.Time     // when the last one must have come; zero for never
	// ending returns an error if this process ends, so that it must not wait for a message; it may be nil.
	ending func() error
	// hasGivenUp is set when the other side has sent an error. A successor that has sent one ends by itself.
	hasGivenUp bool
}

func (p *peer) deadline() error {
	at := time.Now().Add(cmp.Or(p.wait, Timeout))
	if !p.until.IsZero() && p.until.Before(at) {
		at = p.until
	}
	if err := p.conn.SetDeadline(at); err != nil || p.ending == nil {
		return err
	}
	return p.ending()
}

func (p *peer) send(m message, files []*os.File) error {
	m.PID = os.Getpid()
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := p.deadline(); err != nil {
		return err
	}
	return wrapGone(socket.SendFiles(p.conn, b, files))
}

// sendError reports why this side gives up, even after a time limit has passed. The other side
// may have given up before.
func (p *peer) sendError(err error) {
	p.wait, p.until = batchTime, time.Time{}
	_ = p.send(message{Do: "error", Error: protocol.AsError(err)}, nil)
}

// receivePlain receives a message without files. If the message has files, they are closed.
func (p *peer) receivePlain(do ...string) (message, error) {
	m, files, err := p.receive(do...)
	return m, errors.Join(err, closeAll(files))
}

// receive returns the next message with its files. The message's Do must be one of do.
func (p *peer) receive(do ...string) (message, []*os.File, error) {
	var m message
	if err := p.deadline(); err != nil {
		return m, nil, err
	}
	buf := make([]byte, socket.MaxPayload)
	n, files, err := socket.RecvFiles(p.conn, buf, -1)
	if err != nil {
		return m, nil, wrapGone(err)
	}
	err = json.Unmarshal(buf[:n], &m)
	if err == nil {
		p.hasGivenUp = p.hasGivenUp || m.Error != nil
		err = m.check(do)
	}
	if err == nil && total(m.Groups) != len(files) {
		err = fmt.Errorf("%d files arrived, but the message names %d", len(files), total(m.Groups))
	}
	if err != nil {
		return m, nil, errors.Join(err, closeAll(files))
	}
	return m, files, nil
}

// wrapGone adds ErrGone to an error that shows that the other side has ended.
func wrapGone(err error) error {
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
		if g.Files < 0 || g.Files > socket.MaxFiles { // so that their sum cannot overflow
			return fmt.Errorf("a group must not have %d files", g.Files)
		}
	}
	if !slices.Contains(do, m.Do) {
		return fmt.Errorf("unexpected message %.40q", m.Do)
	}
	return nil
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
