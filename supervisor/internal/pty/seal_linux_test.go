package pty

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// A child has three descriptors, all of them blocking, although the supervisor has inherited one that is not closed
// on exec.
func TestDescriptors(t *testing.T) {
	leak, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD, 3)
	testkit.Must(t, err)
	defer unix.Close(leak)
	// ls is another process, so that the shell's own descriptor of the directory is not listed.
	list := script("ls /proc/$$/fd; :")
	if got := strings.Fields(rest(t, run(t, list))); !slices.Contains(got, strconv.Itoa(leak)) {
		t.Fatalf("before the seal: got %v, want the leaked %d among them", got, leak)
	}
	testkit.Must(t, Seal())
	if got := strings.Fields(rest(t, run(t, list))); strings.Join(got, " ") != "0 1 2" {
		t.Errorf("got %v, want 0 1 2", got)
	}
	flags := rest(t, run(t, script("sed -n 's/^flags:\\s*//p' /proc/self/fdinfo/0")))
	mode, err := strconv.ParseUint(strings.TrimSpace(flags), 8, 64)
	if err != nil || mode&unix.O_NONBLOCK != 0 {
		t.Errorf("got flags %q, %v, want blocking ones", flags, err)
	}
}

// If close_range is not available, the descriptors are marked one by one.
func TestCloseEach(t *testing.T) {
	fd, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD, 3)
	testkit.Must(t, err)
	defer unix.Close(fd)
	testkit.Must(t, closeEach("/proc/self/fd"))
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if flags&unix.FD_CLOEXEC == 0 || err != nil {
		t.Errorf("got flags %#x, %v, want close-on-exec", flags, err)
	}
}

// Children start without blocked or ignored signals, whatever the supervisor has inherited.
func TestSignalsInherited(t *testing.T) {
	const block = `exec python3 -c '
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execv(sys.argv[1], sys.argv[1:])' "$0"
`
	tests := []struct{ name, first string }{
		{"nothing", ""},
		{"some ignored", `trap "" HUP INT TSTP PIPE`},
		{"all ignored", `trap "" $(seq 1 31)`},
		{"all blocked", block}, // and PIPE and XFSZ ignored, by Python
		{"ignored and blocked", `trap "" $(seq 1 31)` + "\n" + block},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Fields(rest(t, run(t, asRole("sealed", tt.first))))
			const none = "0000000000000000"
			if strings.Join(got, " ") != "SigBlk: "+none+" SigIgn: "+none {
				t.Errorf("got %q, want none blocked and none ignored", got)
			}
		})
	}
}
