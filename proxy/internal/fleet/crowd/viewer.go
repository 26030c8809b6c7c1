package crowd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

// A viewer is the connection of one client. It begins with a connection of its own to the host. When isPlain
// is set, it keeps that connection to its end, and up and down copy bytes.
type viewer struct {
	t     *Table
	visit Visit
	wake  chan struct{} // is signalled if down waits and must check the state
	ended chan struct{} // is closed when the connection has ended

	// Owned by up.
	hello    []byte
	hasAsked bool // the client has sent its attach

	// Owned by down.
	pos       protocol.Position
	size      protocol.Size // that the client knows; zero: unknown
	left      int           // bytes of a snapshot that have not arrived yet
	want      *wanted       // nil before the attachment exists
	isShown   bool          // the attachment exists
	crowd     *crowd
	notBefore time.Time // when the viewer may join its crowd

	mu       sync.Mutex
	asked    *wanted
	host     net.Conn // the own connection; nil while a crowd feeds the viewer
	next     net.Conn // the own connection that down is making, or nil
	isPlain  bool
	isEnded  bool
	detach   *api.Detach   // that down must answer
	ping     *api.Ping     // as detach
	returned chan struct{} // is closed when isPlain is set and host is not nil
	release  func()        // releases the slot of admit, or nil
}

// wanted is the request of a viewer. It is not changed.
type wanted struct {
	hello  []byte // the frame
	attach api.Attach
	key    key // without the instance
}

// end closes the connections of the viewer. It may be called several times.
func (v *viewer) end() {
	v.mu.Lock()
	conns, release, wasEnded := []net.Conn{v.visit.Client, v.host, v.next}, v.release, v.isEnded
	v.isEnded, v.release = true, nil
	v.mu.Unlock()
	if wasEnded {
		return
	}
	close(v.ended)
	for _, conn := range conns {
		if conn != nil {
			v.visit.Close(conn)
		}
	}
	if release != nil {
		release()
	}
}

// up passes the frames of the client on to the host, until it is clear that the connection is not only that of a
// read-only viewer. From then on it copies bytes.
func (v *viewer) up() {
	frames := frame.NewReader(v.visit.FromClient, frame.MaxHello)
	for {
		raw, err := frames.NextRaw()
		if err == nil && v.pass(raw) {
			continue
		}
		if err != nil && protocol.CodeOf(err) == protocol.CodeInternal { // the connection has ended; any other error is an invalid frame, which the host answers
			return
		}
		if host := v.keepOwn(); host != nil {
			_, err := host.Write(append(bytes.Clone(raw), frames.Buffered()...))
			if err == nil {
				_, _ = io.Copy(host, v.visit.FromClient) // the end of a connection is no error
			}
		}
		return
	}
}

// pass handles a frame of the client. It returns false if the connection must be copied, beginning with this
// frame.
func (v *viewer) pass(raw []byte) bool {
	m := decode(raw)
	if !v.hasAsked {
		return v.passFirst(raw, m)
	}
	switch m := m.(type) {
	case *api.Resize: // without effect on a read-only attachment without its own view
		return m.Attachment != nil && m.RequestID == "" && v.passOwn(raw)
	case *api.Appearance:
		return m.RequestID == "" && v.passOwn(raw)
	case *api.Detach:
		return v.askDetach(m)
	case *api.Ping:
		return v.askPing(m) || v.passOwn(raw)
	}
	return false
}

// passFirst handles the first two frames of the client: hello and attach.
func (v *viewer) passFirst(raw []byte, m protocol.Message) bool {
	switch m := m.(type) {
	case *api.Hello:
		if v.hello != nil || len(raw) > maxHello {
			return false
		}
		v.hello = bytes.Clone(raw)
		return v.passOwn(raw)
	case *api.Attach:
		if v.hello == nil || !isShareable(m) {
			return false
		}
		v.hasAsked = true
		hello, _ := decode(v.hello).(*api.Hello)
		w := &wanted{v.hello, *m, key{host: v.visit.Name, number: m.Attachment, hasTerminalExit: hello.Capabilities.Has(protocol.CapTerminalExit)}}
		if look := m.Appearance; look != nil {
			w.key.look, w.key.isTerminal = protocol.Appearance{CellWidth: look.CellWidth, CellHeight: look.CellHeight, Pictures: look.Pictures}, true
		}
		w.attach.RequestID = ""
		v.mu.Lock()
		v.asked = w
		v.mu.Unlock()
		return !v.enter(w) || v.passOwn(raw)
	}
	return false
}

