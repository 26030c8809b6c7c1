package foreground

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
)

func of(pid int) *protocol.Foreground { return readForeground("/proc", pid) }

// A stat holds the needed fields of /proc/PID/stat, see proc_pid_stat(5).
type stat struct {
	name    string
	state   string // T is stopped, t stopped by a tracer
	own     int    // process group
	session int
	tty     int // number of the terminal's device
	group   int // foreground process group of the terminal, or -1 without a terminal
}

func readStat(proc string, pid int) (s stat, ok bool) {
	data, err := os.ReadFile(proc + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return s, false
	}
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')') // the name may contain any character
	if open < 0 || end < open {
		return s, false
	}
	f := strings.Fields(string(data[end+1:])) // state, ppid, pgrp, session, tty_nr, tpgid
	if len(f) < 6 {
		return s, false
	}
	s.name, s.state = string(data[open+1:end]), f[0]
	for i, field := range []*int{&s.own, &s.session, &s.tty, &s.group} {
		if *field, err = strconv.Atoi(f[2+i]); err != nil {
			return s, false
		}
	}
	return s, true
}

func readForeground(proc string, pid int) *protocol.Foreground {
	leader, ok := readStat(proc, pid)
	if !ok || leader.session != pid || leader.state == "Z" { // the leader has ended, or another process has its pid now
		return nil
	}
	f := &protocol.Foreground{PID: pid, Name: leader.name, Stopped: leader.state == "T" || leader.state == "t"}
	if leader.group > 0 && leader.group != pid {
		if foreground, ok := readStat(proc, leader.group); ok && foreground.session == pid {
			f.PID, f.Name = leader.group, foreground.name
		}
	}
	f.Cwd, _ = os.Readlink(proc + "/" + strconv.Itoa(f.PID) + "/cwd") // fails for another user's process
	id := strconv.Itoa(pid)
	children, err := os.ReadFile(proc + "/" + id + "/task/" + id + "/children")
	f.Children = err == nil && len(bytes.TrimSpace(children)) > 0
	return f
}

// maxReaders bounds the processes of a group of which reads asks the system.
const maxReaders = 16

func reads(pid, group int) bool { return readsIn("/proc", pid, group) }

// readsIn looks at the leader of the group and at its descendants in the group.
func readsIn(proc string, pid, group int) bool {
	leader, ok := readStat(proc, pid)
	if !ok || leader.session != pid {
		return false
	}
	terminal := terminalName(leader.tty)
	for next, left := []int{group}, maxReaders; len(next) > 0 && left > 0; left-- {
		p := next[0]
		next = next[1:]
		if s, ok := readStat(proc, p); !ok || s.own != group || s.session != pid {
			continue
		}
		dir := proc + "/" + strconv.Itoa(p)
		if to := readsFrom(dir); to != "" && (to == terminal || to == "/dev/tty") {
			return true
		}
		children, _ := os.ReadFile(dir + "/task/" + strconv.Itoa(p) + "/children") // without it, only the leader is known
		for _, child := range strings.Fields(string(children)) {
			if n, err := strconv.Atoi(child); err == nil && len(next) < maxReaders {
				next = append(next, n)
			}
		}
	}
	return false
}

// readsFrom returns the file from which the main thread of a process reads, or "" if it does something else.
func readsFrom(dir string) string {
	call, err := os.ReadFile(dir + "/syscall") // fails for a process that this one may not trace
	if err != nil {
		return ""
	}
	f := strings.Fields(string(call)) // number, arguments, stack, instruction; or "running"
	if len(f) < 2 || f[0] != strconv.Itoa(unix.SYS_READ) {
		return ""
	}
	fd, err := strconv.ParseUint(f[1], 0, 31)
	if err != nil {
		return ""
	}
	to, _ := os.Readlink(dir + "/fd/" + strconv.FormatUint(fd, 10)) // "" if the process has ended meanwhile
	return to
}

// terminalName returns the name of a pseudo terminal from the number of its device, see proc_pid_stat(5), or "" if
// the device is none.
func terminalName(device int) string {
	const pts = 136 // UNIX98_PTY_SLAVE_MAJOR of the kernel
	if major := device >> 8 & 0xfff; major != pts {
		return ""
	}
	return "/dev/pts/" + strconv.Itoa(device&0xff|device>>12&0xfff00)
}
