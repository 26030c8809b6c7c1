//go:build linux

package cli

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

func TestAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `stty -echo; echo begun; read x; printf '\033]133;A\007$ \033]133;C\007made\n\033]133;D;2\007\007\033]9;it is done\007'; echo new one; read x; exit 4`)
	w.shows("s", "begun")
	if out := w.must("away", "s"); !strings.Contains(out, "no viewer has attached since the start, ") || !strings.Contains(out, "\nlast lines:\n  begun\n") {
		t.Errorf("away before the first viewer: %s", out)
	}
	p := w.open("attach", "s")
	p.expect("begun")
	p.typ("\x1cd")
	p.ends(0, "detached")
	if out := w.must("away", "s"); !strings.Contains(out, "no viewer is attached since ") || !strings.HasSuffix(out, "printed nothing\n") {
		t.Errorf("away right after the detach: %s", out)
	}
	w.must("send", "s", "--enter")
	w.shows("s", "new one")
	out := w.must("away", "s")
	for _, want := range []string{"s (/bin/sh -c ", "no viewer is attached since ", "\nrang once\n", "\ntold: it is done\n", "\nlast lines:\n", "  $ made\n  new one\n", "commands that have ended:\n  code 2"} {
		if !strings.Contains(out, want) {
			t.Errorf("away lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\n  begun") {
		t.Errorf("away repeats output that a viewer has seen:\n%s", out)
	}
	w.must("send", "s", "--enter")
	w.proxy("wait", "s")
	if out := w.must("away", "s", "--lines", "1"); !strings.Contains(out, " with code 4, after ") || !strings.HasSuffix(out, "last lines:\n  new one\n") {
		t.Errorf("away after the exit: %s", out)
	}
	o := w.object("away", "s", "--json")
	if o["id"] != "s" || o["state"] != "exited" || o["bells"] != 1.0 || fmt.Sprint(o["lines"]) != "[$ made new one]" || o["exit"].(map[string]any)["exit_code"] != 4.0 {
		t.Errorf("away --json: %v", o)
	}
	w.fails(66, "session_not_found", "away", "none")
}

// agentAt listens as an ssh agent does, and sends its name to each connection.
func agentAt(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(filepath.Base(path)))
			_ = c.Close()
		}
	}()
	return l
}

// A session must reach the ssh agent of the viewer that attached last, whoever started the session.
func TestAgentLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	agentAt(t, w.Path("one"))
	agentAt(t, w.Path("two"))
	link := w.Path("ssh-agent")
	proxy := func(agent string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(w.Bin, "proxy"), args...)
		cmd.Env = append([]string{}, w.Env...)
		if agent != "" {
			cmd.Env = append(cmd.Env, "SSH_AUTH_SOCK="+agent)
		}
		return cmd
	}
	answers := func() string {
		t.Helper()
		c, err := net.Dial("unix", link)
		testkit.Must(t, err)
		defer func() { _ = c.Close() }()
		b := make([]byte, 10)
		n, _ := c.Read(b)
		return string(b[:n])
	}
	start := func(id, agent string, more ...string) string {
		t.Helper()
		r := w.run(proxy(agent, append(append([]string{"new", "-d", "--id", id}, more...), "--", "/bin/sh", "-c", `echo "agent=$SSH_AUTH_SOCK."; read x`)...), nil)
		if r.Code != 0 {
			t.Fatal(r)
		}
		w.shows(id, "agent=")
		out := strings.TrimSpace(w.must("screen", id))
		return strings.TrimSuffix(strings.TrimPrefix(out, "agent="), ".")
	}
	if got := start("none", ""); got != "" {
		t.Errorf("a session without an agent has %s", got)
	}
	if got := start("file", w.write("file", "")); got != w.Path("file") {
		t.Errorf("a path that is no socket became %s", got)
	}
	if _, err := os.Lstat(link); err == nil {
		t.Error("a link was made without an agent")
	}
	if got := start("s", w.Path("one")); got != link || answers() != "one" {
		t.Errorf("the agent of the session is %s; the agent %s answers", got, answers())
	}
	attach := func(agent string, args ...string) {
		t.Helper()
		p := w.openSize(80, 24, proxy(agent, append([]string{"attach", "s"}, args...)...))
		p.expect("agent=")
		if len(args) > 0 {
			p.typ("\x03")
		} else {
			p.typ("\x1cd")
		}
		p.ends(0, "detached")
	}
	attach(w.Path("two"))
	if got := answers(); got != "two" {
		t.Errorf("after the second viewer attached, the agent %s answers", got)
	}
	env := w.must("env", "s")
	if !strings.Contains(env, "export SSH_AUTH_SOCK="+link+"\n") || !strings.Contains(env, "unset DISPLAY\n") {
		t.Errorf("env prints %s", env)
	}
	if out := w.must("env", "s", "--json"); !strings.Contains(out, `"SSH_AUTH_SOCK=`+w.Path("two")+`"`) {
		t.Errorf("env --json prints %s", out)
	}
	attach(w.Path("one"), "--read-only") // a read-only viewer does not change the link
	attach("")
	attach(link) // as from within a session
	attach(w.Path("gone"))
	if got := answers(); got != "two" {
		t.Errorf("after viewers without an agent attached, the agent %s answers", got)
	}
	w.Kill(w.Only("proxy"))
	if got := start("later", link); got != link || answers() != "two" {
		t.Errorf("the agent of a session that is started in a session is %s; the agent %s answers", got, answers())
	}
	// The setting agent_link=false disables the link.
	w.must("stop")
	w.Env = append(w.Env, "HOLDFAST_AGENT_LINK=false")
	if got := start("off", w.Path("one")); got != w.Path("one") || answers() != "two" {
		t.Errorf("with agent_link=false the agent is %s; the agent %s answers", got, answers())
	}
	if r := w.run(proxy("", "env", "off"), nil); r.Code != 0 || r.Out != "" || !strings.Contains(r.Errout, "no viewer of off has sent its environment") {
		t.Errorf("env of a session that never had a viewer: %v", r)
	}
}
