package client

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// demand: R4
func TestAttachFields(t *testing.T) {
	f, c, _ := dialed(t)
	resume := &protocol.Resume{Instance: "i", Offset: 9}
	a, _, m := attached(t, f, c, AttachOptions{
		Rows: 40, Cols: 100, Mode: protocol.ModeExclusive, Steal: true, Term: "xterm", IsTTY: true,
		History: new(5), Answers: true, Writer: "me", Resume: resume, Snapshot: true,
		View: protocol.ViewOwn, Pace: true, Appearance: &protocol.Appearance{CellWidth: 9},
		Env: []string{"A=1"}, Typed: true,
	}, exact(9))
	if m.Attempt == 0 {
		t.Error("the attempt has no number")
	}
	m.Attempt = 0
	equal(t, "attach", *m, api.Attach{Request: m.Request, Attachment: number, AttachSpec: protocol.AttachSpec{
		SessionID: "s", Rows: 40, Cols: 100, Mode: protocol.ModeExclusive, Steal: true, Term: "xterm", IsTTY: true,
		History: new(5), Answers: true, Writer: "me", Resume: resume, Snapshot: true, Client: "tester",
		View: protocol.ViewOwn, Pace: true, Appearance: &protocol.Appearance{CellWidth: 9},
		Env: []string{"A=1"}, Typed: true,
	}})
	equal(t, "info", a.Info(), exact(9))
	equal(t, "writer", a.Writer(), "me")
	equal(t, "position", a.Position(), *resume)
}

// An attachment takes over the client's connection, unless a call waits for an answer on it. The next call connects again.
func TestTakeOver(t *testing.T) {
	f, c, p := dialed(t)
	ctx, giveUp := context.WithCancel(t.Context())
	call := func(ctx context.Context) func() error {
		return startErr(t, func() error { _, err := c.SessionInfo(ctx, "s"); return err })
	}
	wait := call(ctx)
	asked := want[*api.Info](p)
	other, q, _ := attached(t, f, c, AttachOptions{TakeOver: true}, exact(0)) // has a connection of its own
	giveUp()
	wantErr(t, "given up", wait(), context.Canceled)

	attach := start(t, func() (*Attachment, error) { return c.Attach(t.Context(), "s", AttachOptions{TakeOver: true}) })
	m := want[*api.Attach](p)
	p.answer(asked, &api.Session{Session: session}) // late
	p.answer(m, &api.Attached{Attachment: number, AttachInfo: exact(0)})
	p.output(frame.Output, 0, "over the client's connection")
	q.output(frame.Output, 0, "over another one")
	a, err := attach()
	testkit.Must(t, err)
	t.Cleanup(func() { _ = p.Close(); _ = a.Detach() })
	equal(t, "read", readFull(t, a, 28), "over the client's connection")
	equal(t, "read", readFull(t, other, 16), "over another one")

	wait = call(t.Context())
	r := f.accept()
	r.answer(want[*api.Info](r), &api.Session{Session: session})
	if err := wait(); err != nil {
		t.Error(err)
	}
	if n := len(f.peers); n != 0 {
		t.Errorf("%d connections are unused", n)
	}
}

// demand: R5
func TestAttachRefused(t *testing.T) {
	f, c, _ := dialed(t)
	wait := start(t, func() (*Attachment, error) {
		return c.Attach(t.Context(), "s", AttachOptions{Mode: protocol.ModeExclusive})
	})
	p := f.accept()
	p.answer(want[*api.Attach](p), &api.Error{Error: *protocol.ErrAlreadyAttached})
	_, err := wait()
	wantErr(t, "attach", err, protocol.ErrAlreadyAttached)
}

