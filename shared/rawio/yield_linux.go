package rawio

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// bell returns an eventfd that only Yield uses, or nil if the system has no free descriptor.
var bell = sync.OnceValue(func() syscall.RawConn {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil
	}
	raw, err := os.NewFile(uintptr(fd), "rawio-bell").SyscallConn()
	if err != nil {
		return nil
	}
	return raw
})

// ringing is held by the one goroutine that waits for the bell.
var ringing sync.Mutex

// Yield parks the caller until the scheduler has asked the netpoller for ready descriptors. The
// scheduler asks by itself only if no goroutine can run, or every 10 ms. A loop that always
// finds more data would therefore delay all other goroutines by so long.
//
// Yield writes to an eventfd and waits until the netpoller reports it as readable. Other
// goroutines that call Yield in the meantime wait for the mutex, so that no goroutine can run
// and the scheduler asks the netpoller.
func Yield() {
	raw := bell()
	if raw == nil {
		return
	}
	ringing.Lock()
	defer ringing.Unlock()
	rung := false
	one := binary.NativeEndian.AppendUint64(nil, 1)
	_ = raw.Read(func(fd uintptr) bool { // raw.Read fails only if the descriptor is closed, and the bell is never closed
		if !rung {
			rung = true
			_, err := Write(fd, one)
			return err != nil
		}
		_, _ = Read(fd, one)
		return true
	})
}
