//go:build linux || darwin

package pty

import (
	"slices"
	"sync"
	"testing"
)

func TestMembers(t *testing.T) {
	const tty = 0x8803
	p := &PTY{pid: 100, start: 5}
	p.slave.Rdev = tty
	leader := proc{pid: 100, ppid: 1, pgid: 100, sid: 100, tty: tty, start: 5}
	job := proc{pid: 101, ppid: 100, pgid: 101, sid: 100, tty: tty, start: 6}
	orphan := proc{pid: 102, ppid: 1, pgid: 102, sid: 100, start: 7}
	foreign := proc{pid: 103, ppid: 1, pgid: 103, sid: 103, tty: tty + 1, start: 8}
	reuser := proc{pid: 100, ppid: 1, pgid: 100, sid: 100, start: 9}
	container := proc{pid: 1 << 30, ppid: 1, pgid: 1, sid: 1, tty: tty, start: 9} // a process of a container, which does not have the terminal open
	tests := []struct {
		name  string
		procs []proc
		want  []int
	}{
		{"nothing", nil, nil},
		{"session", []proc{leader, job, foreign, container}, []int{100, 101}},
		{"leader gone", []proc{orphan, foreign}, []int{102}},
		{"pid used again", []proc{reuser, {pid: 104, sid: 100, start: 10}}, nil},
		{"without its leader, on another terminal", []proc{{pid: 104, sid: 100, tty: tty + 1, start: 10}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := pids(p.members(newTable(tt.procs))); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDescendants(t *testing.T) {
	table := newTable([]proc{
		{pid: 1}, {pid: 10, ppid: 1, start: 1}, {pid: 11, ppid: 10}, {pid: 12, ppid: 11}, {pid: 13, ppid: 1},
		{pid: 20, ppid: 1, start: 2}, {pid: 21, ppid: 20},
	})
	tests := []struct {
		name  string
		roots []proc
		want  []int
	}{
		{"tree", []proc{{pid: 10, start: 1}}, []int{10, 11, 12}},
		{"overlapping", []proc{{pid: 10, start: 1}, {pid: 11}}, []int{10, 11, 12}},
		{"another process by now", []proc{{pid: 20, start: 1}}, nil},
		{"gone", []proc{{pid: 30}}, nil},
		{"never all of the machine", []proc{{pid: 1}, {pid: 0}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := pids(table.descendants(tt.roots)); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func pids(procs []proc) (pids []int) {
	for _, q := range procs {
		pids = append(pids, q.pid)
	}
	slices.Sort(pids)
	return pids
}

// A scan shows every process that existed before the call, although callers share scans.
func TestScanIsLater(t *testing.T) {
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			p, err := Start(script("exec sleep 1000"))
			if err != nil {
				t.Error(err)
				return
			}
			if _, ok := scans.scan().procs[p.PID()]; !ok {
				t.Errorf("the scan lacks process %d", p.PID())
			}
			p.Hangup(0, 0)
			_ = p.Close()
		})
	}
	group.Wait()
}