// demand: R5
func TestStolen(t *testing.T) {
	_, a, p := view(t)
	p.output(frame.Output, 0, "abc")
	p.send(api.Stolen{Attachment: number, StolenBy: "thief"})
	b, err := start(t, func() ([]byte, error) { return io.ReadAll(a) })()
	equal(t, "read before", string(b), "abc")
	wantErr(t, "read", err, ErrStolen)
	if _, err := a.Receive(0); !errors.Is(err, io.EOF) {
		t.Errorf("receive after the end: got %v, want EOF", err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) || !errors.Is(err, ErrStolen) {
		t.Errorf("write: got %v, want closed pipe", err)
	}

	_, a, p = view(t)
	p.send(api.Stolen{Attachment: number, StolenBy: "thief"})
	equal(t, "message", *receive(t, a), Message{Kind: Stolen, By: "thief"})
}

// demand: R6
func TestMissed(t *testing.T) {
	f, c, _ := dialed(t)
	info := exact(100)
	info.Replay, info.SnapshotBytes, info.BytesMissed = protocol.ReplaySnapshot, 4, 30
	a, p, _ := attached(t, f, c, AttachOptions{}, info)
	equal(t, "at first", a.Missed(), uint64(30))
	p.output(frame.Snapshot, 100, "snap")
	p.output(frame.Output, 100, "out")
	equal(t, "read", readFull(t, a, 7), "snapout")
	p.send(api.Resync{Attachment: number, Offset: 500, BytesMissed: 12, SnapshotBytes: 4})
	p.output(frame.Snapshot, 500, "pans")
	equal(t, "message", *receive(t, a), Message{Kind: Missed, Offset: 500, Missed: 12})
	equal(t, "after resync", a.Missed(), uint64(42))
	equal(t, "read", readFull(t, a, 4), "pans")

	// A resume at an offset that the ring has lost.
	_ = p.Close()
	p = f.accept()
	m := want[*api.Attach](p)
	equal(t, "resume", *m.Resume, protocol.Resume{Instance: "i", Offset: 500})
	info.Offset, info.BytesMissed, info.SnapshotBytes = 900, 5, 0
	p.answer(m, &api.Attached{Attachment: number, AttachInfo: info})
	p.output(frame.Output, 900, "on")
	equal(t, "message", *receive(t, a), Message{Kind: Missed, Offset: 900, Missed: 5})
	equal(t, "read", readFull(t, a, 2), "on")
	equal(t, "in the end", a.Missed(), uint64(47))
}

// Each kind of message arrives as a message of that kind.
// demand: R7
func TestMessages(t *testing.T) {
	_, a, p := view(t)
	p.output(frame.Snapshot, 5, "snap")
	p.output(frame.Output, 5, "out")
	_ = p.write(frame.Append(nil, 77, []byte("a kind of tomorrow")))
	_ = p.write(frame.Append(nil, frame.Control, []byte(`{"type":"tomorrow"}`)))
	exit := api.PTYExited{SessionID: "s", PaneID: "s", ExitCode: 3, LastLines: []string{"bye"}}
	p.send(api.Resync{Attachment: number, Offset: 9, BytesMissed: 1}, api.Resized{Attachment: number, Cols: 90, Rows: 30}, exit)
	for _, want := range []Message{
		{Kind: Snapshot, Offset: 5, Data: []byte("snap")},
		{Kind: Output, Offset: 5, Data: []byte("out")},
		{Kind: Missed, Offset: 9, Missed: 1},
		{Kind: Resized, Size: protocol.Size{Cols: 90, Rows: 30}},
		{Kind: Exited, Exit: &exit},
	} {
		equal(t, "message", *receive(t, a), want)
	}
	if _, err := a.Receive(patience); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: got %v, want EOF", err)
	}
}

