// Package handoff lets a new proxy take over from the running one.
//
// The two speak over the control socket, in messages of shared/socket that can
// carry open files. The new one asks; the old one gives its listeners and
// locks, and goes on serving; the new one says that it serves; only then does
// the old one stop accepting, give its clients' connections, some at a time and
// each with its record, tell those that cannot be given to come back, and leave.
// Before that word any failure leaves the old one as if nothing had been tried;
// after it a client whose connection is in doubt is closed, and comes back.
//
// Invariant: at every moment some process holds the listeners open, so no
// connect is refused, and the socket's path is never unlinked.
//
// Not here: what the listeners serve (the proxy's main).
package handoff

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"holdfast/protocol"
	"holdfast/shared/socket"
)

// Version counts incompatible meanings of these messages. Since 2 connections
// are given, too.
const (
	Version    = 2
	versionMin = 1
)

const withConns = 2 // the first version that gives connections

// Timeout is how long either side waits for the other's next word.
const Timeout = 10 * time.Second

// message is all there is to say; Do says which fields count.
type message struct {
	Do       string                `json:"do"` // take, offer, serving, conns, started, done; stop, stopping; error
	Versions protocol.VersionRange `json:"versions,omitzero"`
	PID      int                   `json:"pid,omitempty"`
	Version  string                `json:"version,omitempty"` // the build's
	Groups   []Group               `json:"groups,omitempty"`
	Error    *protocol.Error       `json:"error,omitempty"`
}

// A Group is some of the files of an offer, in their order: a listener and its
// lock, say.
type Group struct {
	Name  string `json:"name"`
	Files int    `json:"files"`
}

var supported = protocol.VersionRange{Min: versionMin, Max: Version}

func send(conn *net.UnixConn, m message, files []*os.File) error {
	m.PID = os.Getpid()
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return err
	}
	return socket.SendFiles(conn, b, files)
}

// hear is receive for a message that brings no files; those of one that does
// are closed.
func hear(conn *net.UnixConn, do ...string) (message, error) {
	m, files, err := receive(conn, do...)
	return m, errors.Join(err, closeAll(files))
}

// receive returns the next message, which must do one of the given things.
func receive(conn *net.UnixConn, do ...string) (message, []*os.File, error) {
	var m message
	if err := conn.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return m, nil, err
	}
	buf := make([]byte, socket.MaxPayload)
	n, files, err := socket.RecvFiles(conn, buf, -1)
	if err != nil {
		return m, nil, err
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
