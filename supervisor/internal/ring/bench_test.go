//go:build linux

package ring

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
)

// BenchmarkWrite measures a flood without the kernel's copy, in pieces as a terminal returns them.
func BenchmarkWrite(b *testing.B) {
	for _, piece := range []int{100, 4095} {
		b.Run(fmt.Sprintf("%dB", piece), func(b *testing.B) {
			r := newRing(b, DefaultBytes)
			line := bytes.Repeat([]byte("x"), piece)
			var room []byte
			b.SetBytes(int64(piece))
			b.ReportAllocs()
			for b.Loop() {
				if len(room) < piece {
					room = r.Reserve()
				}
				n := copy(room, line)
				r.Commit(n)
				room = room[n:]
			}
		})
	}
}

// BenchmarkRead measures the same with a read(2) for each piece, from a pipe, whose read(2) is the cheapest.
func BenchmarkRead(b *testing.B) {
	from, to, err := os.Pipe()
	testkit.Must(b, err)
	defer from.Close()
	defer to.Close()
	r := newRing(b, DefaultBytes)
	in, out := int(from.Fd()), int(to.Fd())
	piece := make([]byte, 4095)
	var room []byte
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		if len(room) == 0 {
			room = r.Reserve()
		}
		if _, err := unix.Write(out, piece[:min(len(piece), len(room))]); err != nil {
			b.Fatal(err)
		}
		n, err := unix.Read(in, room)
		testkit.Must(b, err)
		r.Commit(n)
		room = room[n:]
	}
}

// BenchmarkDrain reads a terminal into a ring as a session does.
func BenchmarkDrain(b *testing.B) {
	name := filepath.Join(b.TempDir(), "big")
	data := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog, again and again and again.\n"), 1<<20)
	testkit.Must(b, os.WriteFile(name, data, 0o600))
	spec := pty.Spec{
		Argv: []string{"sh", "-c", "stty raw; exec cat " + name}, Env: []string{"PATH=" + os.Getenv("PATH")},
		Cols: 80, Rows: 24,
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	cpu := cpuTime(b)
	for b.Loop() {
		r := newRing(b, DefaultBytes)
		p, err := pty.Start(spec)
		testkit.Must(b, err)
		for err == nil {
			_, err = p.ReadEach(r, func(n int) { r.Commit(n) })
			r.Wake()
		}
		p.Hangup(syscall.SIGKILL, 0)
		if _, end, _ := r.Bounds(); end != uint64(len(data)) {
			b.Fatalf("%d bytes, want %d", end, len(data))
		}
		_ = p.Close()
	}
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N*len(data)), "own-cpu-ns/B")
}

func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	testkit.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
