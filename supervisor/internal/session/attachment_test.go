//go:build linux || darwin

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
)

// A client that attaches, reads nothing or little, and leaves takes no output away from the next client.
// demand: S6
// demand: R6
func TestBacklogStays(t *testing.T) {
	s, first := ready(t, "seq 1 1000; echo READY; exec sleep 1000")
	want := string(first.seen)
	for range 3 {
		v := look(t, s, protocol.AttachSpec{})
		if v.info.Replay != protocol.ReplaySnapshot || v.info.SnapshotBytes == 0 || v.info.BytesMissed != 0 {
			t.Errorf("got %+v, want a snapshot of all", v.info)
		}
		v.a.Close()
	}
	half := look(t, s, protocol.AttachSpec{})
	half.buf = make([]byte, 100)
	if _, err := half.next(t); err != nil {
		t.Fatal(err)
	}
	half.a.Close()
	if got := look(t, s, fromStart(s)).until(t, "READY"); got != want {
		t.Errorf("got %d bytes, want %d, as the first viewer", len(got), len(want))
	}
}

// A client that resumes learns exactly how many bytes the ring has lost. A client that attaches for the first time
// has missed no bytes, because it receives the whole screen.
// demand: R6
func TestBytesMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{RingBytes: ring.MinBytes})
		s := create(t, tb, protocol.SpawnSpec{Argv: []string{"cat"}, Unattended: true})
		m := &model{printed: []byte(numbers(50_000)), sizes: []sizeAt{{0, info(t, s).Size}}}
		by(s).print(m.printed)
		synctest.Wait()
		i := info(t, s)
		if i.OutputOffset != uint64(len(m.printed)) || i.RingStart == 0 || i.OutputOffset-i.RingStart < ring.MinBytes {
			t.Fatalf("got [%d, %d) in the ring, want at least %d and a lost beginning", i.RingStart, i.OutputOffset, ring.MinBytes)
		}
		for _, tt := range []struct {
			name   string
			resume *protocol.Resume
			replay protocol.Replay
			missed uint64
		}{
			{"new", nil, protocol.ReplaySnapshot, 0},
			{"back too late", &protocol.Resume{Offset: 50}, protocol.ReplaySnapshot, i.RingStart - 50},
			{"back at the last byte lost", &protocol.Resume{Offset: i.RingStart - 1}, protocol.ReplaySnapshot, 1},
			{"back just in time", &protocol.Resume{Offset: i.RingStart}, protocol.ReplayExact, 0},
			{"nothing missed", &protocol.Resume{Offset: i.OutputOffset}, protocol.ReplayExact, 0},
		} {
			if tt.resume != nil {
				tt.resume.Instance = s.Instance()
			}
			// attach compares the snapshot with the model.
			v, err := attach(s, protocol.AttachSpec{Resume: tt.resume}, m)
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			defer v.a.Close()
			if v.info.Replay != tt.replay || v.info.BytesMissed != tt.missed {
				t.Errorf("%s: got %s, %d missed; want %s, %d", tt.name, v.info.Replay, v.info.BytesMissed, tt.replay, tt.missed)
			}
			if _, err := v.drain(); err != nil || v.pos != i.OutputOffset {
				t.Errorf("%s: read up to offset %d, %v; want %d", tt.name, v.pos, err, i.OutputOffset)
			}
		}
	})
}

// A viewer that reads while the session ends receives the last byte before the exit.
func TestLookAtTheEnd(t *testing.T) {
	tb, by := fakeTable(t, Config{})
	for range 300 {
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{})
		polled := make(chan error)
		go func() { polled <- v.poll() }()
		by(s).print([]byte("last words"))
		by(s).exit(pty.Status{})
		if err := <-polled; err != nil || string(v.seen) != "last words" || !v.exited {
			t.Fatalf("the viewer got %q, exit %v, %v; want the last words and the exit", v.seen, v.exited, err)
		}
	}
}

