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

// limit is how long a block may take.
const limit = 30 * time.Second

// A world is a directory outside of which a page's blocks find no files of their user. Each process
// that they start has a path of the directory in its environment, and ends with the test.
type world struct {
	*programs.World
	t     *testing.T
	root  string
	limit time.Duration // for a block
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root := testkit.Dir(t)
	// The policy is built here as well, although a page builds it, because that may take longer
	// than a block may if nothing is compiled yet.
	built := testkit.Build(t, "holdfast/proxy", "holdfast/proxy/holdfast", "holdfast/supervisor", "holdfast/proxy/policy/examples/file")
	w := &world{World: programs.New(t, root, "h", built), t: t, root: root, limit: limit}
	for _, dir := range []string{"tmp", "run", "bin"} {
		if err := os.Mkdir(w.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, program := range map[string]string{
		"proxy": filepath.Join(built, "proxy"), "supervisor": filepath.Join(built, "supervisor"), "holdfast": filepath.Join(built, "holdfast"),
		"python3": itself("python3", "-c", "import sys; print(sys.executable)"), "node": itself("node", "-p", "process.execPath"),
	} {
		if program == "" {
			continue
		}
		if err := os.Symlink(program, w.path("bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	w.Env = slices.Concat(w.Env, []string{
		"TMPDIR=" + w.path("tmp"), "XDG_RUNTIME_DIR=" + w.path("run"),
		"PATH=" + w.path("bin") + ":" + os.Getenv("PATH"), "SHELL=/bin/sh", "LANG=C.UTF-8", "TERM=xterm-256color",
		"PYTHONDONTWRITEBYTECODE=1", "SOURCE=" + source, "CGO_ENABLED=0", // as testkit.Build builds
	}, goEnv(t))
	t.Cleanup(w.End)
	return w
}

// hostsPage is about another host, which its commands reach by ssh under the name build-host.
const hostsPage = ".github/docs/other-hosts.md"

// reachHost starts a host for hostsPage.
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
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = w.Env, dir, &out, &out
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