// Any error about an attachment ends it.
// demand: R7
func TestAttachmentFails(t *testing.T) {
	n := uint32(number)
	for _, code := range []protocol.Code{protocol.CodeInternal, protocol.CodeInstanceMismatch, protocol.CodeSessionNotFound} {
		t.Run(string(code), func(t *testing.T) {
			_, a, p := view(t)
			p.output(frame.Output, 0, "abc")
			p.send(api.Error{Attachment: &n, Error: protocol.Error{Code: code}})
			b, err := start(t, func() ([]byte, error) { return io.ReadAll(a) })()
			equal(t, "read before", string(b), "abc")
			wantErr(t, "read", err, &protocol.Error{Code: code})
		})
	}
	t.Run("session_exited has the exit record", func(t *testing.T) {
		_, a, p := view(t)
		p.send(api.Error{Attachment: &n, Error: protocol.Error{Code: protocol.CodeSessionExited, Exit: &protocol.ExitRecord{ExitCode: 6}}})
		if m := receive(t, a); m.Kind != Exited || m.Exit.ExitCode != 6 {
			t.Errorf("got %+v", m)
		}
	})
	t.Run("no frame", func(t *testing.T) {
		_, a, p := view(t)
		_ = p.write(make([]byte, 4))
		if m := receive(t, a); m.Kind != Failed || !errors.Is(m.Err, ErrDecode) {
			t.Errorf("got %+v", m)
		}
	})
}

// demand: R7
func TestWhatTheClientSends(t *testing.T) {
	f, c, requests := dialed(t)
	a, p, _ := attached(t, f, c, AttachOptions{}, exact(0))
	if n, err := a.Write([]byte("ls\n")); n != 3 || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
	p.wantInput(0, "ls\n")
	testkit.Must(t, a.Resize(120, 50))
	m := want[*api.Resize](p)
	if m.Attachment == nil || *m.Attachment != number || m.Cols != 120 || m.Rows != 50 {
		t.Errorf("got %+v", m)
	}
	wait := startErr(t, func() error { return a.Interrupt(t.Context()) })
	i := want[*api.Interrupt](requests)
	equal(t, "interrupt", i.SessionID, protocol.SessionID("s"))
	requests.answer(i, &api.OK{})
	if err := wait(); err != nil {
		t.Error(err)
	}
	if a.Stalled() <= 0 {
		t.Error("Stalled reports no time, although input is not acknowledged")
	}
	flushed := startErr(t, func() error { return a.Flush(t.Context()) })
	n := uint32(number)
	p.send(api.Accepted{Attachment: &n, Offset: 3})
	if err := flushed(); err != nil {
		t.Error(err)
	}
	if stalled := a.Stalled(); stalled != 0 {
		t.Errorf("all input is acknowledged, and Stalled reports %v", stalled)
	}
	readOnly, _, _ := attached(t, f, c, AttachOptions{Mode: protocol.ModeReadOnly}, exact(0))
	if _, err := readOnly.Write([]byte("x")); protocol.CodeOf(err) != protocol.CodePermissionDenied {
		t.Errorf("write, read-only: got %v, want permission_denied", err)
	}
}

// If the session ends before it has accepted all input, Flush tells that.
func TestFlushCutOff(t *testing.T) {
	_, a, p := view(t)
	if _, err := a.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	flushed := startErr(t, func() error { return a.Flush(t.Context()) })
	p.wantInput(0, "x")
	p.send(api.PTYExited{SessionID: "s", ExitCode: 3})
	err := flushed()
	wantErr(t, "flush", err, protocol.ErrSessionExited)
	wantErr(t, "flush", err, io.ErrClosedPipe)
}

// demand: R2 R7
func TestDetach(t *testing.T) {
	_, a, p := view(t)
	if _, err := a.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := a.Detach(); err != nil {
				t.Error(err)
			}
		})
	}
	p.wantInput(0, "x") // sent before the detach
	want[*api.Detach](p)
	n := uint32(number)
	_ = p.write(p.control(api.Accepted{Attachment: &n, Offset: 1}))
	wg.Wait()
	if err := a.Detach(); err != nil {
		t.Error(err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: got %v, want EOF", err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write: got %v, want closed pipe", err)
	}
	if err := a.Resize(1, 1); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("resize: got %v, want closed pipe", err)
	}
}

