// Package postmortem finds facts about a child's end that its exit status does not contain: its
// last working directory, and whether it was killed because memory ran out.
//
// Both need an observation while the child lives, because a zombie has no working directory,
// and because the counters of its cgroup are never reset and count all processes of the cgroup.
//
// Invariant: the package only reads, reads a bounded number of bytes, and never waits. If a
// fact cannot be read, it is reported as unknown and is not guessed.
//
// Not here: exit codes and resource usage (package pty), the request that ended a session
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

// Seen holds the observations of a child while it lived.
type Seen struct {
	Cwd    string `json:"cwd,omitempty"`
	Memory string `json:"memory,omitempty"` // file with the counters of its cgroup, below the mount point; "" if there is none
	Kills  uint64 `json:"kills,omitempty"`  // number of kills for memory that the file had counted
}

// localSuffix is the suffix of the file that does not count the cgroups below; it exists since Linux
// 5.2.
const localSuffix = ".local"

// counterFile returns the file in which the cgroup counts its processes that were killed
// because memory ran out, as a path below the mount point, or "". Its argument is the content
// of /proc/PID/cgroup. For cgroup version 1 that has a line for each hierarchy, and one of them
// has the memory controller; for version 2 it has one line.
func counterFile(cgroup []byte) string {
	unified := ""
	for line := range strings.Lines(string(cgroup)) {
		id, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case strings.Contains(","+controllers+",", ",memory,"):
			return "memory" + path + "/memory.oom_control"
		case id == "0" && controllers == "":
			unified = strings.TrimPrefix(strings.TrimPrefix(path, "/")+"/memory.events"+localSuffix, "/")
		}
	}
	return unified
}

// killCount returns the number of kills in the content of such a file. ok is false if the file
// does not contain it.
func killCount(file []byte) (n uint64, ok bool) {
	for line := range bytes.Lines(file) {
		if number, found := bytes.CutPrefix(line, []byte("oom_kill ")); found {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// isOOMKilled reports whether the kernel's log, in the format of syslog(2), says that the
// process was killed because memory ran out. Earlier lines than since are ignored, because pids
// are used again; times count from the system's start. Lines without a time are not ignored.
func isOOMKilled(log []byte, pid int, since time.Duration) bool {
	want := []byte("Killed process " + strconv.Itoa(pid) + " (")
	for line := range bytes.Lines(log) {
		before, _, found := bytes.Cut(line, want)
		if !found {
			continue
		}
		// The process's name can be any text and occurs in many lines, but the beginning of a
		// line is always the kernel's.
		at, text, hasTime := header(before)
		if (len(text) == 0 || bytes.HasPrefix(text, []byte("Out of memory")) || bytes.HasPrefix(text, []byte("Memory cgroup out of memory"))) &&
			(!hasTime || at >= since) {
			return true
		}
	}
	return false
}

// oomKilled returns the last MaxOOMKilled processes, as "hog (pid 12)", that were killed
// because memory ran out in a cgroup of this name or below it. It looks for lines that
// dump_header of the kernel's mm/oom_kill.c writes to the log:
//
//	oom-kill:constraint=…,task_memcg=/a/session-1,task=hog,pid=12,uid=0
func oomKilled(log []byte, cgroup string) (found []string) {
	for line := range bytes.Lines(log) {
		_, text, _ := header(line)
		rest, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte("oom-kill:"))
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

// cutLast cuts s around the last sep, because the name of a process may contain sep, too.
func cutLast(s []byte, sep string) (before, after string, found bool) {
	i := bytes.LastIndex(s, []byte(sep))
	if i < 0 {
		return "", "", false
	}
	return string(s[:i]), string(s[i+len(sep):]), true
}

// header parses the prefix that the kernel writes before a line, such as "<3>[ 1234.567890][
// T42] ".
func header(line []byte) (at time.Duration, rest []byte, hasTime bool) {
	if len(line) > 0 && line[0] == '<' {
		_, line, _ = bytes.Cut(line, []byte(">"))
	}
	for len(line) > 0 && line[0] == '[' {
		inside, after, ok := bytes.Cut(line[1:], []byte("]"))
		if !ok {
			break
		}
		if seconds, err := strconv.ParseFloat(string(bytes.TrimSpace(inside)), 64); err == nil {
			at, hasTime = time.Duration(seconds*float64(time.Second)), true
		}
		line = after
	}
	return at, bytes.TrimLeft(line, " "), hasTime
}
