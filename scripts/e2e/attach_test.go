package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// demand: R2, R9
func TestDetach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	begun := time.Now()
	if m, err := v.Receive(50 * time.Millisecond); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("Receive returned %+v, %v, although the session printed nothing; want ErrTimeout", m, err)
	}
	if took := time.Since(begun); took < 50*time.Millisecond || took > limit/2 {
		t.Errorf("Receive timed out after %v, want 50ms", took)
	}
	v.say("typed right before\n")
	for range 3 {
		if err := v.Detach(); err != nil {
			t.Error(err)
		}
	}
	if _, err := v.Write([]byte("x")); err == nil {
		t.Error("Write succeeded after the detach")
	}
	info, err := c.SessionInfo(w.ctx(), "s")
	if err != nil || info.State != protocol.StateRunning {
		t.Errorf("after the detach the session is %+v, %v; want running", info, err)
	}
	w.attach(c, "s", client.AttachOptions{}).until("typed right before\n")
}

// Detach must return at once if the session has accepted all input before.
// demand: R2
func TestDetachAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.echo(c, "s")
	fastest := time.Hour
	for range 10 {
		v := w.attach(c, "s", client.AttachOptions{})
		v.ask("x\n")
		begun := time.Now()
		testkit.Must(t, v.Detach())
		fastest = min(fastest, time.Since(begun))
	}
	if fastest > 500*time.Millisecond {
		t.Errorf("the fastest of 10 detaches took %v", fastest)
	}
}

// demand: R5
func TestSteal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.dial(client.Options{Name: "one"})
	two := w.dial(client.Options{Name: "two"})
	w.spawn(one, "s", echoing)
	exclusive := client.AttachOptions{Mode: protocol.ModeExclusive}
	first := w.attach(one, "s", exclusive)
	first.until("ready\n")
	look := w.attach(two, "s", client.AttachOptions{Mode: protocol.ModeReadOnly}) // a read-only viewer conflicts with no other attachment
	look.until("ready\n")
	for _, o := range []client.AttachOptions{exclusive, {}} {
		if _, err := two.Attach(w.ctx(), "s", o); !errors.Is(err, protocol.ErrAlreadyAttached) || !strings.Contains(err.Error(), "one") {
			t.Errorf("attach beside an exclusive attachment: %v; want already_attached, with the name of its client", err)
		}
	}
	first.ask("mine\n")
	thief := w.attach(two, "s", client.AttachOptions{Mode: protocol.ModeExclusive, Steal: true})
	end := first.last()
	if end.Kind != client.Stolen || end.By != "two" {
		t.Errorf("the first attachment ended with %+v, want Stolen by two", end)
	}
	// The detached client's own cleanup must not affect the attachment that replaced it.
	if _, err := first.Write([]byte("x")); err == nil {
		t.Error("the stolen attachment can still write")
	}
	_ = first.Resize(10, 10)
	if err := first.Detach(); err != nil {
		t.Error(err)
	}
	_ = one.Close()
	thief.until("mine\n")
	thief.ask("now mine\n")
	look.until("now mine\n")
	if _, err := look.Write([]byte("x")); code(err) != protocol.CodePermissionDenied {
		t.Errorf("write of a read-only viewer: %v; want permission_denied", err)
	}
	info, err := two.SessionInfo(w.ctx(), "s")
	if err != nil || info.Attachments != 2 || info.Size != (protocol.Size{Cols: 80, Rows: 24}) {
		t.Errorf("%d attachments, size %v, %v; want 2 and 80x24", info.Attachments, info.Size, err)
	}
}

