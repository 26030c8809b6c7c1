//go:build !linux

package rawio

import (
	"errors"
	"net"
	"runtime"
	"syscall"
)

// Read reads once into p, by way of the scheduler: only Linux promises that
// its system calls may be made directly.
func Read(fd uintptr, p []byte) (int, error) {
	return again(func() (int, error) { return sysRead(fd, p) })
}

// Write writes once from p, likewise.
func Write(fd uintptr, p []byte) (int, error) {
	return again(func() (int, error) { return sysWrite(fd, p) })
}

func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return max(0, n), err
		}
	}
}

// Conn returns c.
func Conn(c net.Conn) net.Conn { return c }

// Yield lets others run; the scheduler knows of every call.
func Yield() { runtime.Gosched() }
