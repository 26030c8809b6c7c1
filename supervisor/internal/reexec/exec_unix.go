//go:build linux || darwin

package reexec

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"holdfast/shared/machine"

	"golang.org/x/sys/unix"
)

// Exec executes the program in place of this one. The new program inherits the manifest and the
// descriptors fds. Exec returns only if it fails, and this process is unchanged then.
//
// The caller must stop all work that must not be interrupted, because all goroutines end at
// once. A SIGTERM during the few milliseconds in which neither program handles it ends the
// process.
func (p *Program) Exec(manifest []byte, fds []int, args []string) error {
	memory, err := memoryFile(header{fds}, manifest)
	if err != nil {
		return p.failed("exec", err)
	}
	defer memory.Close()
	return p.ExecAs(inheritEnv, memory, fds, args)
}

// ExecAs executes the program like Exec, but with a manifest of another package's format. The
// manifest is in memory, and the environment variable env holds its descriptor.
func (p *Program) ExecAs(env string, memory *os.File, fds []int, args []string) error {
	own, err := numbers([]*os.File{memory, p.file})
	if err != nil {
		return p.failed("exec", err)
	}
	environ := append(without(os.Environ(), env), fmt.Sprintf("%s=%d", env, own[0]))

	// syscall.Exec restores the file limit that this process was started with, as for the start
	// of a child, and does not undo that if the exec fails.
	var limit syscall.Rlimit
	hasLimit := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil
	// No goroutine may fork while the files are not close-on-exec.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	inheritedFDs := append(slices.Clone(fds), own[0])
	err = closeOnExec(inheritedFDs, false)
	if err == nil {
		err = syscall.Exec(p.execPath(own[1]), append([]string{p.path}, args...), environ)
	}
	err = errors.Join(err, closeOnExec(inheritedFDs, true))
	if hasLimit {
		err = errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
	return p.failed("exec", err)
}

// execPath returns the path by which an open program is executed. fd is its descriptor. On
// Linux the path leads to that descriptor, so that it cannot be another file by now.
func (p *Program) execPath(fd int) string {
	if runtime.GOOS == "linux" {
		return fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	return p.path
}

func numbers(files []*os.File) (fds []int, err error) {
	for _, f := range files {
		fd, err := machine.Descriptor(f)
		if err != nil {
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func closeOnExec(fds []int, on bool) (err error) {
	flag := 0
	if on {
		flag = unix.FD_CLOEXEC
	}
	for _, fd := range fds {
		if _, e := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flag); e != nil {
			err = errors.Join(err, os.NewSyscallError("fcntl F_SETFD", e))
		}
	}
	return err
}

func without(env []string, name string) []string {
	var kept []string
	for _, e := range env {
		if len(e) <= len(name) || e[:len(name)+1] != name+"=" {
			kept = append(kept, e)
		}
	}
	return kept
}

func closeOnExecAgain(fd int) { syscall.CloseOnExec(fd) }

// apart puts cmd into its own process group, so that its children are killed with it if it
// takes too long.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			return err // the process has ended
		}
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
