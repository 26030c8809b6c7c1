//go:build linux || darwin

package pty

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// bothWays runs a test on the netpoller and on its replacement.
func bothWays(t *testing.T, test func(t *testing.T, start func(code string) *PTY)) {
	for _, polled := range []bool{true, false} {
		t.Run(fmt.Sprintf("polled=%v", polled), func(t *testing.T) {
			test(t, func(code string) *PTY {
				p := run(t, script(code))
				if !p.isPolled {
					t.Fatal("the terminal is not on the netpoller")
				}
				p.isPolled = polled
				until(t, p, "READY")
				return p
			})
		})
	}
}

// All output that was printed before the end is read before the EOF.
// demand: M13
func TestReadToEnd(t *testing.T) {
	bothWays(t, func(t *testing.T, start func(string) *PTY) {
		p := start("echo READY; seq 1 30000; printf 'last words'; exit 3")
		var want strings.Builder
		want.WriteByte('\n')
		for i := range 30000 {
			fmt.Fprintln(&want, i+1)
		}
		want.WriteString("last words")
		if got := rest(t, p); got != want.String() {
			t.Errorf("got %d bytes ending in %q, want %d", len(got), got[max(0, len(got)-20):], want.Len())
		}
		if n, err := p.Read(make([]byte, 8)); n != 0 || err != io.EOF {
			t.Errorf("after the end: got %d, %v, want EOF again", n, err)
		}
		if got := ended(t, p); got.Code != 3 {
			t.Errorf("got %+v, want code 3", got)
		}
	})
}

// One Read returns the output of several writes of the child.
func TestReadBatch(t *testing.T) {
	p := bash(t, "stty raw; echo READY; head -c 6000 /dev/zero; kill -STOP $$")
	until(t, p, "\n")
	stopped(t, p)
	n, err := p.Read(make([]byte, 64<<10))
	if n != 6000 || err != nil {
		t.Errorf("got %d bytes, %v, want 6000 at once", n, err)
	}
}

// A deadline ends a Read that waits. The next Read returns the error before it reads.
func TestReadDeadline(t *testing.T) {
	bothWays(t, func(t *testing.T, start func(string) *PTY) {
		p := start("echo READY; read line; echo got $line; exec sleep 1000")
		until(t, p, "\n")
		testkit.Must(t, p.SetReadDeadline(never))
		result := make(chan error)
		go func() { _, err := p.Read(make([]byte, 8)); result <- err }()
		testkit.Must(t, p.SetReadDeadline(time.Now()))
		if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the waiting Read: got %v, want the deadline", err)
		}
		if _, err := p.Write([]byte("it\n")); err != nil {
			t.Fatal(err)
		}
		if n, err := p.Read(make([]byte, 8)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the next Read: got %d, %v, want the deadline", n, err)
		}
		until(t, p, "it\r\ngot it")
	})
}

func TestReadClose(t *testing.T) {
	bothWays(t, func(t *testing.T, start func(string) *PTY) {
		p := start("echo READY; exec sleep 1000")
		until(t, p, "\n")
		result := make(chan error)
		go func() { _, err := p.Read(make([]byte, 8)); result <- err }()
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
		if err := <-result; !errors.Is(err, os.ErrClosed) {
			t.Errorf("got %v, want closed", err)
		}
		_, err := p.TryWrite([]byte("x"))
		if !errors.Is(err, os.ErrClosed) || !errors.Is(p.Resize(1, 1, 0, 0), os.ErrClosed) || !errors.Is(p.Interrupt(), os.ErrClosed) {
			t.Errorf("after Close: got %v, want closed", err)
		}
	})
}

// TryWrite for a child that does not read writes the bytes that fit, and then none.
func TestTryWrite(t *testing.T) {
	p := bash(t, "stty raw -echo; echo READY; exec sleep 1000")
	data := make([]byte, 1<<20)
	for sent := 0; ; {
		n, err := p.TryWrite(data[sent:])
		if sent += n; err != nil || sent == len(data) {
			t.Fatalf("after %d of %d bytes: %v", sent, len(data), err)
		}
		if n == 0 {
			t.Logf("the kernel accepted %d bytes", sent)
			return
		}
	}
}

