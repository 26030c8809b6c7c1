package foreground

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"holdfast/protocol"
)

func of(pid int) *protocol.Foreground { return readForeground("/proc", pid) }

// A stat holds the needed fields of /proc/PID/stat, see proc_pid_stat(5).
type stat struct {
	name    string
	state   string // T is stopped, t stopped by a tracer
	session int
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
	if s.session, err = strconv.Atoi(f[3]); err == nil {
		s.group, err = strconv.Atoi(f[5])
	}
	return s, err == nil
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
