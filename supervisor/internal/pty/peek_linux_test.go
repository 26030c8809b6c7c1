package pty

import (
	"os/exec"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// If the parent of an adopted child does not reap it, the end and its status are known at once.
func TestAdoptUnreaped(t *testing.T) {
	for _, tt := range []struct {
		script string
		want   Status
	}{
		{"exit 7", Status{Code: 7}},
		{"exit 0", Status{}},
		{"kill -KILL $$", Status{Code: 137, Signal: "SIGKILL"}},
	} {
		cmd := exec.Command("sh", "-c", "read x; "+tt.script)
		stdin, err := cmd.StdinPipe()
		testkit.Must(t, err)
		testkit.Must(t, cmd.Start())
		q, err := readProc(cmd.Process.Pid)
		testkit.Must(t, err)
		p, err := Adopt(State{PID: q.pid, Start: q.start}, pipeEnd(t), reportedBy(nil), nil)
		testkit.Must(t, err)
		begun := time.Now()
		if _, err := stdin.Write([]byte("\n")); err != nil {
			t.Error(err)
		}
		if got := ended(t, p); got != tt.want || time.Since(begun) > statusTime {
			t.Errorf("%s: the status is %+v, known after %v", tt.script, got, time.Since(begun))
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the error has the exit code
	}
}
