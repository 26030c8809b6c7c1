//go:build linux || darwin

package pty

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

func TestParseSignal(t *testing.T) {
	tests := []struct {
		in   string
		want syscall.Signal
	}{
		{"SIGUSR1", unix.SIGUSR1}, {"USR1", unix.SIGUSR1}, {"usr1", unix.SIGUSR1}, {"9", unix.SIGKILL},
		{"64", 64}, {"0", 0}, {"65", 0}, {"-1", 0}, {"", 0}, {"SIG", 0}, {"SIGSIGHUP", 0}, {"9x", 0},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseSignal(tt.in)
			if got != tt.want || (err == nil) != (tt.want != 0) {
				t.Errorf("got %d, %v, want %d", got, err, tt.want)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "unknown signal ") {
				t.Errorf("the error does not begin with its object: %v", err)
			}
		})
	}
}

func TestSignalName(t *testing.T) {
	if got := SignalName(unix.SIGUSR1); got != "SIGUSR1" {
		t.Errorf("got %q, want SIGUSR1", got)
	}
	for sig := syscall.Signal(1); sig <= maxSignal; sig++ {
		if got, err := ParseSignal(SignalName(sig)); got != sig || err != nil {
			t.Errorf("%d: got %d, %v after %q", sig, got, err, SignalName(sig))
		}
	}
}

// The foreground program is interrupted even if Ctrl-C is switched off. The shell in the background is not
// interrupted.
func TestInterrupt(t *testing.T) {
	p := bash(t, `set -m; trap 'echo shell' INT; bash -c 'stty raw; trap "echo inner; exit" INT; echo READY; while :; do read -t 1; done'; echo over`)
	testkit.Must(t, p.Interrupt())
	if got := strings.Fields(rest(t, p)); strings.Join(got, " ") != "inner over" {
		t.Errorf("got %q, want only the inner one interrupted", got)
	}
}

// A signal reaches every process group of the terminal.
func TestSignal(t *testing.T) {
	p := bash(t, `set -m
trap 'echo shell' USR1
bash -c 'trap "echo job" USR1; echo READY; while :; do sleep 1000 & wait; done' &
while :; do wait; done`)
	testkit.Must(t, p.Signal(unix.SIGUSR1))
	got := until(t, p, "\n") // the end of the line of READY
	for !strings.Contains(got, "shell") || !strings.Contains(got, "job") {
		got += until(t, p, "\n")
	}
	p.Hangup(unix.SIGKILL, 0)
	if err := p.Signal(unix.SIGUSR1); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after the end: got %v, want os.ErrProcessDone", err)
	}
}
