//go:build linux

package ring

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A reader is a process that owns a ring and reads into it.
type reader struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *bufio.Reader
	stderr strings.Builder
}

func startReader(t *testing.T, ring, from *os.File, seed uint64) *reader {
	t.Helper()
	r := &reader{t: t, cmd: exec.Command(os.Args[0])}
	r.cmd.Env = append(os.Environ(), "RING_TEST_ROLE=reader", "RING_TEST_SEED="+strconv.FormatUint(seed, 10))
	r.cmd.ExtraFiles = []*os.File{ring, from}
	r.cmd.Stderr = &r.stderr
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.out = bufio.NewReader(out)
	return r
}

// ready waits until the process owns the ring, and returns how many bytes it rescued.
func (r *reader) ready() (rescued int) {
	r.t.Helper()
	if _, err := fmt.Fscan(r.out, &rescued); err != nil {
		r.kill()
		r.t.Fatalf("the reader is not ready: %v", err)
	}
	return rescued
}

func (r *reader) kill() {
	r.t.Helper()
	_ = r.cmd.Process.Kill()
	err := r.cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		r.t.Fatalf("the reader was not killed: %v\n%s", err, &r.stderr)
	}
}

func (r *reader) wait() {
	r.t.Helper()
	if err := r.cmd.Wait(); err != nil {
		r.t.Fatalf("the reader: %v\n%s", err, &r.stderr)
	}
}

// packs packs the ring all the time, and reads old output, which unpacks it. It may die at any instant of both.
func packs(r *Ring, rnd *rand.Rand) {
	for {
		r.Pack()
		start, end, _ := r.Bounds()
		from := start + rnd.Uint64N(end-start+1)
		if err := checkPrinted(r, from, min(end, from+uint64(rnd.IntN(2*blockBytes)))); err != nil && !errors.Is(err, ErrGone) {
			fmt.Fprintln(os.Stderr, "packed:", err)
			os.Exit(1)
		}
	}
}

// readerRole reads into the ring as a session's reader does, and waits before each commit.
func readerRole() error {
	seed, err := strconv.ParseUint(os.Getenv("RING_TEST_SEED"), 10, 64)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	r, rescued, err := Adopt(os.NewFile(3, "ring"))
	if err != nil {
		return err
	}
	_, end, _ := r.Bounds()
	if err := checkPrinted(r, end-uint64(rescued), end); err != nil {
		return fmt.Errorf("rescued: %w", err)
	}
	fmt.Println(rescued)
	if rnd.IntN(2) == 0 {
		go packs(r, rand.New(rand.NewPCG(seed, 2)))
	}
	for {
		for room := r.Reserve(); len(room) > 0; {
			n, err := unix.Read(4, room)
			if n == 0 || errors.Is(err, unix.EIO) {
				r.Finish()
				return nil
			}
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return err
			}
			for until := time.Now().Add(time.Duration(rnd.IntN(30)) * time.Microsecond); time.Now().Before(until); {
			}
			_, at, _ := r.Bounds()
			if err := checkBytes(room[:n], at); err != nil { // before Commit, because the block may be packed after it
				return fmt.Errorf("read: %w", err)
			}
			r.Commit(n)
			room = room[n:]
		}
	}
}
