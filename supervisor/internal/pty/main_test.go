//go:build linux || darwin

package pty

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// patience is the time after which a test fails if an expected event does not come. forever is a grace that is longer
// than any test.
const (
	patience = 30 * time.Second
	forever  = time.Hour
)

// roles are the programs that this binary becomes if a test starts it as another process.
var roles = map[string]func() error{"exhausted": exhaustedRole, "sealed": sealedRole, "hands-on": handsOnRole, "adopts": adoptsRole, "late": lateRole}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv("PTY_TEST_ROLE")]; role != nil {
		if err := role(); err != nil {
			fmt.Println("role:", err)
		}
		syscall.Exit(0) // os.Exit would let -race wait and -cover print
	}
	os.Exit(m.Run())
}

func script(code string) Spec {
	return Spec{Argv: []string{"bash", "-c", code}, Env: []string{"PATH=" + os.Getenv("PATH")}, Cols: 80, Rows: 24}
}

// asRole starts this binary in one of its roles, from a shell that has run some commands before.
func asRole(role, first string) Spec {
	spec := script(first + "\nexec \"$0\"")
	spec.Argv = append(spec.Argv, os.Args[0])
	spec.Env = append(spec.Env, "PTY_TEST_ROLE="+role)
	return spec
}

func run(t testing.TB, spec Spec) *PTY {
	t.Helper()
	p, err := Start(spec)
	testkit.Must(t, err)
	t.Cleanup(func() {
		p.Hangup(unix.SIGKILL, 0)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// bash runs a script on a terminal and waits until it has printed READY.
func bash(t testing.TB, code string) *PTY {
	t.Helper()
	p := run(t, script(code))
	until(t, p, "READY")
	return p
}

// until reads up to and including a text, and returns what it has read.
func until(t testing.TB, p *PTY, text string) string {
	t.Helper()
	testkit.Must(t, p.SetReadDeadline(time.Now().Add(patience)))
	var got strings.Builder
	var b [1]byte // one byte at a time, so that it reads no further than the text
	for !strings.HasSuffix(got.String(), text) {
		n, err := p.Read(b[:])
		if err != nil {
			t.Fatalf("waiting for %q after %q: %v", text, got.String(), err)
		}
		got.Write(b[:n])
	}
	return got.String()
}

// rest reads to the end, and returns the output with the line ends that the program printed.
func rest(t testing.TB, p *PTY) string {
	t.Helper()
	testkit.Must(t, p.SetReadDeadline(time.Now().Add(patience)))
	got, err := io.ReadAll(p)
	if err != nil {
		t.Fatalf("after %q: %v", got, err)
	}
	return strings.ReplaceAll(string(got), "\r\n", "\n")
}

// pidLine reads a line that has a pid.
func pidLine(t testing.TB, p *PTY) int {
	t.Helper()
	line := until(t, p, "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("got %q, want a pid", line)
	}
	return pid
}

// running reports whether the pid has a process that is not a zombie.
func running(pid int) bool {
	q, err := readProc(pid)
	return !errors.Is(err, errNoProcess) && !q.isZombie
}

// ended waits for the child's end and returns its status without the usage.
func ended(t testing.TB, p *PTY) Status {
	t.Helper()
	select {
	case <-p.Done():
		status := p.Status()
		status.Usage = Usage{}
		return status
	case <-time.After(patience):
		t.Fatalf("child %d does not end", p.PID())
		return Status{}
	}
}

// stopped waits until the child has stopped itself.
func stopped(t testing.TB, p *PTY) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(p.PID())).Output()
		testkit.Must(t, err)
		if strings.HasPrefix(string(state), "T") {
			return
		}
	}
	t.Fatalf("child %d does not stop", p.PID())
}

// lateRole makes its session when the test closes a pipe, and then waits.
func lateRole() error {
	if _, err := io.ReadAll(os.NewFile(3, "go on")); err != nil {
		return err
	}
	if _, err := unix.Setsid(); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
		return err
	}
	select {} // until it is killed
}
