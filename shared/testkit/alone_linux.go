package testkit

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// aloneVariable names the test that runs alone in this process.
const aloneVariable = "HOLDFAST_TEST_ALONE"

// Alone runs the test a second time, alone in a process of its own, because the test changes a limit
// of its process. Alone returns true in that process. In the first process it returns false after the
// second has ended, and has failed t if the second has failed.
func Alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneVariable) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), aloneVariable+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// LimitFiles lets no file of this process grow beyond n bytes until the returned function is called.
// The limit stands for a full disk: a write stores a part of its bytes and then fails, with EFBIG. The
// test must be Alone.
func LimitFiles(t *testing.T, n uint64) (lift func()) {
	t.Helper()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ) // the signal would end the process
	var before syscall.Rlimit
	Must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	set := func(limit syscall.Rlimit) {
		t.Helper()
		Must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	}
	set(syscall.Rlimit{Cur: n, Max: before.Max})
	return func() { t.Helper(); set(before) }
}
