//go:build unix

package logging

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// full limits the size of each file until the returned function is called, as a full disk does.
func full(t *testing.T, size uint64) (end func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var was unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	set := func(l unix.Rlimit) {
		testkit.Must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &l))
	}
	set(unix.Rlimit{Cur: size, Max: was.Max})
	return func() { set(was) }
}

// If a full disk has truncated a line, the next line must begin on a new line, also after a restart of the
// process.
func TestTornLine(t *testing.T) {
	const before, torn = "before\n", "torn line\n"
	for _, fits := range []int{0, 1, 5} { // bytes of the torn line that fit
		for _, reopened := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "p.log")
			r, err := openRotated(path, 1<<20, 1)
			testkit.Must(t, err)
			defer func() { _ = r.Close() }()
			if _, err := r.Write([]byte(before)); err != nil {
				t.Fatal(err)
			}
			end := full(t, uint64(len(before)+fits))
			for range 2 { // the second time there is no room for the end of the line either
				if n, err := r.Write([]byte(torn)); err == nil || n > fits {
					t.Errorf("%d bytes of a torn line are written, %v", n, err)
				}
			}
			end()
			if reopened {
				testkit.Must(t, r.Close())
				if r, err = openRotated(path, 1<<20, 1); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.Write([]byte("after\n")); err != nil {
				t.Fatal(err)
			}
			want := before + "after\n"
			if fits > 0 {
				want = before + torn[:fits] + "\nafter\n"
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("%d bytes fit, reopened %v: %q, %v, want %q", fits, reopened, got, err, want)
			}
		}
	}
}