// Input for which Write returns without an error is sent before the detach, and no input after it.
// demand: R2
func TestDetachDuringWrite(t *testing.T) {
	_, a, p := view(t)
	writing := make(chan struct{})
	wrote := start(t, func() (int, error) {
		for n := 0; ; n++ {
			if _, err := a.Write([]byte("x")); err != nil {
				return n, err
			}
			if n == 10 {
				close(writing)
			}
		}
	})
	<-writing
	detached := startErr(t, a.Detach)
	sent := 0
	for {
		kind, payload, err := p.r.Next()
		testkit.Must(t, err)
		if kind != frame.Input {
			break
		}
		_, _, data, err := frame.ParseData(payload)
		testkit.Must(t, err)
		sent += len(data)
	}
	if n, err := wrote(); n != sent || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%d bytes were written until %v, and %d were sent before the detach", n, err, sent)
	}
	_ = p.write(p.control(api.Detached{Attachment: number}))
	if err := detached(); err != nil {
		t.Error(err)
	}
	if kind, _, err := p.r.Next(); err == nil {
		t.Errorf("a frame of kind %d follows the detach", kind)
	}
}

// A proxy that reads nothing delays neither a Detach nor the return of a Write that waits for it.
// demand: R2
func TestDetachFromDeafProxy(t *testing.T) {
	_, a, _ := view(t)
	wrote := start(t, func() (int, error) { return a.Write(make([]byte, 2*inputWindow)) })
	for a.sendMu.TryLock() { // waits until the Write holds the lock
		a.sendMu.Unlock()
	}
	if err := startErr(t, a.Detach)(); err != nil {
		t.Error(err)
	}
	_, err := wrote()
	wantErr(t, "write", err, io.ErrClosedPipe)
}

// demand: R9
func TestReceiveTimeout(t *testing.T) {
	_, a, p := view(t)
	for _, timeout := range []time.Duration{0, 30 * time.Millisecond} {
		began := time.Now()
		_, err := a.Receive(timeout)
		wantErr(t, "no message", err, ErrTimeout)
		if took := time.Since(began); took < timeout || took > timeout+patience/4 {
			t.Errorf("Receive took %v, want %v", took, timeout)
		}
	}
	raw := frame.AppendData(nil, frame.Output, number, 0, []byte("whole"))
	for i := range raw { // sends one byte at a time, and lets a Receive time out after each
		testkit.Must(t, p.write(raw[i:i+1]))
		if i == len(raw)-1 {
			break
		}
		_, err := a.Receive(time.Microsecond)
		wantErr(t, "within a frame", err, ErrTimeout)
	}
	equal(t, "message", *receive(t, a), Message{Kind: Output, Data: []byte("whole")})
	got := start(t, func() (*Message, error) { return a.Receive(patience) }) // this Receive waits when the rest of the message arrives, and reads it itself
	p.output(frame.Output, 5, "!")
	if m, err := got(); err != nil || string(m.Data) != "!" {
		t.Errorf("got %+v, %v", m, err)
	}
}

// A proxy that floods fills the queue only up to its limit. The rest is read later.
// demand: R10
func TestFlood(t *testing.T) {
	queued := func(a *Attachment) int {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.queue) > 10_000 {
			t.Errorf("%d messages are queued", len(a.queue))
		}
		return a.queued
	}
	tests := []struct {
		name  string
		frame int // bytes in one frame
		n     int
	}{
		{name: "frames", frame: frame.MaxData, n: 200},
		{name: "single bytes", frame: 1, n: 30_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, a, p := view(t)
			data := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz!", tt.frame*tt.n/37+1)[:tt.frame*tt.n]
			sent := startErr(t, func() error {
				for at := 0; at < len(data); at += tt.frame {
					if err := p.write(frame.AppendData(nil, frame.Output, number, uint64(at), []byte(data[at:at+tt.frame]))); err != nil {
						return err
					}
				}
				return p.write(p.control(api.PTYExited{SessionID: "s"}))
			})
			for queued(a) < outputWindow { // waits until the queue is full
				<-a.notify
			}
			got, err := start(t, func() ([]byte, error) {
				var all []byte
				buf := make([]byte, 5000)
				for {
					n, err := a.Read(buf)
					all = append(all, buf[:n]...)
					if q := queued(a); q >= outputWindow+frame.MaxData+200 {
						t.Errorf("%d bytes are queued", q)
					}
					if err != nil {
						return all, err
					}
				}
			})()
			wantErr(t, "read", err, io.EOF)
			if string(got) != data {
				t.Errorf("read %d bytes, want the %d sent", len(got), len(data))
			}
			if err := sent(); err != nil {
				t.Error(err)
			}
		})
	}
}