// demand: R6
func TestBacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_RING_BYTES=65536")
	c := w.dial(client.Options{})
	w.spawn(c, "s", shell("stty raw -echo; seq -w 1 50000; echo ready; exec cat"))
	testkit.Eventually(t, limit, func() bool {
		got, err := c.Screen(w.ctx(), "s", client.ScreenOptions{Lines: 1})
		return err == nil && len(got.Lines) == 1 && strings.TrimSpace(got.Lines[0]) == "ready"
	}, "the session has printed all lines")
	const printed = uint64(50000*6 + len("ready\n"))
	for range 3 { // reading the backlog does not drain it
		v := w.attachScreen(c, "s", client.AttachOptions{})
		info := v.Info()
		if info.Replay != protocol.ReplaySnapshot || info.Offset != printed || info.BytesMissed != 0 || info.SnapshotBytes == 0 {
			t.Fatalf("of %d bytes printed: %d missed, a snapshot of %d bytes at offset %d", printed, info.BytesMissed, info.SnapshotBytes, info.Offset)
		}
		if got := v.until("ready"); !strings.Contains(got, "49100") || !strings.Contains(got, "50000") {
			t.Errorf("the snapshot contains %q, want the lines 49100 to 50000", got)
		}
		// A client that resumes at an offset that the ring has lost receives a snapshot and the number of
		// bytes that it missed.
		late := w.attach(c, "s", client.AttachOptions{Resume: &protocol.Resume{Instance: info.Session.Instance, Offset: 5}})
		if i := late.Info(); i.Replay != protocol.ReplaySnapshot || i.BytesMissed != i.Session.RingStart-5 || late.Missed() != i.BytesMissed {
			t.Errorf("resume at a lost offset: replay %s, %d bytes missed; the ring starts at %d", i.Replay, i.BytesMissed, i.Session.RingStart)
		}
	}
	// A client that resumes at an offset in the ring receives exactly the bytes after this offset.
	v := w.attach(c, "s", client.AttachOptions{})
	v.until("ready\n")
	at := v.Position()
	_ = v.Detach()
	testkit.Must(t, c.Type(w.ctx(), "s", []byte("meanwhile\n")))
	v = w.attach(c, "s", client.AttachOptions{Resume: &at})
	if v.Info().Replay != protocol.ReplayExact || v.Info().Offset != at.Offset {
		t.Errorf("resume at %d: replay %s from %d, want exact", at.Offset, v.Info().Replay, v.Info().Offset)
	}
	if got := v.until("meanwhile\n"); got != "" {
		t.Errorf("%q came before the missed bytes", got)
	}
}

// demand: R7
func TestInterrupt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	// The shell itself is not in the foreground, only its child is.
	w.spawn(c, "s", protocol.SpawnSpec{Argv: []string{"/bin/bash", "--norc", "-m", "-c",
		`trap 'echo shell interrupted' INT; sh -c 'trap "echo job interrupted" INT; echo ready; while :; do sleep 0.01; done'`}})
	v := w.attach(c, "s", client.AttachOptions{})
	v.until("ready")
	for range 2 {
		testkit.Must(t, v.Interrupt(w.ctx()))
		if before := v.until("job interrupted"); strings.Contains(before, "shell interrupted") {
			t.Errorf("the shell was interrupted, not only its job: %q", before)
		}
	}
	testkit.Must(t, c.Signal(w.ctx(), "s", "KILL"))
	if m := v.last(); m.Kind != client.Exited || m.Exit.Signal != "SIGKILL" || m.Exit.Outcome != protocol.OutcomeNatural {
		t.Errorf("exit %+v, want SIGKILL, natural", m.Exit)
	}
	if err := v.Interrupt(w.ctx()); code(err) != protocol.CodeSessionExited {
		t.Errorf("interrupt after the exit: %v, want session_exited", err)
	}
}

// A paste that is larger than any buffer must arrive whole and in order.
func TestPaste(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.spawn(c, "s", shell("stty raw -echo; echo ready; head -c 4000000 | sha256sum; exec cat"))
	v := w.attach(c, "s", client.AttachOptions{})
	v.until("ready\n")
	var paste strings.Builder
	for i := 0; paste.Len() < 4_000_000; i++ {
		fmt.Fprintf(&paste, "line %d of a paste\n", i)
	}
	text := paste.String()[:4_000_000]
	v.say(text)
	if sum := v.until("\n"); !strings.HasPrefix(sum, sha256Hex(text)) {
		t.Errorf("the child received input with the sum %q", sum)
	}
	v.ask("and goes on\n")
}
