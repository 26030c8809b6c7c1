//go:build linux || darwin

package keeper

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/supervisor/internal/keeper/message"
)

// exec replaces the keeper's program in the same process, which thereby stays the parent of
// all children. It returns only if that failed, and then the keeper continues unchanged.
// The file is tried first, because exec accepts a truncated file, which then dies. The
// keeper reads no message and collects no child meanwhile, and no message is half sent.
func (k *keeper) exec(m message.Message, programFD int) error {
	k.Answer = m.Seq
	f, err := k.cfg.MemoryFile("keeper")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(k.state); err != nil {
		return err
	}
	path := programPath(programFD, m.Argv[0])
	if err := try(path, m.Argv, f); err != nil || k.mustEnd.Load() { // the new program would not receive the request to end
		return cmp.Or(err, errors.New("the keeper was requested to end meanwhile"))
	}
	fds := append(k.descriptors(), int(f.Fd()))
	k.setDescriptorFlags(fds, 0)
	// A signal that the new program does not handle yet would end it, so signals are ignored
	// until then; the new program forks no child before. The Go runtime handles
	// SIGTERM and SIGQUIT earlier, so these do end it during the first millisecond.
	undo := ignoreUntilExec(k.signals, caught)
	err = syscall.Exec(path, m.Argv, append(os.Environ(), fmt.Sprintf("%s=%d", message.EnvResume, f.Fd())))
	undo()
	k.setDescriptorFlags(fds, unix.FD_CLOEXEC)
	return err
}

// try runs a keeper program on a manifest, to find out whether it could continue.
func try(path string, argv []string, manifest *os.File) error {
	p, err := fork(path, argv, message.EnvTrial, manifest)
	if err != nil {
		return err
	}
	defer time.AfterFunc(trialTime, func() { _ = p.Kill() }).Stop() // Kill fails only if p has ended
	if state, err := p.Wait(); err != nil || state.ExitCode() != message.ExitTried {
		return errors.Join(fmt.Errorf("new keeper program cannot load the vault: %v", state), err)
	}
	return nil
}

// setDescriptorFlags sets 0 before an exec and FD_CLOEXEC after it.
func (k *keeper) setDescriptorFlags(fds []int, flags int) {
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags); err != nil && fd >= 0 {
			k.log("flags of descriptor %d not set: %v", fd, err)
		}
	}
}

// resume continues the work of the program that ran in this process before.
func (k *keeper) resume() error {
	if c := k.Supervisor; c != nil {
		conn, err := message.NewConn(c.Socket)
		if err != nil {
			return err
		}
		conn.Now, c.conn, c.hasAll = true, conn, true
		c.queue(message.Message{Op: message.OpOK, Seq: k.Answer})
	} else { // the process was a supervisor, and its keeper has died
		k.Good = openProgram(os.Getpid())
		k.start()
	}
	k.reap() // children that ended meanwhile
	return nil
}
