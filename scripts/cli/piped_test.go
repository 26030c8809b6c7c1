//go:build linux

package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdfast/shared/testkit"
)

// piped starts a command whose standard output the test reads.
func (w *world) piped(args ...string) (cmd *exec.Cmd, out io.Reader, errout *bytes.Buffer) {
	w.T.Helper()
	cmd, errout = exec.Command(filepath.Join(w.Bin, "proxy"), args...), &bytes.Buffer{}
	cmd.Env, cmd.Dir, cmd.Stderr = w.Env, w.Dir, errout
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	testkit.Must(w.T, err)
	return cmd, out, errout
}

// A slow reader of a pipe must receive every line that is printed while it is attached. A reader for which
// the session cannot wait must be told how many bytes it missed.
func TestAttachIntoPipe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "HOLDFAST_RING_BYTES=65536")
	const lines = 400_000 // 2.7 MB, more than client, sockets and pipe hold
	w.shell("paced", fmt.Sprintf("read x; seq %d", lines))
	cmd, out, errout := w.piped("attach", "paced")
	if !eventually(func() bool { return w.object("info", "paced", "--json")["attachments"] == 1.0 }) {
		t.Fatal("attach did not attach within the limit")
	}
	w.must("send", "paced", "--enter")
	printed := -1.0 // the test reads only after the output has stopped, because the program has ended or waits
	if !eventually(func() bool {
		before := printed
		printed = w.object("info", "paced", "--json")["output_offset"].(float64)
		return printed > 300_000 && printed == before
	}) {
		t.Fatal("the output does not stop although nobody reads")
	}
	reader := bufio.NewScanner(out)
	next := 1
	for reader.Scan() {
		if strings.TrimSpace(reader.Text()) == fmt.Sprint(next) {
			next++
		}
	}
	if err := cmd.Wait(); err != nil || next != lines+1 || errout.Len() > 0 {
		t.Errorf("%d lines of %d in order, %v, %s", next-1, lines, err, errout)
	}

	w.shell("told", "read x; seq 1000000")
	cmd, out, errout = w.piped("attach", "--read-only", "told")
	if !eventually(func() bool { return w.object("info", "told", "--json")["attachments"] == 1.0 }) {
		t.Fatal("attach --read-only did not attach within the limit")
	}
	w.must("send", "told", "--enter")
	w.must("wait", "told") // the program does not wait for a read-only viewer
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(errout.String(), " bytes of the output were skipped") {
		t.Errorf("the number of skipped bytes is not reported: %v, %s", err, errout)
	}
}

// A reader of a pipe for which the session waits would delay other viewers, also those that are read-only.
func TestAttachIntoPipeBesideViewer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "exec cat")
	for i, want := range []struct {
		args []string
		mode string
	}{{[]string{"attach", "s", "--read-only"}, "read_only"}, {[]string{"attach", "s"}, "shared"}} {
		cmd, _, _ := w.piped(want.args...)
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		var info struct{ Viewers []struct{ Mode string } }
		if !eventually(func() bool {
			info = decode[struct{ Viewers []struct{ Mode string } }](t, w.must("info", "s", "--json"))
			return len(info.Viewers) > i
		}) {
			t.Fatalf("%v did not attach within the limit", want.args)
		}
		if got := info.Viewers[i].Mode; got != want.mode {
			t.Errorf("the mode of %v is %s, want %s", want.args, got, want.mode)
		}
	}
}

// A command whose output cannot be written must say so, and end with EX_IOERR.
func TestOutputFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "echo ready; exec cat")
	w.shows("s", "ready")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	testkit.Must(t, err)
	defer full.Close()
	commands := []string{
		"ls --json", "status", "screen s", "search s ready", "export s", "events --since 1h", "--help", "--version", "new -d --id t -- sleep 1000", "run -- echo ready",
		"attach s --read-only", "record s -o -", "wait s --text ready",
	}
	running := make([]*background, len(commands))
	for i, c := range commands {
		running[i] = w.beginWith(full, nil, strings.Fields(c)...)
	}
	for i, c := range commands {
		if r := w.wait(running[i]); r.Code != 74 || !strings.Contains(r.Errout, "standard output cannot be written: no space left on device") {
			t.Errorf("proxy %s: %v, want exit 74", c, r)
		}
	}

	for _, c := range []string{"--help", "--version", "completion bash"} {
		cmd := exec.Command(w.Program("supervisor"), strings.Fields(c)...)
		cmd.Stdout = full
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 74 {
			t.Errorf("supervisor %s: %v, want exit 74", c, err)
		}
	}

	// A run that continues, or whose output is still kept, must be named, so that the user can return to it.
	for _, c := range []string{"run -- sh -c echo${IFS}ready;exec${IFS}sleep${IFS}1000", "run --json --timeout 100ms -- sleep 1000", "run --text -- echo ready"} {
		r := w.wait(w.beginWith(full, nil, strings.Fields(c)...))
		_, rest, _ := strings.Cut(r.Errout, "the same command with --id ")
		id, _, isNamed := strings.Cut(rest, " returns to it")
		if r.Code != 74 || !isNamed {
			t.Errorf("proxy %s: %v, want exit 74 and the id of the run", c, r)
			continue
		}
		w.must("info", id)
	}
}