// demand: B6
func TestExit(t *testing.T) {
	tests := []struct{ name, json string }{
		{name: "notice", json: `{"type":"pty_exited","session_id":"s","pane_id":"s","exit_code":7,"last_lines":[],"attachment":1,` +
			`"session_title":"","session_description":"","timed_out":false}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, a, p := view(t)
			p.output(frame.Output, 0, "bye")
			if a.Exit() != nil {
				t.Error("Exit is set before the end of the output")
			}
			_ = p.write(frame.Append(nil, frame.Control, []byte(tt.json)))
			b, err := start(t, func() ([]byte, error) { return io.ReadAll(a) })()
			if string(b) != "bye" || err != nil {
				t.Errorf("got %q, %v", b, err)
			}
			if e := a.Exit(); e == nil || e.ExitCode != 7 || e.SessionID != "s" || e.PaneID != "s" {
				t.Errorf("got exit %+v", e)
			}
			if _, err := a.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("write: got %v, want closed pipe", err)
			}
		})
	}
}

// If the proxy answers that an attach was superseded, the client attaches once more. Each attempt has a higher number
// than those before.
func TestAttempt(t *testing.T) {
	f, c, _ := dialed(t)
	done := make(chan error, 1)
	go func() {
		a, err := c.Attach(t.Context(), "s", AttachOptions{})
		if err == nil {
			t.Cleanup(func() { _ = a.Detach() })
		}
		done <- err
	}()
	p := f.accept()
	first := want[*api.Attach](p)
	n := uint32(number)
	p.send(api.Error{Request: first.Request, Attachment: &n, Error: protocol.Error{Code: protocol.CodeSuperseded}})
	second := want[*api.Attach](p)
	if first.Attempt == 0 || second.Attempt != 0 {
		t.Errorf("attempts %d and %d", first.Attempt, second.Attempt)
	}
	p.answer(second, &api.Attached{Attachment: number, AttachInfo: exact(0)})
	if err := <-done; err != nil {
		t.Error(err)
	}
	if a, b := attempt(), attempt(); a >= b || a <= first.Attempt {
		t.Errorf("attempts %d, %d, %d", first.Attempt, a, b)
	}
}

// Position is behind the output that was read, even within a message, and does not count queued output. A part of a
// snapshot does not move it.
func TestPosition(t *testing.T) {
	f, c, _ := dialed(t)
	info := exact(50)
	info.Replay, info.SnapshotBytes = protocol.ReplaySnapshot, 4
	a, p, _ := attached(t, f, c, AttachOptions{}, info)
	p.output(frame.Snapshot, 50, "snap")
	p.output(frame.Output, 50, "0123456789")
	p.send(api.Resync{Attachment: number, Offset: 500, BytesMissed: 440, SnapshotBytes: 6})
	p.output(frame.Snapshot, 500, "abc")
	p.output(frame.Snapshot, 500, "def")
	p.output(frame.Output, 500, "xyz")
	p.send(api.Resized{Attachment: number, Cols: 1, Rows: 1})
	for _, step := range []struct {
		read string
		want uint64
	}{
		{"sn", 0}, {"ap", 50}, {"012", 53}, {"3456789", 60}, {"ab", 60}, {"c", 60}, {"de", 60}, {"f", 500}, {"x", 501}, {"yz", 503},
	} {
		equal(t, "read", readFull(t, a, len(step.read)), step.read)
		equal(t, "position after "+step.read, a.Position(), protocol.Resume{Instance: "i", Offset: step.want})
	}
	if m := receive(t, a); m.Kind != Resized {
		t.Errorf("got %+v", m)
	}
	p.output(frame.Output, 503, "more")
	receive(t, a)
	equal(t, "position after Receive", a.Position().Offset, uint64(507))
}
