//go:build unix

package ring

import (
	"os"

	"holdfast/shared/machine"

	"golang.org/x/sys/unix"
)

// mapFile maps the first n bytes of a file, and makes it close-on-exec, because a program that
// passed it on through an exec had to clear that flag.
func mapFile(f *os.File, n int) (mem []byte, err error) {
	err = machine.Control(f, func(fd int) (err error) {
		unix.CloseOnExec(fd)
		mem, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return os.NewSyscallError("mmap", err)
	})
	return mem, err
}

func unmap(mem []byte) error { return os.NewSyscallError("munmap", unix.Munmap(mem)) }