// isShareable reports whether an attachment receives the same frames as others of its session.
func isShareable(m *api.Attach) bool {
	return m.Validate() == nil && m.Mode == protocol.ModeReadOnly && (m.View == "" || m.View == protocol.ViewRaw) && !m.Text && !m.Mask && !m.Typed && !m.Pace
}

// enter waits until the viewer may attach by a connection of its own. It returns false if the viewer has
// ended.
func (v *viewer) enter(w *wanted) bool {
	release, ok := v.t.admit(place{w.key.host, w.attach.SessionID}, v.ended)
	v.mu.Lock()
	isEnded := v.isEnded
	if ok && !isEnded {
		v.release = release
	}
	v.mu.Unlock()
	if isEnded {
		release()
	}
	return ok && !isEnded
}

// passOwn writes a frame to the own connection, if the viewer has one. If that fails, the viewer ends.
func (v *viewer) passOwn(raw []byte) bool {
	v.mu.Lock()
	host := v.host
	v.mu.Unlock()
	if host != nil {
		_, _ = host.Write(raw) // down notices that the connection has ended, or has joined a crowd meanwhile
	}
	return true
}

// askDetach lets down answer a detach. It returns false if the viewer has a connection of its own.
func (v *viewer) askDetach(m *api.Detach) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.host != nil || v.detach != nil || m.Attachment != v.asked.key.number {
		return false
	}
	v.detach = m
	signal(v.wake)
	return true
}

// askPing lets down answer a ping. It returns false if the viewer has a connection of its own, whose host answers.
func (v *viewer) askPing(m *api.Ping) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.host != nil {
		return false
	}
	v.ping = m
	signal(v.wake)
	return true
}

// keepOwn makes the viewer plain. It returns the own connection, if necessary after down has made a new one, or
// nil if the viewer has ended.
func (v *viewer) keepOwn() net.Conn {
	v.mu.Lock()
	v.isPlain = true
	host := v.host
	v.mu.Unlock()
	if host != nil {
		return host
	}
	signal(v.wake)
	select {
	case <-v.returned:
	case <-v.ended:
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.host
}

// down writes the frames of the host or of a crowd to the client until the connection ends.
func (v *viewer) down() {
	host, frames := v.visit.Host, frame.NewReader(v.visit.Host, frame.Max)
	for {
		at, first, isJoined := v.own(host, frames)
		if !isJoined || !v.shared(at, first) {
			return
		}
		var err error
		if host, frames, err = v.comeBack(); err != nil {
			v.t.log.Debug().Err(err).Str("host", v.visit.Name).Msg("viewer not returned to a connection of its own")
			return // the client connects again
		}
	}
}

// own writes the frames of the own connection to the client until the viewer joins a crowd, or has ended.
func (v *viewer) own(host net.Conn, frames *frame.Reader) (at cursor, first []byte, isJoined bool) {
	for {
		raw, err := frames.NextRaw()
		isPoke := errors.Is(err, os.ErrDeadlineExceeded)
		isOdd := err != nil && protocol.CodeOf(err) != protocol.CodeInternal
		if err != nil && !isPoke && !isOdd {
			return at, nil, false
		}
		if isOdd || raw != nil && !v.note(raw) {
			v.keepOwn()
		}
		if v.isCopied(host) {
			_, err := v.visit.ToClient.Write(append(bytes.Clone(raw), frames.Buffered()...))
			if err == nil {
				_, _ = io.Copy(v.visit.ToClient, host) // the end of a connection is no error
			}
			return at, nil, false
		}
		if raw != nil {
			if _, err := v.visit.ToClient.Write(raw); err != nil {
				return at, nil, false
			}
		}
		if at, first, isJoined = v.join(host, frames); isJoined {
			return at, first, true
		}
	}
}

// isCopied reports whether the viewer is plain. It cancels the deadline of poke.
func (v *viewer) isCopied(host net.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = host.SetReadDeadline(time.Time{}) // if it fails, reading fails, too
	return v.isPlain
}

// poke lets down check whether the viewer can join its crowd, although the host sends nothing.
func (v *viewer) poke() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.host != nil && !v.isPlain {
		_ = v.host.SetReadDeadline(time.Unix(1, 0)) // if it fails, the next frame has the same effect
	}
}

