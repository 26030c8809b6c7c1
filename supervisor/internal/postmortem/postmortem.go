// Package postmortem finds out about a child's end what its status does not say:
// where it was, and whether it was killed because memory ran out.
//
// Both have to be looked at while it lives: a zombie has no directory, and its
// cgroup counts for ever and for all that are in it.
//
// Invariant: it only reads, a bounded number of bytes, and waits for nothing. What
// cannot be read is not known, and is not guessed.
//
// Not here: exit codes and what a child took (package pty), who asked for an end
// (package session).
package postmortem

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/protocol"
)

// Seen is what was seen of a child while it lived.
type Seen struct {
	Cwd    string `json:"cwd,omitempty"`
	Memory string `json:"memory,omitempty"` // the file in which its cgroup counts; "" if there is none
	Kills  uint64 `json:"kills,omitempty"`  // how many that file had counted
}

// local is at the end of the name of the file that does not count cgroups within;
// Linux has it from 5.2 on.
const local = ".local"

// counter returns where the cgroup counts those of it that were killed because
// memory ran out, below where cgroups are mounted, or "". It takes what
// /proc/PID/cgroup says: of version 1 a line for each hierarchy, of which one
// has the controller; of version 2 one line.
func counter(cgroup []byte) string {
	unified := ""
	for line := range strings.Lines(string(cgroup)) {
		id, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case strings.Contains(","+controllers+",", ",memory,"):
			return "memory" + path + "/memory.oom_control"
		case id == "0" && controllers == "":
			unified = strings.TrimPrefix(strings.TrimPrefix(path, "/")+"/memory.events"+local, "/")
		}
	}
	return unified
}

// kills returns what such a file has counted; ok is false where it does not say.
func kills(file []byte) (n uint64, ok bool) {
	for line := range bytes.Lines(file) {
		if number, found := bytes.CutPrefix(line, []byte("oom_kill ")); found {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// killed reports whether the kernel's log, as syslog(2) gives it, says that the
// process was killed because memory ran out, at since or later: pids are used
// again. Lines without a time, which is since the system's start, count.
func killed(log []byte, pid int, since time.Duration) bool {
	want := []byte("Killed process " + strconv.Itoa(pid) + " (")
	for line := range bytes.Lines(log) {
		before, _, found := bytes.Cut(line, want)
		if !found {
			continue
		}
		// Programs choose their names, which stand in many a line; but not what a
		// line begins with.
		at, said, timed := header(before)
		if (len(said) == 0 || bytes.HasPrefix(said, []byte("Out of memory")) || bytes.HasPrefix(said, []byte("Memory cgroup out of memory"))) &&
			(!timed || at >= since) {
			return true
		}
	}
	return false
}

// oomKilled returns the processes that, by the kernel's log, were killed for memory in a
// cgroup of this name or below it, the last of them: "hog (pid 12)". The line that says
// so is made by dump_header of the kernel's mm/oom_kill.c:
//
//	oom-kill:constraint=…,task_memcg=/a/session-1,task=hog,pid=12,uid=0
func oomKilled(log []byte, cgroup string) (found []string) {
	for line := range bytes.Lines(log) {
		_, said, _ := header(line)
		rest, ok := bytes.CutPrefix(bytes.TrimSpace(said), []byte("oom-kill:"))
		_, rest, in := bytes.Cut(rest, []byte(",task_memcg="))
		path, task, named := bytes.Cut(rest, []byte(",task="))
		name, numbers, whole := cutLast(task, ",pid=")
		pid, _, _ := strings.Cut(numbers, ",")
		if !ok || !in || !named || !whole || !slices.Contains(strings.Split(string(path), "/"), cgroup) {
			continue
		}
		if n, err := strconv.Atoi(pid); err == nil {
			found = append(found, fmt.Sprintf("%s (pid %d)", strings.ToValidUTF8(name, "?"), n))
		}
	}
	return found[max(0, len(found)-protocol.MaxOOMKilled):]
}

// cutLast cuts behind the last sep: a program may have one in its name.
func cutLast(s []byte, sep string) (before, after string, found bool) {
	i := bytes.LastIndex(s, []byte(sep))
	if i < 0 {
		return "", "", false
	}
	return string(s[:i]), string(s[i+len(sep):]), true
}

// header takes what the kernel puts before a line: "<3>[ 1234.567890][ T42] ".
func header(line []byte) (at time.Duration, rest []byte, timed bool) {
	if len(line) > 0 && line[0] == '<' {
		_, line, _ = bytes.Cut(line, []byte(">"))
	}
	for len(line) > 0 && line[0] == '[' {
		inside, after, ok := bytes.Cut(line[1:], []byte("]"))
		if !ok {
			break
		}
		if seconds, err := strconv.ParseFloat(string(bytes.TrimSpace(inside)), 64); err == nil {
			at, timed = time.Duration(seconds*float64(time.Second)), true
		}
		line = after
	}
	return at, bytes.TrimLeft(line, " "), timed
}
