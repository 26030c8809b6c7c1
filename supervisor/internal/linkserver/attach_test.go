//go:build linux || darwin

package linkserver

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/session"
)

// A viewer receives the reply, the snapshot, the output and the exit in this order, and no message after it.
// demand: S6 S7
func TestOrder(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, `stty -echo -onlcr; seq 20000; echo READY; read; seq 20000; echo last; exit 3`)
	v := attach(t, r.link(t), 7, protocol.AttachSpec{SessionID: s.ID(), Client: "test"})
	if v.info.Replay != protocol.ReplaySnapshot || v.info.SnapshotBytes == 0 || v.info.Session.ID != s.ID() || v.info.Writer == "" {
		t.Errorf("attached with %+v", v.info)
	}
	for v.left > 0 {
		if m, err := v.next(t); m != nil || err != nil {
			t.Fatalf("%v, %v within the snapshot", m, err)
		}
	}
	if !strings.Contains(string(v.seen), "READY") {
		t.Errorf("the snapshot ends with %q", v.seen[max(0, len(v.seen)-20):])
	}
	v.seen = nil
	v.typeAt(t, 0, "\n")
	last, ok := v.end(t).(*wire.Exited)
	if !ok || last.Exit.ExitCode != 3 || last.SessionID != s.ID() || last.Instance != s.Instance() {
		t.Errorf("the last message is %+v", last)
	}
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintln(&want, i+1)
	}
	if got := string(v.seen); got != want.String()+"last\n" {
		t.Errorf("%d bytes of output arrived, want %d", len(got), want.Len()+5)
	}
}

// demand: S8
func TestResume(t *testing.T) {
	r := newRig(t, session.Config{RingBytes: 64 << 10}, "")
	s := r.session(t, cat)
	spec := protocol.AttachSpec{SessionID: s.ID(), Writer: "w"}
	gone := r.link(t)
	v := attach(t, gone, 1, spec)
	v.until(t, "READY")
	v.typeAt(t, 0, "one\n")
	v.until(t, "one\n")
	gone.Close()
	if _, err := s.Type("", 0, []byte("two\n")); err != nil { // no viewer is attached
		t.Fatal(err)
	}
	c := r.link(t)
	spec.Resume = &protocol.Resume{Instance: s.Instance(), Offset: v.pos}
	back := attach(t, c, 2, spec)
	if back.info.Replay != protocol.ReplayExact || back.info.Offset != v.pos || back.info.InputOffset != 4 {
		t.Errorf("resumed with %+v", back.info)
	}
	back.until(t, "two\n")
	if string(back.seen) != "two\n" {
		t.Errorf("seen %q", back.seen)
	}

	// The reply has the number of bytes that the ring has lost.
	var accepted uint64
	line := strings.Repeat("x", 1023) + "\n"
	for accepted < 256<<10 {
		n, err := s.Type("", 0, []byte(line))
		if err != nil && !session.Incomplete(err) {
			t.Fatal(err)
		}
		accepted += n
	}
	var pos uint64
	for pos < back.pos+accepted {
		m, err := back.next(t)
		if _, ok := m.(*wire.Resync); err != nil || m != nil && !ok {
			t.Fatalf("%v, %v", m, err)
		}
		pos = back.pos
		if pos >= 6+4+4+accepted {
			break
		}
	}
	old := attach(t, c, 3, spec)
	start := old.info.Session.RingStart
	if old.info.Replay != protocol.ReplaySnapshot || old.info.BytesMissed != start-v.pos {
		t.Errorf("resumed too late with %+v, want %d missed", old.info, start-v.pos)
	}
}

// demand: R7
func TestControl(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, `stty -echo -onlcr; trap 'echo INT' INT; echo READY; while :; do read -r -t 1 l && echo "got $l"; done`) // -t, because a signal may come just before read begins
	v := attach(t, r.link(t), 1, protocol.AttachSpec{SessionID: s.ID(), Cols: 90, Rows: 30})
	v.until(t, "READY")
	send := func(m protocol.Message) {
		t.Helper()
		testkit.Must(t, v.st.Send(m))
	}
	send(wire.Resize{Cols: 101})
	if m, ok := v.message(t).(*wire.Resized); !ok || *m != (wire.Resized{Cols: 101, Rows: 24}) {
		t.Errorf("received %+v", m)
	}
	send(wire.Interrupt{})
	v.until(t, "INT\n")
	v.typeAt(t, 0, "x\n")
	v.until(t, "got x\n")
	if m, ok := v.message(t).(*wire.Accepted); !ok || m.Offset != 2 {
		t.Errorf("received %+v", m)
	}
	send(wire.Detach{})
	if m := v.end(t); m != nil {
		t.Errorf("received %+v after the detach", m)
	}
	if info, err := s.Info(); err != nil || info.Attachments != 0 || info.State != protocol.StateRunning {
		t.Errorf("after detach: %+v, %v", info, err)
	}
}

