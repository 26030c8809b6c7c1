//go:build linux

package cli

import (
	"fmt"
	"strings"
	"testing"
)

// events must print past events and filter them, and must end if a script asks for it.
func TestEventsFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	if out := w.must("events", "--follow=false"); out != "" {
		t.Errorf("events before the first session: %q", out)
	}
	w.spawn("a", "sleep", "1000")
	w.shell("b", "read x; exit 3")
	w.must("resize", "b", "90x30")
	w.must("send", "b", "--enter")
	w.proxy("wait", "b")
	of := func(args ...string) (got []string) {
		t.Helper()
		for line := range strings.Lines(w.must(append([]string{"events", "--json"}, args...)...)) {
			e := decode[map[string]any](t, line)
			id := ""
			if s, ok := e["session"].(map[string]any); ok {
				id = s["id"].(string)
			} else if x, ok := e["exit"].(map[string]any); ok {
				id = x["session_id"].(string)
			}
			got = append(got, fmt.Sprintf("%v %v %s", e["seq"], e["event"], id))
		}
		return got
	}
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"1 created a, 2 created b, 3 resized b, 4 exited b", []string{"--follow=false"}},
		{"1 created a, 2 created b, 3 resized b, 4 exited b", []string{"--follow=false", "--since", "1h"}},
		{"3 resized b, 4 exited b", []string{"--follow=false", "--after", "2"}},
		{"", []string{"--follow=false", "--after", "4"}},
		{"", []string{"--follow=false", "--since", "1ns"}},
		{"2 created b, 3 resized b, 4 exited b", []string{"--follow=false", "--session", "b"}},
		{"1 created a, 2 created b, 4 exited b", []string{"--follow=false", "--kind", "created,exited"}},
		{"1 created a, 2 created b", []string{"--after", "0", "--count", "2"}},
		{"4 exited b", []string{"--follow", "--after", "0", "--kind", "exited", "--session", "b", "--count", "1", "--timeout", "1m"}},
		{"", []string{"--timeout", "10ms"}},
	} {
		if got := strings.Join(of(tt.args...), ", "); got != tt.want {
			t.Errorf("events %v: %s, want %s", tt.args, got, tt.want)
		}
	}
	if r := w.fails(124, "timeout: 1 of 2 events after 300ms", "events", "--after", "3", "--count", "2", "--timeout", "300ms"); r.Out != "4 exited b code 3, exited\n" {
		t.Errorf("events prints %q", r.Out)
	}
	w.fails(64, `--kind "ended": there is no such kind of event; the kinds are created, exited, `, "events", "--kind", "ended")
	w.fails(64, "[after since]", "events", "--after", "1", "--since", "1h")

	// After the death of the proxy, events must continue after the last event that it has printed.
	next := w.lines("events", "--session", "a", "--kind", "resized")
	w.clients(2)
	w.must("resize", "a", "70x20")
	if got := strings.TrimSpace(next()); got != "5 resized a 70x20" {
		t.Errorf("events prints %q", got)
	}
	w.Kill(w.Only("proxy"))
	w.must("resize", "a", "71x21")
	if got := strings.TrimSpace(next()); got != "6 resized a 71x21" {
		t.Errorf("after the death of the proxy it printed %q", got)
	}
}

// A handoff moves attachments. It must not produce events of viewers that attach or detach.
func TestHandoffIsNoEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "bash", "--norc", "--noprofile")
	p := w.open("attach", "s")
	p.ask("echo up-$((1+1))", "up-2")
	w.must("--handoff")
	p.ask("echo moved-$((2+2))", "moved-4")
	if out := w.must("events", "--since", "1h", "--follow=false"); strings.Count(out, " attached s") != 1 || strings.Contains(out, " detached s") {
		t.Errorf("events: %s", out)
	}
	p.typ("\x1cd")
	p.ends(0, "[detached from s]")
	if out := w.must("events", "--since", "1h", "--follow=false"); strings.Count(out, " detached s") != 1 {
		t.Errorf("events after the detach: %s", out)
	}
}

// The foreground process of a session's terminal must come from the operating system.
func TestForeground(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("new", "-d", "--id", "s", "--label", "kind=a", "--", "bash", "--norc", "--noprofile")
	w.must("new", "-d", "--id", "other", "--", "sleep", "1000")
	now := func() map[string]any {
		f, _ := w.object("info", "s", "--json")["foreground"].(map[string]any)
		return f
	}
	if !eventually(func() bool { return now()["name"] == "bash" && now()["children"] == nil }) {
		t.Errorf("foreground of a shell at its prompt: %v", now())
	}
	w.must("send", "s", "cd home; sleep 1000", "--enter")
	if !eventually(func() bool {
		return now()["name"] == "sleep" && now()["cwd"] == w.Path("home") && now()["children"] == true
	}) {
		t.Errorf("foreground while a program runs: %v", now())
	}
	if out := w.must("ls", "--label", "kind=a"); !strings.Contains(out, " sleep ") || strings.Contains(out, "other") {
		t.Errorf("ls --label: %s", out)
	}
	w.must("send", "s", "--key", "C-c")
	w.must("send", "s", "kill -STOP $$", "--enter")
	if !eventually(func() bool { return strings.Contains(w.must("ls"), " stopped ") }) {
		t.Errorf("ls of a stopped shell: %s", w.must("ls"))
	}
	w.must("kill", "s", "--signal", "CONT")
	if !eventually(func() bool { return now()["stopped"] == nil }) {
		t.Errorf("foreground of the continued shell: %v", now())
	}
}
