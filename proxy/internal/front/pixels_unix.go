//go:build linux || darwin

package front

import (
	"os"
	"syscall"
	"unsafe"
)

// cellPixels returns the size of a terminal's cells in pixels, or 0 and 0 if the terminal does not
// report it.
func cellPixels(f *os.File) (width, height int) {
	var size struct{ rows, cols, width, height uint16 }
	_, _, err := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if err != 0 || size.rows == 0 || size.cols == 0 {
		return 0, 0
	}
	return int(size.width) / int(size.cols), int(size.height) / int(size.rows)
}
