package handoff

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"holdfast/shared/socket"
)

// A Take is the new side: what the running proxy has offered.
type Take struct {
	PID     int    // of the old proxy
	Version string // its build's

	conn   *net.UnixConn
	groups []Group
	files  []*os.File
}

// Begin asks the proxy at the control socket for everything it holds. That
// proxy serves on until Serving.
func Begin(ctx context.Context, path, build string) (*Take, error) {
	conn, _, err := socket.Dial(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("handoff: %w", err)
	}
	t := &Take{conn: conn}
	if err := t.begin(build); err != nil {
		return nil, fmt.Errorf("handoff: %w", errors.Join(err, conn.Close()))
	}
	return t, nil
}

func (t *Take) begin(build string) error {
	if err := send(t.conn, message{Do: "take", Versions: supported, Version: build}, nil); err != nil {
		return err
	}
	m, files, err := receive(t.conn, "offer")
	if err != nil {
		return err
	}
	t.PID, t.Version, t.groups, t.files = m.PID, m.Version, m.Groups, files
	return nil
}

// Files returns the files of a group, which are the caller's from here on, or
// nil where the old proxy had none of that name.
func (t *Take) Files(name string) []*os.File {
	at := 0
	for i, g := range t.groups {
		if g.Name == name {
			files := slices.Clone(t.files[at : at+g.Files])
			t.files = slices.Delete(t.files, at, at+g.Files)
			t.groups = slices.Delete(t.groups, i, i+1)
			return files
		}
		at += g.Files
	}
	return nil
}

// Serving tells the old proxy that this one accepts connections now. It
// returns when the old one has given all the connections that it can, each to
// adopt, and told its other clients to come. What adopt is given is its own.
func (t *Take) Serving(adopt func([]Conn)) error {
	err := send(t.conn, message{Do: "serving"}, nil)
	for err == nil {
		var m message
		var files []*os.File
		m, files, err = receive(t.conn, "conns", "done")
		if err != nil || m.Do == "done" {
			err = errors.Join(err, closeAll(files))
			break
		}
		var conns []Conn
		if conns, err = taken(m.Groups, files); err == nil {
			adopt(conns)
			err = send(t.conn, message{Do: "started"}, nil)
		}
	}
	return errors.Join(err, t.Close())
}

// Close gives the takeover up, where Serving was not called: the old proxy
// serves on.
func (t *Take) Close() error {
	return errors.Join(closeAll(t.files), t.conn.Close())
}

// Stop asks the proxy at the control socket to leave, and returns when it has
// said that it will.
func Stop(ctx context.Context, path string) (pid int, err error) {
	conn, _, err := socket.Dial(ctx, path)
	if err != nil {
		return 0, fmt.Errorf("stop: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := send(conn, message{Do: "stop"}, nil); err != nil {
		return 0, fmt.Errorf("stop: %w", err)
	}
	m, err := hear(conn, "stopping")
	if err != nil {
		return 0, fmt.Errorf("stop: %w", err)
	}
	// The connection ends with the process's work.
	_, err = hear(conn)
	if err != nil && !isEnd(err) {
		return m.PID, fmt.Errorf("stop: %w", err)
	}
	return m.PID, nil
}

func isEnd(err error) bool {
	var ne net.Error
	return !errors.As(err, &ne) || !ne.Timeout()
}
