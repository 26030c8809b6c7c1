package postmortem

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
)

// Limits of the parts of files that are read, in bytes.
const (
	maxFile = 4 << 10   // of /proc/PID/cgroup and of a cgroup's counters; both have less than 1 KiB in practice
	maxLog  = 256 << 10 // of the end of the kernel's log; most systems keep no more
)

// A system is the source of all observations. Tests replace it.
type system struct {
	proc   string // "/proc"
	cgroup string // mount point of cgroups
	log    func() []byte
	uptime func() time.Duration // time since the start, on the clock of the log
}

// oom implements OutOfMemory.
func (sys system) oom(s Seen, pid int, age time.Duration) protocol.OOMSource {
	if pid > 0 && isOOMKilled(sys.log(), pid, sys.uptime()-age-clockSlack) {
		return protocol.OOMKernelLog
	}
	if s.Memory == "" {
		return ""
	}
	if n, ok := killCount(readFile(sys.cgroup + "/" + s.Memory)); ok && n > s.Kills {
		return protocol.OOMCgroup
	}
	return ""
}

// clockSlack is how far the clock of the kernel's log may be behind other clocks.
const clockSlack = time.Minute

func hostSystem() system {
	return system{proc: "/proc", cgroup: "/sys/fs/cgroup", log: kernelLog, uptime: uptime}
}

// Observe observes a child that lives. ok is false if the child has ended, even if it is not
// reaped yet.
func Observe(pid int) (s Seen, ok bool) { return hostSystem().observe(pid) }

// OutOfMemory returns the evidence that the child, or a program that caused its end, was killed
// because memory ran out, or "" if there is none. age is how long the child had lived. pid must
// be 0 if the child itself was not killed by a signal; only its cgroup can be evidence then.
func (s Seen) OutOfMemory(pid int, age time.Duration) protocol.OOMSource {
	return hostSystem().oom(s, pid, age)
}

// OOMKilled returns the processes of a cgroup that were killed because memory ran out,
// according to the kernel's log. An element looks like "hog (pid 12)". It returns the last
// MaxOOMKilled of them, or none if the log cannot be read. No other cgroup may have had the
// same name.
func OOMKilled(cgroup string) []string { return oomKilled(kernelLog(), cgroup) }

func (sys system) observe(pid int) (s Seen, ok bool) {
	dir := sys.proc + "/" + strconv.Itoa(pid)
	var path [unix.PathMax]byte
	n, err := unix.Readlink(dir+"/cwd", path[:])
	switch {
	case err == unix.EACCES || err == unix.EPERM: // the process belongs to another user by now
	case err != nil:
		return Seen{}, false
	default:
		s.Cwd = string(path[:n])
	}
	file := counterFile(readFile(dir + "/cgroup"))
	for _, file := range []string{file, strings.TrimSuffix(file, localSuffix)} {
		if n, ok := killCount(readFile(sys.cgroup + "/" + file)); ok {
			s.Memory, s.Kills = file, n
			break
		}
	}
	return s, true
}

// readFile returns the first maxFile bytes of a file, or nil if it cannot be read. It uses
// plain system calls, because package os would register the file with the netpoller.
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

// kernelLog returns the end of the kernel's log, or nil if this process may not read it. It
// uses one system call; /dev/kmsg would need one for each line, and begins with the oldest
// line.
func kernelLog() []byte {
	buf := make([]byte, maxLog)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// uptime returns the time since the system's start without the time of suspension, because the
// log's clock stops then, too.
func uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
