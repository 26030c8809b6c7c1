//go:build linux

package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// However a session ends, why must tell how it ended, who asked for it, and its working directory.
func TestWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := w.mkdir("there")
	const loop = "; while :; do read x || sleep 0.1; done"
	for _, tt := range []struct {
		name, script string
		end          func(pid int)
		asked        bool
		says         []string
		record       map[string]any
	}{
		{"code", "cd " + dir + "; printf '\\033]7;file://%s\\007' $PWD; echo ready; read x; echo bye; exit 3",
			func(int) { w.must("send", "code", "--enter") }, false,
			[]string{" with code 3, after ", "\nno client asked for it: the program ended by itself\n", "\nwas in " + dir + "\n", "\nlast lines:\n  ready\n", "\n  bye\n"},
			map[string]any{"exit_code": 3.0, "outcome": "natural", "ended_by": nil, "cwd": dir}},
		{"kill", "cd " + dir + "; echo ready" + loop,
			func(int) { w.must("kill", "kill") }, true,
			[]string{" by SIGHUP, after ", "\nasked for by proxy pid ", " (user_requested)\n", "\nwas in " + dir + "\n"},
			map[string]any{"signal": "SIGHUP", "outcome": "soft", "reason": "user_requested", "cwd": dir}},
		{"hard", "trap '' HUP; echo ready" + loop,
			func(int) { w.must("kill", "hard", "--grace", "10ms") }, true,
			[]string{" by SIGKILL, after ", "\nasked for by proxy pid ", "(user_requested); it did not end when asked, and was killed\n"},
			map[string]any{"signal": "SIGKILL", "outcome": "hard"}},
		{"signal", "echo ready" + loop,
			func(int) { w.must("kill", "signal", "--signal", "TERM") }, true,
			[]string{" by SIGTERM, after ", "\nthe signal was sent by proxy pid "},
			map[string]any{"signal": "SIGTERM", "outcome": "natural"}},
		{"outside", "echo ready" + loop,
			func(pid int) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}, false,
			[]string{" by SIGKILL, after ", "\nno client asked for it: the signal came from the program itself or from outside\n"},
			map[string]any{"signal": "SIGKILL", "outcome": "natural", "ended_by": nil, "oom": nil}},
		{"crash", "ulimit -c 0; echo ready; read x; kill -SEGV $$",
			func(int) { w.must("send", "crash", "--enter") }, false,
			[]string{" by SIGSEGV, after ", "\nno client asked for it: the signal came "},
			map[string]any{"signal": "SIGSEGV", "exit_code": 139.0, "core_dumped": nil}},
	} {
		w.shell(tt.name, tt.script)
		w.shows(tt.name, "ready")
		running := w.object("why", tt.name, "--json")
		if running["state"] != "running" || running["exit_code"] != nil {
			t.Errorf("%s, why --json before the exit: %v", tt.name, running)
		}
		pid := int(running["pid"].(float64))
		if out, want := w.must("why", tt.name), fmt.Sprintf(", as pid %d\n", pid); !strings.Contains(out, "running since ") || !strings.HasSuffix(out, want) {
			t.Errorf("%s, why before the exit: %s", tt.name, out)
		}
		tt.end(pid)
		w.proxy("wait", tt.name) // it exits with the child's code
		out := w.must("why", tt.name)
		for _, want := range append(tt.says, tt.name+" (/bin/sh -c ", " of processor time, ") {
			if !strings.Contains(out, want) {
				t.Errorf("%s: why lacks %q:\n%s", tt.name, want, out)
			}
		}
		record := w.object("why", tt.name, "--json")
		for field, want := range tt.record {
			if record[field] != want {
				t.Errorf("%s: %s is %v, want %v", tt.name, field, record[field], want)
			}
		}
		by, _ := record["ended_by"].(string)
		if strings.HasPrefix(by, "proxy pid ") != tt.asked {
			t.Errorf("%s: ended_by is %q", tt.name, by)
		}
		if usage, ok := record["usage"].(map[string]any); record["id"] != tt.name || record["state"] != "exited" || !ok || usage["max_rss_bytes"] == nil {
			t.Errorf("%s: why --json prints %v", tt.name, record)
		}
	}
	w.fails(66, "session_not_found: no session none", "why", "none")
	w.fails(64, "", "why")
}