// A viewer that does not read delays no other viewer. When it reads again, it learns how many bytes it missed, and
// continues from there.
// demand: R10
func TestSlowViewer(t *testing.T) {
	tb := newTable(t, Config{RingBytes: ring.MinBytes})
	s := create(t, tb, bash("echo READY; read go; seq 1 100000; read go; echo END; exit"))
	fast, slow, never := look(t, s, protocol.AttachSpec{}), look(t, s, protocol.AttachSpec{}), look(t, s, protocol.AttachSpec{})
	slow.until(t, "READY")
	fast.until(t, "READY")
	if _, err := s.Type("", 0, []byte("go\n")); err != nil {
		t.Fatal(err)
	}
	fast.until(t, "100000\r\n")
	slow.seen = nil
	if _, err := s.Type("", 0, []byte("go\n")); err != nil {
		t.Fatal(err)
	}
	end := slow.end(t)
	if slow.resyncs != 1 || slow.missed == 0 || !slow.exited || !strings.Contains(end, "\n100000\n") || !strings.Contains(end, "END") {
		t.Errorf("slow: got %d resyncs, %d missed, exit %v, the end %q", slow.resyncs, slow.missed, slow.exited, end[max(0, len(end)-30):])
	}
	if total := info(t, s).OutputOffset; slow.pos != total {
		t.Errorf("slow: read up to offset %d of %d", slow.pos, total)
	}
	ended(t, s)
	never.a.Close()
}

// An exclusive attachment keeps other writers out, and an attach with steal takes its place.
// demand: R5
func TestModes(t *testing.T) {
	const shared, exclusive, readOnly = protocol.ModeShared, protocol.ModeExclusive, protocol.ModeReadOnly
	for _, tt := range []struct {
		first, second protocol.Mode
		steal         bool
		want          protocol.Code
		stolen        bool
	}{
		{shared, shared, false, "", false},
		{"", "", true, "", false}, // no attachment has to be evicted
		{shared, exclusive, false, protocol.CodeAlreadyAttached, false},
		{shared, exclusive, true, "", true},
		{exclusive, shared, false, protocol.CodeAlreadyAttached, false},
		{exclusive, shared, true, "", true},
		{exclusive, exclusive, false, protocol.CodeAlreadyAttached, false},
		{exclusive, exclusive, true, "", true},
		{exclusive, readOnly, false, "", false},
		{readOnly, exclusive, true, "", false},
	} {
		t.Run(fmt.Sprintf("%s then %s, steal %v", tt.first, tt.second, tt.steal), func(t *testing.T) {
			s, v := ready(t, "stty -echo; echo READY; while read x; do echo got $x; done")
			v.a.Close()
			first := look(t, s, protocol.AttachSpec{Mode: tt.first, Client: "one"})
			a, _, err := s.Attach(t.Context(), protocol.AttachSpec{Mode: tt.second, Steal: tt.steal, Client: "two"})
			wantCode(t, "attach", err, tt.want)
			if err == nil {
				defer a.Close()
			}
			if n := info(t, s).Attachments; n != map[bool]int{true: 1, false: 2}[tt.stolen || err != nil] {
				t.Errorf("got %d attachments", n)
			}
			if over, err := first.drain(); over != tt.stolen || err != nil || first.stolen != tt.stolen || tt.stolen && first.by != "two" {
				t.Errorf("first: over %v, %v, stolen by %q; want stolen %v", over, err, first.by, tt.stolen)
			}
		})
	}
}

// An evicted attachment cannot disturb the one that took its place.
// demand: R5
func TestStolen(t *testing.T) {
	s, evicted := ready(t, "stty -echo; echo READY; while read x; do echo got $x; done")
	pending := make(chan error, 1)
	go func() { // this Next waits when the steal happens
		for {
			if _, err := evicted.take(context.Background()); err != nil {
				pending <- err
				return
			}
		}
	}()
	thief := look(t, s, protocol.AttachSpec{Mode: protocol.ModeExclusive, Steal: true, Client: "thief"})
	if err := <-pending; err != io.EOF || !evicted.stolen || evicted.by != "thief" {
		t.Errorf("evicted: Next returned %v, stolen by %q; want io.EOF, thief", err, evicted.by)
	}
	wantCode(t, "Type of the evicted", evicted.a.Type(0, []byte("evil\n")), protocol.CodeNotAttached)
	wantCode(t, "Resize of the evicted", evicted.a.Resize(protocol.Size{Cols: 1, Rows: 1}), protocol.CodeNotAttached)
	wantCode(t, "Interrupt of the evicted", evicted.a.Interrupt(), protocol.CodeNotAttached)
	evicted.a.Close()
	evicted.a.Close()
	if i := info(t, s); i.Attachments != 1 || i.Size.Cols != 80 {
		t.Errorf("got %d attachments at %v, want the thief at its size", i.Attachments, i.Size)
	}
	testkit.Must(t, thief.a.Type(0, []byte("good\n")))
	if got := thief.until(t, "got good"); strings.Contains(got, "evil") {
		t.Errorf("got %q, want no input of the evicted attachment", got)
	}
	_, _, err := s.Attach(t.Context(), protocol.AttachSpec{})
	wantCode(t, "still exclusive", err, protocol.CodeAlreadyAttached)
	thief.a.Close()
	look(t, s, protocol.AttachSpec{})
}

