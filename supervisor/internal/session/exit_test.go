//go:build linux || darwin

package session

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
)

// Every viewer receives all output once and in order, then the exit, then io.EOF. Until the exit, the info has no
// exit code.
func TestOutputThenExit(t *testing.T) {
	s, v := ready(t, "stty -echo; echo READY; read go; seq 1 20000; echo $go; exit 3")
	spec := fromStart(s)
	spec.Mode = protocol.ModeReadOnly
	second := look(t, s, spec)
	// demand: K4
	if i := info(t, s); i.ExitCode != nil || i.Exit != nil || i.State != protocol.StateRunning {
		t.Errorf("running: got code %v, record %v, state %s, want none", i.ExitCode, i.Exit, i.State)
	}
	if _, err := s.Type("", 0, []byte("bye\n")); err != nil {
		t.Fatal(err)
	}
	want := "READY\n" + numbers(20000) + "bye\n"
	// demand: B5
	for _, v := range []*viewer{v, second} {
		if got := v.end(t); got != want || !v.exited {
			t.Errorf("got %d bytes ending in %q, exit %v; want %d and the exit", len(got), got[max(0, len(got)-20):], v.exited, len(want))
		}
		if _, err := v.next(t); err != io.EOF {
			t.Errorf("after the end: got %v, want io.EOF", err)
		}
	}
	// demand: K4
	if i := info(t, s); i.ExitCode == nil || *i.ExitCode != 3 || i.Exit == nil || i.State != protocol.StateExited {
		t.Errorf("exited: got code %v, record %v, state %s, want code 3", i.ExitCode, i.Exit, i.State)
	}
}

