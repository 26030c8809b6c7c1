//go:build linux

package ring

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	creack "github.com/creack/pty"
	"golang.org/x/sys/unix"

	"holdfast/shared/machine"
	"holdfast/shared/testkit"
)

// kills is the number of owners of a ring that are killed in a row.
const kills = 200

// TestKilled checks that no byte is lost or doubled if processes that read a terminal into a ring are killed one
// after the other. Each adopts the ring where the one before it died.
func TestKilled(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func(testing.TB) (from, to *os.File)
		n    int
	}{
		{"terminal", openTerminal, kills},
		{"pipe", openPipe, kills / 4}, // returns up to 64 KiB per read(2)
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := tt.n
			if testing.Short() {
				n /= 10
			}
			killReaders(t, n, tt.open)
		})
	}
}

func killReaders(t *testing.T, n int, open func(testing.TB) (from, to *os.File)) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	from, to := open(t)
	printer := startPrinting(to)
	defer printer.end()
	defer from.Close() // before printer.end, because a printer ends if its output has no reader any more
	file := handOn(t, newRing(t, DefaultBytes))
	defer file.Close()
	rescues, bytes := 0, 0
	for range n {
		r := startReader(t, file, from, rnd.Uint64())
		if rnd.IntN(8) > 0 { // otherwise the reader may be killed before it has adopted the ring
			rescued := r.ready()
			rescues, bytes = rescues+min(rescued, 1), bytes+rescued
			time.Sleep(time.Duration(rnd.IntN(int(3 * time.Millisecond)))) // kills at a random moment
		}
		r.kill()
	}
	last := startReader(t, file, from, 0)
	rescued := last.ready()
	printer.stop.Store(true)
	last.wait()
	total := printer.end()
	r, _, err := Adopt(handOnFile(t, file))
	testkit.Must(t, err)
	defer r.Close()
	start, end, finished := r.Bounds()
	if end != total || !finished {
		t.Errorf("%d bytes in the ring, finished %v; want %d, true", end, finished, total)
	}
	if err := checkPrinted(r, start, end); err != nil {
		t.Error(err)
	}
	t.Logf("%d killed, %d bytes read, %d of them rescued after %d reads", n, end, bytes+rescued, rescues)
	if rescues == 0 {
		t.Error("no reader died between a read and its commit, so the test shows nothing")
	}
}

func openTerminal(t testing.TB) (from, to *os.File) {
	master, slave, err := creack.Open()
	testkit.Must(t, err)
	mode, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	testkit.Must(t, err)
	mode.Oflag &^= unix.OPOST
	testkit.Must(t, unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, mode))
	return master, slave
}

func openPipe(t testing.TB) (from, to *os.File) {
	from, to, err := os.Pipe()
	testkit.Must(t, err)
	return from, to
}

func handOnFile(t testing.TB, f *os.File) *os.File {
	dup, err := machine.Duplicate(f, f.Name())
	testkit.Must(t, err)
	return dup
}
