package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// chaos refuses a daemon that is not named, that of the default directory, and invalid faults. With --now it kills each
// process, and a session continues.
func TestChaosNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Path("default"))
	for code, args := range map[string][]string{
		"directory_not_named:": {"--now", "handoff"},
		"default_directory:":   {"--now", "handoff", "--dir", w.Path("default/holdfast")},
		"unknown_fault:":       {"--now", "flood", "--dir", w.Dir},
		"use --relay":          {"--now", "cut", "--dir", w.Dir},
		"--relay must name":    {"--dir", w.Dir},
		"is in use":            {"--dir", w.Dir, "--relay", w.Dir},
	} {
		if r := w.Run("proxy", append([]string{"chaos"}, args...)...); r.Code == 0 || !strings.Contains(r.Errout, code) {
			t.Errorf("chaos %q: %v, and no %q", args, r, code)
		}
	}
	invalid := w.Command("proxy", "chaos", "--dir", w.Dir, "--relay", w.Path("relay"))
	invalid.Stdin = strings.NewReader(`{"typo": 1}`)
	if r := w.RunCommand(invalid); r.Code != 1 || !strings.Contains(r.Errout, "invalid_report:") {
		t.Errorf("an invalid report: %v", r)
	}
	c := w.dial(client.Options{})
	s := w.spawn(c, "s", shell("exec sleep 1000"))
	proxy, held, keeper := w.Only("proxy"), w.Only("supervisor"), w.Only("keeper")
	w.Must("proxy", "chaos", "--dir", w.Dir, "--now", "kill-proxy,kill-supervisor,kill-keeper,handoff")
	for _, p := range []process{proxy, held, keeper} {
		if p.Running() {
			t.Errorf("process %d was not replaced", p.PID)
		}
	}
	if now, err := c.SessionInfo(w.ctx(), "s"); err != nil || now.PID != s.PID {
		t.Errorf("the session was process %d, and is %+v, %v", s.PID, now, err)
	}
}

// The verdict is ok for a client that resumes at its offset after faults that it asked for. The test of the npm packages
// (scripts/release) has a client that forgets its offset.
func TestChaosVerdict(t *testing.T) {
	t.Parallel()
	x := startChaosApp(t, newWorld(t))
	a := x.attach()
	x.types(a, "1 ")
	x.reads(a, 2<<10)
	x.tell(map[string]any{"fault": "cut"})
	x.reads(a, 2<<10)
	x.tell(map[string]any{"fault": "slow"})
	x.tell(map[string]any{"end": true})
	x.types(a, "\x04")
	x.reads(a, 1<<30)
	v := x.verdict()
	if !v.OK || v.Faults["cut"] != 1 || v.Faults["slow"] != 1 || v.Keys.Arrived != 3 || v.Exits.Reported != 1 || v.Output.Received != v.Output.Printed {
		t.Errorf("the verdict is %+v", v)
	}
}

// A chaosApp is the app of a run of chaos with one session.
type chaosApp struct {
	t     *testing.T
	w     *world
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	c     *client.Client // through the relay
	id    protocol.SessionID
	ended bool // the session
}

// chaosVerdict has the fields of the verdict that the test uses.
type chaosVerdict struct {
	OK     bool
	Faults map[string]int
	Output struct{ Printed, Received int }
	Keys   struct{ Sent, Arrived int }
	Exits  struct{ Real, Reported int }
	Errors []string
}

func startChaosApp(t *testing.T, w *world) *chaosApp {
	x := &chaosApp{t: t, w: w, cmd: w.Command("proxy", "chaos", "--dir", w.Dir, "--relay", w.Path("relay"), "--for", "0", "--sessions", "1", "--seed", "1")}
	in, err := x.cmd.StdinPipe()
	out, err2 := x.cmd.StdoutPipe()
	testkit.Must(t, errors.Join(err, err2, x.cmd.Start()))
	x.in, x.out = in, bufio.NewScanner(out)
	var line struct {
		Begin struct {
			Dir      string
			Sessions []protocol.SessionID
		}
	}
	x.hears(&line)
	c, err := client.Dial(w.ctx(), client.Options{Dir: line.Begin.Dir, Name: "app"})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	x.c, x.id = c, line.Begin.Sessions[0]
	return x
}

// hears reads the next line of chaos.
func (x *chaosApp) hears(line any) {
	x.t.Helper()
	if !x.out.Scan() {
		x.t.Fatalf("chaos ended: %v", x.cmd.Wait())
	}
	if err := json.Unmarshal(x.out.Bytes(), line); err != nil {
		x.t.Fatalf("%q: %v", x.out.Text(), err)
	}
}

func (x *chaosApp) tell(line map[string]any) {
	x.t.Helper()
	if _, isFault := line["fault"]; !isFault {
		line["session_id"] = x.id
	}
	text, err := json.Marshal(line)
	if err == nil {
		_, err = fmt.Fprintf(x.in, "%s\n", text)
	}
	testkit.Must(x.t, err)
	if fault, isFault := line["fault"]; isFault {
		var answer struct{ Done string }
		if x.hears(&answer); answer.Done != fault {
			x.t.Fatalf("instead of %q, chaos has done %q", fault, answer.Done)
		}
	}
}

func (x *chaosApp) attach() *client.Attachment {
	x.t.Helper()
	a, err := x.c.Attach(x.t.Context(), x.id, client.AttachOptions{Writer: "app"})
	testkit.Must(x.t, err)
	return a
}

func (x *chaosApp) types(a *client.Attachment, keys string) {
	x.t.Helper()
	x.tell(map[string]any{"typed": keys})
	if _, err := a.Write([]byte(keys)); err != nil {
		x.t.Fatal(err)
	}
}

// reads reports output until it has read a number of bytes, or until the session has ended.
func (x *chaosApp) reads(a *client.Attachment, bytes int) {
	x.t.Helper()
	for n := 0; n < bytes && !x.ended; {
		m, err := a.Receive(limit)
		testkit.Must(x.t, err)
		switch m.Kind {
		case client.Output:
			n += len(m.Data)
			x.tell(map[string]any{"received": m.Data})
		case client.Exited:
			x.ended = true
			x.tell(map[string]any{"exit_code": m.Exit.ExitCode})
		}
	}
}

// verdict closes the reports, and returns the verdict. The exit code must be that of the verdict.
func (x *chaosApp) verdict() (v chaosVerdict) {
	x.t.Helper()
	_ = x.c.Close() // its connection was cut
	testkit.Must(x.t, x.in.Close())
	var stop struct{ Stop protocol.SessionID }
	if x.hears(&stop); stop.Stop != x.id {
		x.t.Errorf("chaos stops %q", stop.Stop)
	}
	x.hears(&struct{ Verdict *chaosVerdict }{&v})
	late := time.AfterFunc(limit, func() { _ = x.cmd.Process.Kill() })
	defer late.Stop()
	_ = x.cmd.Wait() // the exit code says it
	if code := x.cmd.ProcessState.ExitCode(); (code == 0) != v.OK || code > 1 {
		x.t.Errorf("chaos exited with %d after the verdict %+v", code, v)
	}
	return v
}