func TestExitRecord(t *testing.T) {
	const natural, exited = protocol.OutcomeNatural, protocol.ReasonExited
	for _, tt := range []struct {
		name, code string
		want       protocol.ExitRecord
	}{
		// demand: K8
		{"no output", "exit 5", protocol.ExitRecord{ExitCode: 5}},
		{"success", "echo done", protocol.ExitRecord{Tail: []string{"done"}, LastLines: []string{"done"}}},
		{"no newline at the end", "printf done; exit 255", protocol.ExitRecord{ExitCode: 255, Tail: []string{"done"}, LastLines: []string{"done"}}},
		// demand: K3
		{"signal", "echo up; kill -TERM $$", protocol.ExitRecord{ExitCode: 143, Signal: "SIGTERM", Tail: []string{"up"}, LastLines: []string{"up"}}},
		{"kill", "kill -KILL $$", protocol.ExitRecord{ExitCode: 137, Signal: "SIGKILL"}},
		{"20 lines of 30", "seq 1 30; exit 1", protocol.ExitRecord{ExitCode: 1,
			Tail:      strings.Fields(numbers(30))[10:],
			LastLines: []string{"26", "27", "28", "29", "30"}}},
		// demand: B3
		{"blank lines between", `printf 'a\n\nb\n  \n\nc\nd\ne\nf\n\n\n'`, protocol.ExitRecord{
			Tail:      []string{"a", "", "b", "", "", "c", "d", "e", "f"},
			LastLines: []string{"b", "c", "d", "e", "f"}}},
		{"more blank lines than the tail has", `seq 1 5; yes '' | head -n 30; echo end`, protocol.ExitRecord{
			Tail:      append(make([]string, 19), "end"),
			LastLines: []string{"2", "3", "4", "5", "end"}}},
		// demand: K9
		{"undecodable", `printf '\377\376 caf\303\251 \303\n'`, protocol.ExitRecord{
			Tail: []string{" café"}, LastLines: []string{" café"}}},
		{"a line over the limit", `printf 'x%.0s' {1..3000}`, protocol.ExitRecord{
			Tail: []string{strings.Repeat("x", protocol.MaxTailLine)}, LastLines: []string{strings.Repeat("x", protocol.MaxTailLine)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, want := *ended(t, run(t, tt.code)), tt.want
			if got.Tail == nil || got.LastLines == nil {
				t.Errorf("got %v and %v, want lists, even if empty", got.Tail, got.LastLines)
			}
			if got.ExitCode != want.ExitCode || got.Signal != want.Signal || got.Outcome != natural || got.Reason != exited || got.TimedOut {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if !slices.Equal(got.Tail, want.Tail) || !slices.Equal(got.LastLines, want.LastLines) {
				t.Errorf("got tail %q, last lines %q\nwant %q, %q", got.Tail, got.LastLines, want.Tail, want.LastLines)
			}
			if got.StartedAt.IsZero() || got.ExitedAt.Before(got.StartedAt) {
				t.Errorf("got %v to %v", got.StartedAt, got.ExitedAt)
			}
		})
	}
}

// A client that attaches after the exit receives the exit record, and can still receive the output that it missed.
func TestAttachAfterExit(t *testing.T) {
	s, v := ready(t, "echo READY; read go; seq 1 100; exit 7")
	v.until(t, "READY\r\n") // the end of the line may come later
	v.a.Close()
	left := protocol.Resume{Instance: s.Instance(), Offset: v.pos}
	if _, err := s.Type("", 0, []byte("go\n")); err != nil {
		t.Fatal(err)
	}
	ended(t, s)
	// demand: K11
	_, _, err := s.Attach(t.Context(), protocol.AttachSpec{})
	e := wantCode(t, "attach", err, protocol.CodeSessionExited)
	if e.Exit == nil || e.Exit.ExitCode != 7 || len(e.Exit.Tail) != protocol.TailLines || e.Exit.Tail[19] != "100" {
		t.Errorf("got record %+v, want code 7 and the tail", e.Exit)
	}
	for range 2 { // twice, because reading must not remove output
		v := look(t, s, protocol.AttachSpec{Resume: &left})
		if got, want := v.end(t), "go\n"+numbers(100); got != want || !v.exited || v.info.Replay != protocol.ReplayExact {
			t.Errorf("resumed: got %s, %d bytes, exit %v; want the %d missing and the exit", v.info.Replay, len(got), v.exited, len(want))
		}
	}
	left.Instance = "another"
	_, _, err = s.Attach(t.Context(), protocol.AttachSpec{Resume: &left})
	wantCode(t, "another life", err, protocol.CodeInstanceMismatch)
	left = protocol.Resume{Instance: s.Instance(), Offset: info(t, s).OutputOffset + 1}
	_, _, err = s.Attach(t.Context(), protocol.AttachSpec{Resume: &left})
	wantCode(t, "never printed", err, protocol.CodeInvalidArgument)
}

// A child that prints a megabyte and exits at once loses none of it. The exit comes after the last byte.
// demand: M13
func TestLastOutput(t *testing.T) {
	tb := newTable(t, Config{RingBytes: 2 << 20})
	s := create(t, tb, bash("seq 1 150000; exit 4"))
	v := look(t, s, fromStart(s))
	want := numbers(150000)
	if got := v.end(t); got != want || !v.exited {
		t.Errorf("viewer: got %d bytes, exit %v; want %d", len(got), v.exited, len(want))
	}
	var all []byte
	for end := uint64(1); uint64(len(all)) < end; {
		data, from, e, err := s.Read(uint64(len(all)), 64<<10)
		if err != nil || from != uint64(len(all)) {
			t.Fatalf("Read(%d) = from %d, %v", len(all), from, err)
		}
		all, end = append(all, data...), e
	}
	if !bytes.Equal(bytes.ReplaceAll(all, []byte("\r\n"), []byte("\n")), []byte(want)) {
		t.Errorf("ring: got %d bytes, want %d lines", len(all), 150000)
	}
	if got := ended(t, s); got.ExitCode != 4 {
		t.Errorf("got code %d, want 4", got.ExitCode)
	}
}

// A grandchild that keeps the terminal open, silent or not, does not delay the end of the session.
// demand: M13
func TestGrandchildHoldsTerminal(t *testing.T) {
	for _, tt := range []struct {
		name, code string
		limit      time.Duration
	}{
		{"silent", "sleep 1000", 2 * time.Second},
		{"prints for ever", "yes", 4 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Without job control it is in its shell's group, which gets
			// SIGHUP when the terminal goes.
			pidFile := t.TempDir() + "/pid"
			s := run(t, "trap '' HUP; "+tt.code+" & echo $! >"+pidFile+"; exit 6")
			var rec *protocol.ExitRecord
			<-s.pty.Done()
			within(t, tt.limit, "the end", func() { rec = ended(t, s) })
			if rec.ExitCode != 6 || rec.Outcome != protocol.OutcomeNatural {
				t.Errorf("got %+v, want code 6, natural", rec)
			}
			pid := readPID(t, pidFile)
			// A process that prints fails when the terminal is closed.
			if tt.name == "silent" && !running(pid) {
				t.Errorf("the silent grandchild %d was ended", pid)
			}
			_ = unix.Kill(pid, unix.SIGKILL) // a grandchild that prints has ended by itself
		})
	}
}

func readPID(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	testkit.Must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	testkit.Must(t, err)
	return pid
}

// eofTold is a terminal that sends on eof after each io.EOF that it returns.
type eofTold struct {
	PTY
	eof chan struct{}
}

func (p *eofTold) ReadEach(to pty.Memory, each func(int)) (int, error) {
	n, err := p.PTY.ReadEach(to, each)
	if err == io.EOF {
		select {
		case p.eof <- struct{}{}:
		default:
		}
	}
	return n, err
}

// A child may close its terminal and open it again. All that it prints then is read, even if the child ends right
// afterwards.
func TestChildClosesTerminal(t *testing.T) {
	eof := make(chan struct{}, 1)
	tb := newTable(t, Config{Start: func(spec pty.Spec) (PTY, error) {
		p, err := realStart(spec)
		return &eofTold{p, eof}, err
	}})
	fifo := t.TempDir() + "/go"
	testkit.Must(t, unix.Mkfifo(fifo, 0o600))
	s := create(t, tb, bash(`echo first; exec <&- >&- 2>&-; read x <`+fifo+`; echo again >/dev/tty; read x <`+fifo+`; echo last >/dev/tty`))
	v := look(t, s, fromStart(s))
	for _, want := range []string{"first", "again"} {
		v.until(t, want)
		select {
		case <-eof: // an earlier end of file
		default:
		}
		<-eof
		if i := info(t, s); i.State != protocol.StateRunning {
			t.Errorf("after %q: got state %s, want running", want, i.State)
		}
		release(t, fifo)
	}
	if got, want := v.end(t), "first\nagain\nlast\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// release lets a child continue that reads a fifo.
func release(t *testing.T, fifo string) {
	t.Helper()
	fd, err := unix.Open(fifo, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	testkit.Must(t, unix.Close(fd))
}

// When Exited is closed, the exit record, the end of the output and the table's count are final, and the id can be
// used again.
func TestExitOrder(t *testing.T) {
	var tb *Table
	var early atomic.Int64
	// The session logs its exit before Exited is closed, which takes long if the log is slow. At that moment the table must not
	// count it any more. Its info must not say that it has exited, because its id cannot be used again yet.
	log := zerolog.New(logWriter(func(line string) {
		if !strings.Contains(line, "session exited") {
			return
		}
		if list := tb.List(""); tb.Live() != 0 || len(list) == 1 && list[0].State == protocol.StateExited {
			early.Add(1)
		}
	}))
	tb = newTable(t, Config{MaxSessions: 1, Log: log})
	s, err := tb.create("a", bash("echo x; exit 9"), "")
	for range 20 {
		testkit.Must(t, err)
		<-s.Exited()
		// demand: K5
		if rec := s.Exit(); rec == nil || rec.ExitCode != 9 {
			t.Errorf("got record %+v, want code 9", rec)
		}
		// demand: M9
		if live := tb.Live(); live != 0 || early.Load() != 0 {
			t.Errorf("got %d live sessions, and %d were live or listed as exited when the exit was logged; want none", live, early.Load())
		}
		if _, end, final := s.ring.Bounds(); end != 3 || !final {
			t.Errorf("got %d bytes, final %v, want all 3", end, final)
		}
		if i := info(t, s); i.State != protocol.StateExited || i.ExitCode == nil {
			t.Errorf("got state %s, code %v", i.State, i.ExitCode)
		}
		s, err = tb.reopen("a", "", protocol.RespawnSpec{}, "")
	}
}

type logWriter func(line string)

func (w logWriter) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}

// The event exited has the exit code.
// demand: K5
func TestExitEvent(t *testing.T) {
	tb := newTable(t, Config{})
	s := create(t, tb, bash("exit 2"))
	e := await(t, tb.Events(), s.ID(), protocol.EventExited)
	if e.Session.ExitCode == nil || *e.Session.ExitCode != 2 || e.Session.State != protocol.StateExited || !isClosed(s.Exited()) {
		t.Errorf("got %+v, want code 2, exited", e.Session)
	}
}

// Terminate sends the child these signals, and the exit record tells how the child has ended.
func TestTerminate(t *testing.T) {
	zero, long := time.Duration(0), forever
	for _, tt := range []struct {
		name, code string
		end        End
		want       protocol.ExitRecord
	}{
		// demand: M13
		{"hangup", "echo READY; exec sleep 1000", End{Grace: &long}, protocol.ExitRecord{ExitCode: 129, Signal: "SIGHUP", Outcome: protocol.OutcomeSoft}},
		{"ends by itself at SIGTERM", "trap 'exit 3' TERM; echo READY; while :; do read x || sleep 0.1; done", End{Soft: syscall.SIGTERM, Grace: &long},
			protocol.ExitRecord{ExitCode: 3, Outcome: protocol.OutcomeSoft}},
		{"last words", "trap 'echo bye; exit 0' HUP; echo READY; while :; do read x || sleep 0.1; done", End{Grace: &long},
			protocol.ExitRecord{Outcome: protocol.OutcomeSoft, LastLines: []string{"READY", "bye"}}},
		{"ignores SIGHUP", "trap '' HUP; echo READY; while :; do sleep 1000; done", End{},
			protocol.ExitRecord{ExitCode: 137, Signal: "SIGKILL", Outcome: protocol.OutcomeHard}},
		{"no grace", "trap '' HUP; echo READY; while :; do sleep 1000; done", End{Grace: &zero},
			protocol.ExitRecord{ExitCode: 137, Signal: "SIGKILL", Outcome: protocol.OutcomeHard}},
		// demand: M8
		{"the reason of the request", "echo READY; exec sleep 1000", End{Reason: protocol.ReasonIdleTimeout, TimedOut: true},
			protocol.ExitRecord{ExitCode: 129, Signal: "SIGHUP", Outcome: protocol.OutcomeSoft, Reason: protocol.ReasonIdleTimeout, TimedOut: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, v := ready(t, tt.code)
			testkit.Must(t, s.Terminate(tt.end))
			got, want := ended(t, s), tt.want
			if want.Reason == "" {
				want.Reason = protocol.ReasonUserRequested
			}
			if want.LastLines == nil {
				want.LastLines = []string{"READY"}
			}
			if got.ExitCode != want.ExitCode || got.Signal != want.Signal || got.Outcome != want.Outcome ||
				got.Reason != want.Reason || got.TimedOut != want.TimedOut || !slices.Equal(got.LastLines, want.LastLines) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if v.end(t); !v.exited || !gone(s.pty.PID()) {
				t.Errorf("the viewer received the exit: %v; reaped: %v", v.exited, gone(s.pty.PID()))
			}
			wantCode(t, "once more", s.Terminate(End{}), protocol.CodeSessionExited)
		})
	}
}

// A request with End.Idle ends the session only if it has been idle for that time.
// demand: M11
func TestTerminateIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{})
		show(by(s), "READY") // output that loop has not received yet would count as use
		time.Sleep(time.Hour - time.Second)
		wantCode(t, "in use", s.Terminate(End{Idle: time.Hour}), protocol.CodeSessionRunning)
		if i := info(t, s); i.State != protocol.StateRunning {
			t.Errorf("the session is %s", i.State)
		}
		time.Sleep(time.Second)
		s.cage.frozen.Store(true)
		wantCode(t, "frozen", s.Terminate(End{Idle: time.Hour}), protocol.CodeSessionRunning)
		s.cage.frozen.Store(false)
		testkit.Must(t, s.Terminate(End{Idle: time.Hour, Reason: protocol.ReasonIdleTimeout, TimedOut: true}))
		if rec := ended(t, s); !rec.TimedOut || rec.Reason != protocol.ReasonIdleTimeout {
			t.Errorf("got %+v", rec)
		}
		v.end(t)
	})
}

