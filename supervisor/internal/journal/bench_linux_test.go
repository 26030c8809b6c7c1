package journal

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
)

// sink starts a terminal whose child reads and prints nothing.
func sink(tb testing.TB) *pty.PTY {
	tb.Helper()
	p, err := pty.Start(pty.Spec{
		Argv: []string{"sh", "-c", "stty raw -echo; echo; exec cat >/dev/null"}, Env: []string{"PATH=" + os.Getenv("PATH")}, Cols: 80, Rows: 24,
	})
	testkit.Must(tb, err)
	tb.Cleanup(func() {
		p.Hangup(unix.SIGKILL, 0)
		_ = p.Close()
	})
	if _, err := p.Read(make([]byte, 100)); err != nil { // waits until the terminal is raw
		tb.Fatal(err)
	}
	return p
}

// BenchmarkType measures a keystroke through the journal. It must cost less than 3 µs more than a plain write(2), and
// allocate nothing.
func BenchmarkType(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		key := make([]byte, size)
		b.Run(fmt.Sprintf("%dB/write", size), func(b *testing.B) {
			p := sink(b)
			b.ReportAllocs()
			for b.Loop() {
				if n, err := p.TryWrite(key); err != nil || n < size {
					await(b, p, err)
				}
			}
		})
		b.Run(fmt.Sprintf("%dB/journal", size), func(b *testing.B) {
			p, l := sink(b), newLife(b, 0)
			b.ReportAllocs()
			var at uint64
			for b.Loop() {
				accepted, _, err := l.j.Accept("writer", at, key)
				testkit.Must(b, err)
				at = accepted
				for done := false; !done; {
					if done, err = l.j.Flush(p); err != nil || !done {
						await(b, p, err)
					}
				}
			}
		})
	}
}

func await(b *testing.B, p *pty.PTY, err error) {
	if err == nil {
		err = p.AwaitWritable()
	}
	testkit.Must(b, err)
}

// BenchmarkPaste measures five megabytes that have to wait. They must be written about as fast as by write(2).
func BenchmarkPaste(b *testing.B) {
	paste := make([]byte, aPaste)
	b.Run("write", func(b *testing.B) {
		p := sink(b)
		b.SetBytes(aPaste)
		for b.Loop() {
			if _, err := p.Write(paste); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("journal", func(b *testing.B) {
		p, l := sink(b), newLife(b, 0)
		b.SetBytes(aPaste)
		for b.Loop() {
			if n, err := l.j.Append(paste); n != len(paste) || err != nil {
				b.Fatal(n, err)
			}
			for done, err := false, error(nil); !done; {
				if done, err = l.j.Flush(p); err != nil || !done {
					await(b, p, err)
				}
			}
		}
	})
}

// BenchmarkAccept measures the journal without a terminal.
func BenchmarkAccept(b *testing.B) {
	l := newLife(b, 0)
	m := &nowhere{p: make([]byte, pipeBytes)}
	key := []byte{'x'}
	b.ReportAllocs()
	var at uint64
	for b.Loop() {
		at, _, _ = l.j.Accept("writer", at, key)
		if done, err := l.j.Flush(m); !done || err != nil {
			b.Fatal(done, err)
		}
	}
}

type nowhere struct{ p []byte }

func (m *nowhere) SpliceFrom(pipe uintptr, n int) (int, error) {
	return n, readPipe(int(pipe), m.p[:n])
}
func (m *nowhere) TryWrite(p []byte) (int, error) { return len(p), nil }
