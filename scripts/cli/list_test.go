//go:build linux

package cli

import (
	"bufio"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// fields returns the sorted names in a JSON object.
func fields(object map[string]any) string {
	return strings.Join(slices.Sorted(maps.Keys(object)), " ")
}

// Scripts depend on the names and types of a session's fields. exit_code must exist only after the exit.
func TestListAndInfo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	if out := w.must("ls"); !strings.Contains(out, "no sessions") {
		t.Errorf("ls without sessions prints %q", out)
	}
	if out := w.must("ls", "--json"); out != "[]\n" {
		t.Errorf("ls --json without sessions prints %q", out)
	}
	w.must("new", "-d", "--id", "one", "--originator", "me", "--label", "k=v", "--size", "90x30", "--", "/bin/sh", "-c", "echo hello; read x; exit 5")
	w.must("new", "-d", "--id", "two", "--", "sleep", "1000")
	w.shows("one", "hello")
	for _, filter := range []string{"--label=k=w", "--originator=you"} {
		if out := w.must("ls", filter); out != "no session matches --label and --originator\n" {
			t.Errorf("ls %s prints %q", filter, out)
		}
	}

	const running = "argv attachments created_at cwd foreground id instance labels last_io_at originator output_offset pid ring_start scrollback_lines size size_policy state"
	info := w.object("info", "one", "--json")
	if got := fields(info); got != running {
		t.Errorf("info has\n%s, want\n%s", got, running)
	}
	if info["state"] != "running" || info["output_offset"] != 7.0 || fmt.Sprint(info["size"]) != "map[cols:90 rows:30]" ||
		fmt.Sprint(info["labels"]) != "map[k:v]" || info["pid"].(float64) < 2 || len(info["instance"].(string)) != 16 {
		t.Errorf("info prints %v", info)
	}
	for _, f := range []string{"created_at", "last_io_at"} {
		at, err := time.Parse(time.RFC3339, info[f].(string))
		if err != nil || time.Since(at) > time.Hour || time.Since(at) < -time.Minute {
			t.Errorf("%s is %v, %v", f, info[f], err)
		}
	}
	list := decode[[]map[string]any](t, w.must("ls", "--json"))
	if len(list) != 2 || list[0]["id"] != "one" || list[1]["id"] != "two" || fields(list[0]) != running {
		t.Errorf("ls --json prints %v", list)
	}
	if mine := decode[[]map[string]any](t, w.must("ls", "--json", "--originator", "me")); len(mine) != 1 || mine[0]["id"] != "one" {
		t.Errorf("ls --originator prints %v", mine)
	}

	w.must("send", "one", "--enter")
	if r := w.proxy("wait", "one"); r.Code != 5 {
		t.Errorf("wait: %v", r)
	}
	info = w.object("info", "one", "--json")
	if got, want := fields(info), strings.Replace(running, "cwd foreground id", "cwd exit exit_code id", 1); got != want {
		t.Errorf("info has\n%s, want\n%s", got, want)
	}
	exit, ok := info["exit"].(map[string]any)
	if !ok || info["state"] != "exited" || info["exit_code"] != 5.0 || exit["exit_code"] != 5.0 || exit["outcome"] != "natural" || exit["reason"] != "exited" {
		t.Errorf("info prints %v", info)
	}
	waited := w.proxy("wait", "one", "--json")
	if got := decode[map[string]any](t, waited.Out); waited.Code != 5 || got["exit_code"] != 5.0 || fmt.Sprint(got["last_lines"]) != "[hello]" {
		t.Errorf("wait --json: %v", waited)
	}

	// The text output must contain the same facts.
	out := w.must("ls")
	for _, want := range []string{"ID", "one", "exited 5", "two", "running", "sleep 1000"} {
		if !strings.Contains(out, want) {
			t.Errorf("ls lacks %q: %s", want, out)
		}
	}
	out = w.must("info", "one")
	for _, want := range []string{"exited 5", "90x30", "label k", "hello", "me", "/bin/sh -c echo hello"} {
		if !strings.Contains(out, want) {
			t.Errorf("info lacks %q: %s", want, out)
		}
	}
	// Labels and commands of a session must not act on the terminal that lists it.
	w.must("new", "-d", "--id", "rude", "--originator", "\x1b]0;o\x07", "--label", "k=\x1b[31m", "--", "sh", "-c", "sleep 1000 # \x1b[2J")
	if out := w.must("ls") + w.must("info", "rude"); strings.Contains(out, "\x1b") {
		t.Errorf("ls or info prints escape sequences: %q", out)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "sleep", "1000")
	status := w.object("status", "--json")
	for _, name := range []string{"proxy", "supervisor"} {
		p, ok := status[name].(map[string]any)
		if !ok {
			t.Fatalf("status prints %v", status)
		}
		if p["pid"] != float64(w.Only(name).PID) || p["version"] == "" || p["sessions"] != 1.0 {
			t.Errorf("the status of the %s is %v", name, p)
		}
		if up, ok := p["uptime"].(float64); !ok || up <= 0 || up > 3600 {
			t.Errorf("the uptime of the %s is %v", name, p["uptime"])
		}
		if r, ok := p["protocol"].(map[string]any); !ok || r["min"].(float64) < 1 || r["max"].(float64) < r["min"].(float64) {
			t.Errorf("the protocol range of the %s is %v", name, p["protocol"])
		}
	}
	if k, ok := status["supervisor"].(map[string]any)["keeper"].(map[string]any); !ok || k["pid"] != float64(w.Only("keeper").PID) || k["sessions"] != 1.0 {
		t.Errorf("the status of the keeper is %v", k)
	}
	out := w.must("status")
	for _, want := range []string{"proxy", "supervisor", "1 running", "skew: none"} {
		if !strings.Contains(out, want) {
			t.Errorf("status lacks %q: %s", want, out)
		}
	}
	// After a handoff the replaced proxy must not answer any more.
	if out := w.must("--handoff"); !strings.Contains(out, "took over from pid") {
		t.Errorf("handoff prints %q", out)
	}
	if now := w.object("status", "--json")["proxy"].(map[string]any); now["pid"] == status["proxy"].(map[string]any)["pid"] {
		t.Error("the same proxy answers after a handoff")
	}
	w.must("stop")
	if out := w.must("--handoff"); !strings.Contains(out, "no proxy ran before") {
		t.Errorf("handoff prints %q", out)
	}
}

