package foreground

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// The fields of /proc are read correctly, whatever characters the name of a program has.
func TestIn(t *testing.T) {
	const leader, other = 10, 20
	for _, tt := range []struct {
		name, leader, other, children string
		want                          *protocol.Foreground
	}{
		{"a shell at its prompt", "10 (bash) S 1 10 10 34816 10 0", "", "", &protocol.Foreground{PID: leader, Name: "bash", Cwd: "/leader"}},
		{"a program in front", "10 (bash) S 1 10 10 34816 20 0", "20 (a) b) R 10 20 10 34816 20 0", "20 ", &protocol.Foreground{PID: other, Name: "a) b", Cwd: "/other", Children: true}},
		{"the leader of the group has ended", "10 (bash) S 1 10 10 34816 20 0", "", "21 ", &protocol.Foreground{PID: leader, Name: "bash", Cwd: "/leader", Children: true}},
		{"the number is another's", "10 (bash) S 1 10 10 34816 20 0", "20 (x) S 1 20 20 0 -1 0", "", &protocol.Foreground{PID: leader, Name: "bash", Cwd: "/leader"}},
		{"stopped", "10 (bash) T 1 10 10 34816 10 0", "", "", &protocol.Foreground{PID: leader, Name: "bash", Cwd: "/leader", Stopped: true}},
		{"a zombie", "10 (bash) Z 1 10 10 34816 -1 0", "", "", nil},
		{"the pid is no session's leader", "10 (bash) S 1 10 9 34816 10 0", "", "", nil},
		{"half a line", "10 (bash) S 1", "", "", nil},
		{"gone", "", "", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc := t.TempDir()
			put := func(dir, stat, cwd string) {
				if stat == "" {
					return
				}
				path := filepath.Join(proc, dir)
				testkit.Must(t, os.MkdirAll(filepath.Join(path, "task", dir), 0o700))
				for name, text := range map[string]string{"stat": stat, "task/" + dir + "/children": tt.children} {
					testkit.Must(t, os.WriteFile(filepath.Join(path, name), []byte(text), 0o600))
				}
				testkit.Must(t, os.Symlink(cwd, filepath.Join(path, "cwd")))
			}
			put("10", tt.leader, "/leader")
			put("20", tt.other, "/other")
			got := readForeground(proc, leader)
			if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A process of the foreground group that waits in a read of the terminal is found, and no other one.
func TestReads(t *testing.T) {
	const terminal = 136<<8 | 5
	for _, tt := range []struct {
		name, call, link string
		group            int
		want             bool
	}{
		{"it reads the terminal", "0 0x3 0x7ff 0x400 0x0", "/dev/pts/5", 20, true},
		{"it reads /dev/tty", "0 0x3 0x7ff 0x400 0x0", "/dev/tty", 20, true},
		{"it reads another terminal", "0 0x3 0x7ff", "/dev/pts/6", 20, false},
		{"it reads a file", "0 0x3 0x7ff", "/etc/passwd", 20, false},
		{"it does something else", "270 0x3 0x7ff", "/dev/pts/5", 20, false},
		{"it runs", "running", "/dev/pts/5", 20, false},
		{"the system does not tell", "", "/dev/pts/5", 20, false},
		{"it is in another group", "0 0x3", "/dev/pts/5", 30, false},
		{"a number that is too large", "0 0xffffffffffffffff", "/dev/pts/5", 20, false},
	} {
		proc := t.TempDir()
		put := func(dir, group, children, call string) {
			path := filepath.Join(proc, dir)
			testkit.Must(t, os.MkdirAll(filepath.Join(path, "task", dir), 0o700))
			stat := fmt.Sprintf("%s (x) S 1 %s 10 %d 20 0", dir, group, terminal)
			for name, text := range map[string]string{"stat": stat, "task/" + dir + "/children": children, "syscall": call} {
				testkit.Must(t, os.WriteFile(filepath.Join(path, name), []byte(text), 0o600))
			}
			testkit.Must(t, os.Mkdir(filepath.Join(path, "fd"), 0o700))
			testkit.Must(t, os.Symlink(tt.link, filepath.Join(path, "fd", "3")))
		}
		put("10", "10", "20", "61 0xffffffff")
		put("20", "20", "21", "61 0xffffffff") // as git, which waits for its pager
		put("21", fmt.Sprint(tt.group), "", tt.call)
		if got := readsIn(proc, 10, 20); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// A real process that is stopped is reported as stopped.
func TestOf(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("sleep", "1000")
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setsid: true}
	testkit.Must(t, cmd.Start())
	pid := cmd.Process.Pid
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	testkit.Must(t, cmd.Process.Signal(syscall.SIGSTOP))
	testkit.Eventually(t, 10*time.Second, func() bool { f := Of(pid); return f != nil && f.Stopped && f.Name == "sleep" && f.Cwd == dir }, "the process is reported as stopped")
	if Of(0) != nil || Of(-1) != nil {
		t.Error("a process that does not exist has a foreground")
	}
}
