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
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
	"holdfast/shared/testkit/sshhost"
	programs "holdfast/shared/testkit/world"
)

// limit is the longest time of a block.
const limit = 30 * time.Second

// A world is a directory of its own for the blocks of a page, which find no files of their user outside of
// it. Each process that they start has a path of the directory in its environment, and ends with the test.
type world struct {
	*programs.World
	t     *testing.T
	root  string
	limit time.Duration // for a block
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root := testkit.Dir(t)
	// The policy is built here too, although a page builds it. If nothing is compiled yet, building it may
	// take longer than the limit of a block.
	built := testkit.Build(t, testkit.Programs...)
	testkit.Build(t, "holdfast/proxy/policy/examples/file")
	w := &world{World: programs.New(t, root, "h", built), t: t, root: root, limit: limit}
	for _, dir := range []string{"tmp", "run", "bin"} {
		testkit.Must(t, os.Mkdir(w.path(dir), 0o700))
	}
	for name, program := range map[string]string{
		"proxy": filepath.Join(built, "proxy"), "supervisor": filepath.Join(built, "supervisor"), "holdfast": filepath.Join(built, "holdfast"),
		"python3": interpreterPath("python3", "-c", "import sys; print(sys.executable)"), "node": interpreterPath("node", "-p", "process.execPath"),
	} {
		if program == "" {
			continue
		}
		testkit.Must(t, os.Symlink(program, w.path("bin", name)))
	}
	w.Env = slices.Concat(w.Env, []string{
		"TMPDIR=" + w.path("tmp"), "XDG_RUNTIME_DIR=" + w.path("run"),
		"PATH=" + w.path("bin") + ":" + os.Getenv("PATH"), "SHELL=/bin/sh", "LANG=C.UTF-8", "TERM=xterm-256color",
		"PYTHONDONTWRITEBYTECODE=1", "SOURCE=" + source, "CGO_ENABLED=0", // as in testkit.Build
	}, goEnv(t))
	t.Cleanup(w.End)
	return w
}

// hostsPage is the guide about other hosts. Its commands reach a host by ssh under the name build-host.
const hostsPage = ".github/docs/other-hosts.md"

// reachHost starts the host for hostsPage.
func (w *world) reachHost() {
	env := slices.Clone(w.Env)
	for i, e := range env {
		if strings.HasPrefix(e, "HOLDFAST_DIR=") {
			env[i] = "HOLDFAST_DIR=" + w.path("there")
		}
	}
	h := sshhost.Start(w.t, "build-host", w.path("ssh"), env)
	w.Env = append(w.Env, "HOLDFAST_SSH_COMMAND="+strings.Join(h.Command, " "))
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.root}, parts...)...)
}

// interpreterPath returns the path of an interpreter itself, because the program in PATH may be a wrapper that needs
// its own HOME. It returns "" if the interpreter is not installed.
func interpreterPath(program string, args ...string) string {
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// goEnv returns the environment that go needs with another HOME.
func goEnv(t *testing.T) (env []string) {
	t.Helper()
	out, err := exec.Command("go", "env", "-json", "GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOSUMDB", "GOFLAGS", "GOTOOLCHAIN").Output()
	all := map[string]string{}
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	testkit.Must(t, err)
	for name, value := range all {
		env = append(env, name+"="+value)
	}
	return env
}

// command runs a program until it ends, and returns all its output. If the program takes too long, command
// kills its process group.
func (w *world) command(dir, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.limit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = w.Env, dir, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // processes in the background may have its output open
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
