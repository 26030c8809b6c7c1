package pty

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// processes returns the kernel's process table.
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

// readProc returns one process. errGone means that the process does not exist any more.
func readProc(pid int) (proc, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err == unix.EIO { // the package returns EIO for an empty answer
		return proc{}, errNoProcess
	} else if err != nil {
		return proc{}, err
	}
	return fromKinfo(k), nil
}

const (
	szomb = 5  // SZOMB of <sys/proc.h>: ended and not reaped
	nodev = -1 // NODEV of <sys/param.h>: no terminal
)

func fromKinfo(k *unix.KinfoProc) proc {
	q := proc{
		pid: int(k.Proc.P_pid), ppid: int(k.Eproc.Ppid), pgid: int(k.Eproc.Pgid),
		start:    uint64(k.Proc.P_starttime.Nano()),
		isZombie: k.Proc.P_stat == szomb,
	}
	q.sid, _ = unix.Getsid(q.pid)
	if k.Eproc.Tdev != nodev {
		// The conversion is the one that a Stat_t's device gets, so that both can be compared.
		q.tty = uint64(k.Eproc.Tdev)
	}
	return q
}

// hasTerminalOpen always reports true, because macOS has one set of terminals, so that the device alone
// identifies the terminal.
func hasTerminalOpen(int, *syscall.Stat_t) bool { return true }
