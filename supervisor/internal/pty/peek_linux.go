package pty

import (
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How a child ended, of waitid(2).
const (
	cldExited = 1 // else by a signal
)

// peek tells how a child has ended and leaves it as it is: whoever waits for it
// learns the same.
func peek(pid int) (s Status, ended bool) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || info.Signo == 0 {
			return Status{}, false
		}
		break
	}
	// The union of siginfo_t (sigaction(2)) begins at 16 bytes where pointers have
	// 8, else at 12: pid, uid and status of a child, 4 bytes each.
	const union = 8 + unsafe.Sizeof(uintptr(0))
	status := *(*int32)(unsafe.Add(unsafe.Pointer(&info), union+8))
	if info.Code == cldExited {
		return Status{Code: int(status)}, true
	}
	return bySignal(unix.Signal(status)), true
}

// pidfdInfo is struct pidfd_info of <linux/pidfd.h>, as long as it first was.
type pidfdInfo struct {
	mask, cgroup uint64
	_            [11]uint32
	exitCode     int32 // a raw wait status
}

const (
	pidfdGetInfo  = 0xc040ff0b // PIDFD_GET_INFO: _IOWR(0xff, 11, 64 bytes)
	pidfdInfoExit = 1 << 3     // PIDFD_INFO_EXIT, of Linux 6.15
	reapedTime    = time.Second
	reapedPoll    = time.Millisecond
)

// exitOf finds out how a process ended that is not our child. Until its parent,
// whoever that is, has reaped it, its stat says so; some inits take seconds, or never
// do. Then the kernel tells by its pidfd.
func exitOf(pid int, start uint64, pidfd int) (Status, bool) {
	for end := time.Now().Add(reapedTime); ; time.Sleep(reapedPoll) {
		if status, ok := exitOfZombie(pid, start); ok {
			return status, true
		}
		if pidfd < 0 {
			return Status{}, false
		}
		info := pidfdInfo{mask: pidfdInfoExit}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), pidfdGetInfo, uintptr(unsafe.Pointer(&info)))
		switch {
		case errno == 0 && info.mask&pidfdInfoExit != 0:
			return StatusOf(uint32(info.exitCode)), true
		case errno != 0 && errno != unix.EINTR, time.Now().After(end): // an older kernel; a parent that does not reap
			return Status{}, false
		}
	}
}

// exitOfZombie is told to those who may trace the process; all others read 0, so
// that 0 counts only with a proof that we may.
func exitOfZombie(pid int, start uint64) (Status, bool) {
	q, err := readProc(pid)
	if err != nil || !q.zombie || q.start != start || q.exit == 0 && !traceable(pid) {
		return Status{}, false
	}
	return StatusOf(q.exit), true
}

// traceable asks for what is shown to the same as a zombie's exit is (proc(5)).
func traceable(pid int) bool {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/io", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_, err = unix.Read(fd, make([]byte, 1))
	return err == nil
}
