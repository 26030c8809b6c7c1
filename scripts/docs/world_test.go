package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

const (
	limit     = 30 * time.Second // for a block
	lastLimit = 20 * time.Second // for a world to end
)

// A world is a directory that a page's blocks take for all there is. What they
// start has its path in the environment, and ends with the test.
type world struct {
	t    *testing.T
	root string
	env  []string

	limit time.Duration // for a block
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, root: testkit.Dir(t), limit: limit}
	for _, dir := range []string{"home", "tmp", "run", "bin"} {
		if err := os.Mkdir(w.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	built := testkit.Build(t, "holdfast/proxy", "holdfast/supervisor")
	for name, program := range map[string]string{
		"proxy": filepath.Join(built, "proxy"), "supervisor": filepath.Join(built, "supervisor"),
		"python3": itself("python3", "-c", "import sys; print(sys.executable)"), "node": itself("node", "-p", "process.execPath"),
	} {
		if program == "" {
			continue
		}
		if err := os.Symlink(program, w.path("bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	w.env = append([]string{
		"HOLDFAST_DIR=" + w.path("h"), "HOME=" + w.path("home"), "TMPDIR=" + w.path("tmp"), "XDG_RUNTIME_DIR=" + w.path("run"),
		"PATH=" + w.path("bin") + ":" + os.Getenv("PATH"), "SHELL=/bin/sh", "LANG=C.UTF-8", "TERM=xterm-256color",
		"PYTHONDONTWRITEBYTECODE=1", "SOURCE=" + source,
	}, goEnv(t)...)
	t.Cleanup(w.end)
	return w
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.root}, parts...)...)
}

// itself is the path of an interpreter that may be found through a wrapper, which
// wants its own HOME; "" where there is none.
func itself(program string, args ...string) string {
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// goEnv is what go needs in another HOME.
func goEnv(t *testing.T) (env []string) {
	t.Helper()
	out, err := exec.Command("go", "env", "-json", "GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOSUMDB", "GOFLAGS", "GOTOOLCHAIN").Output()
	all := map[string]string{}
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range all {
		env = append(env, name+"="+value)
	}
	return env
}

// command runs a program to its end and returns all that it prints. Nothing of
// its process group is left if it takes too long.
func (w *world) command(dir, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.limit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = w.env, dir, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // what it leaves in the background may have its output
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("it did not end within %v", w.limit)
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil
	}
	return out.String(), err
}

func (w *world) shell(dir, script string) (string, error) {
	return w.command(dir, "bash", "-eu", "-o", "pipefail", "-c", script)
}

// end asks the supervisors to end, with their sessions, and kills what is left.
func (w *world) end() {
	if w.t.Failed() {
		w.logs()
	}
	for _, pid := range w.processes() {
		if program(pid) == "proxy" { // which would start another supervisor
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, pid := range w.processes() {
		if program(pid) == "supervisor" {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
	asked, killed := time.Now(), false
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for none := 0; none < 2; { // one that is being started has no environment for a moment
		left := w.processes()
		none++
		if len(left) > 0 {
			none = 0
		}
		holds := slices.ContainsFunc(left, func(pid int) bool { return program(pid) == "supervisor" })
		switch since := time.Since(asked); {
		case since > lastLimit && len(left) > 0:
			w.t.Errorf("%d processes are left that cannot be killed", len(left))
			return
		case !holds || since > lastLimit/2:
			if holds && !killed {
				w.t.Error("the supervisor does not end by SIGTERM")
			}
			killed = true
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		<-tick.C
	}
}

func (w *world) logs() {
	paths, _ := filepath.Glob(w.path("h", "*.log"))
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		w.t.Logf("%s:\n%s", filepath.Base(path), b[max(0, len(b)-4<<10):])
	}
}

// processes are those that have the world's directory in their environment.
func (w *world) processes() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ")) // empty of a zombie
		if err == nil && bytes.Contains(env, []byte("="+w.root+"/")) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

func program(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(b), "\x00")
	return filepath.Base(name)
}
