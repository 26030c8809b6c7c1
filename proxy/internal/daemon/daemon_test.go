//go:build unix

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

const roleEnv = "DAEMON_TEST_ROLE"

// TestMain is, in a child process, the program that is started: it writes a report about its environment, and waits
// until it is killed.
func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "fail":
		os.Exit(3)
	}
	if err := report(os.Args[1]); err != nil {
		os.Exit(1)
	}
	time.Sleep(time.Hour) // a select without cases would be a deadlock to the runtime, and end the program
}

type finding struct {
	PID, Session int
	Dir          string
	Args         []string
	FDs          []string // open files, except those of the Go runtime
	Scoped       bool
}

func report(path string) error {
	sid, err := unix.Getsid(0)
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	f := finding{PID: os.Getpid(), Session: sid, Dir: dir, Args: os.Args[2:], Scoped: os.Getenv("FAKE_SCOPE") != ""}
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, "/sys/fs/cgroup/") {
			f.FDs = append(f.FDs, to)
		}
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path+".tmp", data, 0o600), os.Rename(path+".tmp", path))
}

// A bench is the environment of a user, with or without a systemd manager.
type bench struct{ dir string }

// newBench returns a bench. script is the content of systemd-run, or "" for no manager.
func newBench(t *testing.T, script string) bench {
	b := bench{testkit.Dir(t)}
	if script == "" {
		return b
	}
	if err := errors.Join(
		os.MkdirAll(filepath.Join(b.dir, "systemd", "private"), 0o700), // in reality this is a socket
		os.WriteFile(filepath.Join(b.dir, "systemd-run"), []byte("#!/bin/sh\necho \"$@\" >"+b.dir+"/asked\n"+script), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b bench) env(role string) []string {
	return []string{"XDG_RUNTIME_DIR=" + b.dir, "PATH=" + b.dir + ":/usr/bin:/bin", roleEnv + "=" + role, "GORACE=atexit_sleep_ms=0"}
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	testkit.Must(t, err)
	return exe
}

// found waits for the report of the program that was started in b.
func (b bench) found(t *testing.T) (f finding) {
	t.Helper()
	path := filepath.Join(b.dir, "report")
	testkit.Eventually(t, 20*time.Second, func() bool {
		data, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(data, &f) == nil
	}, "the program's report")
	return f
}

// kill ends a program and waits until it was reaped.
func kill(t *testing.T, p *Process) {
	t.Helper()
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	<-p.Exited
	if p.Err() == nil {
		t.Error("a killed program has no error")
	}
	if err := syscall.Kill(p.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("a zombie is left: %v", err)
	}
}

const execScope = `while [ "$1" != -- ]; do shift; done; shift; FAKE_SCOPE=1 exec "$@"`

func TestStart(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		scoped       bool
	}{
		{"no manager", "", false},
		{"manager", execScope, true},
		{"manager refuses", "exit 1", false},
		{"manager does nothing", "exit 0", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.script)
			leaky := leak(t)
			p, err := Start(t.Context(), Spec{
				Path: self(t), Args: []string{filepath.Join(b.dir, "report"), "two words", "$HOME"}, Env: b.env("report"),
			})
			testkit.Must(t, err)
			defer kill(t, p)
			f := b.found(t)
			if f.PID != p.PID || f.Session != p.PID || f.Dir != "/" || f.Scoped != tt.scoped {
				t.Errorf("started %d, found %+v", p.PID, f)
			}
			if want := []string{"two words", "$HOME"}; !slices.Equal(f.Args, want) {
				t.Errorf("arguments %q, want %q", f.Args, want)
			}
			if want := []string{"/dev/null", "/dev/null", "/dev/null"}; runtime.GOOS == "linux" && !slices.Equal(f.FDs, want) {
				t.Errorf("the program has %q open, and inherited %s", f.FDs, leaky)
			}
			if asked, err := os.ReadFile(filepath.Join(b.dir, "asked")); tt.script != "" &&
				(err != nil || !strings.HasPrefix(string(asked), "--user --scope --quiet --collect --property=Delegate=yes -- ")) {
				t.Errorf("systemd-run was called with %q, %v", asked, err)
			}
			if p.Err() != nil {
				t.Error("the program has ended:", p.Err())
			}
		})
	}
}

// leak opens a file as a careless launcher leaves one open.
func leak(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leaked")
	testkit.Must(t, os.WriteFile(path, nil, 0o600))
	fd, err := unix.Open(path, unix.O_RDONLY, 0) // not close-on-exec
	testkit.Must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return path
}

// The failure of a program is distinguished from that of systemd-run, so that the program is not started a second
// time.
func TestEarlyEnd(t *testing.T) {
	for _, script := range []string{"", execScope} {
		b := newBench(t, script)
		p, err := Start(t.Context(), Spec{Path: self(t), Env: b.env("fail")})
		testkit.Must(t, err)
		<-p.Exited
		var exit *exec.ExitError
		if !errors.As(p.Err(), &exit) || exit.ExitCode() != 3 {
			t.Errorf("the program ended with %v", p.Err())
		}
		if err := syscall.Kill(p.PID, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("a zombie is left: %v", err)
		}
	}
}

// A manager that hangs delays the caller only for a limited time, and leaves no process behind.
func TestManagerHangs(t *testing.T) {
	b := newBench(t, fmt.Sprintf("echo $$ >%s; exec /bin/cat %s", "$XDG_RUNTIME_DIR/pid", "$XDG_RUNTIME_DIR/fifo"))
	testkit.Must(t, unix.Mkfifo(filepath.Join(b.dir, "fifo"), 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	impatient := errors.New("impatient")
	spec := Spec{Path: self(t), Env: b.env("report")}
	ended := make(chan error, 1)
	go func() {
		_, err := Start(ctx, spec)
		ended <- err
	}()
	pid := 0
	testkit.Eventually(t, 20*time.Second, func() bool {
		data, _ := os.ReadFile(filepath.Join(b.dir, "pid"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(data)))
		return pid != 0
	}, "systemd-run hangs")
	cancel(impatient)
	if err := <-ended; !errors.Is(err, impatient) {
		t.Errorf("got %v", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("systemd-run still runs: %v", err)
	}
}

func TestStartMistakes(t *testing.T) {
	if _, err := Start(t.Context(), Spec{Path: "sh"}); err == nil {
		t.Error("a program with a relative path was started")
	}
	b := newBench(t, execScope)
	if _, err := Start(t.Context(), Spec{Path: b.dir + "/none", Env: b.env("")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program that does not exist: %v", err)
	}
	if _, err := os.Stat(b.dir + "/asked"); err == nil {
		t.Error("systemd-run was called although the program does not exist")
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(done, Spec{Path: self(t), Env: newBench(t, "").env("fail")}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context: %v", err)
	}
}