// The first request for an end decides the reason. After it, input and resizes fail with session_not_found, although
// the child still runs.
// demand: M8
func TestEnding(t *testing.T) {
	fifo := t.TempDir() + "/go"
	testkit.Must(t, unix.Mkfifo(fifo, 0o600))
	s, v := ready(t, "trap 'read x <"+fifo+"; exit 1' HUP; echo READY; while :; do read x || sleep 0.1; done")
	grace := forever
	testkit.Must(t, s.Terminate(End{Grace: &grace, Reason: protocol.ReasonIdleTimeout, TimedOut: true}))
	if err := s.Terminate(End{Reason: protocol.ReasonShutdown}); err != nil {
		t.Errorf("the second request: %v", err)
	}
	_, err := s.Type("", 0, []byte("x"))
	wantCode(t, "Type", err, protocol.CodeSessionNotFound)
	_, err = s.Type("w", 0, []byte("x"))
	wantCode(t, "Type by a writer", err, protocol.CodeSessionNotFound)
	wantCode(t, "Attachment.Type", v.a.Type(0, []byte("x")), protocol.CodeSessionNotFound)
	wantCode(t, "Resize", s.Resize(protocol.Size{Cols: 1, Rows: 1}), protocol.CodeSessionNotFound)
	wantCode(t, "Attachment.Resize", v.a.Resize(protocol.Size{Cols: 1, Rows: 1}), protocol.CodeSessionNotFound)
	wantCode(t, "Interrupt", v.a.Interrupt(), protocol.CodeSessionNotFound)
	if i := info(t, s); i.State != protocol.StateRunning || i.Size != (protocol.Size{Cols: 80, Rows: 24}) {
		t.Errorf("got %s at %v, want it running at its size", i.State, i.Size)
	}
	second := look(t, s, protocol.AttachSpec{}) // an attach is still allowed
	release(t, fifo)
	if rec := ended(t, s); rec.Reason != protocol.ReasonIdleTimeout || !rec.TimedOut || rec.ExitCode != 1 || rec.Outcome != protocol.OutcomeSoft {
		t.Errorf("got %+v, want idle_timeout, timed out, code 1, soft", rec)
	}
	if second.end(t); !second.exited {
		t.Error("the viewer that attached after the request did not receive the exit")
	}
	_, err = s.Type("", 0, []byte("x"))
	wantCode(t, "Type after the exit", err, protocol.CodeSessionExited)
	wantCode(t, "Resize after the exit", s.Resize(protocol.Size{}), protocol.CodeSessionExited)
}

