package postmortem

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// The observation of a process, and the conclusion if it was killed, in a file system that the test writes.
func TestOutOfMemory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		testkit.Must(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)))
	}
	log := ""
	sys := system{
		proc: dir + "/proc", cgroup: dir + "/cgroup",
		log:    func() []byte { return []byte(log) },
		uptime: func() time.Duration { return time.Hour },
	}
	if s, ok := sys.observe(7); ok {
		t.Errorf("a process that does not exist was observed: %+v", s)
	}
	write("proc/7/cgroup", "0::/a/b\n")
	write("cgroup/a/b/memory.events", "oom_kill 2\n")
	testkit.Must(t, os.Symlink("/some where", dir+"/proc/7/cwd"))
	s, ok := sys.observe(7)
	if want := (Seen{"/some where", "a/b/memory.events", 2}); !ok || s != want {
		t.Fatalf("the observation is %+v, %v, want %+v", s, ok, want)
	}
	check := func(what string, s Seen, pid int, age time.Duration, want protocol.OOMSource) {
		t.Helper()
		if got := sys.oom(s, pid, age); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	write("cgroup/a/b/memory.events.local", "oom_kill 0\n")
	if s, ok := sys.observe(7); !ok || s.Memory != "a/b/memory.events.local" || s.Kills != 0 {
		t.Errorf("with a local counter the observation is %+v", s)
	}
	check("no event", s, 7, time.Minute, "")
	write("cgroup/a/b/memory.events", "oom_kill 3\n")
	check("the cgroup has counted", s, 7, time.Minute, protocol.OOMCgroup)
	check("a program of it was killed", s, 0, time.Minute, protocol.OOMCgroup)
	log = "<3>[ 3500.0] Out of memory: Killed process 7 (x) total-vm:1kB\n"
	check("the kernel names it", s, 7, time.Minute, protocol.OOMKernelLog)
	check("a program of it was killed, another is named", s, 0, time.Minute, protocol.OOMCgroup)
	check("no observation", Seen{}, 7, time.Minute, protocol.OOMKernelLog)
	log = "<3>[ 3000.0] Out of memory: Killed process 7 (x) total-vm:1kB\n"
	check("the kernel names an earlier one", Seen{}, 7, time.Minute, "")
	check("the process is as old", Seen{}, 7, 10*time.Minute, protocol.OOMKernelLog)
	testkit.Must(t, os.RemoveAll(dir+"/cgroup"))
	check("the cgroup was removed", s, 7, time.Minute, "")
}

// The observation of a real process is true, and a process that has ended cannot be observed.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("sleep", "1000")
	cmd.Dir = dir
	testkit.Must(t, cmd.Start())
	s, ok := Observe(cmd.Process.Pid)
	if !ok || s.Cwd != dir {
		t.Errorf("got %+v, %v, want it in %s", s, ok, dir)
	}
	t.Logf("%+v", s)
	testkit.Must(t, cmd.Process.Kill())
	// First as a zombie, which was not reaped.
	testkit.Must(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	if s, ok := Observe(cmd.Process.Pid); ok {
		t.Errorf("a zombie was observed: %+v", s)
	}
	_ = cmd.Wait() // the error tells that it was killed
	if s, ok := Observe(cmd.Process.Pid); ok {
		t.Errorf("a process that has ended was observed: %+v", s)
	}
}

// hog waits for a line, and then uses memory until it is killed.
const hog = `read x; a=x; while :; do a=$a$a; done`

// A process that is killed because memory ran out is recognized by its cgroup and by the kernel's log, if they can be
// read. A process that was killed by a user is not.
func TestReal(t *testing.T) {
	files, err := group(t)
	if err != nil {
		t.Skipf("no cgroup with a limit on memory can be made here: %v", err)
	}
	for _, tt := range []struct {
		name string
		oom  bool
	}{{"memory runs out", true}, {"killed", false}} {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			cmd := exec.Command("bash", "-c", "echo ready; "+hog)
			in, err1 := cmd.StdinPipe()
			out, err2 := cmd.StdoutPipe()
			testkit.Must(t, errors.Join(err1, err2, cmd.Start()))
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			pid := cmd.Process.Pid
			testkit.Must(t, os.WriteFile(files+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0o600))
			s, ok := Observe(pid)
			if !ok || !strings.HasPrefix("/sys/fs/cgroup/"+s.Memory, files) {
				t.Fatalf("the observation is %+v, %v, want the cgroup %s", s, ok, files)
			}
			if tt.oom {
				_, err = fmt.Fprintln(in)
			} else {
				err = cmd.Process.Kill()
			}
			testkit.Must(t, err)
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the process ended with %v, want SIGKILL", err)
			}
			log, cgroup := s.OutOfMemory(pid, time.Since(began)), s.OutOfMemory(0, time.Since(began))
			if !tt.oom {
				if log != "" || cgroup != "" {
					t.Errorf("got %q, %q, want no reason", log, cgroup)
				}
				return
			}
			wantLog := protocol.OOMKernelLog
			if kernelLog() == nil {
				t.Log("the kernel's log cannot be read here")
				wantLog = protocol.OOMCgroup
			}
			if log != wantLog || cgroup != protocol.OOMCgroup {
				t.Errorf("got %q, %q, want %q, %q", log, cgroup, wantLog, protocol.OOMCgroup)
			}
		})
	}
}

// group makes a cgroup within that of the test, whose processes may use 32 MiB, and returns its path. The test
// removes it at its end.
func group(t *testing.T) (string, error) {
	file := counterFile(readFile("/proc/self/cgroup"))
	if file == "" {
		return "", errors.New("no controller of memory")
	}
	own := filepath.Join("/sys/fs/cgroup", filepath.Dir(file))
	dir := filepath.Join(own, fmt.Sprintf("holdfast-test-%d", os.Getpid()))
	limit := "memory.max"
	if strings.HasPrefix(file, "memory/") {
		limit = "memory.limit_in_bytes"
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		// The kernel may still count processes that have ended.
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if err := unix.Rmdir(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
				return
			} else if time.Now().After(end) {
				t.Errorf("%s cannot be removed: %v", dir, err)
				return
			}
		}
	})
	return dir, os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(32<<20)), 0o600)
}

// BenchmarkLook measures an observation, which a session makes at its start and when it becomes idle.
func BenchmarkLook(b *testing.B) {
	cmd := exec.Command("sleep", "1000")
	testkit.Must(b, cmd.Start())
	defer func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait()) }()
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Observe(cmd.Process.Pid); !ok {
			b.Fatal("the process was not observed")
		}
	}
}

// BenchmarkOutOfMemory measures the search for the reason when a process was killed.
func BenchmarkOutOfMemory(b *testing.B) {
	s, _ := Observe(os.Getpid())
	b.ReportAllocs()
	for b.Loop() {
		if s.OutOfMemory(1<<30, 0) != "" {
			b.Fatal("the reason is that memory ran out")
		}
	}
}
