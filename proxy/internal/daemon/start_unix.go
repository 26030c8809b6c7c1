//go:build unix

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const rootDir = "/"

var errNoScope = errors.New("no systemd user manager")

// scopeLimit is how long systemd may take to make a scope. It usually takes about 20 ms; a
// manager that hangs must not keep a terminal from opening.
const scopeLimit = 3 * time.Second

func start(ctx context.Context, spec Spec) (*Process, error) {
	CloseInherited()
	p, err := inScope(ctx, spec)
	if err == nil {
		return p, nil
	}
	p, directErr := direct(ctx, spec)
	if directErr != nil && !errors.Is(err, errNoScope) {
		directErr = errors.Join(directErr, fmt.Errorf("in a scope of its own: %w", err))
	}
	return p, directErr
}

func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// CloseInherited marks all descriptors that this process has inherited from its launcher, so that they
// are closed in the programs that it starts. A daemon would otherwise hold them for ever, so that pipes
// never end and ports never become free. Descriptors that Go has opened are marked already.
func CloseInherited() {
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // the descriptors stay open; that is no reason not to start
	}
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// announce is the shell script that runs in the new scope. It writes a byte to descriptor 3 and
// execs the program. The process id stays the same from systemd-run to the program, because each
// of them execs the next.
//
// It passes the path of the delegated cgroup to the program, because a user's systemd leaves no
// mark on the cgroup itself. It passes a path instead of a flag, because a process in another
// cgroup may inherit the variable.
const announce = `if [ -r /proc/self/cgroup ]; then
	while IFS= read -r line; do case $line in 0::*) export HOLDFAST_DELEGATED="${line#0::}" ;; esac; done </proc/self/cgroup
fi
echo >&3; exec 3>&-; exec "$0" "$@"`

// scopeArgs are the arguments of systemd-run before the command.
//
// Delegate=yes has two effects. It sets the scope's OOMPolicy to "continue": without it, systemd
// from version 253 on stops the whole scope, and with it every shell, if the kernel kills one of
// its processes for memory. It also lets the supervisor divide the cgroup below the scope among
// its sessions.
var scopeArgs = []string{"--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--", "/bin/sh", "-c", announce}

// inScope starts the program through systemd-run, in a scope of its own. If it returns an error,
// the program has not run. The byte on the pipe distinguishes a program that failed from a
// systemd-run that failed.
func inScope(ctx context.Context, spec Spec) (*Process, error) {
	run := systemdRun(spec.Env)
	if run == "" {
		return nil, errNoScope
	}
	sign, childEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer sign.Close()
	cmd := exec.Command(run, slices.Concat(scopeArgs, []string{spec.Path}, spec.Args)...)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = spec.Env, rootDir, []*os.File{childEnd}
	p, err := launch(cmd)
	_ = childEnd.Close()
	if err != nil {
		return nil, err
	}
	if err := waitForSign(ctx, sign); err != nil {
		p.End()
		return nil, errors.Join(err, p.err)
	}
	return p, nil
}

// waitForSign reads the byte, or fails at the end of the pipe, of ctx or of scopeLimit.
func waitForSign(ctx context.Context, sign *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, scopeLimit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = sign.SetReadDeadline(time.Unix(1, 0)) })()
	_, err := io.ReadFull(sign, make([]byte, 1))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("systemd-run: %w", context.Cause(ctx))
	}
	return errors.New("systemd-run ended without making a scope")
}

// systemdRun returns the path of systemd-run, or "" if the user's manager cannot be reached. It
// uses the environment that the program will have.
func systemdRun(env []string) string {
	if env == nil {
		env = os.Environ()
	}
	dir := lookup(env, "XDG_RUNTIME_DIR")
	if dir == "" {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, "systemd", "private")); err != nil {
		return ""
	}
	for _, d := range filepath.SplitList(lookup(env, "PATH")) {
		path := filepath.Join(d, "systemd-run")
		if fi, err := os.Stat(path); filepath.IsAbs(path) && err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// lookup returns the last value of a variable in env, because the last value counts.
func lookup(env []string, name string) (value string) {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}
