package testkit

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// ReadOnly calls f on a thread for which dir is an empty directory of mode 0700 on a read-only file system. Only root can mount
// one; for others, ReadOnly logs that, and does not call f.
func ReadOnly(t testing.TB, dir string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread with its own mounts ends with this goroutine
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
		}
		if err == nil {
			err = unix.Mount("none", dir, "tmpfs", unix.MS_RDONLY, "mode=700")
		}
		if err != nil {
			t.Logf("only root can mount a file system: %v", err)
			return
		}
		f()
	}()
	<-done
}