// lines starts a command that prints all the time, and returns a function that reads its next line.
func (w *world) lines(args ...string) (next func() string) {
	w.T.Helper()
	cmd := exec.Command(filepath.Join(w.Bin, "proxy"), args...)
	cmd.Env, cmd.Dir = w.Env, w.Dir
	out, err := cmd.StdoutPipe()
	testkit.Must(w.T, err)
	testkit.Must(w.T, cmd.Start())
	lines := make(chan string)
	done := make(chan struct{})
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-done:
				return
			}
		}
	}()
	w.T.Cleanup(func() {
		close(done)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return func() string {
		w.T.Helper()
		select {
		case l, ok := <-lines:
			if !ok {
				w.T.Fatalf("%s has ended", cmd)
			}
			return l
		case <-time.After(limit):
			w.T.Fatalf("%s prints no line within the limit", cmd)
		}
		return ""
	}
}

// Each event must be one line, which scripts can parse. The death of a proxy must not be an event.
func TestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("before", "sleep", "1000")
	asJSON, asText := w.lines("events", "--json"), w.lines("events")
	w.clients(4) // each command has a second connection for requests
	next := func(kind string) map[string]any {
		t.Helper()
		e := decode[map[string]any](t, asJSON())
		if e["event"] != kind {
			t.Fatalf("the event is %v, want %s", e, kind)
		}
		if text := asText(); !strings.HasPrefix(text, fmt.Sprintf("%v %s s", e["seq"], kind)) {
			t.Errorf("the event's text line is %q", text)
		}
		return e
	}
	w.must("new", "-d", "--id", "s", "--early-exit", "0", "--label", "title=T", "--", "/bin/sh", "-c", "echo bye; read x; exit 4")
	e := next("created")
	if s, ok := e["session"].(map[string]any); !ok || s["id"] != "s" || s["state"] != "running" {
		t.Errorf("created: %v", e)
	}
	seq := e["seq"].(float64)
	w.must("resize", "s", "100x40")
	if e = next("resized"); e["seq"] != seq+1 {
		t.Errorf("resized: %v", e)
	}
	w.Kill(w.Only("proxy"))
	w.must("send", "s", "--enter")
	e = next("exited")
	if x, ok := e["exit"].(map[string]any); !ok || e["seq"] != seq+2 || x["exit_code"] != 4.0 || x["session_title"] != "T" || fmt.Sprint(x["last_lines"]) != "[bye]" {
		t.Errorf("exited: %v", e)
	}
}

// clients waits until the proxy has n connections beside the connection of this request.
func (w *world) clients(n int) {
	w.T.Helper()
	var clients any
	if !eventually(func() bool {
		clients = w.object("status", "--json")["proxy"].(map[string]any)["clients"]
		return clients == float64(n+1)
	}) {
		w.T.Fatalf("%v clients, want %d and our own", clients, n)
	}
}
