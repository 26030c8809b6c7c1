//go:build linux || darwin

package keeper

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/supervisor/internal/keeper/message"
)

// start starts a supervisor.
func (k *keeper) start() {
	k.restartAt = time.Time{}
	k.Starts++
	c := &child{New: k.Next == nil && k.New != nil}
	err := k.launch()
	if isShortage(err) && !k.holdsNoSession() && k.stopSignal == 0 {
		// This is no death and no failure of the program: it may pass at any time, and the sessions cannot be reached
		// before a supervisor runs.
		k.log("supervisor not started: %v; the start is tried again until it succeeds", err)
		k.restartAt = time.Now().Add(min(k.cfg.Backoff<<min(k.shortages, 16), maxShortagePause))
		k.shortages, k.Starts = k.shortages+1, k.Starts-1
		return
	}
	if k.shortages = 0; err != nil {
		k.Last, k.Status = fmt.Sprintf("could not be started: %v", err), 0
		k.scheduleRestart(c, exitUnavailable)
	}
	k.failureCount++
}

// isShortage reports whether a program could not be started because the system has no room for another process or
// descriptor.
func isShortage(err error) bool {
	return slices.ContainsFunc([]error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE}, func(e error) bool { return errors.Is(err, e) })
}

// launch starts a program: the requested one, once unless the system has no room for it; otherwise the program that served last;
// otherwise, or if that program dies too early, the last good one, even if another file is
// at its path now. If the good one was not ready twice in a row, the file at its path is
// tried twice.
func (k *keeper) launch() (err error) {
	p, path, argv := k.chooseProgram()
	if p != nil && p == k.Next {
		defer func() {
			if !isShortage(err) {
				k.dropNext()
			}
		}()
	}
	conn, theirs, err := message.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	process, err := fork(path, argv, message.EnvSocket, theirs)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	c := &child{PID: process.Pid, Socket: conn.FD, New: p != nil && p == k.New, conn: conn, unsentIDs: slices.Sorted(maps.Keys(k.Entries))}
	c.queue(message.Message{Op: message.OpHello, Version: message.Version, Records: len(c.unsentIDs), Starts: k.Starts, Last: k.Last, Status: k.Status})
	for i := range k.Exits {
		k.Exits[i].isUnsent = true
	}
	k.Supervisor = c
	return process.Release()
}

// chooseProgram returns the program to start, its path and its arguments. The program is
// nil if the good one, or the file at its path, is chosen.
func (k *keeper) chooseProgram() (p *program, path string, argv []string) {
	argv = k.goodArgv()
	path = argv[0]
	switch {
	case k.Next != nil:
		p = k.Next
	case k.New != nil:
		p = k.New
	case k.Good > 0 && k.failureCount%4 < 2:
		return nil, programPath(k.Good, path), argv
	default:
		return nil, path, argv
	}
	if argv = p.Argv; len(argv) == 0 {
		argv = k.cfg.Argv
	}
	return p, programPath(p.FD, argv[0]), argv
}

func (k *keeper) goodArgv() []string {
	if len(k.Argv) > 0 {
		return k.Argv
	}
	return k.cfg.Argv
}

// loadChosen opens the program that is to be started next, if one was requested.
func (k *keeper) loadChosen() {
	if k.cfg.Chosen == nil {
		return
	}
	path := k.cfg.Chosen()
	if path == "" {
		return
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		k.log("requested program %.200q not opened: %v", path, err)
		return
	}
	k.log("program %.200q is started next, by request", path)
	k.dropNext()
	k.Next = &program{FD: fd, Argv: append([]string{path}, k.goodArgv()[1:]...)}
}

// handleReady opens the program that the supervisor runs now, which may differ from the program
// that was started. The first program is good at once, because there is no other to return
// to. A later program must serve for GoodTime.
func (k *keeper) handleReady(c *child, argv []string) {
	p := &program{FD: openProgram(c.PID), Argv: argv}
	c.New = false
	switch {
	case k.Good < 0 && k.Argv == nil || isSameProgram(p, &program{FD: k.Good, Argv: k.Argv}):
		closeProgram(k.Good)
		k.Good, k.Argv = p.FD, argv
	case k.New != nil && isSameProgram(p, k.New):
		closeProgram(p.FD)
		c.New = true
	default:
		k.dropNew()
		k.New, c.New = p, true
	}
	if !c.New {
		k.dropNew()
	}
	if c.hasLeft { // the program that serves now was requested later than Next
		k.dropNext()
	}
	if k.stopSignal != 0 {
		k.kill(c.PID, k.stopSignal)
	}
	if k.stopSignal == unix.SIGINT {
		k.stopSignal = 0
	}
}

// acceptProgram makes the program that serves the one to return to.
func (k *keeper) acceptProgram() {
	k.log("program of supervisor %d accepted: it has served for %v", k.Supervisor.PID, k.cfg.GoodTime)
	closeProgram(k.Good)
	k.Good, k.Argv, k.New, k.Supervisor.New = k.New.FD, k.New.Argv, nil, false
}

func (k *keeper) dropNew() {
	if k.New != nil {
		closeProgram(k.New.FD)
		k.New = nil
	}
}

func (k *keeper) dropNext() {
	if k.Next != nil {
		closeProgram(k.Next.FD)
		k.Next = nil
	}
}

// openProgram opens the file that a process runs, even if its path is gone. It returns -1
// on macOS, or if the process has ended.
func openProgram(pid int) int {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/exe", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// programPath returns a path of the program that is open as fd, or path if the system has none. It names the descriptor by
// the keeper's pid, because a child may have another file under the same number.
func programPath(fd int, path string) string {
	if fd > 0 && runtime.GOOS == "linux" {
		return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	}
	return path
}

// isSameProgram reports whether two programs are the same file, or have the same arguments
// if no file is known.
func isSameProgram(a, b *program) bool {
	var x, y unix.Stat_t
	if a.FD < 0 && b.FD < 0 {
		return slices.Equal(a.Argv, b.Argv)
	}
	return unix.Fstat(a.FD, &x) == nil && unix.Fstat(b.FD, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// fork starts a program with f as its descriptor 3, in a process group of its own. An
// interrupt at the keeper's terminal therefore reaches only the keeper, which passes it on once.
func fork(path string, argv []string, name string, f *os.File) (*os.Process, error) {
	attr := &os.ProcAttr{Env: append(os.Environ(), name+"=3"), Sys: &syscall.SysProcAttr{Setpgid: true}}
	attr.Files = []*os.File{os.Stdin, os.Stdout, os.Stderr, f}
	return os.StartProcess(path, argv, attr)
}
