package rawio

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// bell is a descriptor that is rung and answered by the netpoller alone.
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

var ringing sync.Mutex

// Yield parks the caller until the netpoller has been asked what is ready. The
// scheduler does that by itself only where nothing else can run, or every
// 10 ms: a loop that always finds more to read would let everybody else wait
// for so long. Others that want to yield meanwhile are parked here, so that
// nothing else can run.
func Yield() {
	raw := bell()
	if raw == nil {
		return
	}
	ringing.Lock()
	defer ringing.Unlock()
	rung := false
	one := binary.NativeEndian.AppendUint64(nil, 1)
	_ = raw.Read(func(fd uintptr) bool { // fails only for what is closed, and this is not
		if !rung {
			rung = true
			_, err := Write(fd, one)
			return err != nil
		}
		_, _ = Read(fd, one)
		return true
	})
}
