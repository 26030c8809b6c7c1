//go:build unix

package rawio_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/rawio"
	"holdfast/shared/testkit"
)

// pair returns the two ends of a Unix socket, the first one as a raw connection.
func pair(t *testing.T) (raw, plain net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "raw")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	testkit.Must(t, err)
	defer ln.Close()
	a, err := net.Dial("unix", ln.Addr().String())
	testkit.Must(t, err)
	b, err := ln.Accept()
	testkit.Must(t, err)
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return rawio.Conn(a), b
}

// All written bytes must arrive, in both directions at the same time, even if they are more than a socket's
// buffer holds.
func TestBothWays(t *testing.T) {
	raw, plain := pair(t)
	seed := rand.Uint64()
	data := make([]byte, 3<<20)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range data {
		data[i] = byte(rnd.Uint32())
	}
	for _, c := range []net.Conn{raw, plain} {
		go func() {
			if n, err := c.Write(data); n != len(data) || err != nil {
				t.Errorf("seed %d: wrote %d of %d, %v", seed, n, len(data), err)
			}
		}()
	}
	got := make(chan []byte)
	for _, c := range []net.Conn{raw, plain} {
		go func() {
			b := make([]byte, len(data))
			_, err := io.ReadFull(c, b)
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			got <- b
		}()
	}
	for range 2 {
		if b := <-got; !bytes.Equal(b, data) {
			t.Errorf("seed %d: the received bytes differ from the sent ones", seed)
		}
	}
}

func TestEnds(t *testing.T) {
	t.Run("EOF", func(t *testing.T) {
		raw, plain := pair(t)
		_ = plain.Close()
		if n, err := raw.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("Read = %d, %v; want EOF", n, err)
		}
		if _, err := raw.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write = %v, want EPIPE", err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		raw, _ := pair(t)
		_ = raw.SetDeadline(time.Now().Add(time.Millisecond))
		if _, err := raw.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %v, want the deadline's error", err)
		}
		n, err := raw.Write(make([]byte, 16<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write = %d, %v; want the deadline's error", n, err)
		}
	})
	t.Run("close", func(t *testing.T) {
		raw, _ := pair(t)
		done := make(chan error)
		go func() {
			_, err := raw.Read(make([]byte, 1))
			done <- err
		}()
		_ = raw.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read = %v, want net.ErrClosed", err)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		raw, _ := pair(t)
		if n, err := raw.Read(nil); n != 0 || err != nil {
			t.Errorf("Read(nil) = %d, %v", n, err)
		}
	})
}

// Conn must return a connection without a descriptor unchanged.
func TestPipe(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	defer a.Close()
	if rawio.Conn(a) != a {
		t.Error("net.Pipe was wrapped")
	}
}

// A file that the netpoller knows must be read and written like any other file. File must return a regular file unchanged.
func TestFile(t *testing.T) {
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	defer r.Close()
	wrote := make(chan error, 1)
	sent := bytes.Repeat([]byte("0123456789"), 100_000) // more than the pipe holds
	go func() {
		_, err := rawio.File(w).Write(sent)
		_ = w.Close()
		wrote <- err
	}()
	got, err := io.ReadAll(rawio.File(r))
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("read %d bytes, %v; want the %d bytes that were written", len(got), err, len(sent))
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	regular, err := os.Create(filepath.Join(t.TempDir(), "f"))
	testkit.Must(t, err)
	defer regular.Close()
	if rawio.File(regular) != io.ReadWriter(regular) {
		t.Error("a regular file was wrapped")
	}
}
