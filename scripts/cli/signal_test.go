//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// silence starts a command whose standard output is a pipe that nobody reads, and returns it when a write to the pipe waits.
func (w *world) silence(args ...string) *background { return w.silenceWith(nil, args...) }

// silenceWith is silence for a command that reads its standard input.
func (w *world) silenceWith(in *os.File, args ...string) *background {
	w.T.Helper()
	r, out, err := os.Pipe()
	testkit.Must(w.T, err)
	w.T.Cleanup(func() { _ = r.Close() })
	if _, err := unix.FcntlInt(r.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		w.T.Fatal(err)
	}
	b := w.beginWith(out, in, args...)
	_ = out.Close() // the program has its own duplicate
	// The number of bytes in the pipe does not tell whether it is full, because a short write that does not fit waits for
	// more room than there is.
	if !eventually(func() bool { return waitsInWrite(b.Pid, unix.Stdout) }) {
		w.T.Fatalf("%v does not wait in a write: the pipe has %d bytes", args, buffered(r))
	}
	return b
}

// waitsInWrite reports whether a process waits in a write to a file.
func waitsInWrite(pid, fd int) bool {
	waits := fmt.Sprintf("%d %#x ", unix.SYS_WRITE, fd)
	calls, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	return slices.ContainsFunc(calls, func(call string) bool {
		text, _ := os.ReadFile(call)
		return strings.HasPrefix(string(text), waits)
	})
}

// fill fills a pipe.
func (w *world) fill(pipe *os.File) {
	w.T.Helper()
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", pipe.Fd()), unix.O_WRONLY|unix.O_NONBLOCK, 0)
	testkit.Must(w.T, err)
	defer func() { _ = unix.Close(fd) }()
	for _, size := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = unix.Write(fd, make([]byte, size))
		}
	}
	if err != unix.EAGAIN {
		w.T.Fatal(err)
	}
}

// buffered returns how many bytes a pipe has.
func buffered(pipe *os.File) int {
	n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
	if err != nil {
		return -1
	}
	return n
}

// beginWith starts a command in the background, with out and in as standard output and input.
func (w *world) beginWith(out, in *os.File, args ...string) *background {
	w.T.Helper()
	cmd := exec.Command(filepath.Join(w.Bin, "proxy"), args...)
	var errout bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = in, out, &errout, w.Env, w.Dir
	testkit.Must(w.T, cmd.Start())
	w.T.Cleanup(func() { _ = cmd.Process.Kill() })
	b := &background{cmd.Process, make(chan result, 1)}
	go func() {
		_ = cmd.Wait() // the exit code contains the result
		b.end <- result{Code: cmd.ProcessState.ExitCode(), Errout: errout.String()}
	}()
	return b
}

// signal sends a signal to a process twice, as timeout(1) does.
func (w *world) signal(p *os.Process, s syscall.Signal) {
	w.T.Helper()
	testkit.Must(w.T, p.Signal(s))
	_ = p.Signal(s) // the process may have ended
}

// endsBy waits for the end of a background command, and checks that it has ended by the signal s.
func (w *world) endsBy(b *background, s syscall.Signal) {
	w.T.Helper()
	if r := w.wait(b); r.Code != 128+int(s) {
		w.T.Errorf("%v: %v, want exit %d", s, r, 128+int(s))
	}
}

// A command that waits for input must end by a signal.
func TestSignalDuringRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("cat", "cat")
	testkit.Must(t, syscall.Mkfifo(w.Path("fifo"), 0o600))
	r, in, err := os.Pipe()
	testkit.Must(t, err)
	defer func() { _, _ = r.Close(), in.Close() }()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		b := w.beginWith(nil, r, "send", "cat", "--file", "-")
		if _, err := in.WriteString("typed"); err != nil {
			t.Fatal(err)
		}
		if !eventually(func() bool { return buffered(r) == 0 }) {
			t.Fatal("the command does not read its standard input")
		}
		w.signal(b.Process, s)
		w.endsBy(b, s)
		b = w.beginWith(nil, nil, "send", "cat", "--file", "fifo") // waits for a writer
		w.connects(b)
		w.signal(b.Process, s)
		w.endsBy(b, s)
	}
}