// A client that attaches again with its writer's name replaces its own earlier attachment. If the attach fails, the
// earlier attachment stays.
func TestSameWriter(t *testing.T) {
	s, v := ready(t, "echo READY; exec sleep 1000")
	v.a.Close()
	first := look(t, s, protocol.AttachSpec{Mode: protocol.ModeExclusive, Writer: "w", Client: "me"})
	_, _, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: "w", Resume: &protocol.Resume{Instance: s.Instance(), Offset: 1 << 40}})
	wantCode(t, "an offset that the session has not printed yet", err, protocol.CodeInvalidArgument)
	if over, err := first.drain(); over || err != nil {
		t.Errorf("first: over %v, %v; want it still attached", over, err)
	}
	again := look(t, s, protocol.AttachSpec{Mode: protocol.ModeExclusive, Writer: "w", Client: "me"})
	if over, err := first.drain(); !over || err != nil || first.by != "me" {
		t.Errorf("first: over %v, %v, by %q; want it replaced", over, err, first.by)
	}
	if over, err := again.drain(); over || err != nil {
		t.Errorf("the new attachment: over %v, %v; want it still attached", over, err)
	}

	again.a.Close()
	watcher := look(t, s, protocol.AttachSpec{Mode: protocol.ModeReadOnly, Writer: "r"})
	look(t, s, protocol.AttachSpec{Mode: protocol.ModeExclusive})
	_, _, err = s.Attach(t.Context(), protocol.AttachSpec{Writer: "r"})
	wantCode(t, "another is there", err, protocol.CodeAlreadyAttached)
	if over, err := watcher.drain(); over || err != nil {
		t.Errorf("watcher: over %v, %v; want it still attached after an attach was refused", over, err)
	}
}

func TestDetach(t *testing.T) {
	s, v := ready(t, "echo READY; exec sleep 1000")
	waits := make(chan error, 1)
	go func() {
		for {
			if _, err := v.take(context.Background()); err != nil {
				waits <- err
				return
			}
		}
	}()
	// demand: R2
	v.a.Close()
	v.a.Close()
	if err := <-waits; err != io.EOF {
		t.Errorf("a Next that waits at the detach: got %v, want io.EOF", err)
	}
	if i := info(t, s); i.Attachments != 0 || i.State != protocol.StateRunning {
		t.Errorf("got %d attachments, %s; want none, and a running session", i.Attachments, i.State)
	}
	// demand: R9
	v = look(t, s, protocol.AttachSpec{})
	if _, err := v.drain(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := v.take(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without output Next returned %v, want the deadline", err)
	}
}

func TestReadOnly(t *testing.T) {
	s, _ := ready(t, "stty -echo; echo READY; read x; echo got $x")
	v := look(t, s, protocol.AttachSpec{Mode: protocol.ModeReadOnly, Cols: 10, Rows: 10})
	wantCode(t, "Type", v.a.Type(0, []byte("x\n")), protocol.CodePermissionDenied)
	wantCode(t, "Interrupt", v.a.Interrupt(), protocol.CodePermissionDenied)
	if err := v.a.Resize(protocol.Size{Cols: 1, Rows: 1}); err != nil {
		t.Errorf("Resize: %v, want no error, and no effect", err)
	}
	if i := info(t, s); i.Size != (protocol.Size{Cols: 80, Rows: 24}) {
		t.Errorf("got %v, want an unchanged size", i.Size)
	}
	if _, err := s.Type("", 0, []byte("y\n")); err != nil {
		t.Fatal(err)
	}
	v.until(t, "got y")
}

func TestSignals(t *testing.T) {
	s, v := ready(t, "trap 'echo interrupted' INT; trap 'echo usr1' USR1; stty raw; echo READY; while :; do read -t 1; done")
	// demand: R7
	testkit.Must(t, v.a.Interrupt())
	v.until(t, "interrupted")
	// demand: S4
	testkit.Must(t, s.SignalFor(protocol.Asker{}, unix.SIGUSR1))
	v.until(t, "usr1")
}

// The number of a session's attachments has a limit, because each one costs memory.
func TestMaxAttachments(t *testing.T) {
	s := run(t, "exec sleep 1000")
	var all [maxAttachments]*Attachment
	var wg sync.WaitGroup
	for some := range slices.Chunk(all[:], 8) {
		for i := range some {
			wg.Go(func() {
				var err error
				if some[i], _, err = s.Attach(t.Context(), protocol.AttachSpec{}); err != nil {
					t.Error(err)
				}
			})
		}
		if wg.Wait(); t.Failed() {
			return
		}
	}
	_, _, err := s.Attach(t.Context(), protocol.AttachSpec{})
	wantCode(t, "an attachment above the limit", err, protocol.CodeLimitExceeded)
	// A viewer that reconnects, or whose proxy is replaced, takes the place of its own attachment.
	all[0].Pause()
	again, _, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: all[0].Writer(), Resume: &protocol.Resume{Instance: s.Instance()}})
	if err != nil {
		t.Fatalf("a viewer that replaces its own attachment: %v", err)
	}
	wg.Go(again.Close)
	wg.Wait()
	if again, _, err = s.Attach(t.Context(), protocol.AttachSpec{}); err != nil {
		t.Fatalf("an attachment in the place of one that has ended: %v", err)
	}
	shadow, _, err := s.Shadow(t.Context(), protocol.AttachSpec{Writer: all[1].Writer(), Mode: protocol.ModeReadOnly})
	if wantCode(t, "a shadow above the limit", err, protocol.CodeLimitExceeded); err == nil {
		shadow.Close()
	}
	if n := info(t, s).Attachments; n != maxAttachments {
		t.Errorf("%d attachments are published", n)
	}
	for _, a := range append(all[:], again) { // as if the proxy of the attachments had died
		wg.Go(a.Close)
	}
	if wg.Wait(); info(t, s).Attachments != 0 {
		t.Errorf("%d attachments are published after their end", info(t, s).Attachments)
	}
}

