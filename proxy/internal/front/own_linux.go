package front

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"holdfast/shared/rawio"
)

// own returns a reader and writer of the terminal f with a description of its own, which is nonblocking. The description of f
// itself is shared with the shell, which expects blocking reads. A blocking read occupies a thread, whose
// wake-up costs a key and its echo some 70 of 350 µs. If the terminal cannot be opened again, for example because it
// belongs to another user, or if f is no terminal, own returns f.
func own(f *os.File) io.ReadWriter {
	if !IsTerminal(f) {
		return f
	}
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return f
	}
	return rawio.File(again)
}
