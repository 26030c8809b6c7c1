//go:build linux

package pty

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	creack "github.com/creack/pty"
	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// BenchmarkDrain checks that Read receives the output of a program that prints as fast as it can at least as fast as
// the plain reader of the PTY library, in fewer pieces and with less processor time.
func BenchmarkDrain(b *testing.B) {
	name := filepath.Join(b.TempDir(), "big")
	data := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog, again and again and again.\n"), 1<<19)
	testkit.Must(b, os.WriteFile(name, data, 0o600))
	for _, mode := range []string{"cooked", "raw"} {
		command := "cat " + name
		if mode == "raw" {
			command = "stty raw; exec " + command
		}
		b.Run(mode+"/plain", func(b *testing.B) { drain(b, len(data), func() io.ReadCloser { return plain(b, command) }) })
		b.Run(mode+"/ours", func(b *testing.B) { drain(b, len(data), func() io.ReadCloser { return run(b, script(command)) }) })
	}
}

func drain(b *testing.B, size int, open func() io.ReadCloser) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	buf := make([]byte, 64<<10)
	var reads, total int
	cpu := cpuTime(b)
	for b.Loop() {
		r := open()
		for {
			n, err := r.Read(buf)
			if total += n; err != nil {
				break
			}
			reads++
		}
		_ = r.Close()
	}
	b.ReportMetric(float64(total)/float64(reads), "B/read")
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(total), "own-cpu-ns/B")
}

func plain(b *testing.B, command string) io.ReadCloser {
	cmd := exec.Command("bash", "-c", command)
	master, err := creack.Start(cmd)
	testkit.Must(b, err)
	b.Cleanup(func() { _ = cmd.Wait() })
	return master
}

func cpuTime(b *testing.B) time.Duration {
	var usage unix.Rusage
	testkit.Must(b, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