// Requests that arrive together are answered after their changes are published, and none of them waits for a halt.
func TestRequestsShareATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		begun, release := make(chan struct{}), make(chan struct{})
		go s.do(func() { close(begun); <-release })
		<-begun // so that the other requests arrive together
		const n = 20
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				key := fmt.Sprint("key", i)
				if err := s.Relabel(map[string]string{key: "set"}); err != nil {
					t.Error(err)
				}
				if info(t, s).Labels[key] != "set" {
					t.Errorf("%s was not published before its request was answered", key)
				}
			})
		}
		synctest.Wait()
		halted := make(chan func())
		go func() {
			thaw, err := s.halt(patience, func() {})
			if err != nil {
				t.Error(err)
			}
			halted <- thaw
		}()
		synctest.Wait()
		close(release)
		thaw := <-halted
		wg.Wait() // must not wait, although the session is halted
		thaw()
	})
}

// Show returns the lines of the screen without escape sequences.
func TestShow(t *testing.T) {
	s, _ := ready(t, `printf '\033[31mred\033[0m\n'; seq 1 50; printf READY; exec sleep 1000`)
	for n, want := range map[int]int{0: 24, 3: 3, 1000: 52} {
		c, err := s.Show(protocol.ScreenSpec{Lines: n})
		if err != nil || len(c.Lines) != want || c.Lines[len(c.Lines)-1] != "READY" || c.Instance != s.Instance() {
			t.Errorf("%d lines: got %d of %s, %v; want %d", n, len(c.Lines), c.Instance, err, want)
		}
		if n == 1000 && c.Lines[0] != "red" {
			t.Errorf("%d lines: it begins with %q", n, c.Lines[0])
		}
	}
}

