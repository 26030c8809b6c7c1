//go:build linux || darwin

package reexec

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

const roleEnv = "REEXEC_TEST_ROLE"

// roles are the programs that this binary becomes if a test starts it as another process.
var roles = map[string]func() error{"first": first, "second": second}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleEnv)]; role != nil {
		if err := onTrial(); err != nil {
			fmt.Fprintln(os.Stderr, "trial:", err)
			syscall.Exit(1)
		}
		if err := role(); err != nil {
			fmt.Println("role:", err)
		}
		syscall.Exit(0)
	}
	os.Exit(m.Run())
}

// onTrial behaves as the manifest demands.
func onTrial() error {
	manifest, fds, ok, err := OnTrial()
	if !ok || err != nil {
		return err
	}
	switch string(manifest) {
	case "good":
		output, err := io.ReadAll(os.NewFile(uintptr(fds[0]), "file"))
		if err != nil {
			return err
		}
		if err := Passed("of " + string(output)); err != nil {
			return err
		}
	case "bad":
		return fmt.Errorf("it is of a version that is not known")
	case "crash":
		panic("at the start")
	case "silent":
	case "long":
		if len(manifest) == 0 {
			return io.ErrUnexpectedEOF
		}
	}
	syscall.Exit(0)
	return nil
}

// first executes this binary in the role second, with a child, and with a pipe that has content.
func first() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	if _, err := w.WriteString("in the pipe"); err != nil {
		return err
	}
	child := exec.Command("sh", "-c", "exit 7")
	if err := child.Start(); err != nil {
		return err
	}
	if err := os.Setenv(roleEnv, "second"); err != nil {
		return err
	}
	p, err := Open(os.Args[0])
	if err != nil {
		return err
	}
	manifest := fmt.Sprintf("%d %d", os.Getpid(), child.Process.Pid)
	fds, err := numbers([]*os.File{w, r})
	if err != nil {
		return err
	}
	return p.Exec([]byte(manifest), fds, []string{"an", "argument"})
}

func second() error {
	manifest, fds, ok, err := Inherited()
	if err != nil || !ok || len(fds) != 2 {
		return fmt.Errorf("inherited %q, %v, %v, %w", manifest, fds, ok, err)
	}
	files := []*os.File{os.NewFile(uintptr(fds[0]), "w"), os.NewFile(uintptr(fds[1]), "r")}
	var own, child int
	if _, err := fmt.Sscan(string(manifest), &own, &child); err != nil || own != os.Getpid() {
		return fmt.Errorf("the manifest is %q, %w", manifest, err)
	}
	files[0].Close()
	output, err := io.ReadAll(files[1])
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(child, &status, 0, nil); err != nil {
		return err
	}
	flags, err := unix.FcntlInt(files[1].Fd(), unix.F_GETFD, 0)
	fmt.Printf("%s; child %d; close-on-exec %v %v; %v; again %v\n", output, status.ExitStatus(), flags&unix.FD_CLOEXEC != 0, err, os.Args[1:], again())
	return nil
}

// again reports whether the environment still announces an inheritance.
func again() bool {
	_, _, ok, _ := Inherited()
	return ok
}

func TestExec(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=first")
	out, err := cmd.CombinedOutput()
	if want := "in the pipe; child 7; close-on-exec true <nil>; [an argument]; again false\n"; err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// Try accepts a program that can take over, and returns the reason why another one cannot.
func TestTry(t *testing.T) {
	t.Setenv(roleEnv, "second")
	p, err := Open(os.Args[0])
	testkit.Must(t, err)
	defer p.Close()
	for manifest, says := range map[string]string{
		"good": "", "bad": "version that is not known", "crash": "exit status 2: panic: at the start", "silent": "did not report that it can continue",
	} {
		r, w, err := os.Pipe()
		testkit.Must(t, err)
		if _, err := w.WriteString("today"); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		version, err := p.Try(t.Context(), []byte(manifest), []*os.File{r}, nil)
		_ = r.Close()
		if (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "goroutine")) || err == nil && version != "of today" {
			t.Errorf("%s: %q, %v", manifest, version, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Try(ctx, []byte("good"), nil, nil); err == nil {
		t.Error("a trial began although its context was canceled")
	}
}

// Programs that cannot run are refused, and a failed exec restores everything that it has changed.
func TestCannot(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode, text []byte) string {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(path, text, mode))
		return path
	}
	for _, path := range []string{filepath.Join(dir, "none"), dir, write("plain", 0o600, nil)} {
		if p, err := Open(path); err == nil {
			t.Errorf("%s was opened: %v", path, p)
		}
	}
	own, err := os.ReadFile(os.Args[0])
	testkit.Must(t, err)
	other := bytes.Clone(own)
	copy(other[18:], []byte{0xf7, 0x00}) // ELF's e_machine: BPF
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	defer r.Close()
	defer w.Close()
	var before, after syscall.Rlimit
	testkit.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	for name, text := range map[string][]byte{"text": []byte("hello"), "empty": nil, "another machine's": other} {
		p, err := Open(write("program", 0o700, text))
		testkit.Must(t, err)
		defer p.Close()
		if _, err := p.Try(t.Context(), nil, nil, nil); err == nil {
			t.Errorf("%s: tried", name)
		}
		if runtime.GOOS != "linux" && name == "another machine's" {
			continue
		}
		if err := p.Exec(nil, fdsOf(t, r), nil); err == nil {
			t.Errorf("%s: run", name) // this process would have been replaced
		}
	}
	// A truncated program might start, so only a trial shows the fault.
	cut, err := Open(write("cut", 0o700, own[:len(own)/3]))
	testkit.Must(t, err)
	defer cut.Close()
	if _, err := cut.Try(t.Context(), nil, nil, nil); err == nil {
		t.Error("the trial of a truncated program succeeded")
	}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &after); err != nil || before != after {
		t.Errorf("the limit was %v, and is %v, %v", before, after, err)
	}
	raw, _ := r.SyscallConn()
	_ = raw.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("the flags of the descriptor are %d, %v", flags, err)
		}
	})
}

// The trial of a file that is not a program, or of a program that does not answer as expected, ends soon and takes
// little memory.
func TestTryOthers(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	testkit.Must(t, unix.Mkfifo(fifo, 0o700))
	if p, err := Open(fifo); err == nil {
		t.Errorf("a named pipe was opened: %v", p)
	}
	for name, tt := range map[string]struct{ script, says string }{
		"it talks without an end": {"exec yes", "signal: broken pipe"},
		"it leaves a child":       {"echo 'holdfast: can go on: x'; sleep 5 &", "WaitDelay expired"},
		"it has left, and failed": {"sleep 5 & exit 3", "exit status 3"},
	} {
		path := filepath.Join(dir, "script")
		testkit.Must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o700))
		p, err := Open(path)
		testkit.Must(t, err)
		defer p.Close()
		if _, err := p.Try(t.Context(), nil, nil, nil); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Invalid inheritances are refused, because any process may set the environment.
func TestInheritedNonsense(t *testing.T) {
	for _, value := range []string{"", "x", "-1", "2", "1000000"} {
		t.Setenv(inheritEnv, value)
		if _, _, ok, err := Inherited(); !ok || err == nil {
			t.Errorf("%q: %v, %v", value, ok, err)
		}
		if _, there := os.LookupEnv(inheritEnv); there {
			t.Errorf("%q stays", value)
		}
	}
}

func fdsOf(t *testing.T, files ...*os.File) []int {
	t.Helper()
	fds, err := numbers(files)
	testkit.Must(t, err)
	return fds
}