// TryWrite does not wait for a Write that waits, and ignores the deadline of Write.
func TestTryWriteNeverWaits(t *testing.T) {
	p := bash(t, fmt.Sprintf(slowReader, 1))
	data := make([]byte, 1<<20)
	result := blockedWrite(t, p, data)
	if n, err := p.TryWrite(data); n == len(data) || err != nil {
		t.Errorf("beside a Write: got %d, %v, want some and no error", n, err)
	}
	testkit.Must(t, p.SetWriteDeadline(time.Now()))
	<-result
	if n, err := p.TryWrite(data); n == len(data) || err != nil {
		t.Errorf("after the deadline: got %d, %v, want some and no error", n, err)
	}
}

// slowReader reads one byte and stops itself. After it is continued, it prints the checksum of the next bytes.
const slowReader = "stty raw -echo; echo READY; head -c 1 >/dev/null; kill -STOP $$; head -c %d | sha256sum"

// blockedWrite returns when a Write to a slowReader has begun and cannot end.
func blockedWrite(t *testing.T, p *PTY, data []byte) <-chan wrote {
	t.Helper()
	result := make(chan wrote, 1)
	go func() {
		n, err := p.Write(data)
		result <- wrote{n, err}
	}()
	stopped(t, p)
	return result
}

type wrote struct {
	n   int
	err error
}

// A Write that a deadline ends returns how many bytes it has written. If the caller continues there, the child reads
// every byte once.
func TestWriteDeadline(t *testing.T) {
	bothWays(t, func(t *testing.T, start func(string) *PTY) {
		data := make([]byte, 300_000)
		for i := range data {
			data[i] = byte(i >> 8)
		}
		p := start(fmt.Sprintf(slowReader, len(data)-1))
		result := blockedWrite(t, p, data)
		testkit.Must(t, p.SetWriteDeadline(time.Now()))
		got := <-result
		if !errors.Is(got.err, os.ErrDeadlineExceeded) || got.n == 0 || got.n == len(data) {
			t.Fatalf("wrote %d of %d bytes, %v, want some and the deadline", got.n, len(data), got.err)
		}
		testkit.Must(t, errors.Join(p.SetWriteDeadline(never), p.Signal(unix.SIGCONT)))
		more, err := p.Write(data[got.n:])
		if got.n+more != len(data) || err != nil {
			t.Fatalf("wrote %d, then %d of %d bytes, %v", got.n, more, len(data), err)
		}
		if got, want := rest(t, p), fmt.Sprintf("%x", sha256.Sum256(data[1:])); !strings.Contains(got, want) {
			t.Errorf("got %q, want sum %s", got, want)
		}
	})
}

func TestWriteClose(t *testing.T) {
	bothWays(t, func(t *testing.T, start func(string) *PTY) {
		p := start(fmt.Sprintf(slowReader, 1))
		result := blockedWrite(t, p, make([]byte, 1<<20))
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if got := <-result; !errors.Is(got.err, os.ErrClosed) || got.n == 0 {
			t.Errorf("wrote %d bytes, %v, want some and closed", got.n, got.err)
		}
	})
}

func TestResize(t *testing.T) {
	p := bash(t, "trap 'stty size; exit' WINCH; echo READY; while :; do read -t 1; done")
	if err := p.Resize(0, 5, 0, 0); !errors.Is(err, errBadSize) {
		t.Errorf("got %v, want an error for no columns", err)
	}
	testkit.Must(t, p.Resize(101, 33, 0, 0))
	if got := strings.TrimSpace(rest(t, p)); got != "33 101" {
		t.Errorf("got %q, want 33 101", got)
	}
}
