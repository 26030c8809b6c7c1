//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start") // so that run does not have to start the programs

	r := w.proxy("run", "--", "/bin/sh", "-c", `printf 'one\ntwo\r\n\033[1mthree\033[m'; exit 3`)
	if r.Code != 3 || r.Out != "one\ntwo\r\n\x1b[1mthree\x1b[m" || r.Errout != "" {
		t.Errorf("run: %v", r)
	}
	if out := w.must("ls", "--json"); out != "[]\n" {
		t.Errorf("the session of the run still exists: %s", out)
	}
	if r := w.proxy("run", "--", "/bin/sh", "-c", "kill -9 $$"); r.Code != 137 {
		t.Errorf("run of a command that is killed: %v", r)
	}
	w.fails(71, "spawn_failed", "run", "--", "/no/such/program")
	w.fails(64, "run needs a command", "run")
	w.fails(64, "--kill", "run", "--kill", "--", "true")

	// The command must receive the size, the directory and the environment.
	out := w.must("run", "--size", "100x30", "--cwd", w.mkdir("there"), "--env", "V=1 2", "--", "/bin/sh", "-c", `stty size; pwd; echo "$V"`)
	if want := "30 100\n" + w.Path("there") + "\n1 2\n"; out != want {
		t.Errorf("run prints %q, want %q", out, want)
	}

	// Tests --text and --json.
	const script = `printf '\033[31mred\033[m\rRED\n'; seq 1 40; exit 4`
	lines := "RED\n"
	for i := 1; i <= 40; i++ {
		lines += strconv.Itoa(i) + "\n"
	}
	if r := w.proxy("run", "--text", "--", "/bin/sh", "-c", script); r.Code != 4 || r.Out != lines || r.Errout != "" {
		t.Errorf("run --text: %v", r)
	}
	r = w.proxy("run", "--json", "--id", "j", "--", "/bin/sh", "-c", script)
	o := decode[map[string]any](t, r.Out)
	if r.Code != 4 || o["id"] != "j" || o["exit_code"] != 4.0 || o["output"] != lines || o["truncated"] != false || o["outcome"] != "natural" || o["instance"] == "" || o["duration_ms"] == nil {
		t.Errorf("run --json: %v", r)
	}
	if r := w.proxy("run", "--text", "--scrollback", "5", "--", "/bin/sh", "-c", script); r.Code != 4 || !strings.HasSuffix(r.Out, "\n39\n40\n") ||
		!strings.Contains(r.Errout, "lines are no longer kept") {
		t.Errorf("run --text of more lines than the history holds: %v", r)
	}
}

// A background is a command that runs beside the test.
type background struct {
	*os.Process
	end chan result
}

// begin starts a command in the background.
func (w *world) begin(args ...string) *background {
	w.T.Helper()
	cmd := exec.Command(filepath.Join(w.Bin, "proxy"), args...)
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = &out, &errout, w.Env, w.Dir
	testkit.Must(w.T, cmd.Start())
	b := &background{cmd.Process, make(chan result, 1)}
	go func() {
		_ = cmd.Wait() // the exit code contains the result
		b.end <- result{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Errout: errout.String()}
	}()
	return b
}

// wait waits for the end of a background command, and returns its result.
func (w *world) wait(b *background) result {
	w.T.Helper()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case r := <-b.end:
		return r
	case <-late.C:
		w.T.Fatal("the background command has not ended within the limit")
		return result{}
	}
}