// note records the effect of a frame on the position of the viewer. It returns false if the viewer can be in no
// crowd any more.
func (v *viewer) note(raw []byte) bool {
	switch frame.Kind(raw[4]) {
	case frame.Output:
		_, offset, data, err := frame.ParseData(raw[frame.HeaderLen:])
		if err != nil {
			return false
		}
		v.pos.Output(offset, len(data))
	case frame.Snapshot:
		_, _, data, err := frame.ParseData(raw[frame.HeaderLen:])
		if err != nil {
			return false
		}
		v.left = v.pos.Snapshot(len(data))
	case frame.View:
		return false
	case frame.Control:
		switch m := decode(raw).(type) {
		case *api.Attached:
			v.mu.Lock()
			v.want = v.asked
			v.mu.Unlock()
			if v.want == nil || m.Attachment != v.want.key.number || m.View {
				return false
			}
			v.show(m, v.want.attach.AttachSpec.Resume)
		case *api.Resync:
			v.pos.Resync(m.Offset, m.BytesMissed, m.SnapshotBytes, m.View)
			v.left = m.SnapshotBytes
		case *api.Resized:
			v.size = protocol.Size{Cols: m.Cols, Rows: m.Rows}
		case *api.PTYExited, *api.TerminalExit, *api.Stolen, *api.Error, *api.Goaway, *api.Detached:
			return false
		}
	}
	return true
}

// show records the answer to an attach, and adds the viewer to a crowd.
func (v *viewer) show(m *api.Attached, resume *protocol.Resume) {
	v.pos.Attached(m.AttachInfo, resume)
	v.left, v.isShown, v.size = m.SnapshotBytes, true, protocol.Size{}
	if resume == nil {
		v.size = m.Session.Size // otherwise resized tells it
	}
	w := *v.want
	w.attach.Writer = m.Writer
	w.key.session, w.key.instance = m.Session.ID, m.Session.Instance
	v.want = &w
	v.enlist()
}

// enlist adds the viewer to the crowd of its key, unless it is in one that exists.
func (v *viewer) enlist() {
	if v.crowd != nil && v.crowd.isOpen() {
		return
	}
	if v.crowd == nil || v.crowd.key != v.want.key || v.crowd.hasEnded() {
		v.quit()
	}
	v.crowd = v.t.enlist(v, v.want.key)
}

// quit removes the viewer from its crowd.
func (v *viewer) quit() {
	if v.crowd != nil {
		v.t.quit(v, v.crowd)
		v.crowd = nil
	}
}

// join lets the crowd feed the viewer, if the viewer has caught up with it.
func (v *viewer) join(host net.Conn, frames *frame.Reader) (at cursor, first []byte, isJoined bool) {
	if !v.isShown || v.left > 0 || time.Now().Before(v.notBefore) {
		return at, nil, false
	}
	var late <-chan time.Time
	for {
		v.enlist()
		if v.crowd == nil {
			return at, nil, false
		}
		result := notJoined
		at, first, result = v.crowd.join(v.pos.Offset(), v.size, v.wake)
		switch result {
		case notJoined:
			return at, nil, false
		case joined:
			return at, first, v.leaveOwn(host, frames)
		}
		if late == nil {
			timer := time.NewTimer(waitLimit)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-v.wake: // of the crowd, of keepOwn, which leaveOwn notices, or of the end
		case <-v.ended:
			return at, nil, false
		case <-late: // the shared connection is slower than the own one
			v.notBefore = time.Now().Add(slowPause)
			return at, nil, false
		}
	}
}

// leaveOwn detaches the viewer from the host, unless it is plain. The frames that its own connection has not
// delivered come from the crowd.
func (v *viewer) leaveOwn(host net.Conn, frames *frame.Reader) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isPlain || v.isEnded {
		return false
	}
	v.host = nil
	release := v.release
	v.release = nil
	v.t.wg.Go(func() {
		defer func() {
			v.visit.Close(host)
			if release != nil {
				release()
			}
		}()
		_ = host.SetDeadline(time.Now().Add(detachLimit))
		if send(host, api.Detach{Attachment: v.asked.key.number}) != nil {
			return
		}
		for { // the frames that the client has sent before take effect before the detach
			raw, err := frames.NextRaw()
			if _, isDetached := decode(raw).(*api.Detached); err != nil || isDetached {
				return
			}
		}
	})
	return true
}

// shared writes the frames of the crowd to the client. It returns true if the viewer needs a connection of its
// own again, and false if the viewer has ended.
func (v *viewer) shared(at cursor, first []byte) bool {
	v.t.viewers.Add(1)
	defer v.t.viewers.Add(-1)
	if len(first) > 0 && (!v.feed(first) || !v.note(first)) {
		return false
	}
	for {
		v.mu.Lock()
		isPlain, detach, ping := v.isPlain, v.detach, v.ping
		if !isPlain {
			v.detach = nil // it is answered here, also after the end of the session
		}
		v.ping = nil
		v.mu.Unlock()
		if ping != nil && send(v.visit.ToClient, api.OK{Request: ping.Request}) != nil {
			return false
		}
		if isPlain {
			return true
		}
		if detach != nil {
			v.isShown = false
			if send(v.visit.ToClient, api.Detached{Request: detach.Request, Attachment: detach.Attachment}) != nil {
				return false
			}
		}
		result := mustWait
		if v.isShown {
			var frames []byte
			var pos protocol.Position
			frames, pos, result = v.crowd.next(&at, v.wake)
			if result == hasFrames && !v.feed(frames) {
				return false
			}
			if result == hasFrames {
				v.pos = pos
			}
		}
		switch result {
		case isExited:
			v.isShown = false
		case isBehind:
			v.t.slow.Add(1)
			v.notBefore = time.Now().Add(slowPause)
			return true
		case isLost:
			return true
		case mustWait:
			select {
			case <-v.wake:
			case <-v.ended:
				return false
			}
		}
	}
}