// If an end is requested after the child has ended, while its output is still read, the remaining processes of the
// session are killed. The exit record still tells how the child ended.
// demand: M8
func TestTerminateWhileDraining(t *testing.T) {
	tb := NewTable(Config{Env: []string{"PATH=" + os.Getenv("PATH")}})
	pidFile := t.TempDir() + "/pid"
	// The loop prints for another second. It ignores SIGHUP and does not end when the terminal is closed.
	s := create(t, tb, bash("trap '' HUP; while :; do echo y; done 2>/dev/null & echo $! >"+pidFile+"; exit 6"))
	<-s.pty.Done()
	for range 2 {
		testkit.Must(t, s.Terminate(End{Reason: protocol.ReasonIdleTimeout}))
	}
	if rec := ended(t, s); rec.Reason != protocol.ReasonExited || rec.Outcome != protocol.OutcomeNatural || rec.ExitCode != 6 {
		t.Errorf("got %+v, want the end of the child: exited, natural, 6", rec)
	}
	shutdown(t, tb)
	if pid := readPID(t, pidFile); running(pid) {
		t.Errorf("process %d runs after the shutdown", pid)
	}
}

// stubbornPTY is a terminal on which a grandchild ends by SIGKILL only, so that Hangup takes the whole grace.
type stubbornPTY struct {
	*fakePTY
	killed chan struct{}
}

