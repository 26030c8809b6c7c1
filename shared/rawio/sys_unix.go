//go:build unix && !linux

package rawio

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Read calls read(2) once, with a report to the scheduler, because only Linux guarantees that a
// program may make system calls directly.
func Read(fd uintptr, p []byte) (int, error) {
	return again(func() (int, error) { return unix.Read(int(fd), p) })
}

// Write calls write(2) once, with a report to the scheduler like Read.
func Write(fd uintptr, p []byte) (int, error) {
	return again(func() (int, error) { return unix.Write(int(fd), p) })
}

// again repeats a call that a signal has interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return max(0, n), err
		}
	}
}
