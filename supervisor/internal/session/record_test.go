//go:build linux || darwin

package session

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/postmortem"
)

// The exit record names the requester of the end, or of the signal by which the child ended, and no other requester.
func TestEndedBy(t *testing.T) {
	const sleeper = "trap : USR1; echo READY; while :; do read x || sleep 0.1; done"
	ann := protocol.Asker{By: "ann's laptop", ByUser: "ann"}
	long := protocol.Asker{By: strings.Repeat("ö", protocol.MaxAsker)}
	forget := func(error) {}
	for _, tt := range []struct {
		name string
		end  func(s *Session) error
		want protocol.Asker
	}{
		{"no request", func(s *Session) error { return unix.Kill(s.pty.PID(), unix.SIGKILL) }, protocol.Asker{}},
		{"terminated", func(s *Session) error { return s.Terminate(End{Asker: ann}) }, ann},
		{"by an unknown requester", func(s *Session) error { return s.Terminate(End{}) }, protocol.Asker{}},
		{"a long name", func(s *Session) error { return s.Terminate(End{Asker: long}) }, protocol.Asker{By: strings.Repeat("ö", protocol.MaxAsker/2)}},
		{"the first", func(s *Session) error {
			forget(s.Terminate(End{Asker: ann}))
			forget(s.Terminate(End{Asker: long})) // fails if the session has already ended
			return nil
		}, ann},
		{"a signal", func(s *Session) error { return s.SignalFor(ann, unix.SIGTERM) }, ann},
		{"ended by another signal", func(s *Session) error {
			forget(s.SignalFor(ann, unix.SIGUSR1))
			return unix.Kill(s.pty.PID(), unix.SIGTERM)
		}, protocol.Asker{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := ready(t, sleeper)
			testkit.Must(t, tt.end(s))
			if e := ended(t, s); e.EndedBy != tt.want.By || e.EndedByUser != tt.want.ByUser || e.OOM != "" {
				t.Errorf("got %+v, want %+v", e, tt.want)
			}
		})
	}
	t.Run("shutdown", func(t *testing.T) {
		tb := newTable(t, Config{})
		s := create(t, tb, bash("exec sleep 1000"))
		testkit.Must(t, tb.Shutdown(t.Context(), ann))
		if e := s.Exit(); e.EndedBy != ann.By || e.Reason != protocol.ReasonShutdown {
			t.Errorf("got %+v", e)
		}
	})
}

// The record has the directory of the child at its start, when it became idle, and when its end was requested. A
// directory that the child has reported takes precedence.
func TestRecordCwd(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	a, b := t.TempDir(), t.TempDir()
	const wait = "echo READY; while :; do sleep 1000; done"
	for _, tt := range []struct {
		name, code string
		idle, end  bool
		want       string
	}{
		{"at its start", wait, false, false, a},
		{"idle", "cd " + b + "; " + wait, true, false, b},
		{"at the request of its end", "cd " + b + "; " + wait, false, true, b},
		{"reported by the child", `printf '\033]7;file:///some/where\007'; ` + wait, true, true, "/some/where"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := bash(tt.code)
			spec.Cwd = a
			s := create(t, newTable(t, Config{}), spec)
			look(t, s, fromStart(s)).until(t, "READY")
			if tt.idle {
				s.do(func() { s.idle.touched = false; s.becomeIdle() })
			}
			zero := time.Duration(0)
			end := func() error { return unix.Kill(s.pty.PID(), unix.SIGKILL) }
			if tt.end {
				end = func() error { return s.Terminate(End{Grace: &zero}) }
			}
			testkit.Must(t, end())
			if e := ended(t, s); e.Cwd != tt.want {
				t.Errorf("got %q, want %q", e.Cwd, tt.want)
			}
		})
	}
}

// If the child or a program of its shell was killed, and no user has requested that, the record tells whether memory
// ran out. The counter of the cgroup shows it.
func TestRecordOOM(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs cgroups")
	}
	file := t.TempDir() + "/memory.events"
	testkit.Must(t, os.WriteFile(file, []byte("oom_kill 5\n"), 0o600))
	kill := func(s *Session) error { return unix.Kill(s.pty.PID(), unix.SIGKILL) }
	for _, tt := range []struct {
		name  string
		kills uint64 // the counter before the start
		end   func(s *Session) error
		want  protocol.OOMSource
	}{
		{"killed", 4, kill, protocol.OOMCgroup},
		{"killed, and memory ran out long before", 5, kill, ""},
		{"a program of the shell was killed", 4, func(s *Session) error { _, err := s.Type("", 0, []byte("exit 137\n")); return err }, protocol.OOMCgroup},
		{"ended by itself", 4, func(s *Session) error { _, err := s.Type("", 0, []byte("exit 1\n")); return err }, ""},
		{"hung up", 4, func(s *Session) error { return unix.Kill(s.pty.PID(), unix.SIGHUP) }, ""},
		{"a user sent the signal", 4, func(s *Session) error { return s.SignalFor(protocol.Asker{}, unix.SIGKILL) }, ""},
		{"a user requested the end", 4, func(s *Session) error { return s.Terminate(End{Grace: new(time.Duration)}) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := ready(t, "stty -echo; echo READY; read x; $x")
			s.do(func() { s.saved.ChildInfo = postmortem.Seen{Memory: "../../.." + file, Kills: tt.kills} })
			testkit.Must(t, tt.end(s))
			if e := ended(t, s); e.OOM != tt.want {
				t.Errorf("got %+v, want %q", e, tt.want)
			}
		})
	}
}

// The exit record has the processor time and memory that the child used.
func TestRecordUsage(t *testing.T) {
	s := run(t, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	e := ended(t, s)
	if u := e.Usage; u.UserMS <= 0 || u.MaxRSSBytes != 0 || u.MinorFaults == 0 || e.CoreDumped {
		t.Errorf("got %+v", e)
	}
}

// BenchmarkStart measures the start and the end of a session.
func BenchmarkStart(b *testing.B) {
	path, err := exec.LookPath("true")
	testkit.Must(b, err)
	tb := newTable(b, Config{SpawnBurst: 1 << 30, ExitRecords: 1, Env: []string{"PATH=" + os.Getenv("PATH")}})
	var used, now syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	for b.Loop() {
		s, err := tb.create("", protocol.SpawnSpec{Argv: []string{path}}, "")
		testkit.Must(b, err)
		<-s.Exited()
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &now)
	cpu := time.Duration(now.Utime.Nano() + now.Stime.Nano() - used.Utime.Nano() - used.Stime.Nano())
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/op")
}