// connects waits until a command has a connection.
func (w *world) connects(b *background) {
	w.T.Helper()
	if !eventually(func() bool {
		open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", b.Pid))
		return slices.ContainsFunc(open, func(fd string) bool {
			name, _ := os.Readlink(fd)
			return strings.HasPrefix(name, "socket:")
		})
	}) {
		w.T.Fatal("the command has not connected")
	}
}

// A command whose output is not read must end by a signal, and must end its run.
func TestSignalDuringWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	w.shell("big", "seq 100000; exec cat")
	w.shows("big", "100000\n")
	run := w.silence("run", "--", "yes")
	history := w.silence("history", "big", "--lines", "0")
	attach := w.silence("attach", "big")
	named := w.silence("run", "--id", "named", "--", "yes")
	all := []*background{run, history, attach, named}
	for _, b := range all {
		w.signal(b.Process, syscall.SIGTERM)
	}
	for _, b := range all {
		w.endsBy(b, syscall.SIGTERM)
	}
	if !eventually(func() bool { return len(decode[[]any](t, w.must("ls", "--json"))) == 2 }) {
		t.Errorf("the sessions are %s, want big and named", w.must("ls", "--json"))
	}
}

// A command that stands between two programs must end soon after a signal, although one of them does not read, and without
// the limit of all commands (5 s).
func TestSignalToUnreadBridge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	in, agent, err := os.Pipe()
	testkit.Must(t, err)
	defer func() { _, _ = in.Close(), agent.Close() }()
	_, err = agent.WriteString(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/list"}` + "\n")
	testkit.Must(t, err)
	for _, b := range []*background{w.silenceWith(in, "mcp"), w.silence("acp", "--", "yes")} {
		began := time.Now()
		w.signal(b.Process, syscall.SIGTERM)
		w.endsBy(b, syscall.SIGTERM)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the command has ended after %v", took)
		}
	}
}

// A terminal that blocks output must be restored after a signal.
func TestSignalOnBlockedTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	w.spawn("yes", "yes")
	all := []*terminal{w.open("run", "--", "yes"), w.open("attach", "yes")}
	for _, p := range all {
		p.expect("y\r\ny\r\n")
		if p.attributes() == p.before {
			t.Fatal("the terminal is not raw")
		}
		if err := unix.IoctlSetInt(int(p.slave.Fd()), unix.TCXONC, unix.TCOOFF); err != nil { // as ctrl-s
			t.Fatal(err)
		}
	}
	for _, p := range all {
		w.signal(p.cmd.Process, syscall.SIGTERM)
	}
	for _, p := range all {
		if code, now := p.wait(), p.attributes(); code != 143 || now != p.before {
			t.Errorf("%s: exit %d, want 143; the attributes are\n%+v, want\n%+v", p.cmd, code, now, p.before)
		}
	}
}

// A third SIGINT must leave a run also if the supervisor has not answered the requests of the first two.
func TestInterruptUnanswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	b := w.begin("run", "--id", "r", "--", "cat")
	if !eventually(func() bool { r := w.proxy("info", "r", "--json"); return strings.Contains(r.Out, `"attachments": 1`) }) {
		t.Fatal("the run does not start")
	}
	pid := int(w.object("status", "--json")["supervisor"].(map[string]any)["pid"].(float64))
	testkit.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	if !eventually(func() bool { return b.Signal(syscall.SIGINT) != nil }) { // until the process has ended
		t.Fatal("run does not end by SIGINT")
	}
	w.endsBy(b, syscall.SIGINT)
}

