//go:build linux || darwin

package keeper

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tried is the exit code of a program that can go on with a manifest: one that
// no other program is likely to have.
const tried = 85

// try is a new keeper that is only asked whether it could go on.
func try(fd int) int {
	if _, err := load(fd); err != nil {
		fmt.Fprintln(os.Stderr, "keeper:", err)
		return exitSoftware
	}
	return tried
}

// become replaces this keeper's program, in the same process: it stays the parent
// of all. It returns only if that failed, and then all is as it was.
//
// The order is the contract: try the very file that will be run, as a file cut
// short passes exec and dies behind it; then stop writing, so that nothing is
// half written but what is noted; and keep the mutex from the last look at
// everything to the exec, so that nothing is collected in between.
func (k *keeper) become(c *child, m Message, fds []int) error {
	if len(fds) != 1 || len(m.Argv) == 0 {
		return errors.New("exec takes a program and its arguments")
	}
	// Above all that a child gets for its own.
	program, err := unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	defer unix.Close(program)
	if err := k.trial(c, m.Argv, program); err != nil {
		return fmt.Errorf("trial: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.thaw(c)
	if !k.freeze(c) {
		return errors.New("the supervisor is gone")
	}
	state := k.snapshot(c, m.Seq)
	return k.exec(&state, m.Argv, program)
}

// freeze stops the writer, who notes what it has not written.
func (k *keeper) freeze(c *child) bool {
	if !c.dead {
		c.frozen = true
		c.conn.SetWriteDeadline(time.Unix(1, 0))
		k.changed.Broadcast()
	}
	for !c.parked && !c.dead && !c.broken {
		k.changed.Wait()
	}
	return !c.dead && !c.broken
}

func (k *keeper) thaw(c *child) {
	if c.frozen = false; !c.dead {
		c.conn.SetWriteDeadline(time.Time{})
	}
	k.changed.Broadcast()
}

// trial starts the program on a manifest and waits for what it says of it, or
// for the end of who asked: that is dealt with by who collects trials.
func (k *keeper) trial(c *child, argv []string, program int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	pid, err := k.startTrial(c, argv, program)
	if err != nil {
		return err
	}
	result := new(syscall.WaitStatus)
	*result = running
	k.trials[pid] = result
	end := func() {
		if *result == running { // not collected, so the pid is its own
			unix.Kill(pid, unix.SIGKILL)
		}
	}
	late := time.AfterFunc(k.cfg.Trial, func() { k.mu.Lock(); defer k.mu.Unlock(); end() })
	defer late.Stop()
	for *result == running && !c.dead {
		k.changed.Wait()
	}
	if end(); !result.Exited() || result.ExitStatus() != tried {
		return fmt.Errorf("the program cannot go on with what is held: %s", describe(*result))
	}
	return nil
}

// running is no wait status.
const running syscall.WaitStatus = 1<<32 - 1

func (k *keeper) startTrial(c *child, argv []string, program int) (pid int, err error) {
	state := k.snapshot(c, 0)
	f, err := state.save()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	err = control(f, func(fd uintptr) (err error) {
		pid, err = k.fork(programPath(program, argv[0]), argv, envTrial+"=3", int(fd))
		return err
	})
	return pid, err
}

// exec returns only if it failed. The runtime lowers the limit of open files to
// what we were started with, and leaves it there.
func (k *keeper) exec(m *manifest, argv []string, program int) error {
	f, err := m.save()
	if err != nil {
		return err
	}
	defer f.Close()
	return control(f, func(fd uintptr) error {
		fds := append(m.fds(), int(fd))
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return os.NewSyscallError("getrlimit", err)
		}
		syscall.ForkLock.Lock()
		defer syscall.ForkLock.Unlock()
		for _, fd := range fds {
			unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
		}
		env := k.env(envResume + "=" + strconv.Itoa(int(fd)))
		// What has no handler in the new image yet would end it. No child inherits
		// this: none is forked before the handlers are there. SIGTERM and SIGQUIT
		// are not safe for a millisecond still, as the runtime takes them first.
		signal.Ignore(slices.Concat(caught, dropped)...)
		err := syscall.Exec(programPath(program, argv[0]), argv, env)
		k.notify()
		for _, fd := range fds {
			unix.CloseOnExec(fd)
		}
		return errors.Join(os.NewSyscallError("exec", err), raiseFiles(limit))
	})
}

func control(f *os.File, do func(fd uintptr) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(fd) })
	return errors.Join(err, failed)
}
