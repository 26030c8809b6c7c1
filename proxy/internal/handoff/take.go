package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/shared/socket"
)

// A Hello is what the new side says of itself.
type Hello struct {
	Build   string
	Records protocol.VersionRange // of connections, that it can read
	Timeout time.Duration         // for all before the first connection; 0 is Timeout
}

// A Take is the new side: what the running proxy has offered.
type Take struct {
	PID     int    // of the old proxy
	Version string // its build's
	// Settings are what it goes by and this one cannot know otherwise, if it says.
	Settings json.RawMessage
	// Step is told what has been done; nil for nobody.
	Step func(name string)

	line   line
	agreed int
	groups []Group
	files  []*os.File
}

// Begin asks the proxy at the control socket for everything it holds. That
// proxy serves on until Serving.
func Begin(ctx context.Context, path string, hello Hello) (*Take, error) {
	conn, _, err := socket.Dial(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("handoff: %w", err)
	}
	t := &Take{line: line{conn: conn, wait: hello.Timeout}}
	if err := t.begin(hello); err != nil {
		return nil, fmt.Errorf("handoff: %w", errors.Join(err, conn.Close()))
	}
	return t, nil
}

func (t *Take) begin(h Hello) error {
	ask := message{Do: "take", Versions: supported, Records: h.Records, Version: h.Build, TimeoutMS: h.Timeout.Milliseconds()}
	if err := t.line.send(ask, nil); err != nil {
		return err
	}
	m, files, err := t.line.receive("offer")
	if err != nil {
		return err
	}
	if t.agreed, err = protocol.Agree(supported, m.Versions); err != nil {
		return errors.Join(err, closeAll(files))
	}
	t.PID, t.Version, t.Settings, t.groups, t.files = m.PID, m.Version, m.Body, m.Groups, files
	return nil
}

// LooksFirst reports whether the old proxy can compare, and gives its
// connections before this one serves. One that does not wants it to accept
// before Prepared.
func (t *Take) LooksFirst() bool { return t.agreed >= lookFirst }

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

// Look has the old proxy look at what body asks for.
func (t *Take) Look(body json.RawMessage) (json.RawMessage, error) {
	if err := t.line.send(message{Do: "look", Body: body}, nil); err != nil {
		return nil, err
	}
	m, err := t.line.hear("looked")
	return m.Body, err
}

// Prepared says that everything is ready, and takes the old proxy's connections.
// adopt is given some at a time; they are its own, to go on with once ours is
// closed, and to forget if it never is. When it returns all are attached. With
// the last of the state, which is added to what adopt was given, Prepared returns
// how many connections the old one had to close.
//
// Errors: ErrGone where the old one has died, so that nobody else serves; any
// other means that it serves on, and this one must end.
func (t *Take) Prepared(adopt func(conns []Conn, state []byte, ours <-chan struct{}) error) (closed int, state []byte, err error) {
	word, answer := "prepared", "attached"
	if !t.LooksFirst() {
		word, answer = "serving", "started"
	}
	err = t.line.send(message{Do: word}, nil)
	for err == nil {
		var p parcel
		var m message
		m, p, err = t.parcel()
		if err != nil {
			break
		}
		if m.Do == "done" {
			return m.Closed, p.state, nil
		}
		err = t.take(p, answer, adopt)
	}
	return 0, nil, t.failed(err)
}

func (t *Take) parcel() (message, parcel, error) {
	m, files, err := t.line.receive("conns", "done")
	if err != nil {
		return m, parcel{}, err
	}
	p, err := unpack(m.Groups, files)
	return m, p, err
}

// take adopts a batch.
func (t *Take) take(p parcel, answer string, adopt func([]Conn, []byte, <-chan struct{}) error) error {
	ours := make(chan struct{})
	if !t.LooksFirst() {
		close(ours) // the old one lets go as soon as it has given
	}
	if err := adopt(p.conns, p.state, ours); err != nil {
		return err
	}
	err := t.line.send(message{Do: answer}, nil)
	t.step("attached")
	if err == nil && t.LooksFirst() {
		_, err = t.line.hear("go")
	}
	if t.LooksFirst() && (err == nil || errors.Is(err, ErrGone)) {
		close(ours) // nobody else has them
	}
	return err
}

func (t *Take) step(name string) {
	if t.Step != nil {
		t.Step(name)
	}
}

// failed gives up, and says so.
func (t *Take) failed(err error) error {
	if !errors.Is(err, ErrGone) {
		t.line.sendError(err)
	}
	return errors.Join(err, t.line.conn.Close())
}

// Serving tells the old proxy that this one accepts connections, so that it
// leaves: it is the last word.
func (t *Take) Serving() error {
	defer func() { _ = errors.Join(closeAll(t.files), t.line.conn.Close()) }()
	if !t.LooksFirst() {
		return nil // it was told before
	}
	return t.line.send(message{Do: "serving"}, nil)
}

// Leave ends a handoff that was only tried: the old proxy serves on.
func (t *Take) Leave() error {
	err := t.line.send(message{Do: "leave"}, nil)
	return errors.Join(err, closeAll(t.files), t.line.conn.Close())
}

// GiveUp ends a handoff because of err: the old proxy serves on. It does nothing
// where Prepared, Serving or Leave has ended it, or there is none.
func (t *Take) GiveUp(err error) {
	if t == nil {
		return
	}
	t.line.sendError(err)
	_ = errors.Join(closeAll(t.files), t.line.conn.Close())
}

// Stop asks the proxy at the control socket to leave, and returns when it has
// said that it will.
func Stop(ctx context.Context, path string) (pid int, err error) {
	conn, _, err := socket.Dial(ctx, path)
	if err != nil {
		return 0, fmt.Errorf("stop: %w", err)
	}
	defer func() { _ = conn.Close() }()
	l := &line{conn: conn}
	if err := l.send(message{Do: "stop"}, nil); err != nil {
		return 0, fmt.Errorf("stop: %w", err)
	}
	m, err := l.hear("stopping")
	if err != nil {
		return 0, fmt.Errorf("stop: %w", err)
	}
	// The connection ends with the process's work.
	if _, err = l.hear(); err != nil && !isEnd(err) {
		return m.PID, fmt.Errorf("stop: %w", err)
	}
	return m.PID, nil
}

// SignOut asks the proxy at the control socket to sign out all browsers. A proxy
// that is too old for that closes the connection: the error is then ErrGone.
func SignOut(ctx context.Context, path string) error {
	conn, _, err := socket.Dial(ctx, path)
	if err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	defer func() { _ = conn.Close() }()
	l := &line{conn: conn}
	if err := l.send(message{Do: "sign_out"}, nil); err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	if _, err := l.hear("signed_out"); err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	return nil
}

func isEnd(err error) bool {
	var ne net.Error
	return !errors.As(err, &ne) || !ne.Timeout()
}