func (p stubbornPTY) Hangup(_ syscall.Signal, grace time.Duration) (hard bool, survivors []int) {
	if grace == 0 {
		close(p.killed)
	}
	select {
	case <-p.killed:
	case <-time.After(grace):
	}
	return true, nil
}

// A request to end what an ended child has left behind delays neither the exit nor the forgetting of its session,
// however long its grace is. A shutdown ends the grace, because nobody could kill the processes afterwards.
func TestForgetDuringGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := NewTable(Config{Start: func(spec pty.Spec) (PTY, error) {
			return stubbornPTY{newFake(spec), make(chan struct{})}, nil
		}})
		s := create(t, tb, bash(""))
		child := s.pty.(stubbornPTY)
		child.change(func() { child.held = true })
		child.exit(pty.Status{})
		testkit.Must(t, s.Terminate(End{Grace: new(forever)}))
		within(t, patience, "the end of the session", func() {
			<-s.Exited()
			if err := tb.Forget(s.ID(), ""); err != nil {
				t.Error(err)
			}
			<-s.gone
		})
		if isClosed(child.killed) {
			t.Error("the session did not leave the grandchild its grace")
		}
		within(t, patience, "the shutdown", func() { shutdown(t, tb) })
		if !isClosed(child.killed) {
			t.Error("the grandchild outlives the shutdown")
		}
	})
}
