//go:build linux || darwin

package pty

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watch reaps the child when it ends. It waits for the pidfd or, if there is none, for SIGCHLD.
func (p *PTY) watch(pidfd int) {
	file, raw := pollFD(pidfd, "pidfd")
	if file == nil {
		reapers.add(p)
		return
	}
	go func() {
		defer file.Close()
		if raw.Read(func(uintptr) bool { return p.reap() }) != nil {
			reapers.add(p)
		}
	}()
}

// reap reaps the child and closes done if the child has ended, and reports whether it has.
func (p *PTY) reap() bool {
	p.reaping.Lock()
	defer p.reaping.Unlock()
	if p.onEnded != nil {
		if status, ended := peek(p.pid); ended {
			p.onEnded(status)
		}
	}
	status, ended := wait(p.pid)
	if ended {
		p.status = status
		close(p.done)
	}
	return ended
}

// pollFD returns a file that the netpoller watches and that owns fd. If fd is negative or
// cannot be watched, it returns nil and fd is closed.
func pollFD(fd int, name string) (*os.File, syscall.RawConn) {
	if fd < 0 {
		return nil, nil
	}
	if unix.SetNonblock(fd, true) != nil {
		_ = unix.Close(fd)
		return nil, nil
	}
	file := os.NewFile(uintptr(fd), name)
	raw, err := file.SyscallConn()
	if err != nil || file.SetDeadline(never) != nil {
		_ = file.Close()
		return nil, nil
	}
	return file, raw
}

// wait reaps the child pid if it has ended. It must not wait for any child, because other
// children belong to the code that started them.
func wait(pid int) (s Status, ended bool) {
	var ws unix.WaitStatus
	var ru unix.Rusage
	for {
		got, err := unix.Wait4(pid, &ws, unix.WNOHANG, &ru)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return Status{Code: -1, Err: fmt.Errorf("pty: wait for %d: %w", pid, err)}, true
		case got == 0:
			return Status{}, false
		default:
			s := StatusOf(uint32(ws))
			s.Usage = usage(&ru)
			return s, true
		}
	}
}

// usage returns the resource usage of a child. Until its exec, a child is a copy of its parent,
// so its maximum memory includes that of the parent. If the maximum is not above this process's
// own, it says nothing about the child and is left out.
func usage(ru *unix.Rusage) Usage {
	u := Usage{
		UserMS: ru.Utime.Nano() / 1e6, SystemMS: ru.Stime.Nano() / 1e6,
		MinorFaults: uint64(ru.Minflt), MajorFaults: uint64(ru.Majflt),
	}
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err == nil && ru.Maxrss > own.Maxrss {
		u.MaxRSSBytes = uint64(ru.Maxrss) * maxRSSUnit
	}
	return u
}

// reapers waits for all children without a pidfd. There is one, because SIGCHLD is sent to the
// process and not to a PTY.
var reapers reaper

// A reaper checks all its children at every SIGCHLD, because one signal may stand for several
// ends. Its goroutine runs while it has children.
type reaper struct {
	mu       sync.Mutex
	children map[*PTY]struct{}
	sigchld  chan os.Signal // read by loop; nil if loop does not run
}

func (r *reaper) add(p *PTY) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sigchld == nil {
		r.children = make(map[*PTY]struct{})
		r.sigchld = make(chan os.Signal, 1)
		signal.Notify(r.sigchld, unix.SIGCHLD)
		go r.loop(r.sigchld)
	}
	r.children[p] = struct{}{}
	// The child may have ended before signal.Notify was called, so it is checked once at once.
	select {
	case r.sigchld <- unix.SIGCHLD:
	default:
	}
}

func (r *reaper) loop(sigchld chan os.Signal) {
	defer signal.Stop(sigchld)
	for range sigchld {
		if !r.sweep() {
			return
		}
	}
}

// sweep reaps the children that have ended, and reports whether others are left.
func (r *reaper) sweep() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.children {
		if p.reap() {
			delete(r.children, p)
		}
	}
	if len(r.children) == 0 {
		r.sigchld = nil
	}
	return r.sigchld != nil
}
