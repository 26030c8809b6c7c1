//go:build linux || darwin

package pty

import (
	"errors"
	"os"
	"sync"
)

// A proc is a process as it was at a scan.
type proc struct {
	pid, ppid, pgid, sid int
	tty                  uint64 // controlling terminal's device; 0 is none
	start                uint64 // in the system's unit; with pid, tells processes apart
	zombie               bool
	exit                 uint32 // of a zombie: its raw wait status, or 0 where we may not know; Linux only
}

// An identity is a process's for ever, which a pid is not.
type identity struct {
	pid   int
	start uint64
}

func (q *proc) identity() identity { return identity{q.pid, q.start} }

var errGone = errors.New("pty: no such process")

// A table is all processes of one scan, by pid and by parent.
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

// members are the processes of our child's session or on our terminal.
//
// A session keeps its leader's pid in use, so members are still found after the
// leader has gone. Once the last one has, the pid may be used again: if some
// other process has it, nothing of the session can be left.
func (p *PTY) members(t *table) []proc {
	leader, used := t.procs[p.pid]
	reused := used && leader.start != p.start
	dev := uint64(p.slave.Rdev)
	if p.closed.Load() {
		dev = 0 // by now the device may be another terminal's
	}
	var found []proc
	for _, q := range t.procs {
		ours := q.sid == p.pid && !reused && (q.tty == 0 || q.tty == uint64(p.slave.Rdev))
		if ours || dev != 0 && q.tty == dev && q.sid != p.pid && holds(q.pid, &p.slave) {
			found = append(found, q)
		}
	}
	return found
}

// descendants are the roots that are still in the table and all below them. A
// daemon that has left the session and lost its parent is none.
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

// scans is shared by all terminals: a scan looks at every process of the
// machine, and at a shutdown every session wants one.
var scans scanner

// A scanner lets callers share a scan that began after they asked for it.
type scanner struct {
	scanning sync.Mutex // held by the scan under way
	mu       sync.Mutex
	next     *scan // not begun
}

type scan struct {
	done  chan struct{}
	table *table
}

// take returns all processes as they are at some moment after the call.
func (s *scanner) take() *table {
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
	s.next = nil // who comes now might be too late for what we see
	s.mu.Unlock()
	next.table = newTable(processes())
	close(next.done)
	return next.table
}