// An invalid message of a viewer is answered by an error, and does not end the attachment.
func TestWrongInput(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, cat)
	c := r.link(t)
	v := attach(t, c, 1, protocol.AttachSpec{SessionID: s.ID()})
	v.until(t, "READY")
	raw := func(b []byte) {
		t.Helper()
		testkit.Must(t, v.st.SendRaw(b))
	}
	wantError := func(what string, code protocol.Code) *protocol.Error {
		t.Helper()
		m, ok := v.message(t).(*wire.Error)
		if !ok || m.Code != code {
			t.Fatalf("%s: received %+v, want %s", what, m, code)
		}
		return &m.Error
	}
	raw(frame.AppendData(nil, frame.Input, 2, 0, []byte("x")))
	wantError("another's number", protocol.CodeBadFrame)
	raw(frame.Append(nil, frame.Input, []byte("short")))
	wantError("a short frame", protocol.CodeBadFrame)
	raw(text("{{{"))
	wantError("no JSON", protocol.CodeBadFrame)
	raw(text(`{"type":"teleport"}`)) // a message of a later version is skipped
	raw(text(`{"type":"list"}`))     // a message that is out of place is skipped
	raw(frame.Append(nil, 77, []byte("?")))
	v.typeAt(t, ^uint64(0), "xy")
	wantError("an offset that overflows", protocol.CodeInvalidArgument)
	v.typeAt(t, 5, "late")
	if e := wantError("a gap", protocol.CodeInputGap); e.Offset == nil || *e.Offset != 0 || !e.Retryable {
		t.Errorf("a gap: %+v", e)
	}
	v.typeAt(t, 9, "later") // no second error, because the viewer knows of the gap
	v.typeAt(t, 0, "first")
	if m, ok := v.message(t).(*wire.Accepted); !ok || m.Offset != 5 {
		t.Errorf("received %+v", m)
	}
	v.typeAt(t, 7, "a gap again")
	wantError("a gap again", protocol.CodeInputGap)

	look := attach(t, c, 2, protocol.AttachSpec{SessionID: s.ID(), Mode: protocol.ModeReadOnly})
	for what, m := range map[string]func(){
		"typing":    func() { look.typeAt(t, 0, "x") },
		"interrupt": func() { _ = look.st.Send(wire.Interrupt{}) },
	} {
		m()
		if e, ok := look.message(t).(*wire.Error); !ok || e.Code != protocol.CodePermissionDenied {
			t.Errorf("%s of a read-only viewer: received %+v", what, e)
		}
	}
	_ = look.st.Send(wire.Resize{Cols: 10, Rows: 10}) // has no effect
	if info := call[*wire.Session](t, c, wire.Info{SessionID: s.ID()}); info.Session.Size.Cols != 80 {
		t.Errorf("the session's size is %v", info.Session.Size)
	}
}

// A frame that announces 4 GiB ends its stream, and no other stream.
func TestGiantFrame(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, cat)
	c := r.link(t)
	v := attach(t, c, 1, protocol.AttachSpec{SessionID: s.ID()})
	other := attach(t, c, 2, protocol.AttachSpec{SessionID: s.ID()})
	_ = v.st.SendRaw([]byte{255, 255, 255, 255, byte(frame.Input)})
	v.end(t)
	other.typeAt(t, 0, "alive\n")
	other.until(t, "alive\n")
}