// A command that was started with SIGHUP ignored, as by nohup, must continue after SIGHUP. attach must end with its terminal nevertheless.
func TestHangupIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "echo ready; exec cat")
	nohup := func(command string) *terminal {
		return w.openSize(80, 24, exec.Command("/bin/sh", "-c", "trap '' HUP; exec proxy "+command))
	}
	run, attach := nohup("run -- sh -c 'echo ready; read x; exit 7'"), nohup("attach s")
	run.expect("ready")
	testkit.Must(t, run.cmd.Process.Signal(syscall.SIGHUP))
	run.typ("x\r")
	run.ends(7, "")
	attach.expect("ready")
	testkit.Must(t, attach.master.Close())
	attach.wait()
	if got := w.object("info", "s", "--json")["state"]; got != "running" {
		t.Errorf("the session is %v", got)
	}
}

// A leave that is interrupted while the gate does not answer must keep the key of the host, which the gate still knows.
func TestLeaveInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gate, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer gate.Close()
	w.write("join.json", fmt.Sprintf(`{"gates":[%q],"fingerprint":"","name":"h","seed":"SUAGXLONM5M5TWK7VWC4SRRCMAA6UQPUOVXGEHBCDVMUAJ5KEXC66QPG6U"}`, gate.Addr()))
	b := w.begin("leave")
	conn, err := gate.Accept()
	testkit.Must(t, err)
	defer conn.Close()
	w.signal(b.Process, syscall.SIGINT)
	w.endsBy(b, syscall.SIGINT)
	if w.read("join.json") == "" {
		t.Error("the key was deleted")
	}
}

// A signal must end ssh, which has made the terminal raw, in a way in which it restores the terminal.
func TestSignalDuringSSH(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ssh := w.write("ssh", "#!/bin/sh\nbefore=$(stty -g); trap 'stty $before; exit 1' TERM; stty raw; echo ready; sleep 1000 & wait\n")
	testkit.Must(t, os.Chmod(ssh, 0o700))
	w.Env = append(w.Env, "HOLDFAST_SSH_COMMAND="+ssh)
	p := w.open("--on", "away", "status")
	p.expect("ready")
	w.signal(p.cmd.Process, syscall.SIGTERM)
	p.ends(143, "")
}

// If events ends by a signal before --count is reached, it must not succeed.
func TestEventsInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "cat")
	for _, tt := range []struct {
		count string
		code  int
	}{{"1000", 143}, {"0", 0}} {
		p := w.open("events", "--since", "1h", "--count", tt.count)
		p.expect("created s")
		w.signal(p.cmd.Process, syscall.SIGTERM)
		p.ends(tt.code, "")
	}
}

// A signal that comes while a command prints its last message must not take the message away.
func TestSignalDuringLastMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	r, errout, err := os.Pipe()
	testkit.Must(t, err)
	defer r.Close()
	w.fill(errout)
	cmd := exec.Command(w.Program("proxy"), "info", "nothing")
	cmd.Env, cmd.Dir, cmd.Stderr = w.Env, w.Dir, errout
	testkit.Must(t, cmd.Start())
	_ = errout.Close() // the program has its own duplicate
	if !eventually(func() bool { return waitsInWrite(cmd.Process.Pid, unix.Stderr) }) {
		t.Fatal("the command does not wait in a write to its standard error")
	}
	w.signal(cmd.Process, syscall.SIGTERM)
	const pending = "ShdPnd:\t0000000000004000"
	if !eventually(func() bool {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		return !strings.Contains(string(status), pending)
	}) {
		t.Fatal("the command has not received the signal")
	}
	text, err := io.ReadAll(r)
	_ = cmd.Wait() // the exit code contains the result
	if code := cmd.ProcessState.ExitCode(); code != 66 || err != nil || !strings.Contains(string(text), "session_not_found") {
		t.Errorf("exit %d, %v, with the message %q; want 66, and that there is no such session", code, err, strings.TrimLeft(string(text), "\x00"))
	}
}
