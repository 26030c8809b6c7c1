package postmortem

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
)

// What is read at most.
const (
	maxFile = 4 << 10   // of /proc/PID/cgroup, and of what a cgroup counts: in practice under 1 KiB
	maxLog  = 256 << 10 // of the kernel's log, its end: as much as it has on most systems
)

// A system is what is read. Tests have others.
type system struct {
	proc   string // "/proc"
	cgroup string // where cgroups are mounted
	log    func() []byte
	uptime func() time.Duration // on the clock of the log
}

// oom is OutOfMemory.
func (sys system) oom(s Seen, pid int, age time.Duration) protocol.OOMSource {
	if pid > 0 && killed(sys.log(), pid, sys.uptime()-age-clockSlack) {
		return protocol.OOMKernelLog
	}
	if s.Memory == "" {
		return ""
	}
	if n, ok := kills(readFile(sys.cgroup + "/" + s.Memory)); ok && n > s.Kills {
		return protocol.OOMCgroup
	}
	return ""
}

// clockSlack is by how much the clock of the kernel's log may be behind others.
const clockSlack = time.Minute

func this() system {
	return system{proc: "/proc", cgroup: "/sys/fs/cgroup", log: kernelLog, uptime: uptime}
}

// Look returns what is to be seen of a child now. ok is false if it has ended, be
// it reaped or not, or lives where nothing can be seen.
func Look(pid int) (s Seen, ok bool) { return this().look(pid) }

// OutOfMemory returns by what it is known that memory ran out and the child, or a
// program that its end was due to, was killed for that; "" where it is not known.
// age is for how long the child had lived. A pid of 0 is for one that itself was
// not killed: then its cgroup alone can tell.
func (s Seen) OutOfMemory(pid int, age time.Duration) protocol.OOMSource {
	return this().oom(s, pid, age)
}

// OOMKilled returns the processes of a cgroup that the kernel's log says were killed
// for memory, as "hog (pid 12)", the last MaxOOMKilled; none where the log cannot be
// read. The cgroup's name must be one that no other has.
func OOMKilled(cgroup string) []string { return oomKilled(kernelLog(), cgroup) }

func (sys system) look(pid int) (s Seen, ok bool) {
	dir := sys.proc + "/" + strconv.Itoa(pid)
	var path [unix.PathMax]byte
	n, err := unix.Readlink(dir+"/cwd", path[:])
	switch {
	case err == unix.EACCES || err == unix.EPERM: // another user's by now
	case err != nil:
		return Seen{}, false
	default:
		s.Cwd = string(path[:n])
	}
	file := counter(readFile(dir + "/cgroup"))
	for _, file := range []string{file, strings.TrimSuffix(file, local)} {
		if n, ok := kills(readFile(sys.cgroup + "/" + file)); ok {
			s.Memory, s.Kills = file, n
			break
		}
	}
	return s, true
}

// readFile returns the beginning of a file, nothing if it cannot be read. It makes
// plain calls: package os would ask the netpoller first.
func readFile(name string) []byte {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, maxFile)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// kernelLog returns the end of the kernel's log, nothing where that is not for us.
// It is one call, where /dev/kmsg takes one for each line and begins with the
// oldest.
func kernelLog() []byte {
	buf := make([]byte, maxLog)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// uptime does not count what the machine slept, as the log does not.
func uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