// If the input queue is full, each attempt to send the next bytes is answered by an error. The attachment can send
// again when the child reads.
func TestInputFull(t *testing.T) {
	r := newRig(t, session.Config{InputBytes: 64 << 10}, "")
	wake := filepath.Join(t.TempDir(), "wake")
	testkit.Must(t, syscall.Mkfifo(wake, 0o600))
	s := r.session(t, fmt.Sprintf(`stty raw -echo; echo READY; cat %s; head -c 400000 | cksum; exec sleep 1000`, wake))
	v := attach(t, r.link(t), 1, protocol.AttachSpec{SessionID: s.ID()})
	v.until(t, "READY")
	input := strings.Repeat("0123456789", 40_000)
	full, at := 0, 0
	for full < 3 {
		v.typeAt(t, uint64(at), input[at:at+frame.MaxData])
		switch m := v.message(t).(type) {
		case *wire.Accepted:
			at = int(m.Offset)
		case *wire.Error:
			if m.Code != protocol.CodeInputFull || m.Offset == nil || *m.Offset < uint64(at) || !m.Retryable {
				t.Fatalf("received %+v", m)
			}
			at, full = int(*m.Offset), full+1
		}
	}
	if _, err := s.Info(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wake, nil, 0); err != nil { // returns when the child has opened the pipe
		t.Fatal(err)
	}
	for at < len(input) {
		v.typeAt(t, uint64(at), input[at:min(len(input), at+frame.MaxData)])
		switch m := v.message(t).(type) {
		case *wire.Accepted:
			at = int(m.Offset)
		case *wire.Error:
			at = int(*m.Offset)
		}
	}
	v.until(t, " 400000")
}

// The last message to an evicted viewer tells that it was evicted, even if it sends more input.
// demand: R5
func TestStolen(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, "stty raw -echo; echo READY; exec cat") // raw, because a line of dots might be too long for the terminal
	for i := range 20 {
		first := attach(t, r.link(t), 1, protocol.AttachSpec{SessionID: s.ID(), Mode: protocol.ModeExclusive, Steal: true, Client: "victim"})
		typing := make(chan struct{})
		go func() {
			defer close(typing)
			for at := uint64(0); first.st.SendRaw(frame.AppendData(nil, frame.Input, 1, at, []byte("."))) == nil; at++ {
			}
		}()
		thief := attach(t, r.link(t), 1, protocol.AttachSpec{SessionID: s.ID(), Mode: protocol.ModeExclusive, Steal: true, Client: "thief"})
		for {
			m := first.message(t)
			if e, ok := m.(*wire.Error); ok {
				t.Fatalf("round %d: received %v", i, e.Error)
			}
			if _, ok := m.(*wire.Accepted); ok {
				continue
			}
			if st, ok := m.(*wire.Stolen); !ok || st.StolenBy != "thief" {
				t.Fatalf("round %d: received %+v", i, m)
			}
			break
		}
		if m := first.end(t); m != nil {
			t.Errorf("received %+v after the end", m)
		}
		first.st.Abort()
		<-typing
		thief.typeAt(t, 0, "mine\n")
		thief.until(t, "mine\n")
		thief.st.Abort()
	}
}

// Two proxies serve at once, as in a handoff. When one ends, only its own attachments end.
// demand: S9
func TestTwoProxies(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s, other := r.session(t, cat), r.session(t, cat)
	a, b := r.link(t), r.link(t)
	for i := range uint32(5) {
		attach(t, a, i, protocol.AttachSpec{SessionID: s.ID()})
		attach(t, a, 10+i, protocol.AttachSpec{SessionID: other.ID()})
	}
	v := attach(t, b, 1, protocol.AttachSpec{SessionID: s.ID()})
	st, _, err := b.Open(testkit.Soon(t), wire.Events{})
	testkit.Must(t, err)
	defer st.Abort()
	if info, err := s.Info(); err != nil || info.Attachments != 6 {
		t.Fatalf("%+v, %v", info, err)
	}
	a.Close()
	left := map[protocol.SessionID]int{s.ID(): 6, other.ID(): 5}
	for left[s.ID()] > 1 || left[other.ID()] > 0 {
		if e := event(t, st); e.Event == protocol.EventDetached {
			left[e.Session.ID] = e.Session.Attachments
		}
	}
	v.typeAt(t, 0, "alive\n")
	v.until(t, "alive\n")
	for _, s := range []*session.Session{s, other} {
		if info, err := s.Info(); err != nil || info.State != protocol.StateRunning {
			t.Errorf("%+v, %v", info, err)
		}
	}
}

