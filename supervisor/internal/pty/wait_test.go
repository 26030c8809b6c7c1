//go:build linux || darwin

package pty

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

func TestStatus(t *testing.T) {
	tests := []struct {
		code string
		want Status
	}{
		{"exit 0", Status{}},
		{"exit 7", Status{Code: 7}},
		{"exit 255", Status{Code: 255}},
		{"kill -TERM $$", Status{Code: 143, Signal: "SIGTERM"}},
		{"kill -KILL $$", Status{Code: 137, Signal: "SIGKILL"}},
	}
	for _, tt := range tests {
		t.Run(tt.code, func(t *testing.T) {
			if got := ended(t, run(t, script(tt.code))); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// The usage of a child is known, including the children that it waited for, and whether it dumped core, if the system
// allows core dumps.
func TestUsage(t *testing.T) {
	p := run(t, script("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sh -c 'exit 0'"))
	ended(t, p)
	u := p.Status().Usage
	if u.UserMS <= 0 || u.SystemMS < 0 || u.UserMS > 60_000 || u.MinorFaults == 0 {
		t.Errorf("got %+v", u)
	}
	if u.MaxRSSBytes != 0 {
		t.Errorf("a shell used %d bytes, which is the memory of this process", u.MaxRSSBytes)
	}
	var own unix.Rusage
	testkit.Must(t, unix.Getrusage(unix.RUSAGE_SELF, &own))
	big := uint64(own.Maxrss)*maxRSSUnit + 64<<20
	p = run(t, script(fmt.Sprintf("head -c %d /dev/zero | tail -c %[1]d >/dev/null", big)))
	ended(t, p)
	if got := p.Status().Usage.MaxRSSBytes; got < big || got > 4*big {
		t.Errorf("a child that holds %d bytes used %d", big, got)
	}
	crash := "cd " + t.TempDir() + "; ulimit -c %s; kill -SEGV $$"
	if got := ended(t, run(t, script(fmt.Sprintf(crash, "0")))); got != (Status{Code: 139, Signal: "SIGSEGV"}) {
		t.Errorf("without a core: got %+v", got)
	}
	if why := noCores(); why != "" {
		t.Log("core dumps are not tested: " + why)
	} else if got := ended(t, run(t, script(fmt.Sprintf(crash, "unlimited")))); got != (Status{Code: 139, Signal: "SIGSEGV", Core: true}) {
		t.Errorf("with a core: got %+v", got)
	}
}

// noCores returns the reason why a child cannot dump core here, or "".
func noCores() string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Max == 0 {
		return "the limit on cores is 0"
	}
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil || strings.HasPrefix(string(pattern), "|") || strings.Contains(string(pattern), "/") {
		return "it is not this directory that they go to"
	}
	return ""
}

// Without pidfds one loop that waits for SIGCHLD reaps each child, and no child of others.
func TestReaper(t *testing.T) {
	foreign := fork(t, "exit 9")
	var r reaper
	for round := range 3 { // the loop ends with the last child and starts again
		var all []*PTY
		for i := range 20 {
			p := &PTY{pid: fork(t, []string{"exit 3", "kill -KILL $$"}[i%2]), done: make(chan struct{})}
			all = append(all, p)
			r.add(p)
		}
		for i, p := range all {
			want := []Status{{Code: 3}, {Code: 137, Signal: "SIGKILL"}}[i%2]
			if got := ended(t, p); got != want {
				t.Errorf("round %d: got %+v, want %+v", round, got, want)
			}
		}
	}
	var ws unix.WaitStatus
	if pid, err := unix.Wait4(foreign, &ws, 0, nil); pid != foreign || ws.ExitStatus() != 9 {
		t.Errorf("got %d, %d, %v, want the child that another caller waits for", pid, ws.ExitStatus(), err)
	}
}

// A child that another caller has reaped counts as ended, with an unknown code.
func TestReapedByOther(t *testing.T) {
	pid := fork(t, "exit 3")
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	p := &PTY{pid: pid, done: make(chan struct{})}
	p.watch(-1)
	if got := ended(t, p); got.Code != -1 || got.Err == nil {
		t.Errorf("got %+v, want an unknown code", got)
	}
}

func fork(t *testing.T, code string) int {
	t.Helper()
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", code}, &syscall.ProcAttr{})
	testkit.Must(t, err)
	return pid
}

// Two hundred children need one goroutine each and no thread, and leave nothing open.
func TestManyChildren(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	const children = 200
	run(t, script("exit")) // makes the objects that a process makes once
	goroutines, files, threads := runtime.NumGoroutine(), count(t, "/proc/self/fd/*"), count(t, "/proc/self/task/*")

	var all []*PTY
	for range children {
		p, err := Start(Spec{Argv: []string{"cat"}, Env: []string{"PATH=/usr/bin:/bin"}, Cols: 80, Rows: 24})
		testkit.Must(t, err)
		all = append(all, p)
		go func() { _, _ = p.Read(make([]byte, 1)) }()
	}
	t.Logf("%d children: %d goroutines, %d files, %d threads more", children, runtime.NumGoroutine()-goroutines,
		count(t, "/proc/self/fd/*")-files, count(t, "/proc/self/task/*")-threads)
	if more := count(t, "/proc/self/task/*") - threads; more > children/10 {
		t.Errorf("%d threads for %d children", more, children)
	}
	hangupAll(t, all)
	for _, p := range all {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if now := count(t, "/proc/self/fd/*"); now > files {
		t.Errorf("%d files, %d before", now, files)
	}
	for runtime.NumGoroutine() > goroutines { // goroutines that have finished may not have exited; the test's time-out is the limit
		runtime.Gosched()
	}
	for _, q := range processes() {
		if q.ppid == os.Getpid() && q.isZombie {
			t.Errorf("process %d is not reaped", q.pid)
		}
	}
}

func count(t *testing.T, pattern string) int {
	t.Helper()
	names, err := filepath.Glob(pattern)
	testkit.Must(t, err)
	return len(names)
}
