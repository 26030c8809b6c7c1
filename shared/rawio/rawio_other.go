//go:build !linux

package rawio

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
)

// Read calls read(2) once, with a report to the scheduler, because only Linux guarantees that a
// program may make system calls directly.
func Read(fd uintptr, p []byte) (int, error) {
	return again(func() (int, error) { return sysRead(fd, p) })
}

// Write calls write(2) once, with a report to the scheduler like Read.
func Write(fd uintptr, p []byte) (int, error) {
	return again(func() (int, error) { return sysWrite(fd, p) })
}

// again repeats a call that a signal has interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return max(0, n), err
		}
	}
}

// Conn returns c unchanged, because raw system calls exist only on Linux.
func Conn(c net.Conn) net.Conn { return c }

// File returns f unchanged, for the same reason.
func File(f *os.File) io.ReadWriter { return f }

// Yield lets other goroutines run. That suffices, because the scheduler knows of every call.
func Yield() { runtime.Gosched() }
