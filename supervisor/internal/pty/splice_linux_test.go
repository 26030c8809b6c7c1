package pty

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// pipe returns the ends of a nonblocking pipe.
func pipe(t testing.TB) (out, in int) {
	t.Helper()
	var ends [2]int
	testkit.Must(t, unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
	t.Cleanup(func() { _ = errors.Join(unix.Close(ends[0]), unix.Close(ends[1])) })
	return ends[0], ends[1]
}

func left(t *testing.T, pipe int) int {
	t.Helper()
	n, err := unix.IoctlGetInt(pipe, unix.TIOCINQ)
	testkit.Must(t, err)
	return n
}

// fillUp writes until the terminal, which has no reader, is full.
func fillUp(t *testing.T, p *PTY, out, in int) {
	t.Helper()
	for {
		_, err := unix.Write(in, bytes.Repeat([]byte("x"), 4096))
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		before := left(t, out)
		n, err := p.SpliceFrom(uintptr(out), before)
		if now := left(t, out); err != nil || now != before-n {
			t.Fatalf("spliced %d, %v; %d of %d bytes are left", n, err, now, before)
		}
		if n < before {
			return
		}
	}
}

// All bytes of a pipe arrive. The test waits while the terminal is full. The pipe always has exactly the bytes that
// were not written.
func TestSpliceFrom(t *testing.T) {
	const total = 1_000_000
	bothWays(t, func(t *testing.T, start func(string) *PTY) {
		p := start("stty raw -echo; echo READY; head -c 1000000 | cksum; echo ended")
		out, in := pipe(t)
		if n, err := p.SpliceFrom(uintptr(out), 100); n != 0 || err != nil {
			t.Errorf("an empty pipe: %d, %v", n, err)
		}
		text, waits := bytes.Repeat([]byte("0123456789abcdef"), total/16), 0
		for rest := text; len(rest) > 0 || left(t, out) > 0; {
			if n, err := unix.Write(in, rest); err == nil { // the pipe may be full
				rest = rest[n:]
			}
			before := left(t, out)
			n, err := p.SpliceFrom(uintptr(out), before)
			if now := left(t, out); err != nil || now != before-n {
				t.Fatalf("spliced %d, %v; %d of %d bytes are left", n, err, now, before)
			}
			if n < before {
				waits++
				testkit.Must(t, p.AwaitWritable())
			}
		}
		t.Logf("waited %d times", waits)
		until(t, p, fmt.Sprintf("%d %d", cksum(text), total))
		until(t, p, "ended")
	})
}

func cksum(p []byte) uint32 {
	crc := uint32(0)
	add := func(b byte) {
		crc ^= uint32(b) << 24
		for range 8 {
			if crc&(1<<31) != 0 {
				crc = crc<<1 ^ 0x04c11db7
			} else {
				crc <<= 1
			}
		}
	}
	for _, b := range p {
		add(b)
	}
	for n := len(p); n > 0; n >>= 8 {
		add(byte(n))
	}
	return ^crc
}

// A terminal that is full and that no process reads or has open is not writable. The wait ends at the deadline and at
// Close.
func TestAwaitWritable(t *testing.T) {
	for _, code := range []string{"stty raw -echo; echo READY; exec sleep 1000", "stty raw -echo; echo READY; read -rn 1; exit"} {
		t.Run(code, func(t *testing.T) {
			bothWays(t, func(t *testing.T, start func(string) *PTY) {
				p := start(code)
				testkit.Must(t, p.AwaitWritable())
				out, in := pipe(t)
				if code[len(code)-4:] == "exit" {
					if _, err := p.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
					<-p.Done()
					for {
						if _, err := p.Read(make([]byte, 100)); err == io.EOF {
							break
						}
					}
				}
				var err error
				for err == nil { // the kernel may still move bytes between its own buffers
					fillUp(t, p, out, in)
					testkit.Must(t, p.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
					err = p.AwaitWritable()
				}
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %v, want the deadline", err)
				}
				testkit.Must(t, p.SetWriteDeadline(never))
				ended := make(chan error)
				go func() {
					var err error
					for err == nil { // the kernel may have found more room since
						err = p.AwaitWritable()
					}
					ended <- err
				}()
				testkit.Must(t, p.Close())
				select {
				case err := <-ended:
					if !errors.Is(err, os.ErrClosed) {
						t.Errorf("got %v, want os.ErrClosed", err)
					}
				case <-time.After(patience):
					t.Error("Close does not end the wait")
				}
				if n, err := p.SpliceFrom(uintptr(out), 1); n != 0 || !errors.Is(err, os.ErrClosed) {
					t.Errorf("got %d, %v, want os.ErrClosed", n, err)
				}
			})
		})
	}
}
