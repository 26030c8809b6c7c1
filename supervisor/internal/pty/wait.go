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

// watch sees to it that the child is reaped when it ends, however its end is
// noticed: by its pidfd or, failing that, by SIGCHLD.
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

// reap collects the child if it has ended, and then says so.
func (p *PTY) reap() bool {
	p.reaping.Lock()
	defer p.reaping.Unlock()
	if p.ended != nil {
		if status, ended := peek(p.pid); ended {
			p.ended(status)
		}
	}
	status, ended := wait(p.pid)
	if ended {
		p.status = status
		close(p.done)
	}
	return ended
}

// pollFD puts a descriptor on the netpoller and takes it over; it returns nil
// if there is none or it cannot be watched.
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

// wait asks for this one child, never for any: others belong to whoever
// started them.
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

// usage returns what a child took. The kernel counts for a child also the memory that
// its parent had when it was started, because until exec they are the same program. So a
// maximum that is not above this process's own says nothing about the child, and is left
// out.
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

// reapers wait for the children that have no pidfd. SIGCHLD is the process's
// and so is this.
var reapers reaper

// A reaper looks at all its children at every SIGCHLD, as one signal may stand
// for many ends. Its loop runs while there are any.
type reaper struct {
	mu       sync.Mutex
	children map[*PTY]struct{}
	sigchld  chan os.Signal // to the loop; nil if there is none
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
	// The child may have ended before anybody asked for it.
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

// sweep reports whether children are left to wait for.
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
