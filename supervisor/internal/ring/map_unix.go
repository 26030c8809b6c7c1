//go:build unix

package ring

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the first n bytes of a file, and makes it close-on-exec, because a program that
// passed it on through an exec had to clear that flag.
func mapFile(f *os.File, n int) (mem []byte, err error) {
	err = control(f, func(fd uintptr) (err error) {
		unix.CloseOnExec(int(fd))
		mem, err = unix.Mmap(int(fd), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return os.NewSyscallError("mmap", err)
	})
	return mem, err
}

func unmap(mem []byte) error { return os.NewSyscallError("munmap", unix.Munmap(mem)) }

// control calls do with the file's descriptor, which stays open during the call.
func control(f *os.File, do func(fd uintptr) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if ctlErr := raw.Control(func(fd uintptr) { err = do(fd) }); ctlErr != nil {
		return ctlErr
	}
	return err
}