// The same id must mean the same run, while it runs and after its end.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	line := []string{"run", "--id", "k", "--", "/bin/sh", "-c", `echo started >>count; echo first; read x; echo "got $x"; exit 5`}
	first := w.begin(line...)
	if !eventually(func() bool { return w.proxy("info", "k").Code == 0 }) {
		t.Fatal("the run does not start")
	}
	w.shows("k", "first")
	second := w.begin(line...)
	if !eventually(func() bool { return w.object("info", "k", "--json")["attachments"] == 2.0 }) {
		t.Fatal("the second command has not attached to the run")
	}
	// The death of a supervisor or a proxy must not disturb either command.
	w.Kill(w.Only("supervisor"))
	w.Kill(w.Only("proxy"))
	w.must("send", "k", "it", "--enter")
	const want = "first\nit\ngot it\n"
	for _, b := range []*background{first, second} {
		if r := w.wait(b); r.Code != 5 || r.Out != want || r.Errout != "" {
			t.Errorf("run: %v, want %q", r, want)
		}
	}
	if r := w.proxy(line...); r.Code != 5 || r.Out != want {
		t.Errorf("the same run after its end: %v", r)
	}
	if n := w.read("count"); n != "started\n" {
		t.Errorf("the lines written by the starts are %q, want one", n)
	}
	w.fails(73, "session_exists: run k has another command", "run", "--id", "k", "--", "true")
	long := []string{"run", "--", "/bin/sh", "-c", "echo $#", "sh"}
	for range 400 {
		long = append(long, strings.Repeat("x", 100))
	}
	if r := w.proxy(long...); r.Code != 0 || r.Out != "400\n" {
		t.Errorf("a command of 40 KiB: %v", r)
	}
	w.spawn("other", "sleep", "1000")
	w.fails(73, "session_exists", "run", "--id", "other", "--", "sleep", "1000")

	// The beginning of much output is only on disk. If it is not stored there either, run must report that.
	const all = 1988895
	big := []string{"run", "--id", "big", "--durable", "full", "--", "/bin/sh", "-c", "seq 1 300000"}
	r := w.proxy(big...)
	if r.Code != 0 || !strings.HasSuffix(r.Out, "\n299999\n300000\n") {
		t.Errorf("run with much output: exit %d, %d bytes, %q", r.Code, len(r.Out), r.Errout)
	}
	if len(r.Out) != all && r.Errout == "" {
		t.Errorf("run printed %d bytes of %d without a report of the missing bytes", len(r.Out), all)
	}
	if r = w.proxy(big...); r.Code != 0 || len(r.Out) != all || !strings.HasPrefix(r.Out, "1\n2\n") || !strings.HasSuffix(r.Out, "\n299999\n300000\n") || r.Errout != "" {
		t.Errorf("the same run again: exit %d, %d bytes of %d, %q", r.Code, len(r.Out), all, r.Errout)
	}
	big = []string{"run", "--id", "bigger", "--", "/bin/sh", "-c", "seq 1 300000"}
	w.proxy(big...)
	if r = w.proxy(big...); r.Code != 0 || !strings.HasSuffix(r.Out, "\n299999\n300000\n") || !strings.Contains(r.Errout, "bytes of the output are no longer kept") {
		t.Errorf("the same run again, with only its last output on disk: exit %d, %d bytes, %q", r.Code, len(r.Out), r.Errout)
	}
}

// run must wait for a slow reader.
func TestRunSlowReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	cmd := exec.Command("/bin/sh", "-c", `proxy run -- /bin/sh -c 'echo ready; until [ -e begin ]; do sleep 0.1; done; seq 1 800000' | { read x; until [ -e go ]; do sleep 0.1; done; cat; } | tail -n +1 >got`)
	done := make(chan result, 1)
	go func() { done <- w.run(cmd, nil) }()
	// The command waits for the reader only when it has attached, and the ring may lose what is printed before.
	var list []map[string]any
	if !eventually(func() bool {
		list = decode[[]map[string]any](t, w.must("ls", "--json"))
		return len(list) == 1 && list[0]["attachments"] == 1.0
	}) {
		t.Fatalf("the run has not attached; the sessions are %v", list)
	}
	w.write("begin", "")
	// The output has stopped: the ring is half full, and the program has not ended.
	last := -1.0
	if !eventually(func() bool {
		list = decode[[]map[string]any](t, w.must("ls", "--json"))
		if len(list) == 0 {
			return false
		}
		n := list[0]["output_offset"].(float64)
		same := n == last && n > 1<<19
		last = n
		return same
	}) {
		t.Fatal("the output does not stop although nobody reads")
	}
	w.write("go", "")
	r := <-done
	got := w.read("got")
	if !strings.HasSuffix(got, "\n800000\n") || strings.Count(got, "\n") != 800000 {
		t.Errorf("the reader received %d lines, want 800000; %v", strings.Count(got, "\n"), r)
	}
}

func TestRunTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	const script = `echo begun; trap 'echo told; exit 9' HUP; while :; do read x || sleep 0.1; done`
	w.fails(124, "timeout: not ended after 300ms; run t continues; the same command with --id t returns to it",
		"run", "--id", "t", "--timeout", "300ms", "--", "/bin/sh", "-c", script)
	if w.object("info", "t", "--json")["state"] != "running" {
		t.Error("the run has ended")
	}
	w.shows("t", "begun")
	r := w.fails(124, "timeout: run t had not ended after 10ms, and was ended",
		"run", "--id", "t", "--timeout", "10ms", "--kill", "--", "/bin/sh", "-c", script)
	if r.Out != "begun\ntold\n" {
		t.Errorf("the run printed %q", r.Out)
	}
	if r := w.proxy("run", "--id", "t", "--", "/bin/sh", "-c", script); r.Code != 9 {
		t.Errorf("the same run after its end: %v", r)
	}
	r = w.proxy("run", "--json", "--id", "u", "--timeout", "1ms", "--", "/bin/sh", "-c", script)
	if o := decode[map[string]any](t, r.Out); r.Code != 124 || o["timed_out"] != true || o["exit_code"] != nil || o["id"] != "u" {
		t.Errorf("run --json of a run that continues: %v", r)
	}
	w.shows("u", "begun")
	r = w.proxy("run", "--json", "--id", "u", "--timeout", "1ms", "--kill", "--", "/bin/sh", "-c", script)
	if o := decode[map[string]any](t, r.Out); r.Code != 124 || o["timed_out"] != true || o["exit_code"] != 9.0 || o["output"] != "begun\ntold\n" {
		t.Errorf("run --json --kill: %v", r)
	}
}