func (v *viewer) feed(frames []byte) bool {
	n, err := v.visit.ToClient.Write(frames)
	v.t.sent.Add(uint64(n))
	return err == nil
}

// comeBack makes a new own connection, and attaches there at the position of the viewer.
func (v *viewer) comeBack() (host net.Conn, frames *frame.Reader, err error) {
	w := v.want
	if v.isShown && !v.enter(w) {
		return nil, nil, errEnded
	}
	if host, err = v.visit.Dial(); err != nil {
		return nil, nil, err
	}
	made := host // a return with an error sets host to nil
	defer func() {
		if err != nil {
			v.visit.Close(made)
		}
	}()
	v.mu.Lock()
	v.next = host // so that end closes it
	isEnded := v.isEnded
	v.mu.Unlock()
	if isEnded {
		return nil, nil, errEnded
	}
	var spec *protocol.AttachSpec
	if v.isShown {
		s := v.pos.Resume(w.attach.AttachSpec, false)
		spec = &s
	}
	frames, m, err := attach(host, w.hello, w.key.number, spec)
	if err != nil {
		return nil, nil, err
	}
	if m != nil {
		if m.Replay == protocol.ReplaySnapshot {
			err = send(v.visit.ToClient, api.Resync{
				Attachment: w.key.number, Offset: m.Offset, BytesMissed: m.BytesMissed, SnapshotBytes: m.SnapshotBytes, ScreenOnly: spec.ScreenOnly,
			})
			if err != nil {
				return nil, nil, err
			}
		}
		v.show(m, spec.Resume)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isEnded {
		return nil, nil, errEnded
	}
	v.host, v.next = host, nil
	if v.isPlain {
		close(v.returned)
	}
	if v.detach != nil { // it came after the viewer had left the crowd
		detach := *v.detach
		v.detach = nil
		return host, frames, send(host, detach)
	}
	return host, frames, nil
}

var errEnded = errors.New("the connection of the client has ended")

// attach sends hello and, if spec is not nil, an attach to a host, and returns its answer and the reader of the
// frames that follow.
func attach(host net.Conn, hello []byte, number uint32, spec *protocol.AttachSpec) (*frame.Reader, *api.Attached, error) {
	_ = host.SetDeadline(time.Now().Add(answerLimit)) // if it fails, reading fails, too
	frames := frame.NewReader(host, frame.Max)
	if _, err := host.Write(hello); err != nil {
		return nil, nil, err
	}
	if _, err := answer[*api.Welcome](frames); err != nil {
		return nil, nil, err
	}
	var attached *api.Attached
	if spec != nil {
		if err := send(host, api.Attach{Attachment: number, AttachSpec: *spec}); err != nil {
			return nil, nil, err
		}
		var err error
		if attached, err = answer[*api.Attached](frames); err != nil {
			return nil, nil, err
		}
	}
	return frames, attached, host.SetDeadline(time.Time{})
}

// answer returns the next message, which must be a T.
func answer[T protocol.Message](frames *frame.Reader) (m T, err error) {
	raw, err := frames.NextRaw()
	if err != nil {
		return m, err
	}
	got := decode(raw)
	if m, ok := got.(T); ok {
		return m, nil
	}
	if e, ok := got.(*api.Error); ok {
		return m, &e.Error
	}
	return m, fmt.Errorf("the host has sent a frame that is no %T", m)
}

// decode returns the message of a control frame, or nil if it is none that this program knows.
func decode(raw []byte) protocol.Message {
	if len(raw) < frame.HeaderLen || frame.Kind(raw[4]) != frame.Control {
		return nil
	}
	m, _, err := api.Messages.Decode(raw[frame.HeaderLen:])
	if err != nil {
		return nil
	}
	return m
}

func send(w io.Writer, m protocol.Message) error {
	b, err := protocol.Encode(m)
	if err == nil {
		_, err = w.Write(frame.Append(nil, frame.Control, b))
	}
	return err
}
