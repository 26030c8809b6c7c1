package pty

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// processes returns all processes of /proc. It skips a process that has ended before its file
// is read.
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

// readProc reads /proc/PID/stat. It uses plain system calls, because package os would register
// each of thousands of files with the netpoller. errGone means that the process does not exist
// any more.
func readProc(pid int) (proc, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return proc{}, errNoProcess
	} else if err != nil {
		return proc{}, err
	}
	defer unix.Close(fd)
	var buf [1024]byte // the text has less than 400 bytes in practice
	n, err := unix.Read(fd, buf[:])
	if err != nil || n == 0 {
		return proc{}, errNoProcess // ESRCH: the process has ended since the open
	}
	return parseStat(pid, buf[:n])
}

// parseStat parses the fields of proc(5). It begins after the last bracket, because the name,
// in brackets, may contain any bytes.
func parseStat(pid int, stat []byte) (proc, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return proc{}, fmt.Errorf("pty: stat of process %d has %d fields, want at least 20", pid, len(fields))
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
		pid:  pid, isZombie: fields[0][0] == 'Z' || fields[0][0] == 'X',
		ppid: number(1), pgid: number(2), sid: number(3),
		tty: uint64(uint32(number(4))), start: uint64(number(19)),
	}, nil
}

// hasTerminalOpen reports whether a process has the terminal as a standard stream. The device number
// alone does not identify the terminal, because each container numbers its terminals from 0.
func hasTerminalOpen(pid int, slave *syscall.Stat_t) bool {
	for fd := range 3 {
		var st syscall.Stat_t
		name := "/proc/" + strconv.Itoa(pid) + "/fd/" + strconv.Itoa(fd)
		if syscall.Stat(name, &st) == nil && st.Dev == slave.Dev && st.Ino == slave.Ino {
			return true
		}
	}
	return false
}
