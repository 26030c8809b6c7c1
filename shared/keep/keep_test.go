//go:build unix

package keep

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

const roleEnv = "KEEP_TEST_DIR"

// TestMain is, in a child, a keeper that has held from the start: it says so, and
// says when it is to go on.
func TestMain(m *testing.M) {
	dir := os.Getenv(roleEnv)
	if dir == "" {
		os.Exit(testkit.Run(m))
	}
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	if err := Mark(dir); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := WriteHeld(dir, 5); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("holds")
	<-hups
	fmt.Println("goes on")
	select {}
}

// A keeper is a process that runs.
type keeper struct {
	*exec.Cmd
	out *bufio.Reader
}

func start(t *testing.T, dir string) *keeper {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	k := &keeper{cmd, bufio.NewReader(out)}
	k.says(t, "holds")
	return k
}

func (k *keeper) says(t *testing.T, want string) {
	t.Helper()
	if got, err := k.out.ReadString('\n'); strings.TrimSpace(got) != want || err != nil {
		t.Fatalf("it says %q, %v, want %q", got, err, want)
	}
}

func TestHeld(t *testing.T) {
	dir := testkit.Dir(t)
	if h := Look(dir); h != nil {
		t.Errorf("nothing was there: %+v", h)
	}
	k := start(t, dir)
	h := Look(dir)
	if h == nil || h.PID != k.Process.Pid || h.Deaths != 5 {
		t.Fatalf("got %+v, want process %d", h, k.Process.Pid)
	}
	if want := fmt.Sprintf("kill -HUP %d", k.Process.Pid); !strings.Contains(h.Error(), want) {
		t.Errorf("%q does not say %q", h.Error(), want)
	}
	if err := h.GoOn(dir); err != nil {
		t.Fatal(err)
	}
	k.says(t, "goes on")
	Serves(dir)
	if now := Look(dir); now != nil {
		t.Errorf("a supervisor serves: %+v", now)
	}
	if err := h.GoOn(dir); err != nil { // of what is not held any more
		t.Error(err)
	}
	if pid, err := PID(dir); pid != k.Process.Pid || err != nil {
		t.Errorf("keeper %d, %v", pid, err)
	}
}

// TestPIDOfTheDead: what a keeper has left behind names nobody, who might be
// another's process by now.
func TestPIDOfTheDead(t *testing.T) {
	dir := testkit.Dir(t)
	k := start(t, dir)
	second := start(t, dir) // waits for the lock
	if pid, err := PID(dir); pid != k.Process.Pid || err != nil {
		t.Errorf("keeper %d, %v", pid, err)
	}
	_, _ = k.Process.Kill(), k.Wait()
	testkit.Eventually(t, 20*time.Second, func() bool {
		pid, err := PID(dir)
		return pid == second.Process.Pid && err == nil
	}, "the second is the keeper")
	_, _ = second.Process.Kill(), second.Wait()
	if pid, err := PID(dir); pid != 0 || err != nil {
		t.Errorf("keeper %d, %v", pid, err)
	}
	if h := Look(dir); h != nil {
		t.Errorf("got %+v", h)
	}
}
