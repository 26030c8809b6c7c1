//go:build unix

package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/shared/machine"
)

// makeReport makes a named pipe for the report of a successor, and opens it. A successor of any release
// opens it by its name like a file. The report needs no room on the disk, so that a full disk does not hide
// that the successor serves. A pipe has its name only while a process reads it, because another command could otherwise
// take it for that of a command that was killed.
func makeReport(path string) (*os.File, error) {
	draft := filepath.Join(filepath.Dir(path), machine.TemporaryPrefix+filepath.Base(path))
	if err := unix.Mkfifo(draft, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: draft, Err: err}
	}
	reader, err := os.OpenFile(draft, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		_ = os.Remove(draft)
		return nil, err
	}
	defer func() { _ = reader.Close() }() // the second open is the reader
	if err := os.Rename(draft, path); err != nil {
		_ = os.Remove(draft)
		return nil, err
	}
	// Opened for writing as well, the pipe never ends, and a successor can always open it.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return f, nil
}

// removeReports removes the pipes of reports that no process reads, because the command that made them was killed.
func removeReports(dir string) {
	entries, _ := os.ReadDir(dir) // makeReport reports the error
	for _, e := range entries {
		isReport := strings.Contains(e.Name(), reportInfix) && !strings.HasPrefix(e.Name(), machine.TemporaryPrefix)
		if !isReport || e.Type() != fs.ModeNamedPipe {
			continue
		}
		path := filepath.Join(dir, e.Name())
		f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if errors.Is(err, unix.ENXIO) { // no reader
			_ = os.Remove(path) // if it stays, it does no harm
		} else if err == nil {
			_ = f.Close() // nothing was written
		}
	}
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