// A read-only client that knows a writer's name cannot take that writer's place.
func TestReadOnlyTakesNoWritersPlace(t *testing.T) {
	s, _ := ready(t, "stty -echo; echo READY; exec cat >/dev/null")
	looks := func() error {
		a, _, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: "w", Mode: protocol.ModeReadOnly, Attempt: 1 << 60})
		if err == nil {
			a.Close()
		}
		return err
	}
	writer, _, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: "w", Attempt: 1})
	testkit.Must(t, err)
	wantCode(t, "read-only attach while the writer is attached", looks(), protocol.CodePermissionDenied)
	writer.Close()
	wantCode(t, "read-only attach while the writer may still resume", looks(), protocol.CodePermissionDenied)
	writer, _, err = s.Attach(t.Context(), protocol.AttachSpec{Writer: "w", Attempt: 2})
	if err != nil {
		t.Fatalf("the writer cannot attach again: %v", err)
	}
	if err := writer.Type(0, []byte("x\n")); err != nil {
		t.Errorf("input of the writer: %v", err)
	}
	writer.Detach()
	wantCode(t, "read-only attach after the writer has sent input and detached", looks(), protocol.CodePermissionDenied)
	for range 2 { // the second attach is like one after a lost connection
		if _, _, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: "r", Mode: protocol.ModeReadOnly}); err != nil {
			t.Errorf("a read-only viewer with a name of its own: %v", err)
		}
	}
}

// An attach request that its client has given up may arrive late. It must not end the attachment of a later attempt,
// and must not succeed after that attachment has ended.
func TestLateAttempt(t *testing.T) {
	s, _ := ready(t, "echo READY; exec sleep 1000")
	try := func(attempt uint64) (*Attachment, error) {
		a, _, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: "w", Attempt: attempt})
		if err == nil {
			t.Cleanup(a.Close)
		}
		return a, err
	}
	second, err := try(2)
	testkit.Must(t, err)
	_, err = try(1)
	wantCode(t, "the first attempt, after the second", err, protocol.CodeSuperseded)
	if err := second.Type(0, []byte("x")); err != nil {
		t.Errorf("input of the second attempt: %v", err)
	}
	second.Close()
	_, err = try(1)
	wantCode(t, "the first attempt, after the second has ended", err, protocol.CodeSuperseded)
	for _, attempt := range []uint64{2, 3, 0} { // another proxy resumes the attempt; the client attaches again; a client does not number its attempts
		if _, err := try(attempt); err != nil {
			t.Errorf("attempt %d: %v", attempt, err)
		}
	}
}

// A proxy that passes an attachment to another proxy increases the number Move. A new Attempt of the client counts
// more than every Move of an earlier attempt. Of two proxies, the one with the lower Move comes too late.
func TestMovedAttempt(t *testing.T) {
	s, _ := ready(t, "echo READY; exec sleep 1000")
	for i, step := range []struct {
		attempt, move uint64
		code          protocol.Code
	}{
		{1, 0, ""}, {1, 1, ""}, {1, 2, ""}, {1, 3, ""},
		{1, 2, protocol.CodeSuperseded}, // the proxy that had passed the attachment on, late
		{2, 0, ""},                      // the client attaches again
		{1, 4, protocol.CodeSuperseded}, // a proxy resumes an attempt that the client has given up
		{2, 1, ""},
		{2, 0, ""}, // a proxy that does not count its moves resumes
		{2, 1, ""},
		{0, 0, ""}, // a client that does not number its attempts
		{0, 1, ""}, {0, 2, ""},
		{0, 1, protocol.CodeSuperseded},
		{0, 0, ""}, {0, 1, ""},
	} {
		a, _, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: "w", Attempt: step.attempt, Move: step.move})
		wantCode(t, fmt.Sprintf("step %d, attempt %d, move %d", i, step.attempt, step.move), err, step.code)
		if err == nil {
			t.Cleanup(a.Close)
		}
	}
}

// Viewers of the same screen that do not read share the memory of their snapshot, which is released when they have read it.
func TestEqualSnapshotsShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		show(by(s), "one screen")
		first, second := look(t, s, protocol.AttachSpec{}), look(t, s, protocol.AttachSpec{})
		show(by(s), ", and another")
		third := look(t, s, protocol.AttachSpec{})
		if a, b, c := first.a.held, second.a.held, third.a.held; a != b || b == c {
			t.Errorf("the snapshots are %p, %p and %p, want the first two to be one", a, b, c)
		}
		want := string(second.a.held.data)
		first.saw(t)
		if got := string(second.a.held.data); got != want {
			t.Errorf("the snapshot was %q, and is %q after another viewer has read it", want, got)
		}
		if got := third.saw(t); !strings.Contains(got, "one screen, and another") {
			t.Errorf("the third viewer received %q", got)
		}
		if second.saw(t); len(s.held.all) != 0 {
			t.Error("a snapshot that each viewer has read is kept")
		}
	})
}
