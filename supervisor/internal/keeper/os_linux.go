package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

func becomeReaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// programOf is a descriptor of what a process runs, even if its path is gone.
func programOf(pid int) int {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/exe", pid), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	// Above all that a child gets for its own.
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return 0
	}
	return high
}

func programPath(fd int, _ string) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("keeper", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "keeper"), nil
}

// nameProcess: what was started by a descriptor is named by its number.
func nameProcess() {
	os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
}

// raiseFiles sets the limit past package syscall, which would forget what limit
// children are to start with.
func raiseFiles(limit unix.Rlimit) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("prlimit", errno)
	}
	return nil
}
