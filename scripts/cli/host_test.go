//go:build linux

package cli

import (
	"os"
	"strings"
	"testing"

	"holdfast/shared/testkit/sshhost"
)

// newHost returns a world, and a world on another host, which commands of the first reach by ssh as "away".
func newHost(t *testing.T, env ...string) (here, there *world, h *sshhost.Host) {
	t.Helper()
	here, there = newWorld(t), newWorld(t)
	h = sshhost.Start(t, "away", here.Path("ssh"), append(env, there.Env...))
	here.Env = append(here.Env, "HOLDFAST_SSH_COMMAND="+strings.Join(h.Command, " "))
	return here, there, h
}

// Each command must accept a session of another host.
func TestHost(t *testing.T) {
	t.Parallel()
	w, there, h := newHost(t)
	w.fails(69, "away: nothing runs here", "ls", "--on", "away")
	if _, err := os.Lstat(there.Path("proxy.log")); err == nil {
		t.Error("ls has started a proxy on the other host")
	}
	if out := w.must("new", "-d", "--on", "away", "--id", "s", "--label", "a=b", "--", "sh", "-c", "pwd; exec cat"); out != "away/s\n" {
		t.Errorf("new prints %q, want the full name", out)
	}
	if out := w.must("new", "-d", "--id", "away/shell"); out != "away/shell\n" {
		t.Errorf("new prints %q, want the full name", out)
	}
	w.spawn("s", "cat") // the same id on this host
	w.shows("away/s", there.Path("home"))
	w.must("send", "away/s", "over there", "--enter")
	w.shows("away/s", "over there")
	if text := w.must("screen", "s"); strings.Contains(text, "over there") {
		t.Errorf("the session of this host shows %q", text)
	}
	if out := w.must("search", "away/s", "over th"); !strings.Contains(out, "over there") {
		t.Errorf("search prints %q", out)
	}
	if list := w.must("ls", "--on", "away"); !strings.Contains(list, "shell ") || !strings.Contains(list, "cat") {
		t.Errorf("ls prints %s", list)
	}
	if r := w.proxy("run", "--on", "away", "--", "sh", "-c", "echo $HOLDFAST_DIR; exit 7"); r.Code != 7 || r.Out != there.Dir+"\n" {
		t.Errorf("run: %v, want exit 7 and the directory of the other host", r)
	}
	h.Idle(t) // otherwise the connection of the last command may be counted
	p := w.open("attach", "away/s")
	p.expect("over there")
	if n := h.Cut(t); n != 1 { // each is a login, for which ssh may ask for a password
		t.Errorf("attach has made %d connections with the host", n)
	}
	p.typ("typed\r")
	p.expect("typed\r\ntyped")
	p.typ("\x1cd")
	p.ends(0, "[detached from s]")
	w.must("kill", "s", "away/s", "away/shell", "--forget")
	for _, on := range [][]string{{}, {"--on", "away"}} {
		if list := w.must(append([]string{"ls"}, on...)...); !strings.Contains(list, "no sessions") {
			t.Errorf("after kill, ls %v prints %s", on, list)
		}
	}

	w.fails(66, "session_not_found", "info", "away/s")
	w.fails(64, "the command is for host away, and not for other", "info", "--on", "away", "other/s")
	w.fails(64, "is no name of a host", "ls", "--on=-oProxyCommand=x")
	w.fails(64, "only_this_host: web is only for this host", "web", "--on", "away")
	w.fails(64, `--address: "nohost" is no address`, "gate", "--listen", "127.0.0.1:0", "--address", "nohost")
	w.fails(69, "Could not resolve hostname", "ls", "--on", "no.such.host.invalid")
	if out := w.must("status", "--on", "away"); !strings.Contains(out, "supervisor") {
		t.Errorf("status prints %s", out)
	}
	w.must("stop", "--all", "--on", "away")
	w.fails(69, "", "status", "--on", "away")
}

// Output of a shell's start-up files must not disturb the connection.
func TestHostShell(t *testing.T) {
	t.Parallel()
	noise := newWorld(t).write("noise.sh", "echo holdfast-stdio is quiet today; printf 'no line end'\n")
	w, there, _ := newHost(t, "BASH_ENV="+noise)
	w.must("new", "-d", "--id", "away/s", "--", "cat")
	there.must("info", "s")
}

// If a host lacks the programs or has old ones, the error must tell how to install them.
func TestHostPrograms(t *testing.T) {
	t.Parallel()
	old := newWorld(t)
	old.write("proxy", "#!/bin/sh\ncase $* in *--start*) echo 'proxy: unknown flag: --start' >&2;; *) echo 'proxy: there is no command \"stdio\", but stop' >&2;; esac\nexit 64\n")
	if err := os.Chmod(old.Path("proxy"), 0o700); err != nil {
		t.Fatal(err)
	}
	w, _, h := newHost(t, "PATH=/usr/bin:/bin")
	w.fails(69, " | "+strings.Join(h.Command, " ")+" away 'mkdir -p .local/bin", "ls", "--on", "away")
	for _, tt := range []struct{ path, says string }{
		{"", "away: the program proxy is not installed there; if it runs the same system on the same kind of processor, this installs it: tar -C "},
		{old.Dir + ":", "away: Holdfast there is too old to be reached by ssh: proxy has no command stdio; this program is of "},
	} {
		w, _, _ := newHost(t, "PATH="+tt.path+"/usr/bin:/bin")
		w.fails(69, tt.says, "ls", "--on", "away")
		w.fails(69, tt.says, "new", "-d", "--on", "away")
	}
}