// An interrupt must reach the command. When the client ends by another signal or by a broken pipe, only a run
// with an id may continue.
func TestRunSignals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	const script = `trap 'echo interrupted; exit 6' INT; echo ready; while :; do read x || sleep 0.1; done`

	for _, tt := range []struct {
		name     string
		signal   syscall.Signal
		code     int
		outlives bool
	}{
		{"int", syscall.SIGINT, 6, true}, // the exit code comes from the exit record
		{"", syscall.SIGINT, 6, false},
		{"term", syscall.SIGTERM, 143, true},
		{"", syscall.SIGTERM, 143, false},
		{"hup", syscall.SIGHUP, 129, true},
	} {
		args := []string{"run"}
		if tt.name != "" {
			args = append(args, "--id", tt.name)
		}
		p := w.begin(append(args, "--", "/bin/sh", "-c", script)...)
		id := ""
		if !eventually(func() bool {
			for _, s := range decode[[]map[string]any](t, w.must("ls", "--json")) {
				if s["attachments"] == 1.0 {
					id = s["id"].(string)
				}
			}
			return id != ""
		}) {
			t.Fatal("the run does not start")
		}
		w.shows(id, "ready")
		testkit.Must(t, p.Signal(tt.signal))
		r := w.wait(p)
		if r.Code != tt.code {
			t.Errorf("%q, %v: %v", tt.name, tt.signal, r)
		}
		if left := w.proxy("info", id).Code == 0; left != tt.outlives {
			t.Errorf("%q, %v: the session still exists: %v", tt.name, tt.signal, left)
		}
	}

	r := w.run(exec.Command("/bin/bash", "-c", "proxy run -- yes | head -n 1; echo ${PIPESTATUS[0]}"), nil)
	if r.Out != "y\n141\n" {
		t.Errorf("run with a broken pipe: %v", r)
	}
	for _, s := range decode[[]map[string]any](t, w.must("ls", "--json")) {
		if s["argv"].([]any)[0] == "yes" {
			t.Errorf("the session of yes still exists: %v", s)
		}
	}
}

// In a terminal, keys must go to the command, and the detach keys must leave it.
func TestRunInTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	line := []string{"run", "--id", "tty", "--", "/bin/sh", "-c", `trap 'echo caught' INT; echo ready; until read x && [ -n "$x" ]; do :; done; echo "[$x]"; exit 7`}
	p := w.open(line...)
	p.expect("ready")
	p.typ("\x03")
	p.expect("caught")
	p.typ("\x1cd")
	p.ends(75, "run tty continues")
	p = w.open(append([]string{"run", "--timeout", "500ms"}, line[1:]...)...)
	p.ends(124, "timeout: not ended after 500ms; run tty continues")
	p = w.open(line...)
	p.expect("caught")
	p.typ("b\r")
	p.expect("[b]")
	p.ends(7, "")
	p = w.open(line...)
	p.expect("[b]")
	p.ends(7, "")

	// Without a terminal as standard input, the output must still be shown, and the terminal must be
	// restored.
	cmd := exec.Command("/bin/sh", "-c", `proxy run --id keys -- /bin/sh -c "printf '\033[?25l\033[?2004hshown\n'; exit 8" </dev/null`)
	p = w.openSize(80, 24, cmd)
	p.expect("shown")
	p.ends(8, "")
}

// If the command of a run ends while the user detaches, run must end as the command did: it must not say that the run
// continues. A run that continues must be named.
func TestRunEndsWhileDetaching(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	for i := range 8 { // either event may be handled first
		id := fmt.Sprintf("r%d", i)
		p := w.open("run", "--id", id, "--", "sh", "-c", "echo ready; read x; exit 7")
		p.expect("ready")
		testkit.Must(t, p.cmd.Process.Signal(syscall.SIGSTOP))
		p.typ("\x1cd")
		w.must("send", id, "--enter", "x")
		if r := w.proxy("wait", id); r.Code != 7 {
			t.Fatal(r)
		}
		testkit.Must(t, p.cmd.Process.Signal(syscall.SIGCONT))
		if p.ends(7, ""); strings.Contains(p.text(), "[detached") != strings.Contains(p.text(), "run "+id+" has ended") || strings.Contains(p.text(), "continues") {
			t.Errorf("run says %q", p.text())
		}
	}
}
