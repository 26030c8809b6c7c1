//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// makeReport makes a named pipe for the report of a successor, and opens it. A successor of any release
// opens it by its name like a file. The report needs no room on the disk, so that a full disk does not hide
// that the successor serves.
func makeReport(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	// Opened for writing as well, the pipe never ends, and a successor can always open it.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return f, nil
}

// readReport returns the bytes that are in the pipe. It does not wait.
func readReport(f *os.File) []byte {
	var all []byte
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { // it fails only if f is closed
		buf := make([]byte, 4<<10)
		for {
			n, err := unix.Read(int(fd), buf)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return
			}
			all = append(all, buf[:n]...)
		}
	})
	return all
}
