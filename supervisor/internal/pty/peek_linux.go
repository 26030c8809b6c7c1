package pty

import (
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The values of si_code that peek distinguishes; see waitid(2).
const (
	cldExited = 1 // any other value means that a signal ended the child
)

// peek returns how a child has ended, without reaping it, so that a later wait returns the same
// status.
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
	// The union of siginfo_t (sigaction(2)) begins at byte 16 if pointers have 8 bytes,
	// otherwise at byte 12. It holds the pid, uid and status of a child, 4 bytes each.
	const union = 8 + unsafe.Sizeof(uintptr(0))
	status := *(*int32)(unsafe.Add(unsafe.Pointer(&info), union+8))
	if info.Code == cldExited {
		return Status{Code: int(status)}, true
	}
	return bySignal(unix.Signal(status)), true
}

// pidfdInfo is struct pidfd_info of <linux/pidfd.h>, in its first and shortest form.
type pidfdInfo struct {
	mask, cgroup uint64
	_            [11]uint32
	exitCode     int32 // raw wait status
}

const (
	pidfdGetInfo  = 0xc040ff0b // PIDFD_GET_INFO: _IOWR(0xff, 11, 64 bytes)
	pidfdInfoExit = 1 << 3     // PIDFD_INFO_EXIT, since Linux 6.15
	reapedTime    = time.Second
	reapedPoll    = time.Millisecond
)

// exitOf returns how a process has ended that is not a child of this process. Until its parent
// has reaped it, /proc/PID/stat has its exit status. Some init processes take seconds to reap,
// or never do. After the reaping, the kernel returns the status for its pidfd, if the kernel is
// new enough.
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
		case errno != 0 && errno != unix.EINTR, time.Now().After(end): // the kernel is too old, or the parent does not reap the process
			return Status{}, false
		}
	}
}

// exitOfZombie returns the exit status of a zombie. The kernel shows it only to processes that
// may trace the zombie, and shows 0 to all others. So 0 is valid only if this process may trace
// the zombie.
func exitOfZombie(pid int, start uint64) (Status, bool) {
	q, err := readProc(pid)
	if err != nil || !q.isZombie || q.start != start || q.exit == 0 && !traceable(pid) {
		return Status{}, false
	}
	return StatusOf(q.exit), true
}

// traceable reports whether this process may trace pid. It reads /proc/PID/io, which needs the
// same permission as a zombie's exit status (proc(5)).
func traceable(pid int) bool {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/io", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_, err = unix.Read(fd, make([]byte, 1))
	return err == nil
}
