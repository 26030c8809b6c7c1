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

// A Hello describes the new side.
type Hello struct {
	Build   string
	Records protocol.VersionRange // range of connection state versions that this side can read
	Timeout time.Duration         // time limit of all steps before the first connection moves; 0 means Timeout
}

// A Take is the new side of a handoff, with the offer of the running proxy.
type Take struct {
	PID     int    // pid of the old proxy
	Version string // version of the old proxy's build
	// Settings are the old proxy's settings that this proxy cannot learn in another way.
	Settings json.RawMessage
	// Step is called after each step with its name; it may be nil.
	Step func(name string)

	peer     peer
	groups   []Group
	files    []*os.File
	prepared time.Time // when Prepared has returned
}

// Begin asks the proxy at the control socket path for everything that it holds. That proxy
// continues to serve until Serving is called.
func Begin(ctx context.Context, path string, hello Hello) (*Take, error) {
	conn, _, err := socket.Dial(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("handoff: %w", err)
	}
	t := &Take{peer: peer{conn: conn, wait: hello.Timeout}}
	if err := t.begin(hello); err != nil {
		return nil, fmt.Errorf("handoff: %w", errors.Join(err, conn.Close()))
	}
	return t, nil
}

func (t *Take) begin(h Hello) error {
	ask := message{Do: "take", Versions: supported, Records: h.Records, Version: h.Build, TimeoutMS: h.Timeout.Milliseconds()}
	if err := t.peer.send(ask, nil); err != nil {
		return err
	}
	m, files, err := t.peer.receive("offer")
	if err != nil {
		return err
	}
	if _, err = protocol.Agree(supported, m.Versions); err != nil {
		return errors.Join(err, closeAll(files))
	}
	t.PID, t.Version, t.Settings, t.groups, t.files = m.PID, m.Version, m.Body, m.Groups, files
	return nil
}

// Files returns the files of a group, or nil if the old proxy has offered no group of that name.
// The caller must close them.
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

// Look asks the old proxy for its description of the objects in body.
func (t *Take) Look(body json.RawMessage) (json.RawMessage, error) {
	if err := t.peer.send(message{Do: "look", Body: body}, nil); err != nil {
		return nil, err
	}
	m, err := t.peer.receivePlain("looked")
	return m.Body, err
}

// Prepared reports that this proxy is prepared, and receives the old proxy's connections. adopt
// is called with each batch of connections, and owns their files. It may use the connections once
// committed is closed. If committed is never closed, it must drop them. After the last batch
// Prepared returns the number of connections that the old proxy had to close, and the last part
// of the state. The parts before it were passed to adopt.
//
// If the error is ErrGone, the old proxy has died, so no process serves. After any other error
// the old proxy serves, and this one must end.
func (t *Take) Prepared(adopt func(conns []Conn, state []byte, committed <-chan struct{}) error) (closed int, state []byte, err error) {
	err = t.peer.send(message{Do: "prepared"}, nil)
	t.peer.wait = max(t.peer.wait, Timeout) // the caller's limit is for the preparation; a batch may take longer to be frozen
	for err == nil {
		var p parcel
		var m message
		m, p, err = t.parcel()
		if err != nil {
			break
		}
		if m.Do == "done" {
			t.prepared = time.Now()
			return m.Closed, p.state, nil
		}
		err = t.takeOver(p, adopt)
	}
	return 0, nil, t.fail(err)
}

func (t *Take) parcel() (message, parcel, error) {
	m, files, err := t.peer.receive("conns", "done")
	if err != nil {
		return m, parcel{}, err
	}
	p, err := unpack(m.Groups, files)
	return m, p, err
}

// takeOver passes a batch to adopt, and closes committed when the batch belongs to this proxy.
func (t *Take) takeOver(p parcel, adopt func([]Conn, []byte, <-chan struct{}) error) error {
	committed := make(chan struct{})
	if err := adopt(p.conns, p.state, committed); err != nil {
		return err
	}
	err := t.peer.send(message{Do: "attached"}, nil)
	t.step("attached")
	if err == nil {
		_, err = t.peer.receivePlain("go")
	}
	if err == nil || errors.Is(err, ErrGone) {
		close(committed) // the old proxy does not use them any more
	}
	return err
}

