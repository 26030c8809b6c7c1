//go:build unix

package keeperstate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

const roleEnv = "KEEP_TEST_DIR"

// TestMain runs a keeper in a child of a test. The keeper starts no supervisor, prints that it holds, and
// prints the chosen program when it receives SIGHUP.
func TestMain(m *testing.M) {
	dir := os.Getenv(roleEnv)
	if dir == "" {
		os.Exit(testkit.Run(m))
	}
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	if err := LockPID(dir); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := WriteHeld(dir, 5); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("holds")
	<-hups
	fmt.Println("goes on with", Chosen(dir))
	select {}
}

// A keeper is a running child in this role.
type keeper struct {
	*exec.Cmd
	out *bufio.Reader
}

func start(t *testing.T, dir string) *keeper {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	k := &keeper{cmd, bufio.NewReader(out)}
	k.says(t, "holds")
	return k
}

func (k *keeper) says(t *testing.T, want string) {
	t.Helper()
	if got, err := k.out.ReadString('\n'); strings.TrimSpace(got) != want || err != nil {
		t.Fatalf("the keeper printed %q, %v, want %q", got, err, want)
	}
}

func TestHeld(t *testing.T) {
	dir := testkit.Dir(t)
	if h := ReadHeld(dir); h != nil {
		t.Errorf("ReadHeld in an empty directory: %+v", h)
	}
	k := start(t, dir)
	h := ReadHeld(dir)
	if h == nil || h.PID != k.Process.Pid || h.Deaths != 5 {
		t.Fatalf("got %+v, want process %d", h, k.Process.Pid)
	}
	if want := fmt.Sprintf("kill -HUP %d", k.Process.Pid); !strings.Contains(h.Error(), want) {
		t.Errorf("the error %q lacks %q", h.Error(), want)
	}
	if pid, err := Choose(dir, "/the/next program"); pid != k.Process.Pid || err != nil {
		t.Fatal(pid, err)
	}
	k.says(t, "goes on with /the/next program")
	if CancelChoice(dir) || Chosen(dir) != "" {
		t.Error("the chosen program is returned a second time")
	}
	ClearHeld(dir)
	if now := ReadHeld(dir); now != nil {
		t.Errorf("ReadHeld after ClearHeld: %+v", now)
	}
	if pid, err := PID(dir); pid != k.Process.Pid || err != nil {
		t.Errorf("PID returns %d, %v", pid, err)
	}
}

// TestPIDOfTheDead checks that the files of a dead keeper name no process, because its pid may belong to
// another process now.
func TestPIDOfTheDead(t *testing.T) {
	dir := testkit.Dir(t)
	k := start(t, dir)
	second := start(t, dir) // it waits for the lock
	if pid, err := PID(dir); pid != k.Process.Pid || err != nil {
		t.Errorf("PID returns %d, %v", pid, err)
	}
	_, _ = k.Process.Kill(), k.Wait()
	testkit.Eventually(t, 20*time.Second, func() bool {
		pid, err := PID(dir)
		return pid == second.Process.Pid && err == nil
	}, "PID returns the second keeper")
	_, _ = second.Process.Kill(), second.Wait()
	if pid, err := PID(dir); pid != 0 || err != nil {
		t.Errorf("PID without a running keeper returns %d, %v", pid, err)
	}
	if h := ReadHeld(dir); h != nil {
		t.Errorf("ReadHeld without a running keeper: %+v", h)
	}
}

// TestChosen checks that only a regular file of the user with an absolute path names a program.
func TestChosen(t *testing.T) {
	dir := testkit.Dir(t)
	path := filepath.Join(dir, nextFile)
	for name, put := range map[string]func() error{
		"no path":     func() error { return os.WriteFile(path, []byte("program"), 0o600) },
		"a link":      func() error { return os.Symlink("/etc/hostname", path) },
		"a directory": func() error { return os.Mkdir(path, 0o700) },
		"a pipe":      func() error { return syscall.Mkfifo(path, 0o600) },
		"a long one":  func() error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 1<<20), 0o600) },
	} {
		testkit.Must(t, put())
		if got := Chosen(dir); got != "" {
			t.Errorf("%s: Chosen returns %.50q, want none", name, got)
		}
		if CancelChoice(dir) {
			t.Errorf("%s: Chosen did not remove the file", name)
		}
	}
}

// TestClaim checks that the keeper's lock lasts as long as any duplicate of it, and that a second keeper is
// told the process of the first.
func TestClaim(t *testing.T) {
	dir := testkit.Dir(t)
	f, err := Claim(dir, 0)
	testkit.Must(t, err)
	dup, err := machine.Duplicate(f, "a duplicate")
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
	k := start(t, dir)
	_, err = Claim(dir, 0)
	var inUse *socket.InUseError
	if !errors.As(err, &inUse) || inUse.PID != k.Process.Pid {
		t.Errorf("a second Claim: %v, want InUseError with process %d", err, k.Process.Pid)
	}
	go func() {
		time.Sleep(claimPause) // the holder is about to end
		_ = dup.Close()
	}()
	if f, err = Claim(dir, 20*time.Second); err != nil {
		t.Errorf("Claim after the end of the holder: %v", err)
	}
	_ = f.Close()
}

// Renew gives a new modification time to the files that exist, makes none, and leaves the keeper's lock alone.
func TestRenew(t *testing.T) {
	dir := t.TempDir()
	k := start(t, dir)
	claim, err := Claim(dir, 0)
	testkit.Must(t, err)
	defer func() { _ = claim.Close() }()
	testkit.Must(t, WriteHeld(dir, 5))
	files := []string{"keeper.lock", "keeping.lock", "keeper.held"}
	old := time.Now().Add(-72 * time.Hour)
	for _, name := range files {
		testkit.Must(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	Renew(dir)
	for _, name := range files {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || time.Since(info.ModTime()) > time.Minute {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if pid, err := PID(dir); err != nil || pid != k.Process.Pid || IsManaged(dir) {
		t.Errorf("the keeper is process %d, %v, want %d", pid, err, k.Process.Pid)
	}
}
