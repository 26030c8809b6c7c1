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

	"golang.org/x/sys/unix"
)

// Exec runs the program in place of this one, and leaves it the manifest and the
// files, by their descriptors. It returns only if it could
// not, and then nothing has changed.
//
// Nothing else may go on in this process that must not be torn: all goroutines end
// at once. SIGTERM in the few milliseconds in which neither program handles it
// ends the process.
func (p *Program) Exec(manifest []byte, fds []int, args []string) error {
	memory, err := memoryFile(header{fds}, manifest)
	if err != nil {
		return p.failed("exec", err)
	}
	defer memory.Close()
	return p.ExecAs(inheritEnv, memory, fds, args)
}

// ExecAs is Exec with a manifest that another package reads: memory has it, and the
// variable env of the environment the number of that.
func (p *Program) ExecAs(env string, memory *os.File, fds []int, args []string) error {
	own, err := numbers([]*os.File{memory, p.file})
	if err != nil {
		return p.failed("exec", err)
	}
	environ := append(without(os.Environ(), env), fmt.Sprintf("%s=%d", env, own[0]))

	// The runtime puts the limit back that this process was started with, as if
	// another were being run, and forgets to take that back.
	var limit syscall.Rlimit
	limited := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil
	// Nobody forks while the files are not close-on-exec.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	left := append(slices.Clone(fds), own[0])
	err = closeOnExec(left, false)
	if err == nil {
		err = syscall.Exec(p.execPath(own[1]), append([]string{p.path}, args...), environ)
	}
	err = errors.Join(err, closeOnExec(left, true))
	if limited {
		err = errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
	return p.failed("exec", err)
}

// execPath is by what the open file is run, where fd is its descriptor: on Linux
// the descriptor itself, so that it cannot be another file by now.
func (p *Program) execPath(fd int) string {
	if runtime.GOOS == "linux" {
		return fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	return p.path
}

func numbers(files []*os.File) (fds []int, err error) {
	for _, f := range files {
		raw, err := f.SyscallConn() // Fd would make it blocking
		if err != nil {
			return nil, err
		}
		if err := raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) }); err != nil {
			return nil, err
		}
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

// apart has what a program starts end with it, if it takes too long.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			return err // it has ended
		}
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
