//go:build linux || darwin

package pty

import (
	"errors"
	"os"
	"sync"
)

// A proc describes a process at the time of a scan.
type proc struct {
	pid, ppid, pgid, sid int
	tty                  uint64 // device of the controlling terminal; 0: the process has none
	start                uint64 // start time, in the system's unit; no two processes have the same pid and start time
	isZombie             bool
	exit                 uint32 // raw wait status of a zombie, or 0 if this process may not read it; Linux only
}

// An identity names one process and never a later one, because a pid can be used again, but not
// together with the same start time.
type identity struct {
	pid   int
	start uint64
}

func (q *proc) identity() identity { return identity{q.pid, q.start} }

var errNoProcess = errors.New("pty: no such process")

// A table holds all processes of one scan, by pid and by parent.
type table struct {
	procs    map[int]proc
	children map[int][]int
}

func newTable(procs []proc) *table {
	t := &table{make(map[int]proc, len(procs)), make(map[int][]int)}
	for _, q := range procs {
		t.procs[q.pid] = q
		t.children[q.ppid] = append(t.children[q.ppid], q.pid)
	}
	return t
}

// members returns the processes that belong to the child's session or have this terminal.
//
// While a process of the session lives, the kernel does not give the leader's pid to another
// process. So members also finds them after the leader has ended. If another process has that
// pid, the session has no process any more.
func (p *PTY) members(t *table) []proc {
	leader, used := t.procs[p.pid]
	isReused := used && leader.start != p.start
	dev := uint64(p.slave.Rdev)
	if p.isClosed.Load() {
		dev = 0 // the master is closed, so the device number may belong to another terminal
	}
	var found []proc
	for _, q := range t.procs {
		isInSession := q.sid == p.pid && !isReused && (q.tty == 0 || q.tty == uint64(p.slave.Rdev))
		if isInSession || dev != 0 && q.tty == dev && q.sid != p.pid && hasTerminalOpen(q.pid, &p.slave) {
			found = append(found, q)
		}
	}
	return found
}

// descendants returns the roots that are still in the table, and all their descendants. It does
// not find a daemon that has left the session and lost its parent.
func (t *table) descendants(roots []proc) []proc {
	own := os.Getpid()
	seen := make(map[int]bool)
	var found []proc
	var visit func(pid int)
	visit = func(pid int) {
		if pid <= 1 || pid == own || seen[pid] {
			return
		}
		seen[pid] = true
		found = append(found, t.procs[pid])
		for _, child := range t.children[pid] {
			visit(child)
		}
	}
	for _, q := range roots {
		if now, ok := t.procs[q.pid]; ok && now.start == q.start {
			visit(q.pid)
		}
	}
	return found
}

// scans is shared by all terminals, because a scan reads every process of the machine, and at a
// shutdown every session needs a scan.
var scans scanner

// A scanner lets several callers share one scan. A caller shares only a scan that began after
// its call.
type scanner struct {
	scanning sync.Mutex // held by the running scan
	mu       sync.Mutex
	next     *scan // the scan that waits for the running one; nil if there is none
}

type scan struct {
	done  chan struct{}
	table *table
}

// scan returns all processes as they are at some moment after the call.
func (s *scanner) scan() *table {
	s.mu.Lock()
	next := s.next
	if next != nil {
		s.mu.Unlock()
		<-next.done
		return next.table
	}
	next = &scan{done: make(chan struct{})}
	s.next = next
	s.mu.Unlock()

	s.scanning.Lock()
	defer s.scanning.Unlock()
	s.mu.Lock()
	s.next = nil // the scan begins here, so a later caller must not share it
	s.mu.Unlock()
	next.table = newTable(processes())
	close(next.done)
	return next.table
}