// attach must read no more of its standard input than it reports or the session has accepted, if a signal ends it while the
// session reads nothing.
func TestInputLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "stty raw -echo; echo ready; exec sleep 1000")
	w.shows("s", "ready")
	in, err := os.Create(w.Path("in"))
	testkit.Must(t, err)
	defer in.Close()
	testkit.Must(t, in.Truncate(32<<20))
	const queue, window = 8 << 20, 1 << 20 // what the session accepts, and what the client keeps without an acknowledgement
	offset := func() int64 {
		n, err := in.Seek(0, io.SeekCurrent) // the command shares the offset of the file
		testkit.Must(t, err)
		return n
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	testkit.Must(t, err)
	defer null.Close()
	b := w.beginWith(null, in, "attach", "s")
	if !eventually(func() bool { return offset() >= queue+window }) {
		t.Fatalf("attach has read %d bytes", offset())
	}
	testkit.Must(t, b.Signal(syscall.SIGTERM))
	r := w.wait(b)
	said := regexp.MustCompile(`(\d+) bytes of input may not have reached session s`).FindStringSubmatch(r.Errout)
	if r.Code != 128+15 || said == nil {
		t.Fatal(r)
	}
	lost, _ := strconv.ParseInt(said[1], 10, 64)
	if accepted := offset() - lost; accepted < queue || accepted > queue+64<<10 {
		t.Errorf("attach has read %d bytes and reports %d as lost, so the session has accepted %d, but its queue has %d", offset(), lost, accepted, queue)
	}
}

// An upgrade must replace both programs, also if nobody reads its output any more.
func TestUpgradeOutputClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	before := w.object("status", "--json")
	r, out, err := os.Pipe()
	testkit.Must(t, err)
	_ = r.Close()
	b := w.beginWith(out, nil, "upgrade")
	_ = out.Close() // the program has its own duplicate
	if r := w.wait(b); r.Code != 0 {
		t.Errorf("upgrade: %v", r)
	}
	after := w.object("status", "--json")
	if before["proxy"].(map[string]any)["pid"] == after["proxy"].(map[string]any)["pid"] {
		t.Error("the proxy was not replaced")
	}
}

// serveInto starts a proxy that logs to out, and returns it when it serves, or when it has ended. ended is closed at its end.
func (w *world) serveInto(out *os.File) (cmd *exec.Cmd, ended <-chan struct{}) {
	w.T.Helper()
	cmd = exec.Command(w.Program("proxy"), "serve")
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = w.Env, w.Dir, out, out
	testkit.Must(w.T, cmd.Start())
	end := make(chan struct{})
	go func() { _ = cmd.Wait(); close(end) }()
	if !eventually(func() bool {
		select {
		case <-end:
			return true
		default:
			_, err := os.Lstat(w.Path("proxy.sock")) // a command that is too early starts another proxy
			return err == nil
		}
	}) {
		w.T.Fatal("the proxy does not serve")
	}
	w.must("status")
	return cmd, end
}

// A proxy must serve also if the reader of its log has ended.
func TestLogClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, out, err := os.Pipe()
	testkit.Must(t, err)
	_ = r.Close()
	defer out.Close()
	cmd, ended := w.serveInto(out)
	select {
	case <-ended:
		t.Errorf("the proxy has ended: %v", cmd.ProcessState)
	default:
	}
}

// A proxy must not wait for the reader of its log, and must write the lines when the log is read again.
func TestLogUnread(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, out, err := os.Pipe()
	testkit.Must(t, err)
	defer r.Close()
	w.serveInto(out)
	w.fill(out)
	_ = out.Close() // the proxy has its own duplicate
	for range 2 {   // the first one ends with a line of the log
		if !eventually(func() bool { return w.proxy("handoff", "--dry-run").Code == 0 }) {
			t.Fatal("the proxy does not hand off")
		}
	}
	if _, err := io.CopyN(io.Discard, r, int64(buffered(r))); err != nil {
		t.Fatal(err)
	}
	stop := w.begin("stop")
	log, err := io.ReadAll(r)
	if got := w.wait(stop); got.Code != 0 || err != nil {
		t.Errorf("stop: %v, %v", got, err)
	}
	if !strings.Contains(string(log), "proxy stops") {
		t.Errorf("the log ends with %q", log)
	}
}
