package vttest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/shared/testkit"
	. "holdfast/supervisor/internal/vt/vttest"
)

// recordings are real programs, each with the input of a user.
var recordings = []struct {
	name    string
	program func(t *testing.T, dir string) Program
}{
	{"vim", vim},
	{"less", less},
	{"htop", func(*testing.T, string) Program {
		return Program{Argv: []string{"htop", "--delay=10"}, Script: []Act{
			{Wait: "PID"}, {Send: "\x1b[B"}, {Send: "t"}, {Send: "q"},
		}}
	}},
	{"tmux", tmux},
	{"mc", func(*testing.T, string) Program {
		return Program{Argv: []string{"mc", "-u"}, Script: []Act{
			{Wait: "Quit"}, {Send: "\x1b[B"}, {Send: "\t"}, {Send: "\x1b[20~"}, {Send: "\x1b[B\x1b[C"}, {Send: "\x1b\x1b"}, {Send: "\x1b[21~"},
		}}
	}},
	{"git log", gitLog},
	{"ls", func(*testing.T, string) Program {
		return Program{Argv: []string{"ls", "-la", "--color=always", "/usr/bin", "/dev", "."}}
	}},
	{"progress", func(*testing.T, string) Program {
		return shell(`i=0; while [ $i -le 100 ]; do printf '\r\033[K\033[32m%3d%%\033[0m [%-*s] %s' $i 50 "$(printf '%*s' $((i/2)) '' | tr ' ' '#')" "file-$i"; i=$((i+3)); done; printf '\n\033[1mdone\033[m\n'`)
	}},
	{"unicode", func(*testing.T, string) Program {
		return shell(`i=0; while [ $i -lt 30 ]; do printf '%s %s\n' $i '漢字かな交じり文、한국어 텍스트 🎉👨‍👩‍👧‍👦🇩🇪 é ñ ｗｉｄｅ ❤️ the end of a line that is longer than the terminal is wide'; i=$((i+1)); done`)
	}},
}

func shell(code string) Program { return Program{Argv: []string{"sh", "-c", code}} }

// record runs a recording in an empty home directory. The oracle answers its queries.
func record(t *testing.T, o *Oracle, program func(*testing.T, string) Program) (Program, []byte) {
	t.Helper()
	dir := t.TempDir()
	p := program(t, dir)
	p.Cols, p.Rows, p.Dir, p.Env = 80, 24, dir, environ(dir)
	s := o.New(Config{Cols: p.Cols, Rows: p.Rows, History: 100})
	p.Answer = func(output []byte) []byte {
		s.Write(output)
		replies, err := s.Replies()
		testkit.Must(t, err)
		return replies
	}
	return p, Record(t, p)
}

func environ(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm-256color", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TZ=UTC", "SHELL=/bin/sh", "PS1=$ "}
}

// longText writes a file and returns its name.
func longText(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "%d func line%d(x int) string { return \"漢字 and é\" } // %s\n", i, i, strings.Repeat("word ", i%25))
	}
	name := filepath.Join(dir, "text.go")
	testkit.Must(t, os.WriteFile(name, []byte(b.String()), 0o600))
	return name
}

func vim(t *testing.T, dir string) Program {
	return Program{Argv: []string{"vim", "-u", "NONE", "-i", "NONE", "-N", "-n", longText(t, dir)}, Script: []Act{
		{Wait: "line0"}, {Send: ":syntax on | set number hlsearch\r"}, {Send: "ohello 漢字 é\x1b"}, {Send: "dd"}, {Send: "\x06"}, {Send: "/line4\r"},
		{Send: "yy5p"}, {Send: ":split\r"}, {Send: "G"}, {Send: "10k3J"}, {Send: "u"}, {Send: "\x02"}, {Send: ":q!\r"}, {Send: ":q!\r"},
	}}
}

func less(t *testing.T, dir string) Program {
	return Program{Argv: []string{"less", "-N", longText(t, dir)}, Script: []Act{
		{Wait: "line0"}, {Send: " "}, {Send: "/line15\r"}, {Send: "n"}, {Send: "b"}, {Send: "kkk"}, {Send: "G"}, {Send: "g"}, {Send: "q"},
	}}
}

// tmux returns a tmux whose server is a child of the test, and ends with it.
func tmux(t *testing.T, dir string) Program {
	socket := filepath.Join(dir, "socket")
	server := exec.Command("tmux", "-D", "-S", socket, "-f", os.DevNull)
	server.Env, server.Dir = environ(dir), dir
	if err := server.Start(); err != nil {
		Unavailable(t, "nothing to record: %v", err)
	}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", socket, "kill-server").Run()
		kill := time.AfterFunc(5*time.Second, func() { _ = server.Process.Kill() })
		_ = server.Wait()
		kill.Stop()
	})
	for deadline := time.Now().Add(10 * time.Second); ; { // waits until the server listens
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("tmux does not start")
		}
		time.Sleep(5 * time.Millisecond)
	}
	return Program{Argv: []string{"tmux", "-S", socket, "new-session", "sh"}, Script: []Act{
		{Wait: "$"}, {Send: "ls -la /dev | head -40\r"}, {Send: "\x02%"}, {Send: "printf '\\033[31mred 漢字\\033[m'\r"}, {Send: "\x02\""}, {Send: "seq 100\r"},
		{Send: "\x02o"}, {Send: "\x02["}, {Send: "\x1b[A\x1b[A"}, {Send: "q"}, {Send: "\x02:"}, {Send: "kill-session\r"},
	}}
}

func gitLog(t *testing.T, dir string) Program {
	commands := `git init -q . && git config user.name n && git config user.email e@example.org
		c() { git commit -q --allow-empty -m "$1"; }
		c one; git checkout -q -b side; c two; git checkout -q -; c three; git merge -q --no-ff -m merge side; git checkout -q -b other HEAD~1; c four; git checkout -q -; c 'five 漢字'`
	setup := exec.Command("sh", "-c", commands)
	setup.Dir, setup.Env = dir, append(environ(dir), "GIT_CONFIG_NOSYSTEM=1")
	if out, err := setup.CombinedOutput(); err != nil {
		Unavailable(t, "no repository: %v: %s", err, out)
	}
	return Program{Argv: []string{"git", "--no-pager", "log", "--graph", "--color=always", "--all", "--decorate", "--stat"}}
}

// The output that was recorded can be shown by xterm.js without errors.
func TestRecord(t *testing.T) {
	o := Open(t)
	for _, recording := range recordings {
		t.Run(recording.name, func(t *testing.T) {
			p, output := record(t, o, recording.program)
			s := o.New(Config{Cols: p.Cols, Rows: p.Rows, History: 100})
			Do(s, []Step{{Write: output}})
			state, err := s.State()
			testkit.Must(t, err)
			if len(output) < 300 || state.Alternate != nil {
				t.Errorf("%d bytes, alternate screen: %t", len(output), state.Alternate != nil)
			}
			t.Logf("%d bytes", len(output))
		})
	}
}
