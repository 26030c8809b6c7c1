package pty

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// processes lists /proc. What cannot be read has ended meanwhile.
func processes() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var found []proc
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if q, err := readProc(pid); err == nil {
			found = append(found, q)
		}
	}
	return found
}

// readProc reads /proc/PID/stat, by plain calls: for each of thousands of files
// package os would ask the netpoller first. errGone means that there is no such
// process any more.
func readProc(pid int) (proc, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return proc{}, errGone
	} else if err != nil {
		return proc{}, err
	}
	defer unix.Close(fd)
	var buf [1024]byte // in practice under 400
	n, err := unix.Read(fd, buf[:])
	if err != nil || n == 0 {
		return proc{}, errGone // ESRCH: since we opened it
	}
	return parseStat(pid, buf[:n])
}

// parseStat takes proc(5)'s fields; the name, in brackets, may contain anything.
func parseStat(pid int, stat []byte) (proc, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return proc{}, fmt.Errorf("pty: stat of %d is too short", pid)
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(string(fields[i]))
		return n
	}
	exit := 0
	if len(fields) >= 50 {
		exit = number(49)
	}
	return proc{
		exit: uint32(exit),
		pid:  pid, zombie: fields[0][0] == 'Z' || fields[0][0] == 'X',
		ppid: number(1), pgid: number(2), sid: number(3),
		tty: uint64(uint32(number(4))), start: uint64(number(19)),
	}, nil
}

// holds reports whether a process has the terminal as a standard stream. Each
// container numbers its terminals from 0, so that the device alone, which is
// all that its stat tells, may mean another one.
func holds(pid int, slave *syscall.Stat_t) bool {
	for fd := range 3 {
		var st syscall.Stat_t
		name := "/proc/" + strconv.Itoa(pid) + "/fd/" + strconv.Itoa(fd)
		if syscall.Stat(name, &st) == nil && st.Dev == slave.Dev && st.Ino == slave.Ino {
			return true
		}
	}
	return false
}