// A viewer that does not read delays no other viewer. When it reads again, it learns how many bytes it missed.
// demand: R6
func TestSlowViewer(t *testing.T) {
	r := newRig(t, session.Config{RingBytes: 64 << 10}, "")
	s := r.session(t, `stty -echo -onlcr; echo READY; read; seq 300000; echo DONE; exec sleep 1000`)
	c := r.link(t)
	slow := attach(t, c, 1, protocol.AttachSpec{SessionID: s.ID()})
	fast := attach(t, c, 2, protocol.AttachSpec{SessionID: s.ID()})
	fast.typeAt(t, 0, "\n")
	fast.until(t, "DONE")
	var missed uint64
	for slow.left > 0 || slow.pos < fast.pos {
		m, err := slow.next(t)
		testkit.Must(t, err)
		if m, ok := m.(*wire.Resync); ok {
			missed += m.BytesMissed
		}
	}
	if seen := string(slow.seen); missed == 0 || slow.pos != fast.pos || !strings.Contains(seen, "DONE") {
		t.Errorf("%d missed, read up to %d of %d, DONE received %v", missed, slow.pos, fast.pos, strings.Contains(seen, "DONE"))
	}
}

// A stream that an attachment's viewer closes without a message detaches it.
func TestClosedStream(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, cat)
	v := attach(t, r.link(t), 1, protocol.AttachSpec{SessionID: s.ID()})
	testkit.Must(t, v.st.Close())
	_ = v.st.SetDeadline(time.Now().Add(patience))
	if m := v.end(t); m != nil {
		t.Errorf("received %+v", m)
	}
	if _, err := v.st.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// A viewer that leaves before a busy session has answered its request gets no attachment, and the supervisor keeps nothing of the request.
func TestLeavesBeforeAttached(t *testing.T) {
	var isBusy atomic.Bool
	begun, release := make(chan struct{}), make(chan struct{})
	r := newRig(t, session.Config{Now: func() time.Time {
		if isBusy.CompareAndSwap(true, false) {
			close(begun)
			<-release
		}
		return time.Now()
	}}, "")
	s := r.session(t, cat)
	before := r.table.Events().Seq()
	isBusy.Store(true)
	typed := make(chan error, 1)
	go func() { _, err := s.Type("", 0, []byte("x")); typed <- err }()
	testkit.Within(t, patience, "the session is busy", begun)

	ask, err := protocol.Encode(wire.Attach{Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: s.ID()}})
	testkit.Must(t, err)
	st := newRogue(t, r).stream(t, frame.Append(nil, frame.Control, ask))
	testkit.Must(t, st.Close())
	if m, err := hear(st); err != io.EOF {
		t.Errorf("heard %+v, %v, want the end", m, err)
	}
	close(release)
	testkit.Must(t, testkit.Within(t, patience, "the session has accepted input", typed))
	if i := call[*wire.Session](t, r.link(t), wire.Info{SessionID: s.ID()}).Session; i.Attachments != 0 || r.table.Events().Seq() != before {
		t.Errorf("%d attachments and %d events, want none", i.Attachments, r.table.Events().Seq()-before)
	}
}

// A shadow receives the output, and neither events nor lists show it. A request for a shadow that may write is
// refused.
func TestShadow(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, cat)
	c := r.link(t)
	before := r.table.Events().Seq()
	ask := wire.Attach{Attachment: 3, AttachSpec: protocol.AttachSpec{SessionID: s.ID()}, Shadow: true}
	_, _, err := c.Open(testkit.Soon(t), ask)
	wantCode(t, "a shadow that types", err, protocol.CodeInvalidArgument)
	ask.Mode = protocol.ModeReadOnly
	st, reply, err := c.Open(testkit.Soon(t), ask)
	testkit.Must(t, err)
	info := reply.(*wire.Attached).AttachInfo
	v := &view{st: st, info: info, number: 3, left: info.SnapshotBytes, pos: info.Offset}
	v.until(t, "READY")
	if _, err := s.Type("", 0, []byte("on\n")); err != nil {
		t.Fatal(err)
	}
	v.until(t, "on\n")
	if i := call[*wire.Session](t, c, wire.Info{SessionID: s.ID()}).Session; i.Attachments != 0 {
		t.Errorf("%d viewers, want none", i.Attachments)
	}
	testkit.Must(t, st.Send(wire.Detach{}))
	if m := v.end(t); m != nil {
		t.Errorf("received %+v after the detach", m)
	}
	if after := r.table.Events().Seq(); after != before {
		t.Errorf("%d events, want none", after-before)
	}
}
