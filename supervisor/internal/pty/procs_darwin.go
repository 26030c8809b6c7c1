package pty

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// processes asks the kernel for its table.
func processes() []proc {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	found := make([]proc, 0, len(all))
	for i := range all {
		found = append(found, fromKinfo(&all[i]))
	}
	return found
}

// readProc asks for one; errGone means that there is none any more.
func readProc(pid int) (proc, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err == unix.EIO { // how the package reports an empty answer
		return proc{}, errGone
	} else if err != nil {
		return proc{}, err
	}
	return fromKinfo(k), nil
}

const (
	szomb = 5  // <sys/proc.h>: ended, not reaped
	nodev = -1 // <sys/param.h>: no terminal
)

func fromKinfo(k *unix.KinfoProc) proc {
	q := proc{
		pid: int(k.Proc.P_pid), ppid: int(k.Eproc.Ppid), pgid: int(k.Eproc.Pgid),
		start:  uint64(k.Proc.P_starttime.Nano()),
		zombie: k.Proc.P_stat == szomb,
	}
	q.sid, _ = unix.Getsid(q.pid)
	if k.Eproc.Tdev != nodev {
		// Widened as the device in a Stat_t is.
		q.tty = uint64(k.Eproc.Tdev)
	}
	return q
}

// holds: there is one set of terminals, so the device was proof enough.
func holds(int, *syscall.Stat_t) bool { return true }