func (t *Take) step(name string) {
	if t.Step != nil {
		t.Step(name)
	}
}

// fail reports err to the old proxy, and closes the conversation and the files that no caller has asked for.
func (t *Take) fail(err error) error {
	if !errors.Is(err, ErrGone) {
		t.peer.sendError(err)
	}
	return errors.Join(err, closeAll(t.files), t.peer.conn.Close())
}

// CheckTime returns an error if this proxy has needed more than lastTime since Prepared. The old proxy
// may soon serve again, so this one must give up.
func (t *Take) CheckTime() error {
	if late := time.Since(t.prepared); late > lastTime {
		return fmt.Errorf("the last steps took %v, and the old process may serve again", late.Round(time.Millisecond))
	}
	return nil
}

// Serving reports to the old proxy that this one serves, and ends the handoff. The old proxy then
// leaves. This proxy must accept connections only after that.
//
// If the error is ErrGone, the old proxy has died, so this one serves nevertheless. After any other
// error the old proxy has given up before and serves, and this one must end.
func (t *Take) Serving() error {
	defer func() { _ = errors.Join(closeAll(t.files), t.peer.conn.Close()) }()
	err := t.peer.send(message{Do: "serving"}, nil)
	t.peer.wait, t.peer.until = answerTime, time.Time{}
	_, answer := t.peer.receivePlain("committed") // an error may have arrived even if send has failed
	var refused *protocol.Error
	if errors.As(answer, &refused) {
		err = fmt.Errorf("the old process has given up and serves again: %w", refused)
	}
	if err != nil && !errors.Is(err, ErrGone) {
		t.peer.sendError(err) // so that the old proxy knows that this one ends by itself
	}
	return err
}

// Leave ends a handoff that was only tried. The old proxy continues to serve.
func (t *Take) Leave() error {
	err := t.peer.send(message{Do: "leave"}, nil)
	return errors.Join(err, closeAll(t.files), t.peer.conn.Close())
}

// GiveUp ends a handoff because of err. The old proxy continues to serve. It has no effect if t
// is nil, or after Prepared has failed, Serving or Leave.
func (t *Take) GiveUp(err error) {
	if t == nil {
		return
	}
	t.peer.sendError(err)
	_ = errors.Join(closeAll(t.files), t.peer.conn.Close())
}

// Stop asks the proxy at the control socket path to stop, and returns its pid when its work has
// ended. If the proxy was ending already, Stop asks again whether one listens there.
func Stop(ctx context.Context, path string) (pid int, err error) {
	if pid, err = stop(ctx, path); pid == 0 && errors.Is(err, ErrGone) {
		pid, err = stop(ctx, path)
	}
	return pid, err
}

func stop(ctx context.Context, path string) (pid int, err error) {
	conn, _, err := socket.Dial(ctx, path)
	if err != nil {
		return 0, fmt.Errorf("stop: %w", err)
	}
	defer func() { _ = conn.Close() }()
	running := &peer{conn: conn}
	if err := running.send(message{Do: "stop"}, nil); err != nil {
		return 0, fmt.Errorf("stop: %w", err)
	}
	m, err := running.receivePlain("stopping")
	if err != nil {
		return 0, fmt.Errorf("stop: %w", err)
	}
	// The proxy keeps the connection open until its work has ended.
	if _, err = running.receivePlain(); err != nil && !isEnd(err) {
		return m.PID, fmt.Errorf("stop: %w", err)
	}
	return m.PID, nil
}

// SignOut asks the proxy at the control socket path to sign out all browsers.
func SignOut(ctx context.Context, path string) error {
	conn, _, err := socket.Dial(ctx, path)
	if err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	defer func() { _ = conn.Close() }()
	running := &peer{conn: conn}
	if err := running.send(message{Do: "sign_out"}, nil); err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	if _, err := running.receivePlain("signed_out"); err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	return nil
}

func isEnd(err error) bool {
	var ne net.Error
	return !errors.As(err, &ne) || !ne.Timeout()
}
