//go:build linux || darwin

package pty

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// short is a grace that one process outlives. It suffices for the other processes to end on a busy machine. The tests
// wait for it in parallel.
const short = time.Second

// demand: M13
func TestHangup(t *testing.T) {
	// The job itself prints READY, because a shell that has forked and not executed its program yet may swallow a
	// signal.
	const job = "bash -c 'echo READY; exec sleep 1000'"
	hup, killed := Status{Code: 129, Signal: "SIGHUP"}, Status{Code: 137, Signal: "SIGKILL"}
	tests := []struct {
		name  string
		code  string
		grace time.Duration // forever if Hangup must return earlier
		want  Status
		hard  bool
	}{
		{"ends at once", "echo READY; exec sleep 1000", forever, hup, false},
		{"wakes early", "trap 'exit 5' HUP; " + job + " & wait", forever, Status{Code: 5}, false},
		{"stopped", "trap 'exit 6' HUP; echo READY; kill -STOP $$", forever, Status{Code: 6}, false},
		{"ignores SIGHUP", "trap '' HUP; echo READY; while :; do sleep 1000; done", short, killed, true},
		{"a process of the group ignores SIGHUP", "(trap '' HUP; echo READY; sleep 1000; :)", short, hup, true},
		{"no grace", "trap '' HUP; echo READY; while :; do sleep 1000; done", 0, killed, true},
		{"forks all the time", "trap '' HUP; echo READY; while :; do sleep 1000 & done", 0, killed, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := bash(t, tt.code)
			if tt.name == "stopped" {
				stopped(t, p)
			}
			hard, survivors := p.Hangup(unix.SIGHUP, tt.grace)
			if hard != tt.hard || survivors != nil {
				t.Errorf("got hard %v, survivors %v, want hard %v and none", hard, survivors, tt.hard)
			}
			if got := ended(t, p); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			for _, q := range p.members(scans.scan()) {
				if running(q.pid) {
					t.Errorf("process %d is still running", q.pid)
				}
			}
		})
	}
}

// Hangup returns at once if the child has ended.
// demand: M13
func TestHangupAfterEnd(t *testing.T) {
	p := run(t, script("exit 4"))
	ended(t, p)
	if hard, survivors := p.Hangup(unix.SIGHUP, forever); hard || survivors != nil {
		t.Errorf("got %v, %v, want neither", hard, survivors)
	}
	if got := p.Status().Code; got != 4 {
		t.Errorf("got code %d, want 4", got)
	}
}

// Each script starts a process, and prints its pid and READY. Hangup must end the process or, if it has become a
// daemon, spare it.
// demand: M13
func TestHangupReaches(t *testing.T) {
	const spared, leaderLeaves = 1, 2
	tests := []struct {
		name  string
		code  string
		grace time.Duration
		how   int
	}{
		{"background job", "set -m; bash -c 'echo $$; echo READY; exec sleep 1000' & wait", forever, 0},
		{"stubborn job", `set -m; bash -c 'trap "" HUP; echo $$; echo READY; sleep 1000; :' & wait`, short, 0},
		{"stopped job", `set -m; bash -c 'echo $$; echo READY; kill -STOP $$' & wait`, forever, 0},
		{"own session", `setsid bash -c 'echo $$; echo READY; exec sleep 1000' & wait`, forever, 0},
		{"stubborn own session", `setsid bash -c 'trap "" HUP; echo $$; echo READY; sleep 1000; :' & wait`, short, 0},
		{"orphan on the terminal", `set -m; bash -c 'trap "" HUP; echo $$; echo READY; sleep 1000; :' & read line`, short, leaderLeaves},
		{"orphaned daemon", "(setsid bash -c 'echo $$; exec sleep 1000 <&- >&- 2>&-' &); exec sleep 1000", forever, spared},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := run(t, script(tt.code))
			pid := pidLine(t, p)
			t.Cleanup(func() {
				if running(pid) {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			})
			switch tt.how {
			case spared:
				untilOrphan(t, pid)
			case leaderLeaves:
				until(t, p, "READY")
				if _, err := p.Write([]byte("\n")); err != nil {
					t.Fatal(err)
				}
				ended(t, p)
			default:
				until(t, p, "READY")
			}
			if hard, survivors := p.Hangup(unix.SIGHUP, tt.grace); hard || survivors != nil {
				t.Errorf("got hard %v, survivors %v, want neither", hard, survivors)
			}
			if got, want := running(pid), tt.how == spared; got != want {
				t.Errorf("running: got %v, want %v", got, want)
			}
			ended(t, p)
		})
	}
}

// untilOrphan waits until a process has a session of its own, and a parent that does not belong to the terminal.
func untilOrphan(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		q, err := readProc(pid)
		testkit.Must(t, err)
		parent, err := readProc(q.ppid)
		if err == nil && q.sid == pid && q.tty == 0 && parent.tty == 0 {
			return
		}
	}
	t.Fatalf("process %d does not become a daemon", pid)
}

// Many concurrent hang-ups share their scans, and all of them succeed.
// demand: M13
func TestHangupTogether(t *testing.T) {
	var all []*PTY
	for range 30 {
		all = append(all, bash(t, "trap '' HUP; sleep 1000 & echo READY; while :; do wait; done"))
	}
	var group sync.WaitGroup
	for _, p := range all {
		group.Go(func() {
			if hard, survivors := p.Hangup(unix.SIGHUP, 0); !hard || survivors != nil {
				t.Errorf("%d: got hard %v, survivors %v, want hard and none", p.PID(), hard, survivors)
			}
		})
	}
	group.Wait()
}

func hangupAll(t *testing.T, all []*PTY) {
	t.Helper()
	var group sync.WaitGroup
	for _, p := range all {
		group.Go(func() {
			if _, survivors := p.Hangup(unix.SIGHUP, forever); survivors != nil {
				t.Errorf("%v survive", survivors)
			}
		})
	}
	group.Wait()
}

// Without pidfds, and without descriptors to read /proc, the child still ends.
func TestHandles(t *testing.T) {
	for _, name := range []string{"own child", "by start"} {
		t.Run(name, func(t *testing.T) {
			p := bash(t, "trap 'exit 5' HUP; sleep 1000 & echo READY; wait")
			h := handle(ownChild{p})
			if name == "by start" {
				h = byStart{identity{p.pid, p.start}}
				other := byStart{identity{p.pid, p.start + 1}}
				if !other.hasEnded() || other.send(unix.SIGKILL) != unix.ESRCH {
					t.Error("a later process with the same pid is mistaken for the first one")
				}
			}
			if h.hasEnded() || h.wait(time.Now()) {
				t.Error("the process counts as ended too early")
			}
			testkit.Must(t, h.send(unix.SIGHUP))
			if !h.wait(time.Now().Add(patience)) {
				t.Error("the process has not ended")
			}
			if got := ended(t, p); got.Code != 5 {
				t.Errorf("got %+v, want code 5", got)
			}
			if err := h.send(unix.SIGHUP); err != unix.ESRCH {
				t.Errorf("send after the end: got %v, want ESRCH", err)
			}
		})
	}
}
